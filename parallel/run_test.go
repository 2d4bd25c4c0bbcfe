package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

var number = task.NewEvent[int]("number")

func TestRunMakesAllNodes(t *testing.T) {
	for _, topology := range []string{"mesh", "star"} {
		for _, n := range []int{1, 2, 8} {
			var sum atomic.Int64
			err := parallel.Run(t.Context(), parallel.Config{Nodes: n, Topology: topology}, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				number.On(tk, func(_ context.Context, v int) error { sum.Add(int64(v)); return nil })
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					if err := number.Emit(ctx, tk, node.ID()+1, task.OnlyRemote()); err != nil {
						return err
					}
					return node.Barrier(ctx, "b")
				}))
				return tk.Run(ctx, task.MaxSteps(1))
			})
			if err != nil {
				t.Fatalf("%s %d: %v", topology, n, err)
			}
			if want := int64(n * (n + 1) / 2 * (n - 1)); sum.Load() != want {
				t.Errorf("%s %d: sum %d, want %d", topology, n, sum.Load(), want)
			}
		}
	}
}

func TestRunNamesTheFailedNode(t *testing.T) {
	broken := errors.New("no luck")
	err := parallel.Run(t.Context(), parallel.Config{Nodes: 3}, func(ctx context.Context, node *parallel.Node) error {
		tk := task.New[struct{}](node)
		tk.Use(func(ctx context.Context, _ *struct{}, _ task.Next) error {
			if node.ID() == 1 {
				return broken
			}
			_, err := number.WaitFor(ctx, tk)
			return err
		})
		return tk.Run(ctx)
	})
	var remote *task.RemoteError
	if !errors.Is(err, broken) || !errors.As(err, &remote) || remote.Node != 1 || strings.Count(err.Error(), "no luck") != 3 {
		t.Error(err)
	}
}

func TestRunReportsAPanic(t *testing.T) {
	err := parallel.Run(t.Context(), parallel.Config{}, func(context.Context, *parallel.Node) error { panic("oh") })
	var p *parallel.PanicError
	if !errors.As(err, &p) || fmt.Sprint(p.Value) != "oh" || !strings.Contains(err.Error(), "run_test.go") {
		t.Error(err)
	}
}

var (
	ask    = task.NewEvent[int]("ask")
	answer = task.NewEvent[int]("answer")
)

// TestAListenerThatEmitsAtTheEndIsNoFailure makes a listener answer when its node
// already drains, because the other one is slow: the job succeeds
// nevertheless.
func TestAListenerThatEmitsAtTheEndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := parallel.Run(t.Context(), parallel.Config{Nodes: 2}, func(ctx context.Context, node *parallel.Node) error {
			tk := task.New[struct{}](node)
			begun := make(chan struct{})
			ask.On(tk, func(ctx context.Context, v int) error {
				close(begun)
				<-time.After(time.Second)
				err := answer.Emit(ctx, tk, v, task.OnlyRemote())
				if !errors.Is(err, task.ErrClosed) {
					t.Errorf("emit while the node drains: %v", err)
				}
				return err
			})
			answer.On(tk, func(context.Context, int) error { return nil })
			tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
				if node.ID() == 0 {
					err := ask.Emit(ctx, tk, 1, task.OnlyRemote())
					<-time.After(3 * time.Second)
					return err
				}
				<-begun
				tk.Finish("asked")
				return nil
			}))
			return tk.Run(ctx)
		})
		if err != nil {
			t.Error(err)
		}
	})
}
