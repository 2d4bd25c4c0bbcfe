package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

// TestNodesComeAndGo: of five nodes that all emit to all, two are ended while the others continue to
// run. Each node receives all messages that were addressed to it, and no node reports a loss.
func TestNodesComeAndGo(t *testing.T) {
	for _, topology := range []string{"mesh", "star"} {
		synctest.Test(t, func(t *testing.T) {
			var fromGone, sent atomic.Int64
			cfg := parallel.Config{Nodes: 5, Topology: topology, Recover: true}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				number.On(tk, func(ctx context.Context, _ int) error {
					if task.Sender(ctx) > 2 && node.ID() == 0 {
						fromGone.Add(1)
					}
					return nil
				})
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					<-time.After(time.Millisecond)
					if node.ID() > 2 {
						sent.Add(1)
					}
					return number.Emit(context.WithoutCancel(ctx), tk, 1, task.OnlyRemote())
				}))
				if node.ID() < 3 {
					return tk.Run(ctx, task.MaxSteps(500))
				}
				ctx, cancel := context.WithCancelCause(ctx)
				time.AfterFunc(time.Duration(50*node.ID())*time.Millisecond, func() {
					cancel(&task.PreemptError{Node: node.ID(), Reason: "SIGTERM"})
				})
				if err := tk.Run(ctx); !errors.Is(err, task.ErrPreempted) {
					return fmt.Errorf("it was asked to end: %w", err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", topology, err)
			}
			if fromGone.Load() != sent.Load() || sent.Load() < 100 {
				t.Errorf("%s: node.0 received %d messages of those that left, of %d", topology, fromGone.Load(), sent.Load())
			}
		})
	}
}

// TestNodeZeroComesBackAfterItHasLeft: node 0 of a recovering job, which dials no node, is ended and
// started again, as a drained pod is. It finds the others, which have continued to run.
func TestNodeZeroComesBackAfterItHasLeft(t *testing.T) {
	dir, err := os.MkdirTemp("", "job") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	addr := func(id int) string { return "unix://" + filepath.Join(dir, fmt.Sprint(id)) }
	type step func(ctx context.Context, tk *task.Task[struct{}], stop context.CancelCauseFunc) error
	run := func(id int, incarnation uint64, step step) error {
		env := control.Env{JobID: "j", Token: "secret", NodeID: id, Nodes: 2, Listen: addr(id), Incarnation: incarnation, AutoRecover: true}
		if id > 0 {
			env.Attach = []string{addr(0)}
		}
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		tk := task.New[struct{}](join(t, env, slog.New(slog.DiscardHandler)))
		number.On(tk, func(context.Context, int) error { return nil })
		tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { return step(ctx, tk, stop) }))
		return tk.Run(ctx)
	}
	other := make(chan error, 1) // one result
	go func() {
		other <- run(1, 1, func(ctx context.Context, tk *task.Task[struct{}], _ context.CancelCauseFunc) error {
			return number.Emit(ctx, tk, 1, task.OnlyRemote())
		})
	}()
	err = run(0, 1, func(_ context.Context, _ *task.Task[struct{}], stop context.CancelCauseFunc) error {
		stop(&task.PreemptError{Node: 0, Reason: "SIGTERM"})
		return nil
	})
	if !errors.Is(err, task.ErrPreempted) {
		t.Errorf("it was asked to end: %v", err)
	}
	if err := run(0, 2, func(_ context.Context, tk *task.Task[struct{}], _ context.CancelCauseFunc) error {
		tk.Finish("it is back")
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := <-other; err != nil {
		t.Errorf("node 1: %v", err)
	}
}
