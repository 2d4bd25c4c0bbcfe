package parallel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// A function that returns nil without a task is a failure in a job of several nodes,
// and in a lone node it is not.
func TestANodeThatReturnsBeforeItJoinedFails(t *testing.T) {
	idle := func(context.Context, *parallel.Node) error { return nil }
	if err := parallel.Run(t.Context(), parallel.Config{}, idle); err != nil {
		t.Errorf("a lone node: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		err := parallel.Run(t.Context(), parallel.Config{Nodes: 2}, func(ctx context.Context, n *parallel.Node) error {
			if n.ID() == 1 {
				return nil
			}
			return task.New[struct{}](n).Run(ctx, task.MaxSteps(1))
		})
		if err == nil || !strings.Contains(err.Error(), "node.1: returned before it joined the job of 2 nodes, which wait for it") {
			t.Errorf("one of two nodes: %v", err)
		}
	})
}

// A function that returns nil while its task is neither run nor closed is a failure.
func TestANodeThatReturnsBeforeItsTaskHasEndedFails(t *testing.T) {
	for name, end := range map[string]func(context.Context, *task.Task[struct{}]) error{
		"neither run nor closed": func(context.Context, *task.Task[struct{}]) error { return nil },
		"closed":                 func(ctx context.Context, tk *task.Task[struct{}]) error { return tk.Close(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var started *task.Task[struct{}] // of node 1
			err := parallel.Run(t.Context(), parallel.Config{Nodes: 3}, func(ctx context.Context, n *parallel.Node) error {
				tk := task.New[struct{}](n)
				if err := tk.Start(ctx); err != nil || n.ID() != 1 {
					return errors.Join(err, tk.Close(ctx))
				}
				started = tk
				return end(ctx, tk)
			})
			_ = started.Close(t.Context()) // its runners must not outlive the bubble
			failed := err != nil && strings.Contains(err.Error(), "node.1: returned before its task had ended")
			if failed != (name != "closed") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// A node that was asked to end before it joined has been preempted.
func TestANodePreemptedBeforeItJoinedIsPreempted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(&task.PreemptError{Node: 0, Reason: "SIGTERM"})
	err := parallel.Run(ctx, parallel.Config{Nodes: 2}, func(context.Context, *parallel.Node) error { return nil })
	if !errors.Is(err, task.ErrPreempted) {
		t.Error(err)
	}
}
