package ppo

import (
	"errors"
	"fmt"
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

// trainer collects with a policy from a vector in SameStep mode, and learns from that.
type trainer struct {
	*collecting.Collector

	p       *PPO
	rollout *data.Rollout
	mini    policies.Batch
}

func newTrainer(tb testing.TB, p *PPO, env envs.Vector, cfg data.RolloutConfig) *trainer {
	tb.Helper()
	c, err := collecting.New(p, env, cfg.Length, cfg.Seed)
	if err != nil {
		tb.Fatal(err)
	}
	return &trainer{Collector: c, p: p, rollout: data.NewRollout(cfg)}
}

// step collects a rollout and learns from it.
func (r *trainer) step() error {
	b, err := r.Collect()
	if err != nil {
		return err
	}
	if err := r.rollout.Add(b); err != nil {
		return err
	}
	for r.rollout.Next(&r.mini) {
		if _, err := r.p.Learn(&r.mini); err != nil {
			return err
		}
	}
	return nil
}

// TestLearnsCartPole with CleanRL's settings, but for the learning rate, which stays.
func TestLearnsCartPole(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	env := envs.CartPole(4, envs.SameStep)
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1})
	r := newTrainer(t, p, env, data.RolloutConfig{Length: 128, Seed: 1})
	steps := 0
	for ; steps < 300_000 && r.Mean(20) < 475; steps += 4 * 128 {
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
	}

	if r.Mean(20) < 475 {
		t.Errorf("after %d env steps the mean return is %v", steps, r.Mean(20))
	}
}

