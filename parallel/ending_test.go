package parallel_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// TestListenersThatBlockOnAllNodesLetTheJobEnd fills the windows between all nodes,
// whose listeners pass values to readers that have ended.
func TestListenersThatBlockOnAllNodesLetTheJobEnd(t *testing.T) {
	for _, topology := range []string{"mesh", "star"} {
		t.Run(topology, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := parallel.Config{Nodes: 3, Topology: topology, Logger: slog.New(slog.DiscardHandler)}
				var full [3]bool
				begin := time.Now()
				err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
					tk := task.New[struct{}](node)
					in := make(chan blob)
					blobs.On(tk, func(ctx context.Context, b blob) error {
						select {
						case in <- b:
							return nil
						case <-ctx.Done():
							return ctx.Err()
						}
					})
					tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
						ctx, cancel := context.WithTimeout(ctx, time.Second)
						defer cancel()
						for {
							err := blobs.Emit(ctx, tk, blob{Data: make([]byte, 64<<10)}, task.OnlyRemote())
							if ctx.Err() != nil { // by its timeout, or as another node has finished
								full[node.ID()] = true
								return nil
							}
							if err != nil {
								return err
							}
						}
					}))
					return tk.Run(ctx, task.MaxSteps(1))
				})
				if took := time.Since(begin); err != nil || took > 10*time.Second || full != [3]bool{true, true, true} {
					t.Errorf("%v after %v, windows that were full: %v", err, took, full)
				}
			})
		})
	}
}

// TestListenersAtTheEndReceiveEarlierEvents has slow listeners, whose answers
// are received too.
func TestListenersAtTheEndReceiveEarlierEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 4
		var received [3]int
		cfg := parallel.Config{Nodes: 3, Logger: slog.New(slog.DiscardHandler)}
		err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
			tk := task.New[struct{}](node)
			small.On(tk, func(context.Context, int) error {
				<-time.After(2 * time.Second)
				received[node.ID()]++
				return nil
			})
			tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
				for i := range n {
					if err := small.Emit(ctx, tk, i); err != nil {
						return err
					}
				}
				return node.Barrier(ctx, "emitted")
			}))
			return tk.Run(ctx, task.MaxSteps(1))
		})
		if err != nil || received != [3]int{3 * n, 3 * n, 3 * n} {
			t.Errorf("%v; received %v, want %d each", err, received, 3*n)
		}
	})
}

// TestBarrierOfAListenerAtTheEndIsNoFailure enters a barrier when the other node
// is about to end.
func TestBarrierOfAListenerAtTheEndIsNoFailure(t *testing.T) {
	all := []task.RunOption{task.WaitForAll()}
	for name, tt := range map[string]struct {
		topology string
		opts     []task.RunOption
	}{"mesh": {"mesh", nil}, "star": {"star", nil}, "mesh, all": {"mesh", all}, "star, all": {"star", all}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got error
				cfg := parallel.Config{Nodes: 2, Topology: tt.topology, Logger: slog.New(slog.DiscardHandler)}
				err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
					tk := task.New[struct{}](node)
					small.On(tk, func(ctx context.Context, _ int) error {
						if node.ID() == 0 {
							got = node.Barrier(context.WithoutCancel(ctx), "late")
						}
						return got
					})
					tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
						if node.ID() == 1 {
							<-time.After(time.Second) // node 0 is done, or waits
							return small.Emit(ctx, tk, 1, task.OnlyRemote())
						}
						if tt.opts == nil {
							<-ctx.Done()
						}
						return nil
					}))
					return tk.Run(ctx, append(tt.opts, task.MaxSteps(1))...)
				})
				if err != nil || !errors.Is(got, task.ErrClosed) {
					t.Errorf("the job: %v; the barrier: %v", err, got)
				}
			})
		})
	}
}
