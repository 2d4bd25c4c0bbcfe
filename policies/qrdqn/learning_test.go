package qrdqn

import (
	"errors"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/internal/offpolicy"
	"github.com/ditask/ditask/policies/nn"
)

// TestLearnsCartPole until greedy episodes have a mean return of 475, with half an update for each env step.
func TestLearnsCartPole(t *testing.T) {
	env := envs.CartPole(8, envs.SameStep)
	q := New(Config{
		Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 1, Hidden: []int{64, 64}, Quantiles: 16,
		Double: true, NStep: 5, Tau: 0.01, Adam: nn.AdamConfig{Rate: 1e-3, Epsilon: 1e-8}, Epsilon: policies.Linear(1, 0.05, 10_000),
	})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: 1}), data.ReplayConfig{Batch: 64, Every: 2})
	r, err := offpolicy.New(q, env, offpolicy.Config{Source: replay, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var score float64
	for steps := 0; steps < 60_000; steps += 2000 {
		err := r.Run(2000)
		got, err2 := offpolicy.Evaluate(q, envs.CartPole(20, envs.SameStep), 1, 1000)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if score = got; score >= 475 {
			t.Logf("mean return %v after %d env steps", score, steps+2000)
			return
		}
	}
	t.Errorf("mean return %v after 60,000 env steps, want 475", score)
}