// linear is a PPO whose critic says the observation, and a batch of n rows for it.
func linear(cfg Config, n int) (*PPO, *policies.Batch) {
	cfg.Obs, cfg.Hidden, cfg.RawAdvantages, cfg.EntropyCoef = envs.NewBox(-10, 10, 1), []int{}, true, -1
	if cfg.Action == nil {
		cfg.Action = envs.Discrete{N: 2}
	}
	p := New(cfg)
	copy(p.critic.Weights(), []float32{1, 0})
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(n)
	for i := range b.Columns {
		clear(b.Columns[i].Floats)
	}
	return p, &b
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

// TestP1LossesEqualHandComputedNumbers: those of the paper's surrogate, and RLlib's value clip.
func TestP1LossesEqualHandComputedNumbers(t *testing.T) {
	p, b := linear(Config{Clip: 0.3, ValueClip: ClipError}, 4)
	act := policies.Act{Obs: b.Floats(policies.Obs), Action: make([]float32, 4), Extra: [][]float32{make([]float32, 4), make([]float32, 4)}, Greedy: true}
	copy(b.Floats(policies.Obs), []float32{1, 2, 0, 5}) // the values
	if err := p.Act(&act); err != nil {
		t.Fatal(err)
	}
	copy(b.Floats(policies.Action), act.Action)
	for i, ratio := range []float64{1.5, 0.6, 1.1, 1.5} {
		b.Floats(policies.LogProb)[i] = act.Extra[0][i] - float32(math.Log(ratio))
	}
	copy(b.Floats(policies.Advantage), []float32{1, -1, 0.5, -1})
	copy(b.Floats(policies.Return), []float32{1.5, 2, 4, 1})
	m, err := p.Learn(b)
	if err != nil {
		t.Fatal(err)
	}
	if got := metric(t, m, "train/policy_gradient_loss"); math.Abs(got-0.0875) > 1e-6 {
		t.Errorf("policy loss %v, want 0.0875", got)
	}
	if got := metric(t, m, "train/value_loss"); math.Abs(got-5.0625) > 1e-6 {
		t.Errorf("value loss %v, want 5.0625", got)
	}
	if got := metric(t, m, "train/clip_fraction"); got != 0.75 {
		t.Errorf("clip fraction %v, want 3 of 4", got)
	}
	// The clipped value of CleanRL: the values moved by 0.5 from the rollout's, and count as 0.3.
	p, b = linear(Config{Clip: 0.3}, 2)
	copy(b.Floats(policies.Obs), []float32{1, 1})
	copy(b.Floats(policies.Value), []float32{0.5, 1.5})
	copy(b.Floats(policies.Return), []float32{2, 0})
	copy(b.Floats(policies.LogProb), []float32{-0.7, -0.7})
	if m, err = p.Learn(b); err != nil {
		t.Fatal(err)
	}
	if got, want := metric(t, m, "train/value_loss"), (1.2*1.2+1.2*1.2)/2/2; math.Abs(got-want) > 1e-6 {
		t.Errorf("clipped value loss %v, want %v", got, want)
	}
}

// random is a batch for p as a rollout could have it.
func random(rng *rand.Rand, p *PPO, n int) *policies.Batch {
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(n)
	for i := range b.Columns {
		for k := range b.Columns[i].Floats {
			b.Columns[i].Floats[k] = float32(rng.NormFloat64())
		}
	}
	w := p.Spec().Action.Dim()
	for i := range n {
		p.Spec().Action.Sample(b.Floats(policies.Action)[i*w:(i+1)*w], rng)
		b.Floats(policies.LogProb)[i] = -1.5
	}
	return &b
}

var spaces = map[string]envs.Space{
	"discrete": envs.Discrete{N: 3}, "multi-discrete": envs.MultiDiscrete{N: []int{2, 3}}, "box": envs.NewBox(-1, 1, 2),
}

// TestP2GradientOfTheLossEqualsCentralDifferences for each kind of action.
func TestP2GradientOfTheLossEqualsCentralDifferences(t *testing.T) {
	for name, space := range spaces {
		for _, clip := range []ValueClip{ClipValue, ClipError, NoValueClip} {
			t.Run(fmt.Sprint(name, "/", clip), func(t *testing.T) {
				p := New(Config{Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, ValueClip: clip, Adam: nn.AdamConfig{Rate: 1e-30}, MaxGradNorm: -1})
				rng := rand.New(rand.NewPCG(5, 5))
				for _, net := range []*nn.Net{p.actor, p.critic} {
					for i := range net.Weights() {
						net.Weights()[i] = 0.5 * float32(rng.NormFloat64())
					}
				}
				b := random(rng, p, 6)
				loss := func() float64 {
					m, err := p.Learn(b)
					if err != nil {
						t.Fatal(err)
					}
					return m[0].Value
				}
				for _, net := range []*nn.Net{p.actor, p.critic} {
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
							t.Errorf("weight %d: gradient %v, differences give %v", i, grad[i], want)
						}
					}
				}
			})
		}
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	for name, space := range spaces {
		cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: space, Seed: 2}
		straight, first := New(cfg), New(cfg)
		rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
		learn := func(p *PPO, rng *rand.Rand, n int) {
			for range n {
				if _, err := p.Learn(random(rng, p, 16)); err != nil {
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
		if second.Version() != 20 || !slices.Equal(straight.actor.Weights(), second.actor.Weights()) || !slices.Equal(straight.critic.Weights(), second.critic.Weights()) {
			t.Errorf("%s: 20 updates and 10 + 10 updates differ", name)
		}
		for _, part := range []string{"ppo.actor", "ppo.critic", "ppo.adam.actor", "ppo.adam.critic"} {
			var less nn.Archive
			for k, v := range read.Meta {
				if !strings.HasPrefix(k, part+"/") {
					less.SetText(k, v)
				}
			}
			less.Tensors = read.Tensors
			if err := New(cfg).Restore(&less); err == nil || !strings.Contains(err.Error(), "restore "+part) {
				t.Errorf("%s: without %s: %v", name, part, err)
			}
		}
	}
}

func TestWeightsTravel(t *testing.T) {
	cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 4}}
	a, b := New(cfg), New(cfg)
	rng := rand.New(rand.NewPCG(7, 7))
	for range 3 {
		if _, err := a.Learn(random(rng, a, 8)); err != nil {
			t.Fatal(err)
		}
	}
	w := a.Weights()
	if err := b.Load(w); err != nil || b.Version() != 3 || !slices.Equal(a.actor.Weights(), b.actor.Weights()) || !slices.Equal(a.critic.Weights(), b.critic.Weights()) {
		t.Errorf("version %d, %v", b.Version(), err)
	}
	c := New(cfg)
	before := slices.Clone(c.actor.Weights())
	w.Tensors[len(w.Tensors)-1].Data[0] = float32(math.NaN())
	if err := c.Load(w); err == nil || c.Version() != 0 || !slices.Equal(c.actor.Weights(), before) {
		t.Errorf("weights that are not finite: %v, version %d", err, c.Version())
	}
}

