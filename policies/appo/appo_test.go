package appo

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

// TestP1LossEqualsHandComputedNumbers for two actions, of which the target policy chooses the first with
// the probability 1/2 and the present policy with 1/4. In a sequence of three steps with rewards of 1,
// values .5, .6, .7 and then .8, V-trace with the ratios 1.5, .5 and 1 of the target policy to the
// behaviour policy has the targets 2.67017, 1.68704, 1.792 and the advantages 2.17017, 1.08704, 1.092.
func TestP1LossEqualsHandComputedNumbers(t *testing.T) {
	p := New(Config{
		Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 3, Clip: 0.3, KLCoef: 0.2, EntropyCoef: 0.1,
	})
	copy(p.Critic.Weights(), []float32{1, 0})
	copy(p.target.Weights(), []float32{0, 0, 0, 0})
	copy(p.Actor.Weights(), []float32{0, 0, 0, float32(math.Log(3))})
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(3)
	copy(b.Floats(policies.Obs), []float32{0.5, 0.6, 0.7})
	copy(b.Floats(policies.NextObs), []float32{0.6, 0.7, 0.8})
	copy(b.Floats(policies.Reward), []float32{1, 1, 1})
	copy(b.Floats(policies.Action), []float32{0, 1, 1})
	for i, ratio := range []float64{1.5, 0.5, 1} {
		b.Floats(policies.LogProb)[i] = float32(math.Log(0.5 / ratio))
	}
	clear(b.Bytes(policies.Terminated))
	clear(b.Bytes(policies.Truncated))
	m, err := p.Learn(&b)
	if err != nil {
		t.Fatal(err)
	}
	// The ratios to the target policy are .5, 1.5 and 1.5, of which the latter two count as 1.3.
	policyLoss := -(0.5*2.17017 + 1.3*1.08704 + 1.3*1.092) / 3
	valueLoss := (2.17017*2.17017 + 1.08704*1.08704 + 1.092*1.092) / 2 / 3
	entropy := -(0.25*math.Log(0.25) + 0.75*math.Log(0.75))
	kl := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	for name, want := range map[string]float64{
		"train/policy_gradient_loss": policyLoss, "train/value_loss": valueLoss, "train/entropy_loss": -entropy,
		"train/kl": kl, "train/kl_coef": 0.2, "train/loss": policyLoss + 0.5*valueLoss - 0.1*entropy + 0.2*kl,
	} {
		if got := metric(t, m, name); math.Abs(got-want) > 2e-5 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestCorrectionIsBounded: where the behaviour policy is a quarter as likely as RLlib's bound of 2
// allows, the ratio to the target policy is half of what it was.
func TestCorrectionIsBounded(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 1})
	for _, net := range []*nn.Net{p.Actor, p.target} {
		clear(net.Weights())
	}
	copy(p.Critic.Weights(), []float32{0, 0})
	b := collecting.Random(rand.New(rand.NewPCG(1, 1)), p, 1)
	b.Bytes(policies.Terminated)[0], b.Floats(policies.Reward)[0] = 1, 1
	b.Floats(policies.LogProb)[0] = float32(math.Log(0.5 * 4)) // a density may be greater than 1
	m, err := p.Learn(b)
	if err != nil {
		t.Fatal(err)
	}
	// V-trace's advantage is 1/4 of the reward, and the ratio 1/4 times the correction 2 rather than 4.
	if got, want := metric(t, m, "train/policy_gradient_loss"), -0.25*0.5; math.Abs(got-want) > 1e-6 {
		t.Errorf("policy loss %v, want %v", got, want)
	}
}

