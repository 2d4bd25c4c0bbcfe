//go:build unix

package launch_test

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
)

func ExampleLauncher_Run() {
	plan, err := placement.New(placement.Flags{Job: "j1", Protocol: "tcp"}, placement.Site{})
	if err != nil {
		fmt.Println(err)
		return
	}
	l, err := launch.New(launch.Config{
		Plan:    plan,
		Command: []string{"/bin/sh", "-c", "echo I am node $DITASK_NODE_ID; echo no luck >&2; exit 3"},
		Stdout:  os.Stdout, Stderr: io.Discard,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := l.Run(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Kind, result.ExitCode(), result.Nodes[0].Restarts)
	fmt.Println(result.First.Headline())
	// Output:
	// [0 #0] I am node 0
	// failure 3 0
	// node 0 failed: exit code 3
}
