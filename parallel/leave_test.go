package parallel_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// TestNodesComeAndGo: of five nodes that all emit to all, two are told to end while
// the others run on. What was addressed to a node, it has heard, and nobody reports
// a loss.
func TestNodesComeAndGo(t *testing.T) {
	for _, topology := range []string{"mesh", "star"} {
		synctest.Test(t, func(t *testing.T) {
			var fromGone, sent atomic.Int64
			err := parallel.Run(t.Context(), parallel.Config{Nodes: 5, Topology: topology, Recover: true}, func(ctx context.Context, node *parallel.Node) error {
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
					return fmt.Errorf("it was told to end: %w", err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", topology, err)
			}
			if fromGone.Load() != sent.Load() || sent.Load() < 100 {
				t.Errorf("%s: node.0 heard %d messages of those that left, of %d", topology, fromGone.Load(), sent.Load())
			}
		})
	}
}
