package export_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/export"
	"github.com/ditask/ditask/policies/graph"
)

// A policy as an ONNX file.
func ExampleONNX() {
	policy := dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 4), Action: envs.Discrete{N: 2}})
	dir, err := os.MkdirTemp("", "export")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "policy.onnx")
	meta := export.Meta{Algorithm: "dqn", Env: "CartPole-v1"}
	err = export.WriteFile(path, func(w io.Writer) error { return export.ONNX(w, policy, meta) })
	file, _ := os.ReadFile(path)
	fmt.Println(bytes.Contains(file, []byte("CartPole-v1")), err)
	// Output: true <nil>
}

// A graph lists the operations of a policy, from which a program can write other formats.
func ExampleGraph() {
	policy := dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 4), Action: envs.Discrete{N: 2, Start: 1}, Hidden: []int{8}})
	g, err := export.Graph(policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range g.Nodes {
		if n.Op != graph.Constant {
			fmt.Println(n.Op, n.Shape)
		}
	}
	// Output:
	// Input [4]
	// Dense [8]
	// ReLU [8]
	// Dense [2]
	// ArgMax [1]
	// Reshape []
	// Offset []
}
