package rl_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/data"
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
			source := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 100}), data.ReplayConfig{Batch: 2, StartAt: 10, Every: 2, Updates: 2})
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

func TestStopConfig(t *testing.T) {
	for _, cfg := range []rl.StopConfig{{EnvSteps: -1}, {Updates: -1}, {After: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", cfg)
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
