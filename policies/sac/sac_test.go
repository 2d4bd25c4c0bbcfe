package sac

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
	"github.com/ditask/ditask/policies/nn"
)

// TestLearnsPendulum: one update for each env step, after 1,000 random ones. An untrained policy has
// a mean return of some -1,200.
func TestLearnsPendulum(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	env := envs.NewSync(1, envs.SameStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
	box := env.ActionSpace().(envs.Box)
	s := New(Config{Obs: env.ObservationSpace(), Action: box, Seed: 1, Hidden: []int{64, 64}, Actor: nn.AdamConfig{Rate: 1e-3}, Critic: nn.AdamConfig{Rate: 1e-3}})
	rng := rand.New(rand.NewPCG(1, 1))
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 1), Rand: rng}
	replay := data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: 1})
	var one, mini policies.Batch
	one.Init(s.Spec().Learns...)
	first, err := env.Reset(1)
	if err != nil {
		t.Fatal(err)
	}
	copy(act.Obs, first)
	var returns []float64
	running := 0.0
	for step := range 8000 {
		err := s.Act(&act)
		if step < 1000 {
			box.Sample(act.Action, rng)
		}
		res, err2 := env.Step(act.Action)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		next := res.Obs
		running += res.Rewards[0]
		if res.Truncated[0] {
			next = res.FinalObs
			returns = append(returns, running)
			running = 0
		}
		one.Resize(0)
		one.Append(policies.Transition{Obs: act.Obs, Action: act.Action, Reward: float32(res.Rewards[0]), NextObs: next, Truncated: res.Truncated[0], Steps: 1})
		copy(act.Obs, res.Obs)
		if err := replay.Add(&one); err != nil {
			t.Fatal(err)
		}
		if step < 1000 {
			continue
		}
		if err := replay.Sample(&mini, 64); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Learn(&mini); err != nil {
			t.Fatal(err)
		}
	}
	var sum float64
	for _, r := range returns[len(returns)-10:] {
		sum += r / 10
	}
	if sum < -250 {
		t.Errorf("the last ten episodes have a mean return of %v", sum)
	}
}

// random is a batch for s as a replay could have it.
func random(rng *rand.Rand, s *SAC, n int) *policies.Batch {
	var b policies.Batch
	b.Init(s.Spec().Learns...)
	vector := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	obs, action := s.Spec().Obs.Dim(), make([]float32, s.Spec().Action.Dim())
	for range n {
		s.Spec().Action.Sample(action, rng)
		b.Append(policies.Transition{Obs: vector(obs), Action: action, Reward: vector(1)[0], NextObs: vector(obs), Terminated: rng.IntN(4) == 0, Steps: 1 + rng.IntN(2)})
	}
	return &b
}

func small(edit func(*Config)) *SAC {
	cfg := Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 2), Hidden: []int{8}, Seed: 3}
	if edit != nil {
		edit(&cfg)
	}
	return New(cfg)
}

// TestP1TargetsEqualHandComputedNumbers: critics that say 2 and 3, an actor of standard deviation
// exp(-1.5) and mean 0, whose noise is drawn from the same stream.
func TestP1TargetsEqualHandComputedNumbers(t *testing.T) {
	s := small(func(c *Config) {
		c.Obs, c.Action, c.Hidden, c.Alpha, c.Gamma = envs.NewBox(-1, 1, 1), envs.NewBox(-2, 2, 1), []int{}, 0.5, 0.9
	})
	clear(s.actor.Weights())
	for i, q := range s.targets {
		clear(q.Weights())
		q.Weights()[2] = float32(2 + i) // the bias
	}
	b := random(rand.New(rand.NewPCG(1, 1)), s, 3)
	copy(b.Floats(policies.Reward), []float32{1, 1, 1})
	copy(b.Bytes(policies.Terminated), []uint8{0, 1, 0})
	copy(b.Bytes(policies.Steps), []uint8{1, 1, 2})
	noise := rand.New(rand.NewPCG(3, 0x736163))
	s.bootstrap(b)
	for i, gamma := range []float64{0.9, 0, 0.81} {
		const std = -1.5 // its logarithm
		z := noise.NormFloat64()
		u := z * math.Exp(std)
		logProb := -z*z/2 - std - math.Log(2*math.Pi)/2 - math.Log(2*(1-math.Tanh(u)*math.Tanh(u)))
		if want := 1 + gamma*(2-0.5*logProb); math.Abs(float64(s.wanted[i])-want) > 1e-5 {
			t.Errorf("row %d: target %v, want %v", i, s.wanted[i], want)
		}
	}
}

