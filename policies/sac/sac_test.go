package sac

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/internal/offpolicy"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// TestLearnsPendulum: one update for each env step, after 1,000 random ones. An untrained policy has
// a mean return of some -1,200.
func TestLearnsPendulum(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	env := envs.NewSync(1, envs.SameStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
	rate := nn.AdamConfig{Rate: 1e-3}
	s := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 1, Hidden: []int{64, 64}, Actor: rate, Critic: rate})
	r, err := offpolicy.New(s, env, offpolicy.Config{RandomSteps: 1000, Batch: 64, Seed: 1})
	if err := errors.Join(err, r.Run(8000)); err != nil {
		t.Fatal(err)
	}
	if score := r.Last(10); score < -250 {
		t.Errorf("the last ten episodes have a mean return of %v", score)
	}
}

// random returns a batch for s as a replay could have it.
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
		b.Append(policies.Transition{Obs: vector(obs), Action: action, Reward: vector(1)[0], NextObs: vector(obs), Terminated: rng.IntN(4) == 0,
			Steps: 1 + rng.IntN(2)})
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

func discrete(c *Config) { c.Action = envs.Discrete{N: 3} }

// kinds are a config's edits for each kind of actions.
var kinds = map[string]func(*Config){
	"box": func(*Config) {}, "discrete": discrete,
	// Without hidden layers for the gradients, which end at the deviations.
	"state-dependent noise": func(c *Config) { c.DrawEvery, c.LogStd, c.Hidden = 3, -1, []int{} },
}

