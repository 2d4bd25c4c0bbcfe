//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// writeRun prints the state that a node continues from and writes its checkpoint. In a folder
// with a file fail it fails then, once. If there is a pipe here, it writes
// to it when it runs, and continues when it can read from the pipe stay.
func writeRun(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	t.Use(task.Step(func(context.Context, *struct{}) error {
		name := filepath.Join(node.Dir(), fmt.Sprintf("checkpoint-%d.safetensors", node.ID()))
		_, err := os.Stat(name)
		fmt.Printf("node %d: resume=%v must=%v found=%v dir=%s\n", node.ID(), node.Resume(), node.MustResume(), err == nil, node.Dir())
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			return err
		}
		if _, err := os.Stat("here"); err == nil {
			if err := os.WriteFile("here", nil, 0o600); err != nil {
				return err
			}
			if _, err := os.ReadFile("stay"); err != nil {
				return err
			}
		}
		if os.Remove("fail") == nil {
			return fmt.Errorf("node %d was asked to fail", node.ID())
		}
		return nil
	}))
	return t.Run(ctx, task.MaxSteps(1), task.WaitForAll())
}
