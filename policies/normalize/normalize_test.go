package normalize_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/policytest"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/td3"
)

func TestConformance(t *testing.T) {
	obs := envs.NewBox(-1, 1, 3)
	for name, inner := range map[string]func(seed uint64) policies.Policy{
		"dqn": func(seed uint64) policies.Policy {
			return dqn.New(dqn.Config{Obs: obs, Action: envs.Discrete{N: 3}, Hidden: []int{6}, Seed: seed})
		},
		"ppo": func(seed uint64) policies.Policy {
			return ppo.New(ppo.Config{Obs: obs, Action: envs.Discrete{N: 3}, Hidden: []int{6}, Seed: seed})
		},
		"td3": func(seed uint64) policies.Policy {
			return td3.New(td3.Config{Obs: obs, Action: envs.NewBox(-1, 1, 2), Hidden: []int{6}, Seed: seed})
		},
	} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Config{Sampled: name == "td3", New: func(seed uint64) policies.Policy {
				p := normalize.New(inner(seed), normalize.Config{})
				rng := rand.New(rand.NewPCG(9, 9))
				observe(t, p, observed(rng, 50))
				return p
			}})
		})
		t.Run(name+" with rewards", func(t *testing.T) {
			policytest.Run(t, policytest.Config{Sampled: name == "td3", New: func(seed uint64) policies.Policy {
				p := normalize.New(inner(seed), normalize.Config{Rewards: true, RawObservations: true})
				if err := p.MergeReturns([]float64{9, -1, 4}); err != nil {
					t.Fatal(err)
				}
				return p
			}})
		})
	}
}

// observe has p take rows into account.
func observe(t *testing.T, p *normalize.Policy, b *policies.Batch) {
	t.Helper()
	sum, err := p.Observe(b)
	if err := errors.Join(err, p.Merge(sum)); err != nil {
		t.Fatal(err)
	}
}

// observed are n rows of three values of different scales.
func observed(rng *rand.Rand, n int) *policies.Batch {
	var b policies.Batch
	b.Init(policies.Column{Name: policies.Obs, Kind: policies.Float32, Shape: []int{3}})
	b.Resize(n)
	for i := range n {
		copy(b.Floats(policies.Obs)[3*i:], []float32{float32(rng.NormFloat64()), float32(100 + 10*rng.NormFloat64()),
			float32(1e-3 * rng.NormFloat64())})
	}
	return &b
}

// spy is a policy that records what it is given.
type spy struct {
	policies.Policy
	act, obs, next []float32
	rewards        []float32
	clip           float64
}

func (s *spy) SetClip(epsilon float64) { s.clip = epsilon }

func (s *spy) Spec() policies.Spec {
	return policies.Spec{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Learns: policies.TransitionColumns(3, 1)}
}

func (s *spy) Act(a *policies.Act) error {
	s.act = slices.Clone(a.Obs)
	a.Action[0] = 1
	return nil
}

func (s *spy) Learn(b *policies.Batch) ([]policies.Metric, error) {
	s.obs, s.next = slices.Clone(b.Floats(policies.Obs)), slices.Clone(b.Floats(policies.NextObs))
	s.rewards = slices.Clone(b.Floats(policies.Reward))
	b.Bytes(policies.Terminated)[0] = 7 // as a policy writes a TDError
	return nil, nil
}