// TestP1DiscreteValuesEqualHandComputedNumbers: probabilities 0.2, 0.3 and 0.5, critics that say
// 1, 5, 3 and 4, 2, 3.
func TestP1DiscreteValuesEqualHandComputedNumbers(t *testing.T) {
	s := small(func(c *Config) {
		discrete(c)
		c.Obs, c.Hidden, c.Alpha, c.Gamma, c.Actor.Rate, c.Critic.Rate = envs.NewBox(-1, 1, 1), []int{}, 0.5, 0.9, 1e-30, 1e-30
	})
	says := func(net *nn.Net, values ...float32) { // whatever is observed
		clear(net.Weights())
		copy(net.Weights()[3:], values)
	}
	logs := []float64{math.Log(0.2), math.Log(0.3), math.Log(0.5)}
	says(s.actor, float32(logs[0]), float32(logs[1]), float32(logs[2]))
	for _, critics := range [][2]*nn.Net{s.critics, s.targets} {
		says(critics[0], 1, 5, 3)
		says(critics[1], 4, 2, 3)
	}
	entropy := -(0.2*logs[0] + 0.3*logs[1] + 0.5*logs[2])
	value := 0.2*1 + 0.3*2 + 0.5*3 + 0.5*entropy
	b := random(rand.New(rand.NewPCG(1, 1)), s, 3)
	copy(b.Floats(policies.Reward), []float32{1, 1, 1})
	copy(b.Floats(policies.Action), []float32{2, 0, 1})
	copy(b.Bytes(policies.Terminated), []uint8{0, 1, 0})
	copy(b.Bytes(policies.Steps), []uint8{1, 1, 2})
	metrics, err := s.Learn(b)
	if err != nil {
		t.Fatal(err)
	}
	targets := []float64{1 + 0.9*value, 1, 1 + 0.81*value}
	for i, want := range targets {
		if math.Abs(float64(s.wanted[i])-want) > 1e-5 {
			t.Errorf("row %d: target %v, want %v", i, s.wanted[i], want)
		}
	}
	var critic float64
	for i, q := range [][2]float64{{3, 3}, {1, 4}, {5, 2}} {
		d1, d2 := q[0]-targets[i], q[1]-targets[i]
		critic += (d1*d1 + d2*d2) / 3
	}
	for i, want := range []policies.Metric{
		{Name: "train/critic_loss", Value: critic}, {Name: "train/q_value", Value: 3}, {Name: "train/actor_loss", Value: -value},
		{Name: "train/ent_coef", Value: 0.5}, {Name: "train/entropy", Value: entropy},
	} {
		if got := metrics[i]; got.Name != want.Name || math.Abs(got.Value-want.Value) > 1e-5 {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// TestDiscreteActions: greedy is the most probable one, others are drawn with their probabilities, and
// actions that do not exist are refused.
func TestDiscreteActions(t *testing.T) {
	s := small(func(c *Config) { discrete(c); c.Hidden = []int{} })
	clear(s.actor.Weights())
	copy(s.actor.Weights()[9:], []float32{float32(math.Log(0.2)), float32(math.Log(0.5)), float32(math.Log(0.3))})
	const rows = 3000
	act := policies.Act{Obs: make([]float32, 3*rows), Action: make([]float32, rows), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := s.Act(&act); err != nil {
		t.Fatal(err)
	}
	var count [3]float64
	for _, a := range act.Action {
		count[int(a)]++
	}
	for i, p := range []float64{0.2, 0.5, 0.3} {
		if math.Abs(count[i]/rows-p) > 0.03 {
			t.Errorf("action %d was drawn %v times of %d, want %v of them", i, count[i], rows, p)
		}
	}
	act.Greedy = true
	if err := s.Act(&act); err != nil || slices.Max(act.Action) != 1 || slices.Min(act.Action) != 1 {
		t.Errorf("greedy actions %v, %v", act.Action[:4], err)
	}
	b := random(rand.New(rand.NewPCG(1, 1)), s, 4)
	b.Floats(policies.Action)[2] = 3
	if _, err := s.Learn(b); err == nil || err.Error() != "sac update 0: row 2 has the action [3], which is not in Discrete(3)" {
		t.Errorf("%v", err)
	}
	s.actor.Weights()[0] = float32(math.NaN())
	if err := s.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight of the actor: %v", err)
	}
}

// TestTargetsFollowEveryTargetEvery updates.
func TestTargetsFollowEveryTargetEvery(t *testing.T) {
	for _, every := range []int{1, 3} {
		s := small(func(c *Config) { discrete(c); c.TargetEvery = every })
		b := random(rand.New(rand.NewPCG(2, 2)), s, 16)
		for i := range 7 {
			if _, err := s.Learn(b); err != nil {
				t.Fatal(err)
			}
			if equal := slices.Equal(s.targets[1].Weights(), s.critics[1].Weights()); equal != ((i+1)%every == 0) {
				t.Errorf("each %d updates: after %d the target is the critic: %v", every, i+1, equal)
			}
		}
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
		Action: envs.Box{Low: []float32{0, float32(math.Inf(-1))},
			High: []float32{0, 1}}, Hidden: []int{0}, Gamma: 2, Tau: -1, TargetEvery: -1, Alpha: -1, ActorEvery: -1,
		Actor: nn.AdamConfig{Rate: -1}, Critic: nn.AdamConfig{Rate: -1}, Threads: -1,
	}.Validate()
	for _, want := range []string{"Obs is", "of value 0, want finite", "of value 1, want finite", "Hidden[0] is 0", "Gamma is 2",
		"Tau is -1", "TargetEvery is -1", "Alpha is -1",
		"ActorEvery is -1", "Threads is -1", "Actor.Rate is -1", "Critic.Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, action := range []envs.Space{nil, envs.Box{}, envs.Discrete{N: 1}, envs.Discrete{N: 2, Start: 1}, envs.MultiBinary{N: 2}} {
		if err := (Config{Obs: envs.NewBox(0, 1, 1), Action: action}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
			t.Errorf("%v: %v", action, err)
		}
	}
}

// An update with networks of 3-256-256 and a batch of 256: critics always, the actor in pairs.
func BenchmarkLearn(b *testing.B) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("3-256-256/batch256/threads%d", threads), func(b *testing.B) {
			s := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 1), Threads: threads})
			batch := random(rand.New(rand.NewPCG(1, 1)), s, 256)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Learn(batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestThreadsChangeNoBit of an update whose products are large enough to be divided.
func TestThreadsChangeNoBit(t *testing.T) {
	var want nn.State
	for _, threads := range []int{1, 2, 5} {
		s := New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-1, 1, 1), Threads: threads, Seed: 5})
		batch := random(rand.New(rand.NewPCG(1, 1)), s, 256)
		for range 4 {
			if _, err := s.Learn(batch); err != nil {
				t.Fatal(err)
			}
		}
		if got := s.Weights(); threads == 1 {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%d threads: other weights than those of one", threads)
		}
	}
}

// TestP7WeightThatIsNotFiniteIsNamed when it learns and when it acts.
func TestP7WeightThatIsNotFiniteIsNamed(t *testing.T) {
	nan := float32(math.NaN())
	s := small(nil)
	s.critics[1].Weights()[0] = nan
	_, err := s.Learn(policytest.RandomBatch(s.Spec(), rand.New(rand.NewPCG(8, 8)), 4))
	if err == nil || !strings.HasPrefix(err.Error(), "sac update 0: tensor dense0.weight is not finite") {
		t.Errorf("a weight of a critic: %v", err)
	}
	s.actor.Weights()[0] = nan
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := s.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Errorf("a weight of the actor: %v", err)
	}
}
