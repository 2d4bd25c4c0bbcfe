package ppo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/internal/collecting"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
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

// TestLearnsCartPole with CleanRL's settings, except for the learning rate, which stays.
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

// linear returns a PPO whose critic says the observation, and a batch of n rows for it.
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
	p, b := linear(Config{Clip: 0.1, ValueClip: ClipError}, 4)
	p.SetClip(0.3)
	act := policies.Act{Obs: b.Floats(policies.Obs), Action: make([]float32, 4), Extra: [][]float32{make([]float32, 4), make([]float32, 4)},
		Greedy: true}
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
	if got := metric(t, m, "train/clip_range"); got != 0.3 {
		t.Errorf("clip range %v, want 0.3", got)
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
	if got := metric(t, m, "train/explained_variance"); math.Abs(got+1.25) > 1e-12 {
		t.Errorf("explained variance %v, want -1.25", got)
	}
	for _, m := range m {
		if m.Name == "train/std" {
			t.Error("discrete actions have a standard deviation")
		}
	}
	p = New(Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.NewBox(-1, 1, 3), LogStd: -0.5})
	if m, err = p.Learn(collecting.Random(rand.New(rand.NewPCG(1, 1)), p, 8)); err != nil {
		t.Fatal(err)
	}
	if got := metric(t, m, "train/std"); math.Abs(got-math.Exp(-0.5)) > 1e-6 {
		t.Errorf("standard deviation %v, want that of exp(-0.5)", got)
	}
}

// TestP7WeightThatIsNotFiniteIsNamed when it learns and when it acts.
func TestP7WeightThatIsNotFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 2)})
	rng := rand.New(rand.NewPCG(8, 8))
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rng}
	p.actor.Weights()[0] = nan
	if err := p.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("to act: %v", err)
	}
	_, err := p.Learn(policytest.RandomBatch(p.Spec(), rng, 4))
	if err == nil || !strings.HasPrefix(err.Error(), "ppo update 0: tensor dense0.weight is not finite") {
		t.Errorf("to learn: %v", err)
	}
}

func TestActionThatDoesNotExistIsNamed(t *testing.T) {
	p := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}})
	b := policytest.RandomBatch(p.Spec(), rand.New(rand.NewPCG(9, 9)), 4)
	b.Floats(policies.Action)[2] = 7
	if _, err := p.Learn(b); err == nil || !strings.Contains(err.Error(), "row 2 has the action [7], which is not in Discrete(2)") {
		t.Error(err)
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{Action: envs.MultiDiscrete{N: []int{1}}, Hidden: []int{0}, Clip: 1, ValueCoef: -1, ValueClip: 9, ValueClipParam: -1,
		Threads: -1, Adam: nn.AdamConfig{Rate: -1}}.Validate()
	for _, want := range []string{"Obs is", "Action.N[0] is 1", "Hidden[0] is 0", "Clip is 1", "ValueCoef is -1", "ValueClip is 9",
		"ValueClipParam is -1", "Threads is -1", "Adam.Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	box := envs.NewBox(0, 1, 1)
	for _, action := range []envs.Space{nil, envs.Discrete{N: 1}, envs.Discrete{N: 2, Start: 1}, envs.MultiDiscrete{}, envs.Box{},
		envs.MultiBinary{N: 2}} {
		if err := (Config{Obs: box, Action: action}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
			t.Errorf("%v: %v", action, err)
		}
	}
	if err := (Config{Obs: box, Action: envs.Discrete{N: 2}}).Validate(); err != nil {
		t.Error(err)
	}
}

// A minibatch of CartPole's size: forward, loss, backward, clipping, Adam.
func BenchmarkLearn(b *testing.B) {
	for _, n := range []int{64, 256} {
		b.Run(fmt.Sprintf("4-64-64/batch%d", n), func(b *testing.B) {
			p := New(Config{Obs: envs.NewBox(-1, 1, 4), Action: envs.Discrete{N: 2}})
			batch := policytest.RandomBatch(p.Spec(), rand.New(rand.NewPCG(1, 1)), n)
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

// Env steps per second of collecting and learning: Pong in batches of 131,072 rows, in minibatches of
// 8,192, once over, which are the defaults of PufferLib.
func BenchmarkPong(b *testing.B) {
	const games, length = 1024, 128
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads%d", threads), func(b *testing.B) {
			env := envs.NewSync(games, envs.SameStep, func(int) envs.Env[int] { return envs.NewPong(envs.PongConfig{}) })
			p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1, Threads: threads})
			r := newTrainer(b, p, env, data.RolloutConfig{Length: length, Seed: 1, Epochs: 1, Minibatches: 16})
			b.ReportAllocs()
			for b.Loop() {
				if err := r.step(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(games*length*float64(b.N)/b.Elapsed().Seconds(), "env_steps/s")
		})
	}
}