// TestScale is that of all that was observed, in parts, by the definition of mean and variance.
func TestScale(t *testing.T) {
	s := &spy{}
	p := normalize.New(s, normalize.Config{Epsilon: 1e-12})
	raw := []float32{1, 130, 0.002}
	act := policies.Act{Obs: slices.Clone(raw), Action: make([]float32, 1)}
	if err := p.Act(&act); err != nil || !slices.Equal(s.act, []float32{1, 10, 0.002}) {
		t.Errorf("before anything was observed: %v (only clipped), %v", s.act, err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	var all []float32
	for _, n := range []int{1, 70, 29} {
		b := observed(rng, n)
		all = append(all, b.Floats(policies.Obs)...)
		observe(t, p, b)
	}
	want := make([]float64, 3)
	for i := range want {
		var mean, variance float64
		for k := i; k < len(all); k += 3 {
			mean += float64(all[k]) / 100
		}
		for k := i; k < len(all); k += 3 {
			variance += (float64(all[k]) - mean) * (float64(all[k]) - mean) / 100
		}
		want[i] = (float64(raw[i]) - mean) / math.Sqrt(variance)
	}
	var b policies.Batch
	b.Init(policies.TransitionColumns(3, 1)...)
	b.Append(policies.Transition{Obs: raw, Action: []float32{0}, NextObs: raw, Steps: 1})
	if err := p.Act(&act); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Learn(&b); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][]float32{"act": s.act, "obs": s.obs, "next_obs": s.next} {
		for i := range want {
			if math.Abs(float64(got[i])-want[i]) > 1e-5*(1+math.Abs(want[i])) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	if !slices.Equal(act.Obs, raw) || !slices.Equal(b.Floats(policies.Obs), raw) || b.Bytes(policies.Terminated)[0] != 7 ||
		act.Action[0] != 1 {
		t.Error("the caller's observations are not as they were, or what the policy wrote is lost")
	}
}

// TestRewards are divided by the deviation of the discounted returns. Rewards of -1 and a discount of 0.5 have the returns
// -1, -1.5, -1.75 and -1.875, of mean -1.53125 and variance 0.1123047. Merged with a variance of 1 that counts 1/10,000:
// (0.0001 + 4*0.1123047 + 1.53125^2*0.0001*4/4.0001) / 4.0001 = 0.1123855.
func TestRewards(t *testing.T) {
	for _, raw := range []bool{false, true} {
		s := &spy{}
		p := normalize.New(s, normalize.Config{Rewards: true, Gamma: 0.5, RawObservations: raw})
		if got := p.ReturnDiscount(); got != 0.5 {
			t.Errorf("the discount is %v", got)
		}
		var b policies.Batch
		b.Init(policies.TransitionColumns(3, 1)...)
		for _, reward := range []float32{-1, 0.5, -5, 100} {
			b.Append(policies.Transition{Obs: []float32{20, 1, 1}, Action: []float32{0}, NextObs: []float32{1, 1, 1}, Reward: reward, Steps: 1})
		}
		for _, step := range []struct {
			moments []float64
			want    []float32
		}{
			{nil, []float32{-1, 0.5, -5, 10}},
			{[]float64{3, -4.25 / 3, 6.3125/3 - 4.25*4.25/9, 1, -1.875, 0}, []float32{-2.982942, 1.491471, -10, 10}},
		} {
			if err := p.MergeReturns(step.moments); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Learn(&b); err != nil {
				t.Fatal(err)
			}
			for i, want := range step.want {
				if math.Abs(float64(s.rewards[i]-want)) > 2e-6 {
					t.Errorf("after %v: rewards %v, want %v", step.moments, s.rewards, step.want)
				}
			}
		}
		if want := float32(10); raw != (s.obs[0] == 20) || !raw && s.obs[0] != want {
			t.Errorf("RawObservations is %v, and 20 was observed as %v", raw, s.obs[0])
		}
		if b.Floats(policies.Reward)[0] != -1 {
			t.Errorf("the caller's reward is %v", b.Floats(policies.Reward)[0])
		}
	}
	s := &spy{}
	p := normalize.New(s, normalize.Config{})
	var b policies.Batch
	b.Init(policies.TransitionColumns(3, 1)...)
	b.Append(policies.Transition{Obs: []float32{1, 1, 1}, Action: []float32{0}, NextObs: []float32{1, 1, 1}, Reward: 50, Steps: 1})
	if _, err := p.Learn(&b); err != nil || s.rewards[0] != 50 || p.ReturnDiscount() != 0 {
		t.Errorf("without Rewards: %v, discount %v, %v", s.rewards, p.ReturnDiscount(), err)
	}
}

// TestCheckpointHasTheReturns, of which weights have none: acting does not need them.
func TestCheckpointHasTheReturns(t *testing.T) {
	newPolicy := func() *normalize.Policy {
		cfg := dqn.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Hidden: []int{4}}
		return normalize.New(dqn.New(cfg), normalize.Config{Rewards: true})
	}
	p, q := newPolicy(), newPolicy()
	if err := p.MergeReturns([]float64{10, 3, 2.5}); err != nil {
		t.Fatal(err)
	}
	var a nn.Archive
	if err := errors.Join(p.Save(&a), q.Restore(&a)); err != nil {
		t.Fatal(err)
	}
	if x, y := p.Returns(), q.Returns(); x.Count != y.Count || x.Mean[0] != y.Mean[0] || x.Var[0] != y.Var[0] || y.Count < 10 {
		t.Errorf("restored %v, want %v", y, x)
	}
	s, _ := a.State("normalize.returns")
	s.Tensors[0].Words[2] = math.Float64bits(-1)
	a.Put("normalize.returns", s)
	if err := q.Restore(&a); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative variance was restored: %v", err)
	}
}

// TestSetClip reaches the policy.
func TestSetClip(t *testing.T) {
	s := &spy{}
	if normalize.New(s, normalize.Config{}).SetClip(0.1); s.clip != 0.1 {
		t.Errorf("the clip range is %v", s.clip)
	}
}

// TestWeightsCarryTheScale to a policy that has observed nothing, which then acts alike.
func TestWeightsCarryTheScale(t *testing.T) {
	newPolicy := func(seed uint64) *normalize.Policy {
		return normalize.New(dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 5}, Hidden: []int{8}, Seed: seed}),
			normalize.Config{})
	}
	from, to := newPolicy(1), newPolicy(2)
	rng := rand.New(rand.NewPCG(3, 3))
	b := observed(rng, 40)
	observe(t, from, b)
	if err := to.Load(from.Weights()); err != nil {
		t.Fatal(err)
	}
	act := func(p *normalize.Policy) []float32 {
		a := policies.Act{Obs: b.Floats(policies.Obs), Action: slices.Repeat([]float32{0}, 40), Greedy: true}
		if err := p.Act(&a); err != nil {
			t.Fatal(err)
		}
		return a.Action
	}
	if x, y := act(from), act(to); !slices.Equal(x, y) {
		t.Errorf("actions %v and %v", x, y)
	}
}

