package rl_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/her"
	"github.com/ditask/ditask/task"
)

// TestP4HindsightGoesOnToTheBit: a run is interrupted in the middle of its episodes.
func TestP4HindsightGoesOnToTheBit(t *testing.T) {
	bits := func() envs.Env[int] { return envs.NewBitFlip(envs.BitFlipConfig{Bits: 4, MaxSteps: 7}) }
	run := func(dir string, resume bool, steps int) []byte {
		env := envs.NewSync(3, envs.NextStep, func(int) envs.Env[int] { return bits() })
		goal, _ := envs.As[envs.Goal](bits())
		q := dqn.New(dqn.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 4}, Seed: 3, Hidden: []int{8},
			Epsilon: policies.Constant(0.3)})
		source := her.New(replay(data.UniformConfig{Capacity: 300, Seed: 3}, data.ReplayConfig{Batch: 8, StartAt: 10, Every: 5}),
			her.Config{Goal: goal, Seed: 3})
		tk := task.New[rl.Online](quiet{task.Alone()})
		r := rl.New(tk, q, rl.Config{Seed: 3, Dir: dir, MustResume: resume})
		tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(env, rl.CollectConfig{}), r.Learn(source, rl.LearnConfig{}),
			r.Checkpoint(rl.CheckpointConfig{Every: -1}))
		err := tk.Run(t.Context(), task.MaxSteps(steps))
		text, err2 := os.ReadFile(filepath.Join(dir, rl.CheckpointFile))
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		return text
	}
	want := run(t.TempDir(), false, 90)
	for _, first := range []int{11, 40, 45} {
		dir := t.TempDir()
		run(dir, false, first)
		if got := run(dir, true, 90-first); !bytes.Equal(got, want) {
			t.Errorf("interrupted after %d steps of 90: the checkpoints differ", first)
		}
	}
}
