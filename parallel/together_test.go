package parallel_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

var (
	togetherAsk   = task.NewEvent[int]("question")
	togetherReply = task.NewEvent[int]("reply")
)

// Every node passes the barrier of its last step, and does the work after it, although
// the finish of the first node ends the job.
func TestTheLastBarrierIsPassedByAll(t *testing.T) {
	const nodes, steps = 8, 3
	for _, topology := range []string{"mesh", "star"} {
		for range 10 {
			var work atomic.Int64
			cfg := parallel.Config{Nodes: nodes, Topology: topology}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				tk := task.New[struct{}](node)
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					if err := node.Barrier(ctx, "b"); err != nil {
						return err
					}
					work.Add(1)
					return nil
				}))
				return tk.Run(ctx, task.MaxSteps(steps))
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := work.Load(); got != nodes*steps {
				t.Fatalf("%s: the work of %d of %d steps is done", topology, got, nodes*steps)
			}
		}
	}
}

// Under WaitForAll each node runs all its steps, and its question in the last one is
// answered, at any difference of their speeds.
func TestWaitForAllAnswersTheLastQuestion(t *testing.T) {
	const nodes, steps = 5, 4
	for _, topology := range []string{"mesh", "star"} {
		synctest.Test(t, func(t *testing.T) {
			var work, answers atomic.Int64
			cfg := parallel.Config{Nodes: nodes, Topology: topology}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				togetherAsk.On(tk, func(ctx context.Context, _ int) error {
					return togetherReply.Emit(ctx, tk, task.Sender(ctx), task.OnlyRemote())
				})
				togetherReply.On(tk, func(_ context.Context, to int) error {
					if to == node.ID() {
						answers.Add(1)
					}
					return nil
				})
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					<-time.After(time.Duration(node.ID()) * time.Second)
					work.Add(1)
					return togetherAsk.Emit(ctx, tk, 1, task.OnlyRemote())
				}))
				return tk.Run(ctx, task.MaxSteps(steps), task.WaitForAll())
			})
			if err != nil {
				t.Errorf("%s: %v", topology, err)
			}
			if work.Load() != nodes*steps || answers.Load() != nodes*steps*(nodes-1) {
				t.Errorf("%s: %d steps of %d, %d answers of %d", topology, work.Load(), nodes*steps, answers.Load(), nodes*steps*(nodes-1))
			}
		})
	}
}