// TestP1CoefficientEqualsHandComputedNumbers: it adapts with each second update, by the mean of the two
// divergences. The first two are 0.1438 nats, and a target of 0.1, whose double is less than their sum,
// changes nothing; from then on policy and target are equal.
func TestP1CoefficientEqualsHandComputedNumbers(t *testing.T) {
	p := New(Config{
		Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Hidden: []int{}, Length: 1, KLCoef: 0.2, KLTarget: 0.1,
		Adam: nn.AdamConfig{Rate: 1e-30},
	})
	clear(p.target.Weights())
	copy(p.Actor.Weights(), []float32{0, 0, 0, float32(math.Log(3))})
	b := collecting.Random(rand.New(rand.NewPCG(1, 1)), p, 4)
	kl := 0.5*math.Log(0.5/0.25) + 0.5*math.Log(0.5/0.75)
	for i, want := range []struct{ kl, coef float64 }{{kl, 0.2}, {kl, 0.2}, {0, 0.2}, {0, 0.2}, {0, 0.1}} {
		m, err := p.Learn(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := metric(t, m, "train/kl"); math.Abs(got-want.kl) > 1e-6 {
			t.Errorf("update %d: divergence %v, want %v", i, got, want.kl)
		}
		if got := metric(t, m, "train/kl_coef"); math.Abs(got-want.coef) > 1e-12 {
			t.Errorf("update %d: coefficient %v, want %v", i, got, want.coef)
		}
	}
}

// TestTargetFollows: the target is the policy of every second update, and the coefficient adapts then.
func TestTargetFollows(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 3}, Length: 4, KLCoef: 0.2, KLTarget: 1e3})
	rng := rand.New(rand.NewPCG(3, 3))
	if !slices.Equal(p.target.Weights(), p.Actor.Weights()) {
		t.Error("the first target is not the first policy")
	}
	coef := 0.2
	for update := 1; update <= 6; update++ {
		before := slices.Clone(p.target.Weights())
		m, err := p.Learn(collecting.Random(rng, p, 16))
		if err != nil {
			t.Fatal(err)
		}
		if got := metric(t, m, "train/kl_coef"); got != coef {
			t.Errorf("update %d: coefficient %v, want %v", update, got, coef)
		}
		want := before
		if update%2 == 0 {
			want = p.Actor.Weights()
			coef /= 2 // the divergence is less than half of the target
		}
		if !slices.Equal(p.target.Weights(), want) {
			t.Errorf("after update %d the target is another", update)
		}
		if kl := metric(t, m, "train/kl"); (kl > 1e-12) != (update%2 == 0) {
			t.Errorf("update %d: divergence %v", update, kl)
		}
	}
}

// TestP2GradientOfTheLossEqualsCentralDifferences for each kind of action. Targets and advantages are
// constants of the loss: here the differences hold those of the first evaluation.
func TestP2GradientOfTheLossEqualsCentralDifferences(t *testing.T) {
	for name, space := range spaces {
		p := New(Config{
			Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, Length: 3, EntropyCoef: 0.1, KLCoef: 0.2,
			Adam: nn.AdamConfig{Rate: 1e-30}, MaxGradNorm: -1,
		})
		rng := rand.New(rand.NewPCG(5, 5))
		nets := []*nn.Net{p.Actor, p.Critic}
		for _, net := range []*nn.Net{p.Actor, p.Critic, p.target} {
			for i := range net.Weights() {
				net.Weights()[i] = 0.3 * float32(rng.NormFloat64())
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
			old := p.DistributionOf(p.target.Apply(&tape, tape.Const(6, 2, b.Floats(policies.Obs))))
			logProb, oldLogProb := d.LogProb(b.Floats(policies.Action)).Data(), old.LogProb(b.Floats(policies.Action)).Data()
			ent, kl := d.Entropy().Data(), old.KL(&d).Data()
			var sum float64
			for i, target := range targets {
				miss, behaviour := float64(target)-float64(value.Data()[i]), float64(b.Floats(policies.LogProb)[i])
				ratio := min(math.Exp(behaviour-float64(oldLogProb[i])), 2) * math.Exp(float64(logProb[i])-behaviour)
				a := float64(advantages[i])
				surrogate := min(ratio*a, min(max(ratio, 0.6), 1.4)*a)
				sum += 0.5*miss*miss/2 - surrogate - 0.1*float64(ent[i]) + 0.2*float64(kl[i])
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
		cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: space, Seed: 2, Length: 4, KLCoef: 0.2, TargetEvery: 3}
		straight, first := New(cfg), New(cfg)
		rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
		learn := func(p *APPO, rng *rand.Rand, n int) {
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
			!slices.Equal(straight.target.Weights(), second.target.Weights()) || straight.coef != second.coef || straight.kl != second.kl ||
			!slices.Equal(straight.Critic.Weights(), second.Critic.Weights()) {
			t.Errorf("%s: 20 updates and 10 + 10 updates differ", name)
		}
		for _, part := range []string{"appo.actor", "appo.critic", "appo.adam.actor", "appo.adam.critic", "appo.target", "appo.kl"} {
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
		if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != c.Name || !strings.HasPrefix(err.Error(), "appo update 0: ") {
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
		Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Length: 4, MaxGradNorm: 1e-12,
		Adam: nn.AdamConfig{Epsilon: 1e-5},
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
		Hidden: []int{0}, Length: -1, Gamma: 2, MaxRho: -1, MaxC: -1, ValueCoef: -1, Adam: nn.AdamConfig{Rate: -1},
		Clip: 1, KLCoef: -1, KLTarget: -1, TargetEvery: -1,
	}.Validate()
	for _, want := range []string{
		"Obs is", "Action is", "Hidden[0] is 0", "Length is -1", "Gamma is 2", "MaxRho is -1", "MaxC is -1", "ValueCoef is -1",
		"Adam.Rate is -1", "Clip is 1", "KLCoef is -1",
		"KLTarget is -1", "TargetEvery is -1",
	} {
		if err == nil || !strings.Contains(err.Error(), "appo config: "+want) {
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
