package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// leave ends its goroutine.
func leave(context.Context, *struct{}) error { runtime.Goexit(); return nil }

// TestGoexitOfANodeIsAnError ends the goroutine of the last node, as t.FailNow does:
// in its function, and in a step of its task.
func TestGoexitOfANodeIsAnError(t *testing.T) {
	for name, end := range map[string]func(context.Context, *task.Task[struct{}]) error{
		"function": func(context.Context, *task.Task[struct{}]) error { runtime.Goexit(); return nil },
		"step": func(ctx context.Context, tk *task.Task[struct{}]) error {
			tk.Use(task.Step(leave))
			return tk.Run(ctx)
		},
	} {
		for _, n := range []int{1, 2, 3} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log logtest.Buffer
					cfg := parallel.Config{Nodes: n, Logger: slog.New(slog.NewTextHandler(&log, nil))}
					err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
						tk := task.New[struct{}](node)
						if node.ID() == n-1 {
							return end(ctx, tk)
						}
						if name == "function" { // it has never joined the others
							return nil
						}
						_, err := number.WaitFor(ctx, startedTask(ctx, t, tk))
						return errors.Join(err, tk.Close(ctx))
					})
					want := map[string]string{
						"function": "the node's function ended its goroutine",
						"step":     "parallel_test.leave ended its goroutine",
					}[name]
					own := fmt.Sprintf("node.%d: %s", n-1, want) // only this
					if err == nil || strings.Count(err.Error(), own) != 1 || strings.Contains(log.String(), "Goexit") ||
						name == "step" && strings.Contains(err.Error(), "the node's") {
						t.Fatalf("error %v, log %s", err, log.String())
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

// A Run that does not return, in a goroutine that the function has started, is an error of the node, and is
// logged if the function waits for it.
func TestGoexitInAnotherGoroutineOfANode(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cfg := parallel.Config{Nodes: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			err := parallel.Run(ctx, cfg, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				tk.Use(task.Step(leave))
				exited := make(chan struct{})
				go func() { defer close(exited); _ = tk.Run(ctx) }()
				<-exited
				if waits {
					<-ctx.Done()
				}
				return nil
			})
			logged := strings.Contains(log.String(), `msg="run does not return" err="parallel_test.leave ended its goroutine`)
			if logged != waits || !waits && (err == nil || !strings.Contains(err.Error(), "parallel_test.leave ended its goroutine")) {
				t.Errorf("waits %v: %v, log %s", waits, err, log.String())
			}
		})
	}
}
