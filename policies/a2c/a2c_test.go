package a2c

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/internal/collecting"
	"github.com/ditask/ditask/policies/nn"
)

var spaces = map[string]envs.Space{
	"discrete": envs.Discrete{N: 3}, "multi-discrete": envs.MultiDiscrete{N: []int{2, 3}}, "box": envs.NewBox(-1, 1, 2),
}

func metric(t *testing.T, metrics []policies.Metric, name string) float64 {
	t.Helper()
	for _, m := range metrics {
		if m.Name == name {
			return m.Value
		}
	}
	t.Fatalf("there is no metric %s in %v", name, metrics)
	return 0
}

// TestP1LossEqualsHandComputedNumbers for two actions with the logits 0 and log 3, so with the
// probabilities 1/4 and 3/4, and values that equal the observation.
func TestP1LossEqualsHandComputedNumbers(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, EntropyCoef: 0.1})
	copy(p.Actor.Weights(), []float32{0, 0, 0, float32(math.Log(3))})
	copy(p.Critic.Weights(), []float32{1, 0})
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(2)
	copy(b.Floats(policies.Obs), []float32{1, 2})
	copy(b.Floats(policies.Action), []float32{0, 1})
	copy(b.Floats(policies.Advantage), []float32{2, -1})
	copy(b.Floats(policies.Return), []float32{3, 1})
	m, err := p.Learn(&b)
	if err != nil {
		t.Fatal(err)
	}
	policyLoss := -(2*math.Log(0.25) - math.Log(0.75)) / 2
	valueLoss := (2*2 + 1*1) / 2.0
	entropy := -(0.25*math.Log(0.25) + 0.75*math.Log(0.75))
	for name, want := range map[string]float64{
		"train/policy_loss": policyLoss, "train/value_loss": valueLoss, "train/entropy_loss": -entropy,
		"train/loss": policyLoss + 0.5*valueLoss - 0.1*entropy, "train/learning_rate": 7e-4,
		"train/explained_variance": 1 - (2*2+1*1-2*0.5*0.5)/2/1.0,
	} {
		if got := metric(t, m, name); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestP2GradientOfTheLossEqualsCentralDifferences for each kind of action.
func TestP2GradientOfTheLossEqualsCentralDifferences(t *testing.T) {
	for name, space := range spaces {
		p := New(Config{
			Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, EntropyCoef: 0.1,
			RMSprop: nn.RMSpropConfig{Rate: 1e-30}, MaxGradNorm: -1,
		})
		rng := rand.New(rand.NewPCG(5, 5))
		nets := []*nn.Net{p.Actor, p.Critic}
		for _, net := range nets {
			for i := range net.Weights() {
				net.Weights()[i] = 0.5 * float32(rng.NormFloat64())
			}
		}
		b := collecting.Random(rng, p, 6)
		loss := func() float64 {
			m, err := p.Learn(b)
			if err != nil {
				t.Fatal(err)
			}
			return m[0].Value
		}
		for _, net := range nets {
			loss()
			grad := slices.Clone(net.Grad())
			for i, v := range net.Weights() {
				const h = 2e-3
				net.Weights()[i] = v + h
				up := loss()
				net.Weights()[i] = v - h
				down := loss()
				net.Weights()[i] = v
				if want := (up - down) / (2 * h); math.Abs(float64(grad[i])-want) > 5e-3*(1+math.Abs(want)) {
					t.Errorf("%s, weight %d: gradient %v, differences give %v", name, i, grad[i], want)
				}
			}
		}
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	for name, space := range spaces {
		cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: space, Seed: 2}
		straight, first := New(cfg), New(cfg)
		rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
		learn := func(p *A2C, rng *rand.Rand, n int) {
			for range n {
				if _, err := p.Learn(collecting.Random(rng, p, 16)); err != nil {
					t.Fatal(err)
				}
			}
		}
		learn(straight, rng1, 20)
		learn(first, rng2, 10)
		var a, read nn.Archive
		if err := first.Save(&a); err != nil {
			t.Fatal(err)
		}
		file, err := a.AppendBinary(nil)
		cfg.Seed = 99
		second := New(cfg)
		if err := errors.Join(err, read.UnmarshalBinary(file), second.Restore(&read)); err != nil {
			t.Fatal(err)
		}
		learn(second, rng2, 10)
		if second.Version() != 20 || !slices.Equal(straight.Actor.Weights(), second.Actor.Weights()) ||
			!slices.Equal(straight.Critic.Weights(), second.Critic.Weights()) {
			t.Errorf("%s: 20 updates and 10 + 10 updates differ", name)
		}
		for _, part := range []string{"a2c.actor", "a2c.critic", "a2c.rmsprop.actor", "a2c.rmsprop.critic"} {
			less := nn.Archive{Tensors: read.Tensors}
			for k, v := range read.Meta {
				if !strings.HasPrefix(k, part+"/") {
					less.SetText(k, v)
				}
			}
			if err := New(cfg).Restore(&less); err == nil || !strings.Contains(err.Error(), "restore "+part) {
				t.Errorf("%s: without %s: %v", name, part, err)
			}
		}
	}
}

func TestP7NonFiniteIsNamed(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}})
	rng := rand.New(rand.NewPCG(8, 8))
	before := slices.Clone(p.Actor.Weights())
	for _, c := range p.Spec().Learns {
		b := collecting.Random(rng, p, 4)
		b.Floats(c.Name)[1] = float32(math.NaN())
		_, err := p.Learn(b)
		if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != c.Name || !strings.HasPrefix(err.Error(), "a2c update 0: ") {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	b := collecting.Random(rng, p, 4)
	b.Floats(policies.Return)[0] = 1e30 // its square is infinite
	if _, err := p.Learn(b); err == nil || !strings.Contains(err.Error(), "tensor loss is not finite") {
		t.Errorf("a loss: %v", err)
	}
	if p.Version() != 0 || !slices.Equal(p.Actor.Weights(), before) {
		t.Error("what was refused has changed the policy")
	}
}

// TestGradientsAreClipped before the optimiser sees them: its epsilon is far greater than what is left.
func TestGradientsAreClipped(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, MaxGradNorm: 1e-12})
	before := slices.Clone(p.Actor.Weights())
	m, err := p.Learn(collecting.Random(rand.New(rand.NewPCG(1, 1)), p, 8))
	if err != nil || metric(t, m, "train/grad_norm") < 0.01 {
		t.Fatalf("%v, %v", m, err)
	}
	for i, v := range p.Actor.Weights() {
		if math.Abs(float64(v-before[i])) > 1e-6 {
			t.Fatalf("weight %d has moved from %v to %v", i, before[i], v)
		}
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{EntropyCoef: -1, ValueCoef: -1, Hidden: []int{0}, RMSprop: nn.RMSpropConfig{Rate: -1, Alpha: 1}}.Validate()
	for _, want := range []string{
		"Obs is", "Action is", "Hidden[0] is 0", "EntropyCoef is -1", "ValueCoef is -1", "RMSprop.Rate is -1", "RMSprop.Alpha is 1",
	} {
		if err == nil || !strings.Contains(err.Error(), "a2c config: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (Config{Obs: envs.NewBox(0, 1, 1), Action: envs.Discrete{N: 2}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestActAndLearnAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, space := range spaces {
		p := New(Config{Obs: envs.NewBox(-1, 1, 4), Action: space})
		b := collecting.Random(rng, p, 40)
		act := policies.Act{Obs: b.Floats(policies.Obs), Action: b.Floats(policies.Action), Rand: rng, Extra: [][]float32{make([]float32, 40)}}
		if n := testing.AllocsPerRun(20, func() {
			_, err := p.Learn(b)
			if err := errors.Join(err, p.Act(&act)); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: an update and a choice of actions allocate %v times", name, n)
		}
	}
}

// train learns for that many env steps, or until the mean return of 100 episodes is enough.
func train(t *testing.T, env envs.Vector, seed uint64, envSteps int, enough float64) *collecting.Collector {
	t.Helper()
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: seed})
	c, err := collecting.New(p, env, 5, seed)
	if err != nil {
		t.Fatal(err)
	}
	rollout := data.NewRollout(data.RolloutConfig{Length: 5, Lambda: 1, Epochs: 1, Minibatches: 1, Seed: seed})
	var mini policies.Batch
	for c.EnvSteps < envSteps && c.Mean(100) < enough {
		b, err := c.Collect()
		if err := errors.Join(err, rollout.Add(b)); err != nil {
			t.Fatal(err)
		}
		for rollout.Next(&mini) {
			if _, err := p.Learn(&mini); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// TestLearnsCartPole: a mean return of 195, the threshold of the older CartPole-v0.
func TestLearnsCartPole(t *testing.T) {
	c := train(t, envs.CartPole(8, envs.SameStep), 1, 200_000, 195)
	if c.Mean(100) < 195 {
		t.Errorf("after %d env steps the mean return is %v", c.EnvSteps, c.Mean(100))
	}
}
