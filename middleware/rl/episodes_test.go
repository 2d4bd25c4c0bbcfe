package rl_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// TestCollectEpisodes takes steps until that many episodes have ended.
func TestCollectEpisodes(t *testing.T) {
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := runOf(tk, tiny(1), "")
	var rows, episodes []int
	tk.Use(run.Exchange(rl.ExchangeConfig{}),
		run.Collect(walks(envs.SameStep, &walk{length: 3}, &walk{length: 5}), rl.CollectConfig{Episodes: 2}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			rows, episodes = append(rows, c.Collected.Batch.Len()), append(episodes, c.Episodes)
			return nil
		}))
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
		t.Fatal(err)
	}
	// Episodes end in the steps 3, 5 | 6, 9 | 10, 12 of the vector.
	if want := []int{10, 8, 6}; !slices.Equal(rows, want) || !slices.Equal(episodes, []int{2, 4, 6}) {
		t.Errorf("rows %v, episodes %v", rows, episodes)
	}
}

// TestCollectEpisodesEndsWithTheRun although an episode does not, and a run that is resumed then equals
// one that was not cut.
func TestCollectEpisodesEndsWithTheRun(t *testing.T) {
	why := &task.PreemptError{Reason: "test"}
	// train takes steps until it has four, or ctx ends in the step after two.
	train := func(dir string, cut bool) (policies.Policy, error) {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		q := tiny(1, func(c *dqn.Config) { c.Obs, c.Epsilon = box(4), policies.Constant(0.5) })
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := rl.New(tk, q, rl.Config{Seed: 1, Dir: dir, Resume: true})
		sync := envs.CartPole(2)
		var env envs.Vector = sync
		if cut {
			env = &cutting{Sync: sync, after: 180, do: func() { cancel(why) }}
		}
		tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(env, rl.CollectConfig{Episodes: 2}),
			run.Learn(data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 500}), data.ReplayConfig{Batch: 8, StartAt: 8}), rl.LearnConfig{}),
			run.Checkpoint(rl.CheckpointConfig{}), run.Stop(rl.StopConfig{EnvSteps: 400}))
		return q, tk.Run(ctx)
	}
	whole, err := train(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := train(dir, true); !errors.Is(err, task.ErrPreempted) {
		t.Fatalf("got %v, want a preemption", err)
	}
	if _, err := os.Stat(filepath.Join(dir, rl.CheckpointFile)); err != nil {
		t.Fatal("nothing to resume from:", err)
	}
	resumed, err := train(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := whole.Weights(), resumed.Weights(); a.Version != b.Version || !slices.Equal(a.Tensors[0].Data, b.Tensors[0].Data) {
		t.Errorf("after %d and %d updates the weights differ", a.Version, b.Version)
	}
}

// cutting calls do before its step number after.
type cutting struct {
	*envs.Sync
	after, steps int
	do           func()
}

func (c *cutting) Step(actions []float32) (*envs.Result, error) {
	if c.steps++; c.steps == c.after {
		c.do()
	}
	return c.Sync.Step(actions)
}