func TestP7NonFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 2)})
	rng := rand.New(rand.NewPCG(8, 8))
	before := slices.Clone(p.actor.Weights())
	for _, c := range p.Spec().Learns {
		b := random(rng, p, 4)
		b.Floats(c.Name)[1] = nan
		_, err := p.Learn(b)
		if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != c.Name || !strings.HasPrefix(err.Error(), "ppo update 0: ") {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	act := policies.Act{Obs: []float32{0, nan, 0}, Action: make([]float32, 2), Rand: rng}
	if e, ok := errors.AsType[*nn.NonFiniteError](p.Act(&act)); !ok || e.Tensor != policies.Obs {
		t.Errorf("%v", e)
	}
	p.actor.Weights()[0] = nan
	act.Obs[1] = 0
	if err := p.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight: %v", err)
	}
	copy(p.actor.Weights(), before)
	if p.Version() != 0 {
		t.Error("what was refused counts as an update")
	}
}

func TestLearnAndActRefuse(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}})
	rng := rand.New(rand.NewPCG(9, 9))
	for want, edit := range map[string]func(b *policies.Batch){
		"an empty batch": func(b *policies.Batch) { b.Resize(0) },
		"the batch has no column advantage float32 of 4 rows":   func(b *policies.Batch) { b.Column(policies.Advantage).Name = "x" },
		"the batch has no column obs float32 [3] of 4 rows":     func(b *policies.Batch) { c := b.Column(policies.Obs); c.Floats = c.Floats[:8] },
		"row 2 has the action [7], which is not in Discrete(2)": func(b *policies.Batch) { b.Floats(policies.Action)[2] = 7 },
	} {
		b := random(rng, p, 4)
		edit(b)
		if _, err := p.Learn(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, act := range []policies.Act{{Obs: make([]float32, 4), Action: make([]float32, 1)}, {Obs: make([]float32, 3), Action: make([]float32, 2)}} {
		if err := p.Act(&act); err == nil {
			t.Errorf("%d observed and %d action values pass", len(act.Obs), len(act.Action))
		}
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{Action: envs.MultiDiscrete{N: []int{1}}, Hidden: []int{0}, Clip: 1, ValueCoef: -1, ValueClip: 9, ValueClipParam: -1, Adam: nn.AdamConfig{Rate: -1}}.Validate()
	for _, want := range []string{"Obs is", "Action.N[0] is 1", "Hidden[0] is 0", "Clip is 1", "ValueCoef is -1", "ValueClip is 9", "ValueClipParam is -1", "Adam.Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	box := envs.NewBox(0, 1, 1)
	for _, action := range []envs.Space{nil, envs.Discrete{N: 1}, envs.Discrete{N: 2, Start: 1}, envs.MultiDiscrete{}, envs.Box{}, envs.MultiBinary{N: 2}} {
		if err := (Config{Obs: box, Action: action}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
			t.Errorf("%v: %v", action, err)
		}
	}
	if err := (Config{Obs: box, Action: envs.Discrete{N: 2}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestActAndLearnAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, space := range spaces {
		p := New(Config{Obs: envs.NewBox(-1, 1, 4), Action: space})
		b := random(rng, p, 64)
		act := policies.Act{Obs: b.Floats(policies.Obs), Action: b.Floats(policies.Action), Rand: rng, Extra: [][]float32{make([]float32, 64), make([]float32, 64)}}
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

func ExamplePPO() {
	env := envs.CartPole(1, envs.SameStep)
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
	act := policies.Act{Obs: []float32{0, 0, 0.1, 0}, Action: make([]float32, 1), Greedy: true}
	err := p.Act(&act)
	fmt.Println(err, p.Spec().Action.Contains(act.Action), p.Version())
	// Output: <nil> true 0
}

// A minibatch of CartPole's size: forward, loss, backward, clipping, Adam.
func BenchmarkLearn(b *testing.B) {
	for _, n := range []int{64, 256} {
		b.Run(fmt.Sprintf("4-64-64/batch%d", n), func(b *testing.B) {
			p := New(Config{Obs: envs.NewBox(-1, 1, 4), Action: envs.Discrete{N: 2}})
			batch := random(rand.New(rand.NewPCG(1, 1)), p, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Learn(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Env steps per second of collecting and learning with CleanRL's settings.
func BenchmarkCartPole(b *testing.B) {
	env := envs.CartPole(4, envs.SameStep)
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1})
	r := newTrainer(b, p, env, data.RolloutConfig{Length: 128, Seed: 1})
	for b.Loop() {
		if err := r.step(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(4*128*float64(b.N)/b.Elapsed().Seconds(), "env_steps/s")
}
