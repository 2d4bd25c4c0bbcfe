package main

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
)

// TestReaches8 runs the example to its end.
func TestReaches8(t *testing.T) {
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
			if err != nil || best.Mean < 8 || best.Episodes != 100 {
				t.Errorf("best %+v, %v", best.Evaluation, err)
			}
		})
	}
}

// TestSnapshot of landers, with their wrappers, gives the same episodes again.
func TestSnapshot(t *testing.T) {
	a, b := landers(2), landers(2)
	if _, err := a.Reset(3); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Reset(4); err != nil {
		t.Fatal(err)
	}
	type snapshotter interface {
		AppendSnapshot(dst []byte) ([]byte, error)
		RestoreSnapshot(src []byte) ([]byte, error)
	}
	for step := range 400 {
		action := []float32{float32(step % 2), 0}
		if step == 150 {
			s, err := a.(snapshotter).AppendSnapshot(nil)
			if err != nil {
				t.Fatal(err)
			}
			if rest, err := b.(snapshotter).RestoreSnapshot(s); err != nil || len(rest) != 0 {
				t.Fatal(err)
			}
		}
		x, err := a.Step(action)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Step(action)
		if err != nil {
			t.Fatal(err)
		}
		if step >= 150 && (!slices.Equal(x.Obs, y.Obs) || !slices.Equal(x.Rewards, y.Rewards)) {
			t.Fatalf("step %d: %v and %v", step, x.Obs, y.Obs)
		}
	}
}
