package sac

import (
	"errors"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/internal/offpolicy"
	"github.com/ditask/ditask/policies/nn"
)

// TestLearnsCartPole with a learned alpha, and CleanRL's target of the entropy: greedy actions come to
// 475 of 500 within 40,000 env steps.
func TestLearnsCartPole(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	solve(t, 40_000, Config{Seed: 1})
}

// solve trains CartPole-v1 until 20 episodes of greedy actions have a mean return of 475, or for the
// most env steps. There is an update for each step; the targets follow slowly.
func solve(t *testing.T, most int, cfg Config) {
	t.Helper()
	env, rate := envs.CartPole(1, envs.SameStep), nn.AdamConfig{Rate: 1e-3}
	cfg.Obs, cfg.Action, cfg.Hidden, cfg.Actor, cfg.Critic = env.ObservationSpace(), env.ActionSpace(), []int{64, 64}, rate, rate
	cfg.TargetEvery, cfg.Tau = 1, 0.01
	s := New(cfg)
	r, err := offpolicy.New(s, env, offpolicy.Config{RandomSteps: 1000, Batch: 64, Seed: cfg.Seed})
	if err != nil {
		t.Fatal(err)
	}
	const every = 4000
	score := 0.0
	for steps := every; steps <= most; steps += every {
		err := r.Run(every)
		got, err2 := offpolicy.Evaluate(s, envs.CartPole(20, envs.SameStep), 1, 1000+cfg.Seed)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if score = got; score >= 475 {
			t.Logf("seed %d: %.1f after %d env steps; %.1f with the actions' randomness", cfg.Seed, score, steps, r.Last(10))
			return
		}
	}
	t.Errorf("seed %d: mean return %v after %d env steps, want 475", cfg.Seed, score, most)
}
