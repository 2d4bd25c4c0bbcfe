package cql

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

func small(edits ...func(*Config)) *CQL {
	cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 2), Hidden: []int{8}, Samples: 3, Seed: 3}
	for _, edit := range edits {
		edit(&cfg)
	}
	return New(cfg)
}

func smallDiscrete(edits ...func(*DiscreteConfig)) *Discrete {
	cfg := DiscreteConfig{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 3}, Hidden: []int{6}, Seed: 3}
	for _, edit := range edits {
		edit(&cfg)
	}
	return NewDiscrete(cfg)
}

// says makes a network answer the same whatever it observes.
func says(net *nn.Net, values ...float32) {
	w := net.Weights()
	clear(w)
	copy(w[len(w)-len(values):], values)
}

// TestP1DiscreteLossEqualsHandComputedNumbers: the online network says 1, 5, 3 and the target 4, 2, 8, so
// that the next action is the second and its value 2.
func TestP1DiscreteLossEqualsHandComputedNumbers(t *testing.T) {
	q := smallDiscrete(func(c *DiscreteConfig) { c.Gamma, c.ConservativeWeight = 0.9, 0.5 })
	says(q.online, 1, 5, 3)
	says(q.target, 4, 2, 8)
	b := policytest.RandomBatch(q.Spec(), rand.New(rand.NewPCG(1, 1)), 3)
	copy(b.Floats(policies.Reward), []float32{1, 1, 1})
	copy(b.Floats(policies.Action), []float32{2, 0, 1})
	copy(b.Bytes(policies.Terminated), []uint8{0, 1, 0})
	copy(b.Bytes(policies.Steps), []uint8{1, 1, 2})
	m, err := q.Learn(b)
	if err != nil {
		t.Fatal(err)
	}
	targets := []float64{1 + 0.9*2, 1, 1 + 0.81*2}
	var huber float64
	for i, value := range []float64{3, 1, 5} {
		if d := math.Abs(value - targets[i]); d < 1 {
			huber += d * d / 2 / 3
		} else {
			huber += (d - 0.5) / 3
		}
	}
	gap := math.Log(math.Exp(1)+math.Exp(5)+math.Exp(3)) - 3
	for i, want := range []policies.Metric{
		{Name: "train/loss", Value: huber + 0.5*gap}, {Name: "train/q_value", Value: 3}, {Name: "train/conservative_loss", Value: gap},
	} {
		if m[i].Name != want.Name || math.Abs(m[i].Value-want.Value) > 1e-5 {
			t.Errorf("%v, want %v", m[i], want)
		}
	}
}

// TestP1CriticsLossEqualsHandComputedNumbers: critics that say 2 and 3, targets that say 5 and 4, and an actor
// of mean 0 and standard deviation exp(-1.5), whose noise is drawn from the same stream.
func TestP1CriticsLossEqualsHandComputedNumbers(t *testing.T) {
	c := small(func(c *Config) {
		c.Obs, c.Action, c.Hidden, c.Gamma, c.Samples, c.ConservativeWeight = envs.NewBox(-1, 1, 1), envs.NewBox(-2, 2, 1), []int{}, 0.9, 2, 0.7
	})
	says(c.actor)
	for i := range c.critics {
		says(c.critics[i], float32(2+i))
		says(c.targets[i], float32(5-i))
	}
	b := policytest.RandomBatch(c.Spec(), rand.New(rand.NewPCG(1, 1)), 2)
	copy(b.Floats(policies.Reward), []float32{1, 1})
	copy(b.Bytes(policies.Terminated), []uint8{0, 1})
	copy(b.Bytes(policies.Steps), []uint8{2, 1})
	noise := rand.New(rand.NewPCG(3, 0x63716c))
	drawn := func() float64 { // the density of an action, in exp
		const std = -1.5 // its logarithm
		z := noise.NormFloat64()
		tanh := math.Tanh(z * math.Exp(std))
		return z*z/2 + std + math.Log(2*math.Pi)/2 + math.Log(2*(1-tanh*tanh)) // minus the logarithm
	}
	drawn()
	drawn() // the actions of the targets
	var sums [2]float64
	for range 2 {
		for i := range sums {
			noise.Float32()
			sums[i] += 4 // one over the density of a uniform action
		}
		for range 2 {
			for i := range sums {
				sums[i] += math.Exp(drawn())
			}
		}
	}
	gap := 0.0 // log sum exp(q - log density) - q has the same q everywhere, for each critic
	for _, sum := range sums {
		gap += math.Log(sum) // over two rows, and for two critics
	}
	targets := []float64{1 + 0.81*4, 1}
	bellman := 0.0
	for _, q := range []float64{2, 3} {
		for _, target := range targets {
			bellman += (q - target) * (q - target) / 2
		}
	}
	got, err := c.learnCritics(b)
	if err != nil || math.Abs(got.loss-(bellman+0.7*gap)) > 1e-4 || math.Abs(got.gap-gap) > 1e-5 || math.Abs(got.value-2) > 1e-6 {
		t.Errorf("%+v, want a loss of %v and a gap of %v: %v", got, bellman+0.7*gap, gap, err)
	}
}

