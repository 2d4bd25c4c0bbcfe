package rl_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

func TestStop(t *testing.T) {
	for name, c := range map[string]struct {
		cfg      rl.StopConfig
		envSteps int // at the end
	}{
		"env steps":         {rl.StopConfig{EnvSteps: 31}, 32}, // two environments
		"updates":           {rl.StopConfig{Updates: 5}, 14},   // updates begin at 10, and are as many as env steps
		"the first of both": {rl.StopConfig{EnvSteps: 12, Updates: 5}, 12},
		"never":             {rl.StopConfig{}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			tk := task.New[rl.Online](quiet{task.Alone()})
			q := tiny(1)
			run := runOf(tk, q, "")
			source := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 100}),
				data.ReplayConfig{Batch: 2, StartAt: 10, Every: 2, Updates: 2})
			tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Stop(c.cfg),
				run.Collect(walks(envs.SameStep, &walk{length: 5}, &walk{length: 5}), rl.CollectConfig{}), run.Learn(source, rl.LearnConfig{}))
			if err := tk.Run(t.Context(), task.MaxSteps(100)); err != nil {
				t.Fatal(err)
			}
			got := tk.Context()
			if got.EnvSteps != c.envSteps {
				t.Errorf("ended after %d env steps, want %d", got.EnvSteps, c.envSteps)
			}
		})
	}
}

// TestStopAfterATimeEndsAStepThatWaits for collectors that never come.
func TestStopAfterATimeEndsAStepThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := task.New[rl.Online](quiet{task.Alone()}, task.ByLabel("standalone", rl.Learner))
		run := runOf(tk, tiny(1), "")
		wait := make(chan struct{})
		tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Stop(rl.StopConfig{After: time.Hour}), waits(wait))
		began := time.Now()
		if err := tk.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Hour || took > time.Hour+10*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// TestResumeOfADoneRunTakesNoStep, and leaves its checkpoint as it is.
func TestResumeOfADoneRunTakesNoStep(t *testing.T) {
	train := func(dir string, stop rl.StopConfig, stopAt float64) (rl.Online, string) {
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := rl.New(tk, tiny(1, func(c *dqn.Config) { c.Obs = box(4) }), rl.Config{Seed: 1, Dir: dir, Resume: true})
		env := func() envs.Vector { return lasting(5) }
		tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Evaluate(env(), rl.EvalConfig{EverySteps: 20, StopAt: stopAt}), run.Stop(stop),
			run.Collect(env(), rl.CollectConfig{}),
			run.Learn(data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 100}), data.ReplayConfig{Batch: 2, StartAt: 10}),
				rl.LearnConfig{}),
			run.Checkpoint(rl.CheckpointConfig{}))
		if err := tk.Run(t.Context(), task.MaxSteps(100)); err != nil {
			t.Fatal(err)
		}
		checkpoint, err := os.ReadFile(filepath.Join(dir, rl.CheckpointFile))
		if err != nil {
			t.Fatal(err)
		}
		return *tk.Context(), string(checkpoint)
	}
	for name, c := range map[string]struct {
		stop   rl.StopConfig
		stopAt float64
	}{
		"env steps": {rl.StopConfig{EnvSteps: 30}, 0}, "updates": {rl.StopConfig{Updates: 12}, 0}, "return": {rl.StopConfig{}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, saved := train(dir, c.stop, c.stopAt)
			again, kept := train(dir, c.stop, c.stopAt)
			if again.EnvSteps != first.EnvSteps || again.Updates != first.Updates || first.EnvSteps == 0 || saved != kept {
				t.Errorf("after %d env steps and %d updates the resumed run has made %d and %d; same checkpoint: %v",
					first.EnvSteps, first.Updates, again.EnvSteps, again.Updates, saved == kept)
			}
			longer, _ := train(dir, rl.StopConfig{EnvSteps: 70}, 0)
			if longer.EnvSteps != 70 {
				t.Errorf("with other limits it ends after %d env steps, want 70", longer.EnvSteps)
			}
		})
	}
}

// TestResumeBehindAReachedReturn: a run that continues with another limit, or none, keeps the best
// weights that it finds from then on, and a run that has nothing left to do reports why.
func TestResumeBehindAReachedReturn(t *testing.T) {
	dir := t.TempDir()
	train := func(steps int, stopAt float64, length int) (*rl.Run, *rl.Online) {
		tk := task.New[rl.Online](quiet{task.Alone()})
		run := rl.New(tk, tiny(1, func(c *dqn.Config) { c.Obs = box(4) }), rl.Config{Seed: 1, Dir: dir, Resume: true})
		tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Evaluate(lasting(length), rl.EvalConfig{EverySteps: 20, StopAt: stopAt, Confirm: 3}),
			run.Stop(rl.StopConfig{EnvSteps: steps}), run.Collect(lasting(5), rl.CollectConfig{}),
			run.Learn(data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 100}), data.ReplayConfig{Batch: 2, StartAt: 10}),
				rl.LearnConfig{}),
			run.Checkpoint(rl.CheckpointConfig{}))
		if err := tk.Run(t.Context(), task.MaxSteps(200)); err != nil {
			t.Fatal(err)
		}
		return run, tk.Context()
	}
	filed := func() *rl.Best {
		b, err := rl.LoadBest(dir)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	run, c := train(90, 5, 5)
	if over := run.Over(); over != "" || !c.Best.Reached || !filed().Reached {
		t.Fatalf("over %q, best %+v", over, c.Best.Evaluation)
	}
	first := c.EnvSteps
	run, c = train(90, 4, 5)
	if over, want := run.Over(), "mean return 5.0 over 3 episodes had reached 4 before"; over != want || c.EnvSteps != first ||
		!filed().Reached {
		t.Errorf("over %q after %d env steps, want %q after %d", over, c.EnvSteps, want, first)
	}
	run, c = train(90, 0, 7)
	if b := filed(); run.Over() != "" || c.EnvSteps != 90 || c.Best.Mean != 7 || c.Best.Reached || b.Mean != 7 || b.Reached {
		t.Errorf("over %q after %d env steps, best %+v, its file %+v, reached %v",
			run.Over(), c.EnvSteps, c.Best.Evaluation, b.Evaluation, b.Reached)
	}
	if run, _ = train(90, 0, 7); run.Over() != "90 env steps reached 90" {
		t.Errorf("over %q", run.Over())
	}
}

// lasting is a CartPole whose episodes have so many steps, or fewer.
func lasting(steps int) envs.Vector {
	return envs.NewSync(1, envs.SameStep, func(int) envs.Env[int] {
		return envs.NewCartPole(envs.CartPoleConfig{MaxSteps: steps})
	})
}

func TestStopConfig(t *testing.T) {
	for _, cfg := range []rl.StopConfig{{EnvSteps: -1}, {Updates: -1}, {After: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was accepted", cfg)
				}
			}()
			tk := task.New[rl.Online](quiet{task.Alone()})
			runOf(tk, tiny(1), "").Stop(cfg)
		}()
	}
}

// waits is a step that waits until ch is closed or its context ends.
func waits(ch chan struct{}) task.Middleware[rl.Online] {
	return task.Step(func(ctx context.Context, _ *rl.Online) error {
		select {
		case <-ch:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
