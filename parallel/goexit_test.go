package parallel_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// TestGoexitOfANodeIsAnError ends the goroutine of the last node, as t.FailNow does:
// in its function, and in a step of its task.
func TestGoexitOfANodeIsAnError(t *testing.T) {
	for name, leave := range map[string]func(context.Context, *task.Task[struct{}]) error{
		"function": func(context.Context, *task.Task[struct{}]) error { runtime.Goexit(); return nil },
		"step": func(ctx context.Context, tk *task.Task[struct{}]) error {
			tk.Use(task.Step(func(context.Context, *struct{}) error { runtime.Goexit(); return nil }))
			return tk.Run(ctx)
		},
	} {
		for _, n := range []int{1, 2, 3} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := parallel.Config{Nodes: n, Logger: slog.New(slog.DiscardHandler)}
					err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
						tk := task.New[struct{}](node)
						if node.ID() == n-1 {
							return leave(ctx, tk)
						}
						if name == "function" { // it has never joined the others
							return nil
						}
						_, err := number.WaitFor(ctx, startedTask(ctx, t, tk))
						return errors.Join(err, tk.Close(ctx))
					})
					if err == nil || !strings.Contains(err.Error(), "the node's function ended its goroutine") {
						t.Fatalf("error %v", err)
					}
					var remote *task.RemoteError
					if name != "step" || n == 1 {
						return
					}
					if !errors.As(err, &remote) || remote.Node != n-1 || !strings.Contains(remote.Reason, "ended its goroutine") {
						t.Errorf("the others: %v", err)
					}
				})
			})
		}
	}
}

// startedTask starts tk.
func startedTask(ctx context.Context, t *testing.T, tk *task.Task[struct{}]) *task.Task[struct{}] {
	t.Helper()
	if err := tk.Start(ctx); err != nil {
		t.Error(err)
	}
	return tk
}
