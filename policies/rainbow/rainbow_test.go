package rainbow_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/internal/offpolicy"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
	"github.com/ditask/ditask/policies/rainbow"
)

func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Config{New: func(seed uint64) policies.Policy {
		return rainbow.New(rainbow.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 3}, Seed: seed, Hidden: []int{5}, Atoms: 5})
	}})
}

// TestDefaultsAreThePapers, and all six extensions are on.
func TestDefaultsAreThePapers(t *testing.T) {
	obs, three := envs.NewBox(-1, 1, 2), envs.Discrete{N: 3}
	got := rainbow.New(rainbow.Config{Obs: obs, Action: three}).Config()
	want := c51.Config{
		Obs: obs, Action: three, Hidden: []int{512}, Atoms: 51, Low: -10, High: 10, Double: true, Dueling: true, Noisy: true, NStep: 3,
		Gamma: 0.99, Adam: nn.AdamConfig{Rate: 6.25e-5, Epsilon: 1.5e-4}, TargetEvery: 2000,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	own := rainbow.Config{
		Obs: obs, Action: three, Seed: 4, Hidden: []int{7}, Atoms: 9, Low: 1, High: 2, NStep: 5, Gamma: 0.9,
		Adam: nn.AdamConfig{Rate: 1, Epsilon: 2}, TargetEvery: 6,
	}
	want = c51.Config{
		Obs: obs, Action: three, Seed: 4, Hidden: []int{7}, Atoms: 9, Low: 1, High: 2, Double: true, Dueling: true, Noisy: true, NStep: 5,
		Gamma: 0.9, Adam: nn.AdamConfig{Rate: 1, Epsilon: 2}, TargetEvery: 6,
	}
	if got := own.C51(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFaultsAreThoseOfC51(t *testing.T) {
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "c51 config: Action has 0 actions") {
			t.Errorf("panic with %q", text)
		}
	}()
	rainbow.New(rainbow.Config{Obs: envs.NewBox(-1, 1, 2)})
}

// TestReplayGoesByPriorities: it learns from 32 rows for each 4, once it is full enough, and a row whose
// priority is great is in more samples than others.
func TestReplayGoesByPriorities(t *testing.T) {
	replay := rainbow.Replay(data.UniformConfig{Capacity: 64, Seed: 1}, 100)
	var rows, b policies.Batch
	rows.Init(policies.TransitionColumns(1, 1)...)
	rows.Append(policies.Transition{Obs: []float32{0}, Action: []float32{0}, NextObs: []float32{0}, Steps: 1})
	var batches int
	for i := range 400 {
		rows.Floats(policies.Obs)[0] = float32(i % 64)
		if err := replay.Add(&rows); err != nil {
			t.Fatal(err)
		}
		for replay.Next(&b) {
			batches++
			for k, obs := range b.Floats(policies.Obs) {
				b.Floats(policies.TDError)[k] = 0.01
				if obs == 13 {
					b.Floats(policies.TDError)[k] = 100 // 100 times 0.01 with an exponent of 0.5
				}
			}
			if err := replay.Learned(&b); err != nil {
				t.Fatal(err)
			}
			if b.N != 32 {
				t.Errorf("a batch of %d rows", b.N)
			}
		}
	}
	if want := (400 - 64) / 4; batches != want && batches != want+1 {
		t.Errorf("%d batches, want about %d", batches, want)
	}
	chosen := 0
	for _, obs := range b.Floats(policies.Obs) {
		if obs == 13 {
			chosen++
		}
	}
	weights := b.Floats(policies.Weight)
	if chosen < 8 || chosen == 32 || slices.Max(weights) != 1 || slices.Min(weights) > 0.1 {
		t.Errorf("%d of 32 rows are the one of high priority, with weights from %v to %v", chosen, slices.Min(weights), slices.Max(weights))
	}
}

// TestLearnsCartPole until greedy episodes have a mean return of 475, with an update for every second
// env step.
func TestLearnsCartPole(t *testing.T) {
	if testing.Short() {
		t.Skip("learns for some seconds")
	}
	env := envs.CartPole(8, envs.SameStep)
	p := rainbow.New(rainbow.Config{
		Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 1, Hidden: []int{64, 64}, Low: 0, High: 100,
		Adam: nn.AdamConfig{Rate: 1e-3}, TargetEvery: 100,
	})
	buffer := data.NewPrioritised(data.PrioritisedConfig{UniformConfig: data.UniformConfig{Capacity: 20_000, Seed: 1}, Alpha: 0.5})
	replay := data.NewReplay(buffer, data.ReplayConfig{Batch: 64, Every: 2, Beta: policies.Linear(0.4, 1, 20_000)})
	r, err := offpolicy.New(p, env, offpolicy.Config{Source: replay, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var score float64
	for steps := 0; steps < 60_000; steps += 2000 {
		err := r.Run(2000)
		got, err2 := offpolicy.Evaluate(p, envs.CartPole(20, envs.SameStep), 1, 1000)
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
