package parallel_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// TestASecondTaskIsRefusedAlikeEverywhere trains, and then evaluates in a second task.
func TestASecondTaskIsRefusedAlikeEverywhere(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			cfg := parallel.Config{Nodes: n, Logger: slog.New(slog.DiscardHandler)}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				for range 2 {
					tk := task.New[struct{}](node)
					tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { return node.Barrier(ctx, "step") }))
					if err := tk.Run(ctx, task.MaxSteps(2)); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil || strings.Count(err.Error(), "carries one task, and has had it: do all in one task") != n {
				t.Errorf("%d nodes: %v", n, err)
			}
		})
	}
}