// TestAlphaMovesTheEntropyToItsTarget: it grows where the entropy is too low.
func TestAlphaMovesTheEntropyToItsTarget(t *testing.T) {
	for _, c := range []struct {
		target float64
		grows  bool
	}{{10, true}, {-20, false}} {
		s := small(func(c2 *Config) { c2.TargetEntropy = c.target })
		b := random(rand.New(rand.NewPCG(2, 2)), s, 16)
		for range 2 {
			if _, err := s.Learn(b); err != nil {
				t.Fatal(err)
			}
		}
		if s.Alpha() > 1 != c.grows || s.Alpha() == 1 {
			t.Errorf("target %v: alpha %v", c.target, s.Alpha())
		}
	}
	fixed := small(func(c *Config) { c.Alpha = 0.25 })
	b := random(rand.New(rand.NewPCG(2, 2)), fixed, 16)
	for range 2 {
		if _, err := fixed.Learn(b); err != nil || math.Abs(fixed.Alpha()-0.25) > 1e-6 {
			t.Errorf("alpha %v, %v", fixed.Alpha(), err)
		}
	}
}

// TestP2GradientOfTheActorEqualsCentralDifferences, through both critics and with the same noise.
func TestP2GradientOfTheActorEqualsCentralDifferences(t *testing.T) {
	s := small(func(c *Config) { c.Alpha, c.Actor.Rate, c.ActorEvery = 0.3, 1e-30, 1 })
	b := random(rand.New(rand.NewPCG(4, 4)), s, 8)
	loss := func() float64 {
		s.source.Seed(1, 1)
		s.metrics = s.metrics[:0]
		if err := s.learnActor(b); err != nil {
			t.Fatal(err)
		}
		return s.metrics[0].Value
	}
	loss()
	grad := slices.Clone(s.actor.Grad())
	for i, v := range s.actor.Weights() {
		const h = 2e-3
		s.actor.Weights()[i] = v + h
		up := loss()
		s.actor.Weights()[i] = v - h
		down := loss()
		s.actor.Weights()[i] = v
		if want := (up - down) / (2 * h); math.Abs(float64(grad[i])-want) > 5e-3*(1+math.Abs(want)) {
			t.Errorf("weight %d: gradient %v, differences give %v", i, grad[i], want)
		}
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	straight, first := small(nil), small(nil)
	rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
	learn := func(s *SAC, rng *rand.Rand, n int) {
		for range n {
			if _, err := s.Learn(random(rng, s, 16)); err != nil {
				t.Fatal(err)
			}
		}
	}
	learn(straight, rng1, 21)
	learn(first, rng2, 11)
	var a, read nn.Archive
	if err := first.Save(&a); err != nil {
		t.Fatal(err)
	}
	file, err := a.AppendBinary(nil)
	second := small(func(c *Config) { c.Seed = 99 })
	if err := errors.Join(err, read.UnmarshalBinary(file), second.Restore(&read)); err != nil {
		t.Fatal(err)
	}
	learn(second, rng2, 10)
	x, y := straight.parts().State(0), second.parts().State(0)
	for i := range x.Tensors {
		if !slices.Equal(x.Tensors[i].Data, y.Tensors[i].Data) {
			t.Errorf("%s differs between 21 updates and 11 + 10", x.Tensors[i].Name)
		}
	}
	if second.Version() != 21 {
		t.Errorf("version %d", second.Version())
	}
	for _, part := range second.parts() {
		var less nn.Archive
		for k, v := range read.Meta {
			if !strings.HasPrefix(k, part.Name+"/") {
				less.SetText(k, v)
			}
		}
		less.Tensors = read.Tensors
		if err := small(nil).Restore(&less); err == nil || !strings.Contains(err.Error(), "restore "+part.Name) {
			t.Errorf("without %s: %v", part.Name, err)
		}
	}
}

func TestP7NonFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	for _, name := range []string{policies.Obs, policies.Action, policies.Reward, policies.NextObs} {
		s := small(nil)
		b := random(rand.New(rand.NewPCG(8, 8)), s, 4)
		b.Floats(name)[1] = nan
		_, err := s.Learn(b)
		if e, ok := errors.AsType[*nn.NonFiniteError](err); !ok || e.Tensor != name || !strings.HasPrefix(err.Error(), "sac update 0: ") || s.Version() != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := small(nil)
	s.critics[1].Weights()[0] = nan
	if _, err := s.Learn(random(rand.New(rand.NewPCG(8, 8)), s, 4)); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight of a critic: %v", err)
	}
	s.actor.Weights()[0] = nan
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := s.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight of the actor: %v", err)
	}
	if act.Obs[0] = nan; s.Act(&act) == nil {
		t.Error("an observation that is not finite passes")
	}
}

