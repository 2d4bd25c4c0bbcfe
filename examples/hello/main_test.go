package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ditask/ditask/parallel"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Three nodes in this process: each receives the greetings of the two others.
func Example() {
	if err := parallel.Run(context.Background(), parallel.Config{Nodes: 3}, greet); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// hello from node 0
	// hello from node 0
	// hello from node 1
	// hello from node 1
	// hello from node 2
	// hello from node 2
}

// A node without peers greets no other node, and returns no error.
func Example_alone() {
	if err := parallel.Run(context.Background(), parallel.Config{}, greet); err != nil {
		fmt.Println(err)
	}
	// Output:
}

func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, code, _ := strings.Cut(string(program), "package main\n")
	if !strings.Contains(string(readme), "```go\npackage main\n"+code+"```\n") {
		t.Error("the program in README.md is not the one in examples/hello/main.go")
	}
}
