package ppo

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/internal/collecting"
	"github.com/ditask/ditask/policies/nn"
)

// TestP1PenaltyEqualsHandComputedNumbers: the policy of the rollout chose the two actions with 1/2 each,
// and the present one with 1/4 and 3/4, which is a divergence of 0.1438 nats. The coefficient stays
// throughout a rollout of two updates. Then it adapts by the mean of both: it grows from a target of
// 0.01, stays with one of 0.1, whose double is less than the sum, and shrinks with one of 0.3.
func TestP1PenaltyEqualsHandComputedNumbers(t *testing.T) {
	kl := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	for target, coefs := range map[float64][5]float64{0: {.2, .2, .3, .3, .45}, 0.1: {.2, .2, .2, .2, .2}, 0.3: {.2, .2, .1, .1, .05}} {
		p, b := linear(Config{KLCoef: 0.2, KLTarget: target, Adam: nn.AdamConfig{Rate: 1e-30}}, 2)
		copy(p.actor.Weights(), []float32{0, 0, 0, float32(math.Log(3))})
		copy(b.Floats(policies.LogProb), []float32{-0.7, -0.7})
		for i, want := range coefs {
			for k := range b.N {
				b.Words(policies.Version)[k] = uint64(i / 2)
			}
			m, err := p.Learn(b)
			if err != nil {
				t.Fatal(err)
			}
			if got := metric(t, m, "train/kl"); math.Abs(got-kl) > 1e-6 {
				t.Errorf("update %d: divergence %v, want %v", i, got, kl)
			}
			if got := metric(t, m, "train/kl_coef"); math.Abs(got-want) > 1e-12 {
				t.Errorf("target %v, update %d: coefficient %v, want %v", target, i, got, want)
			}
			if got := metric(t, m, "train/loss"); math.Abs(got-want*kl) > 1e-6 { // advantages, values and targets are 0
				t.Errorf("target %v, update %d: loss %v, want %v", target, i, got, want*kl)
			}
		}
	}
}

// TestStopKLEndsARollout: the update that finds a greater divergence is the last one, until the data is of
// another version.
func TestStopKLEndsARollout(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, StopKL: 0.05})
	rng := rand.New(rand.NewPCG(3, 3))
	near := collecting.Random(rng, p, 8)
	for i := range near.N {
		near.Floats(policies.LogProb)[i] = float32(math.Log(0.5)) // of the first policy, about
	}
	far := collecting.Random(rng, p, 8)
	for i := range far.N {
		far.Floats(policies.LogProb)[i] = -2
	}
	learn := func(b *policies.Batch, version, want uint64) {
		t.Helper()
		for k := range b.N {
			b.Words(policies.Version)[k] = version
		}
		before := slices.Clone(p.actor.Weights())
		moves := want != p.Version()
		m, err := p.Learn(b)
		if err != nil {
			t.Fatal(err)
		}
		if p.Version() != want || slices.Equal(before, p.actor.Weights()) == moves || len(m) != 10 {
			t.Errorf("version %d, want %d; metrics %v", p.Version(), want, m)
		}
	}
	learn(near, 0, 1)
	learn(near, 0, 2)
	learn(far, 0, 3) // is made, and stops the rollout
	learn(near, 0, 3)
	learn(far, 0, 3)
	learn(near, 3, 4)
	learn(near, 3, 5)
}

// TestRefusedUpdateDoesNotAdapt: a loss that is not finite, in the first batch of a new rollout, leaves the
// coefficient and the rollout as they were.
func TestRefusedUpdateDoesNotAdapt(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, KLCoef: 0.2, KLTarget: 1e-6})
	rng := rand.New(rand.NewPCG(3, 3))
	if _, err := p.Learn(collecting.Random(rng, p, 8)); err != nil {
		t.Fatal(err)
	}
	before := p.rollout
	b := collecting.Random(rng, p, 8)
	for k := range b.N {
		b.Words(policies.Version)[k], b.Floats(policies.Return)[k] = 1, 1e30
	}
	if _, err := p.Learn(b); err == nil || p.rollout != before {
		t.Errorf("%v: the rollout is %+v, and was %+v", err, p.rollout, before)
	}
}

func TestConfigReportsFaultsOfOptions(t *testing.T) {
	err := Config{LSTM: -1, Length: -1, KLCoef: -1, KLTarget: -1, StopKL: -1}.Validate()
	for _, want := range []string{"LSTM is -1", "Length is -1", "KLCoef is -1", "KLTarget is -1", "StopKL is -1"} {
		if err == nil || !strings.Contains(err.Error(), "ppo config: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