// TestGreedyActionIsThatOfTheMean, and every action is within the bounds.
func TestGreedyActionIsThatOfTheMean(t *testing.T) {
	s := small(nil)
	act := policies.Act{Obs: make([]float32, 300), Action: make([]float32, 200), Rand: rand.New(rand.NewPCG(1, 1))}
	for range 10 {
		if err := s.Act(&act); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if a := act.Action[2*i : 2*i+2]; !s.cfg.Action.Contains(a) {
				t.Fatalf("action %v", a)
			}
		}
	}
	if act.Action[0] == act.Action[2] {
		t.Error("actions are not random")
	}
	act.Greedy = true
	if err := s.Act(&act); err != nil || act.Action[0] != act.Action[2] {
		t.Errorf("greedy actions %v and %v for the same observation, %v", act.Action[0], act.Action[2], err)
	}
	if act.Action = act.Action[:3]; s.Act(&act) == nil {
		t.Error("half an action passes")
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{
		Action: envs.Box{Low: []float32{0, float32(math.Inf(-1))}, High: []float32{0, 1}}, Hidden: []int{0}, Gamma: 2, Tau: -1, Alpha: -1, ActorEvery: -1,
		Actor: nn.AdamConfig{Rate: -1}, Critic: nn.AdamConfig{Rate: -1},
	}.Validate()
	for _, want := range []string{"Obs is", "of value 0, want finite", "of value 1, want finite", "Hidden[0] is 0", "Gamma is 2", "Tau is -1", "Alpha is -1",
		"ActorEvery is -1", "Actor.Rate is -1", "Critic.Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := (Config{Obs: envs.NewBox(0, 1, 1)}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
		t.Errorf("no action: %v", err)
	}
}

func TestLearnAndActAllocateNothing(t *testing.T) {
	s := small(nil)
	b := random(rand.New(rand.NewPCG(1, 1)), s, 32)
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if n := testing.AllocsPerRun(20, func() {
		_, err := s.Learn(b)
		if err := errors.Join(err, s.Act(&act)); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an update and an action allocate %v times", n)
	}
}

func ExampleSAC() {
	s := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 1), Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1), Greedy: true}
	err := s.Act(&act)
	fmt.Println(err, s.Config().Action.Contains(act.Action), s.Alpha())
	// Output: <nil> true 1
}

// An update with networks of 3-256-256 and a batch of 256: critics always, the actor in pairs.
func BenchmarkLearn(b *testing.B) {
	s := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 1)})
	batch := random(rand.New(rand.NewPCG(1, 1)), s, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Learn(batch); err != nil {
			b.Fatal(err)
		}
	}
}
