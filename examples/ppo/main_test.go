package main

import (
	"context"
	"log/slog"
	"testing"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
)

// TestReaches475 runs the example to its end, which is success only if 100
// episodes of the final policy have a mean return of 475.
func TestReaches475(t *testing.T) {
	if testing.Short() {
		t.Skip("learns for some seconds")
	}
	for name, c := range map[string]struct{ nodes, learners int }{
		"alone": {1, 1}, "learner, evaluator and two collectors": {4, 1}, "two learners, evaluator and two collectors": {5, 2},
		"two learners that collect": {2, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := parallel.Config{Nodes: c.nodes, Seed: 1, Dir: dir, Logger: slog.New(slog.DiscardHandler)}
			if err := parallel.Run(t.Context(), cfg, func(ctx context.Context,
				node *parallel.Node) error {
				return play(ctx, node, c.learners)
			}); err != nil {
				t.Fatal(err)
			}
			best, err := rl.LoadBest(dir)
			if err != nil || best.Mean < 475 || best.Episodes != 100 {
				t.Errorf("best %+v, %v", best.Evaluation, err)
			}
		})
	}
}