func TestRefuses(t *testing.T) {
	p := normalize.New(&spy{}, normalize.Config{})
	b := observed(rand.New(rand.NewPCG(1, 1)), 5)
	b.Floats(policies.Obs)[7] = float32(math.NaN())
	if _, err := p.Observe(b); err == nil || !strings.Contains(err.Error(), "obs") || p.Moments().Count != 0 {
		t.Errorf("NaN was observed: %v", err)
	}
	for _, bad := range [][]float64{{1}, {1, 0, 0, 0, 1, 1}, {-1, 0, 0, 0, 1, 1, 1}, {1, 0, 0, 0, 1, 1, -1}, {1, 0, math.NaN(), 0, 1, 1, 1}} {
		if err := p.Merge(bad); err == nil || p.Moments().Count != 0 {
			t.Errorf("the summary %v was taken: %v", bad, err)
		}
	}
	for _, bad := range [][]float64{{1}, {1, 0, -1}, {-1, 0, 1}, {1, math.NaN(), 1}, {1, 0, 1, 1, 0, math.Inf(1)}} {
		if err := p.MergeReturns(bad); err == nil || p.Returns().Count >= 1 {
			t.Errorf("the returns %v were taken: %v", bad, err)
		}
	}
	for _, cfg := range []normalize.Config{{Clip: -1}, {Epsilon: math.NaN()}, {Clip: math.Inf(1)}, {Gamma: 1.5}, {Gamma: math.NaN()}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", cfg)
				}
			}()
			normalize.New(&spy{}, cfg)
		}()
	}
	q := normalize.New(dqn.New(dqn.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Hidden: []int{4}}), normalize.Config{})
	var a nn.Archive
	if err := q.Save(&a); err != nil {
		t.Fatal(err)
	}
	s, _ := a.State("normalize.moments")
	s.Tensors[0].Words[2] = math.Float64bits(-1)
	a.Put("normalize.moments", s)
	if err := q.Restore(&a); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("a negative variance was restored: %v", err)
	}
}