// TestStaysInTheData: rewards grow with the action, and the data has actions from -0.6 to 0.2. Greater
// actions seem still better, unless their values are held down.
func TestStaysInTheData(t *testing.T) {
	best := func(weight float64) float32 {
		rate := nn.AdamConfig{Rate: 3e-3}
		c := New(Config{
			Obs: envs.NewBox(-1, 1, 1), Action: envs.NewBox(-1, 1, 1), Hidden: []int{32}, Seed: 1, Alpha: 0.01, ConservativeWeight: weight,
			Actor: rate, Critic: rate,
		})
		rng := rand.New(rand.NewPCG(1, 1))
		b := policytest.RandomBatch(c.Spec(), rng, 64)
		for range 600 {
			for i := range b.N {
				action := rng.Float32()*0.8 - 0.6
				b.Floats(policies.Obs)[i], b.Floats(policies.Action)[i], b.Floats(policies.Reward)[i], b.Bytes(policies.Terminated)[i] = 0, action,
					action, 1
			}
			if _, err := c.Learn(b); err != nil {
				t.Fatal(err)
			}
		}
		act := policies.Act{Obs: []float32{0}, Action: make([]float32, 1), Greedy: true}
		if err := c.Act(&act); err != nil {
			t.Fatal(err)
		}
		return act.Action[0]
	}
	if with, without := best(0), best(-1); with < -0.6 || with > 0.3 || without < 0.8 {
		t.Errorf("the action is %v, and %v without the conservative term; want one of the data, and one beyond it", with, without)
	}
}

// TestDiscreteStaysInTheData: of four states and three actions, the data has two actions. The third has the
// greatest value at first, and no reward says otherwise.
func TestDiscreteStaysInTheData(t *testing.T) {
	third := func(weight float64) (chosen int) {
		q := NewDiscrete(DiscreteConfig{
			Obs: envs.NewBox(0, 1, 4), Action: envs.Discrete{N: 3}, Hidden: []int{}, Seed: 1, Gamma: 0.5, TargetEvery: 20,
			ConservativeWeight: weight, Adam: nn.AdamConfig{Rate: 3e-3},
		})
		says(q.online, 0, 0, 3) // with it, the better action is worth 0.2 + 0.5*3
		q.target.CopyFrom(q.online)
		b := policytest.RandomBatch(q.Spec(), rand.New(rand.NewPCG(1, 1)), 32)
		for range 3000 {
			for i := range b.N {
				state, action := i/2%4, i%2
				obs, next := b.Floats(policies.Obs)[4*i:4*i+4], b.Floats(policies.NextObs)[4*i:4*i+4]
				clear(obs)
				clear(next)
				obs[state], next[(state+1)%4] = 1, 1
				b.Floats(policies.Action)[i], b.Floats(policies.Reward)[i], b.Bytes(policies.Terminated)[i],
					b.Bytes(policies.Steps)[i] = float32(action), float32(action)/5, 0, 1
			}
			if _, err := q.Learn(b); err != nil {
				t.Fatal(err)
			}
		}
		act := policies.Act{Obs: []float32{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, Action: make([]float32, 4), Greedy: true}
		if err := q.Act(&act); err != nil {
			t.Fatal(err)
		}
		for _, a := range act.Action {
			if a == 2 {
				chosen++
			}
		}
		if weight > 0 && !slices.Equal(act.Action, []float32{1, 1, 1, 1}) {
			t.Errorf("actions %v, want the better one of the data", act.Action)
		}
		return chosen
	}
	if with, without := third(1), third(-1); with != 0 || without == 0 {
		t.Errorf("%d states choose the action that is not in the data, %d without the conservative term", with, without)
	}
}

// TestDiscreteTargetFollowsEveryTargetEvery updates.
func TestDiscreteTargetFollowsEveryTargetEvery(t *testing.T) {
	q := smallDiscrete(func(c *DiscreteConfig) { c.TargetEvery = 3 })
	b := policytest.RandomBatch(q.Spec(), rand.New(rand.NewPCG(2, 2)), 16)
	for i := range 7 {
		if _, err := q.Learn(b); err != nil {
			t.Fatal(err)
		}
		if equal := slices.Equal(q.target.Weights(), q.online.Weights()); equal != ((i+1)%3 == 0) {
			t.Errorf("after %d updates the target is the network: %v", i+1, equal)
		}
	}
}

// TestAlphaMovesTheEntropyToItsTarget: it grows where the entropy is too low.
func TestAlphaMovesTheEntropyToItsTarget(t *testing.T) {
	for target, grows := range map[float64]bool{10: true, -20: false} {
		c := small(func(c *Config) { c.TargetEntropy = target })
		if _, err := c.Learn(policytest.RandomBatch(c.Spec(), rand.New(rand.NewPCG(2, 2)), 16)); err != nil {
			t.Fatal(err)
		}
		if c.Alpha() > 1 != grows || c.Alpha() == 1 {
			t.Errorf("target %v: alpha %v", target, c.Alpha())
		}
	}
	fixed := small(func(c *Config) { c.Alpha = 0.25 })
	_, err := fixed.Learn(policytest.RandomBatch(fixed.Spec(), rand.New(rand.NewPCG(2, 2)), 16))
	if err != nil || math.Abs(fixed.Alpha()-0.25) > 1e-6 {
		t.Errorf("alpha %v: %v", fixed.Alpha(), err)
	}
}

// TestP7WeightThatIsNotFiniteIsNamed when it learns and when it acts.
func TestP7WeightThatIsNotFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 1), Greedy: true}
	q := smallDiscrete()
	q.target.Weights()[0] = nan
	_, err := q.Learn(policytest.RandomBatch(q.Spec(), rand.New(rand.NewPCG(8, 8)), 4))
	if e, ok := errors.AsType[*policies.UpdateError](err); !ok || e.Algorithm != "cql" || !strings.Contains(err.Error(),
		"target.dense0.weight") {
		t.Error(err)
	}
	q.online.Weights()[0] = nan
	if err := q.Act(&act); err == nil || !strings.Contains(err.Error(), "tensor dense0.weight") {
		t.Error(err)
	}
	c := small()
	c.critics[1].Weights()[0] = nan
	_, err = c.Learn(policytest.RandomBatch(c.Spec(), rand.New(rand.NewPCG(8, 8)), 4))
	if err == nil || !strings.HasPrefix(err.Error(), "cql update 0: tensor dense0.weight is not finite") {
		t.Error(err)
	}
	c.actor.Weights()[0] = nan
	act.Action = make([]float32, 2)
	if err := c.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Error(err)
	}
}

