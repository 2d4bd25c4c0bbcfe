package parallel_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

var (
	asked  = task.NewEvent[int]("number to square")
	square = task.NewEvent[int]("its square")
)

// squares asks on node 0 and answers on all others. The same function runs in the
// processes of a job, as parallel.Main(squares).
func squares(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	asked.On(t, func(ctx context.Context, v int) error {
		return square.Emit(ctx, t, v*v, task.To("node.0"))
	})
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		if node.ID() != 0 {
			return node.Barrier(ctx, "answered")
		}
		w := square.Expect(t)
		defer w.Stop()
		if err := asked.Emit(ctx, t, 12, task.To("node.1")); err != nil {
			return err
		}
		v, err := w.Wait(ctx)
		fmt.Println("node", node.ID(), "of", node.Size(), "received", v)
		if err != nil {
			return err
		}
		return node.Barrier(ctx, "answered")
	}))
	return t.Run(ctx, task.MaxSteps(1))
}

// Run makes the nodes in this process: for tests, and to see all nodes in one debugger.
func ExampleRun() {
	err := parallel.Run(context.Background(), parallel.Config{Nodes: 3, Logger: slog.New(slog.DiscardHandler)}, squares)
	fmt.Println(err)
	// Output:
	// node 0 of 3 received 144
	// <nil>
}

// An environment without a job's variables is that of a lone node.
func ExampleJoin() {
	node, err := parallel.Join(func(string) (string, bool) { return "", false }, slog.New(slog.DiscardHandler))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(node.ID(), node.Size(), node.Labels())
	// Output: 0 1 [standalone]
}
