package main

import (
	"log/slog"
	"testing"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
)

// TestReachesMinus7 runs the example to its end, which is success only if 100 episodes of the final
// policy have a mean return of -7.
func TestReachesMinus7(t *testing.T) {
	if testing.Short() {
		t.Skip("learns for some seconds")
	}
	for name, nodes := range map[string]int{"alone": 1, "learner, evaluator and two collectors": 4} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := parallel.Config{Nodes: nodes, Seed: 1, Dir: dir, Logger: slog.New(slog.DiscardHandler)}
			if err := parallel.Run(t.Context(), cfg, play); err != nil {
				t.Fatal(err)
			}
			best, err := rl.LoadBest(dir)
			if err != nil || best.Mean < -7 || best.Episodes != 100 {
				t.Errorf("best %+v, %v", best, err)
			}
		})
	}
}