// TestGreedyActionIsThatOfTheMean, and every action is within the bounds.
func TestGreedyActionIsThatOfTheMean(t *testing.T) {
	c := small()
	act := policies.Act{Obs: make([]float32, 300), Action: make([]float32, 200), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := c.Act(&act); err != nil || act.Action[0] == act.Action[2] {
		t.Errorf("actions %v are not random: %v", act.Action[:4], err)
	}
	act.Greedy = true
	if err := c.Act(&act); err != nil || act.Action[0] != act.Action[2] {
		t.Errorf("greedy actions %v for the same observation: %v", act.Action[:4], err)
	}
	q := smallDiscrete(func(c *DiscreteConfig) { c.Action.Start = 5 })
	says(q.online, 1, 5, 5)
	act.Action = make([]float32, 100)
	if err := q.Act(&act); err != nil || act.Action[0] != 6 {
		t.Errorf("action %v, want the first one of the highest value: %v", act.Action[0], err)
	}
}

func TestConfigsReportAllFaults(t *testing.T) {
	err := errors.Join(Config{
		Action: envs.Box{Low: []float32{0}, High: []float32{0}}, Hidden: []int{0}, Gamma: 2, Tau: -1, ConservativeWeight: math.NaN(),
		Samples: -1, Alpha: -1,
		Actor: nn.AdamConfig{Rate: -1}, Critic: nn.AdamConfig{Rate: -1},
	}.Validate(), DiscreteConfig{Action: envs.Discrete{N: 1}, TargetEvery: -1, Adam: nn.AdamConfig{Rate: -1}}.Validate(), Config{}.Validate())
	for _, want := range []string{"Obs is", "of value 0, want finite", "Hidden[0] is 0", "Gamma is 2", "Tau is -1",
		"ConservativeWeight is NaN", "Samples is -1", "Alpha is -1",
		"Actor.Rate is -1", "Critic.Rate is -1", "Action has 1 actions", "TargetEvery is -1", "Adam.Rate is -1", "want at least one value"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// An update with the default networks and a batch of 256: 7,680 sampled actions for each critic.
func BenchmarkLearn(b *testing.B) {
	c := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 1)})
	batch := policytest.RandomBatch(c.Spec(), rand.New(rand.NewPCG(1, 1)), 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Learn(batch); err != nil {
			b.Fatal(err)
		}
	}
}
