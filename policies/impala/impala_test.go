package impala

import (
	"errors"
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

// set returns a batch for p: a sequence of three steps with rewards of 1, observations that are their own
// values .5, .6, .7 and then .8, and ratios of the present policy to that of the data.
func set(t *testing.T, p *IMPALA, ratios [3]float64) *policies.Batch {
	t.Helper()
	copy(p.Critic.Weights(), []float32{1, 0})
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(3)
	copy(b.Floats(policies.Obs), []float32{0.5, 0.6, 0.7})
	copy(b.Floats(policies.NextObs), []float32{0.6, 0.7, 0.8})
	copy(b.Floats(policies.Reward), []float32{1, 1, 1})
	copy(b.Floats(policies.Action), []float32{0, 1, 0})
	copy(p.Actor.Weights(), []float32{0, 0, 0, float32(math.Log(3))}) // the actions have the probabilities 1/4 and 3/4
	for i, prob := range []float64{0.25, 0.75, 0.25} {
		b.Floats(policies.LogProb)[i] = float32(math.Log(prob / ratios[i]))
	}
	clear(b.Bytes(policies.Terminated))
	clear(b.Bytes(policies.Truncated))
	return &b
}

// TestP1LossEqualsHandComputedNumbers: V-trace has the targets 2.67017, 1.68704, 1.792 and the
// advantages 2.17017, 1.08704, 1.092.
func TestP1LossEqualsHandComputedNumbers(t *testing.T) {
	policy := -(2.17017*math.Log(0.25) + 1.08704*math.Log(0.75) + 1.092*math.Log(0.25))
	value := (2.17017*2.17017 + 1.08704*1.08704 + 1.092*1.092) / 2
	entropy := -3 * (0.25*math.Log(0.25) + 0.75*math.Log(0.75))
	for _, sum := range []bool{false, true} {
		scale := 1.0 / 3
		if sum {
			scale = 1
		}
		p := New(Config{Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 3, EntropyCoef: 0.1, SumLoss: sum})
		m, err := p.Learn(set(t, p, [3]float64{1.5, 0.5, 1}))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{
			"train/policy_loss": scale * policy, "train/value_loss": scale * value, "train/entropy_loss": -scale * entropy,
			"train/loss": scale * (policy + 0.5*value - 0.1*entropy),
		} {
			if got := metric(t, m, name); math.Abs(got-want) > 2e-5 {
				t.Errorf("sum %v: %s is %v, want %v", sum, name, got, want)
			}
		}
		if got := metric(t, m, "train/clip_fraction"); got < 0.33 || got > 0.67 { // a ratio of 1 may be rounded up
			t.Errorf("clip fraction %v, want 1 of 3", got)
		}
	}
}

// TestP1ClipsOfTheConfig: ratios of 3, which count as MaxRho 2 and MaxC 0.5, with a discount of 1, and no
// entropy.
func TestP1ClipsOfTheConfig(t *testing.T) {
	p := New(Config{
		Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 3, Gamma: 1, MaxRho: 2, MaxC: 0.5, EntropyCoef: -1,
	})
	m, err := p.Learn(set(t, p, [3]float64{3, 3, 3}))
	if err != nil {
		t.Fatal(err)
	}
	v2 := 0.7 + 2*(1+0.8-0.7)
	v1 := 0.6 + 2*(1+0.7-0.6) + 0.5*(v2-0.7)
	v0 := 0.5 + 2*(1+0.6-0.5) + 0.5*(v1-0.6)
	value := ((v0-0.5)*(v0-0.5) + (v1-0.6)*(v1-0.6) + (v2-0.7)*(v2-0.7)) / 6
	policy := -2 * ((1+v1-0.5)*math.Log(0.25) + (1+v2-0.6)*math.Log(0.75) + (1+0.8-0.7)*math.Log(0.25)) / 3
	for name, want := range map[string]float64{
		"train/policy_loss": policy, "train/value_loss": value, "train/loss": policy + 0.5*value, "train/clip_fraction": 1,
	} {
		if got := metric(t, m, name); math.Abs(got-want) > 2e-5 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestP1EndsEqualHandComputedNumbers: a terminated step has no future, and a truncated one that of its
// own next observation, whose value is 2 here. The ratios are 1 and the targets those of n-step returns.
func TestP1EndsEqualHandComputedNumbers(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(b *policies.Batch)
		target [3]float64
	}{
		{"none", func(*policies.Batch) {}, [3]float64{1 + .99*(1+.99*(1+.99*.8)), 1 + .99*(1+.99*.8), 1 + .99*.8}},
		{"terminated", func(b *policies.Batch) { b.Bytes(policies.Terminated)[2] = 1 }, [3]float64{1 + .99*(1+.99), 1.99, 1}},
		{"terminated in between", func(b *policies.Batch) { b.Bytes(policies.Terminated)[1] = 1 }, [3]float64{1.99, 1, 1 + .99*.8}},
		{"truncated in between", func(b *policies.Batch) {
			b.Bytes(policies.Truncated)[1], b.Floats(policies.NextObs)[1] = 1, 2
		}, [3]float64{1 + .99*(1+.99*2), 1 + .99*2, 1 + .99*.8}},
	} {
		p := New(Config{Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 3})
		b := set(t, p, [3]float64{1, 1, 1})
		c.edit(b)
		if _, err := p.Learn(b); err != nil {
			t.Fatal(err)
		}
		for i, want := range c.target {
			if got := float64(p.vtrace.Targets[i]); math.Abs(got-want) > 1e-5 {
				t.Errorf("%s: target %d is %v, want %v", c.name, i, got, want)
			}
		}
	}
}

// TestP2GradientOfTheLossEqualsCentralDifferences for each kind of action. Targets and advantages are
// constants of the loss: here the differences hold those of the first evaluation.
func TestP2GradientOfTheLossEqualsCentralDifferences(t *testing.T) {
	for name, space := range spaces {
		p := New(Config{
			Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, Length: 3, EntropyCoef: 0.1,
			Adam: nn.AdamConfig{Rate: 1e-30}, MaxGradNorm: -1,
		})
		rng := rand.New(rand.NewPCG(5, 5))
		nets := []*nn.Net{p.Actor, p.Critic}
		for _, net := range nets {
			for i := range net.Weights() {
				net.Weights()[i] = 0.5 * float32(rng.NormFloat64())
			}
		}
		b := collecting.Random(rng, p, 6)
		if _, err := p.Learn(b); err != nil {
			t.Fatal(err)
		}
		targets, advantages := slices.Clone(p.vtrace.Targets), slices.Clone(p.vtrace.Advantages)
		grads := [][]float32{slices.Clone(p.Actor.Grad()), slices.Clone(p.Critic.Grad())}
		loss := func() float64 {
			var tape nn.Tape
			d, value := p.Evaluate(&tape, b)
			logProb, ent := d.LogProb(b.Floats(policies.Action)).Data(), d.Entropy().Data()
			var sum float64
			for i, target := range targets {
				miss := float64(target) - float64(value.Data()[i])
				sum += 0.5*miss*miss/2 - float64(advantages[i])*float64(logProb[i]) - 0.1*float64(ent[i])
			}
			return sum / 6
		}
		for k, net := range nets {
			for i, v := range net.Weights() {
				const h = 2e-3
				net.Weights()[i] = v + h
				up := loss()
				net.Weights()[i] = v - h
				down := loss()
				net.Weights()[i] = v
				if want := (up - down) / (2 * h); math.Abs(float64(grads[k][i])-want) > 5e-3*(1+math.Abs(want)) {
					t.Errorf("%s, weight %d: gradient %v, differences give %v", name, i, grads[k][i], want)
				}
			}
		}
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	for name, space := range spaces {
		optimizer, kind := nn.RMSpropConfig{}, "adam"
		if name == "box" {
			optimizer.Rate, kind = 6e-4, "rmsprop"
		}
		cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: space, Seed: 2, Length: 4, RMSprop: optimizer}
		straight, first := New(cfg), New(cfg)
		rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
		learn := func(p *IMPALA, rng *rand.Rand, n int) {
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
		for _, part := range []string{"impala.actor", "impala.critic", "impala." + kind + ".actor", "impala." + kind + ".critic"} {
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
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Length: 2})
	rng := rand.New(rand.NewPCG(8, 8))
	before := slices.Clone(p.Actor.Weights())
	for _, c := range p.Spec().Learns {
		if c.Kind != policies.Float32 {
			continue
		}
		b := collecting.Random(rng, p, 4)
		b.Floats(c.Name)[1] = float32(math.NaN())
		_, err := p.Learn(b)
		if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != c.Name || !strings.HasPrefix(err.Error(), "impala update 0: ") {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	b := collecting.Random(rng, p, 4)
	b.Floats(policies.Reward)[0] = 1e30 // its square is infinite
	if _, err := p.Learn(b); err == nil || !strings.Contains(err.Error(), "tensor loss is not finite") {
		t.Errorf("a loss: %v", err)
	}
	var e *policies.UpdateError
	if _, err := p.Learn(collecting.Random(rng, p, 3)); !errors.As(err, &e) ||
		!strings.Contains(err.Error(), "3 rows, want whole sequences of 2 steps") {
		t.Errorf("3 rows: %v", err)
	}
	if p.Version() != 0 || !slices.Equal(p.Actor.Weights(), before) {
		t.Error("what was refused has changed the policy")
	}
}

// TestGradientsAreClipped before the optimiser sees them: its epsilon is far greater than what is left.
func TestGradientsAreClipped(t *testing.T) {
	p := New(Config{
		Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Length: 4,
		RMSprop: nn.RMSpropConfig{Rate: 1e-2, Epsilon: 1e-5}, MaxGradNorm: 1e-12,
	})
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
	err := Config{
		Hidden: []int{0}, Length: -1, Gamma: 2, MaxRho: -1, MaxC: -1, ValueCoef: -1,
		Adam: nn.AdamConfig{Rate: -1}, RMSprop: nn.RMSpropConfig{Rate: -1},
	}.Validate()
	for _, want := range []string{
		"Obs is", "Action is", "Hidden[0] is 0", "Length is -1", "Gamma is 2", "MaxRho is -1", "MaxC is -1", "ValueCoef is -1",
		"Adam.Rate is -1", "RMSprop.Rate is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), "impala config: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	box := envs.NewBox(0, 1, 1)
	if err := (Config{Obs: box, Action: envs.Discrete{N: 2}, MaxRho: 1, MaxC: 2}).Validate(); err == nil ||
		!strings.Contains(err.Error(), "MaxC is 2") {
		t.Error(err)
	}
	if err := (Config{Obs: box, Action: envs.Discrete{N: 2}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestActAndLearnAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, space := range spaces {
		p := New(Config{Obs: envs.NewBox(-1, 1, 4), Action: space, Length: 10})
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

// train learns for that many env steps, or until the mean return of 100 episodes is enough, from sequences
// that a policy lag updates older than the present one has collected.
func train(t *testing.T, cfg Config, env envs.Vector, lag, envSteps int, enough float64) *collecting.Collector {
	t.Helper()
	cfg.Obs, cfg.Action = env.ObservationSpace(), env.ActionSpace()
	p, old := New(cfg), New(cfg)
	c, err := collecting.New(old, env, p.Config().Length, cfg.Seed)
	if err != nil {
		t.Fatal(err)
	}
	weights := slices.Repeat([]nn.State{p.Weights()}, lag+1) // of version v at v modulo their number
	for c.EnvSteps < envSteps && c.Mean(100) < enough {
		now := int(p.Version())
		if err := old.Load(weights[(now+1)%len(weights)]); err != nil {
			t.Fatal(err)
		}
		if want := max(now-lag, 0); old.Version() != uint64(want) {
			t.Fatalf("version %d acts at version %d, want %d", old.Version(), now, want)
		}
		b, err := c.Collect()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Learn(b); err != nil {
			t.Fatal(err)
		}
		weights[(now+1)%len(weights)] = p.Weights()
	}
	return c
}

// TestLearnsCartPole from data that is 4 updates old: a mean return of 195, the threshold of the older
// CartPole-v0.
func TestLearnsCartPole(t *testing.T) {
	c := train(t, Config{Seed: 1}, envs.CartPole(10, envs.SameStep), 4, 500_000, 195)
	if c.Mean(100) < 195 {
		t.Errorf("after %d env steps the mean return is %v", c.EnvSteps, c.Mean(100))
	}
}
