package ppo

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

// hidden is a CartPole whose velocities are not observed: what to do depends on what was seen before.
type hidden struct {
	envs.Env[int]

	obs [2]float32
}

func (h *hidden) ObservationSpace() envs.Space {
	b := h.Env.ObservationSpace().(envs.Box)
	return envs.Box{Low: []float32{b.Low[0], b.Low[2]}, High: []float32{b.High[0], b.High[2]}}
}

func (h *hidden) observe(obs []float32) []float32 {
	if obs != nil {
		h.obs = [2]float32{obs[0], obs[2]}
	}
	return h.obs[:]
}

func (h *hidden) Reset(seed ...uint64) ([]float32, envs.Info, error) {
	obs, info, err := h.Env.Reset(seed...)
	return h.observe(obs), info, err
}

func (h *hidden) Step(action int) (envs.Step, error) {
	s, err := h.Env.Step(action)
	s.Obs = h.observe(s.Obs)
	return s, err
}

// hiddenCartPole returns a vector of n of them, whose observations are normalised: those of the angle differ by
// hundredths from step to step. Episodes have maxSteps; 0 means those of CartPole-v1.
func hiddenCartPole(n, maxSteps int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] {
		env := &hidden{Env: envs.NewCartPole(envs.CartPoleConfig{MaxSteps: maxSteps})}
		return envs.NormalizeObservation[int](env, envs.NormalizeConfig{})
	})
}

// recurrentSteps is the number of env steps after which trainRecurrent's learning rate is 0.
const recurrentSteps = 800_000

// trainRecurrent learns to balance a pole whose velocities are hidden, until the mean return of 100
// episodes is enough. lstm is the number of units; 0: no memory.
func trainRecurrent(t *testing.T, lstm int, seed uint64, envSteps int, enough float64) *trainer {
	t.Helper()
	env := hiddenCartPole(16, 0)
	p := New(Config{
		Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: seed, Hidden: []int{64}, LSTM: lstm, Length: 32, EntropyCoef: -1,
	})
	r := newTrainer(t, p, env, data.RolloutConfig{
		Length: 32, Gamma: 0.98, Lambda: 0.9, Epochs: 8, Minibatches: 4, Seed: seed, Sequences: lstm > 0,
	})
	for r.EnvSteps < envSteps && r.Mean(100) < enough {
		p.SetRate(1e-3 * (1 - float64(r.EnvSteps)/recurrentSteps))
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// TestRecurrentLearnsHiddenVelocities: with an LSTM the policy comes far beyond what it reaches without
// one in as many env steps.
func TestRecurrentLearnsHiddenVelocities(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	r := trainRecurrent(t, 32, 1, 300_000, 195)
	if r.Mean(100) < 195 {
		t.Errorf("after %d env steps the mean return is %v", r.EnvSteps, r.Mean(100))
	}
	if without := trainRecurrent(t, 0, 1, r.EnvSteps, 195); without.Mean(100) > 100 {
		t.Errorf("without a memory the mean return is %v: the velocities are not hidden", without.Mean(100))
	}
}

// recurrent returns a config with sequences of 4 steps.
func recurrent(space envs.Space) Config {
	return Config{Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, LSTM: 4, Length: 4, Seed: 2}
}

func TestRecurrentSpec(t *testing.T) {
	s := New(recurrent(envs.Discrete{N: 2})).Spec()
	if s.StateSize != 8 || s.Extra[2].Name != policies.State || s.Extra[2].Width() != 8 {
		t.Errorf("%+v", s)
	}
	s = New(Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}}).Spec()
	if s.StateSize != 0 || len(s.Extra) != 2 || len(s.Learns) != 6 {
		t.Errorf("without an LSTM %+v", s)
	}
}

// TestRecurrentLearnsWithTheStatesOfActing: the first update from a rollout finds the log-probabilities
// and the values that acting had, in sequences in which episodes end, and which begin within one.
func TestRecurrentLearnsWithTheStatesOfActing(t *testing.T) {
	env := hiddenCartPole(4, 15)
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), LSTM: 8, Hidden: []int{8}, Length: 50})
	for _, net := range []*nn.Net{p.actor, p.critic} {
		for i := range net.Weights() {
			net.Weights()[i] *= 20 // the state matters
		}
	}
	c, err := collecting.New(p, env, 50, 3)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b, err := c.Collect()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(b.Bytes(policies.Terminated), 1) || !slices.Contains(b.Bytes(policies.Truncated), 1) {
			t.Fatal("no episode is terminated, or none is truncated")
		}
		var tape nn.Tape
		d, value := p.Evaluate(&tape, b)
		logProb := d.LogProb(b.Floats(policies.Action))
		for i := range b.N {
			if x, y := value.Data()[i], b.Floats(policies.Value)[i]; math.Abs(float64(x-y)) > 1e-5 {
				t.Fatalf("row %d: the value is %v when learning and %v when acting", i, x, y)
			}
			if x, y := logProb.Data()[i], b.Floats(policies.LogProb)[i]; math.Abs(float64(x-y)) > 1e-5 {
				t.Fatalf("row %d: the log-probability is %v when learning and %v when acting", i, x, y)
			}
		}
	}
}

// TestActBeginsEpisodesWithoutState: a reset forgets what was before, and only in its row.
func TestActBeginsEpisodesWithoutState(t *testing.T) {
	p := New(recurrent(envs.Discrete{N: 2}))
	act := policies.Act{
		Obs: []float32{0.1, 0.2, 0.1, 0.2}, Action: make([]float32, 2), Greedy: true,
		State: slices.Repeat([]float32{0.5}, 16), Reset: []bool{true, false},
		Extra: [][]float32{make([]float32, 2), make([]float32, 2), make([]float32, 16)},
	}
	fresh := policies.Act{
		Obs: act.Obs[:2], Action: make([]float32, 1), State: make([]float32, 8), Greedy: true,
		Extra: [][]float32{make([]float32, 1), make([]float32, 1), make([]float32, 8)},
	}
	if err := errors.Join(p.Act(&act), p.Act(&fresh)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(act.Extra[2], slices.Concat(make([]float32, 8), slices.Repeat([]float32{0.5}, 8))) {
		t.Errorf("states before the step %v", act.Extra[2])
	}
	if act.Extra[1][0] != fresh.Extra[1][0] || act.Extra[1][0] == act.Extra[1][1] || !slices.Equal(act.State[:8], fresh.State) {
		t.Errorf("values %v and states %v, fresh %v and %v", act.Extra[1], act.State, fresh.Extra[1], fresh.State)
	}
	for want, edit := range map[string]func(a *policies.Act){
		"15 state values of 2 rows":  func(a *policies.Act) { a.State = a.State[:15] },
		"3 resets of 2 rows":         func(a *policies.Act) { a.Reset = make([]bool, 3) },
		"tensor state is not finite": func(a *policies.Act) { a.State[9] = float32(math.NaN()) },
	} {
		a := act
		a.State = slices.Clone(act.State)
		edit(&a)
		if err := p.Act(&a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestP2GradientThroughTimeEqualsCentralDifferences of all three networks, with ends of episodes.
func TestP2GradientThroughTimeEqualsCentralDifferences(t *testing.T) {
	for name, space := range spaces {
		cfg := recurrent(space)
		cfg.Adam.Rate, cfg.MaxGradNorm, cfg.KLCoef = 1e-30, -1, 0.2
		p := New(cfg)
		rng := rand.New(rand.NewPCG(5, 5))
		nets := []*nn.Net{p.actor, p.critic, p.Core}
		for _, net := range nets {
			for i := range net.Weights() {
				net.Weights()[i] = 0.5 * float32(rng.NormFloat64())
			}
		}
		b := collecting.Random(rng, p, 8)
		copy(b.Bytes(policies.Terminated), []uint8{0, 1, 0, 0, 0, 0, 0, 1})
		copy(b.Bytes(policies.Truncated), []uint8{0, 0, 0, 1, 0, 1, 0, 0})
		loss := func() float64 {
			m, err := p.Learn(b)
			if err != nil {
				t.Fatal(err)
			}
			return m[0].Value
		}
		for k, net := range nets {
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
					t.Errorf("%s, network %d, weight %d: gradient %v, differences give %v", name, k, i, grad[i], want)
				}
			}
		}
	}
}

// TestP4ResumeWithOptionsIsExact: an LSTM, a coefficient that adapts and rollouts that are stopped, with the
// interruption within a rollout.
func TestP4ResumeWithOptionsIsExact(t *testing.T) {
	cfg := recurrent(envs.Discrete{N: 3})
	cfg.KLCoef, cfg.KLTarget, cfg.StopKL, cfg.Adam.Rate = 0.2, 1e-4, 0.02, 0.1
	learn := func(p *PPO, rng *rand.Rand, from, to int) {
		for i := from; i < to; i++ {
			b := collecting.Random(rng, p, 8)
			for k := range b.N {
				b.Words(policies.Version)[k] = uint64(i / 4)
				b.Floats(policies.LogProb)[k] = -1.1
			}
			if _, err := p.Learn(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	stops := 0
	for at := range 20 {
		straight, first := New(cfg), New(cfg)
		rng1, rng2 := rand.New(rand.NewPCG(6, 6)), rand.New(rand.NewPCG(6, 6))
		learn(straight, rng1, 0, 20)
		learn(first, rng2, 0, at)
		if first.stopped() {
			stops++
		}
		var a, read nn.Archive
		if err := first.Save(&a); err != nil {
			t.Fatal(err)
		}
		file, err := a.AppendBinary(nil)
		other := cfg
		other.Seed = 99
		second := New(other)
		if err := errors.Join(err, read.UnmarshalBinary(file), second.Restore(&read)); err != nil {
			t.Fatal(err)
		}
		learn(second, rng2, at, 20)
		if straight.Version() == 20 || straight.rollout.coef.Value == 0.2 {
			t.Fatalf("%d updates, coefficient %v: nothing was stopped or adapted", straight.Version(), straight.rollout.coef.Value)
		}
		for i, net := range []*nn.Net{straight.actor, straight.critic, straight.Core} {
			if !slices.Equal(net.Weights(), []*nn.Net{second.actor, second.critic, second.Core}[i].Weights()) {
				t.Errorf("20 batches and %d + %d differ in network %d", at, 20-at, i)
			}
		}
		if straight.rollout != second.rollout || straight.Version() != second.Version() {
			t.Errorf("20 batches and %d + %d: %+v and %+v", at, 20-at, straight.rollout, second.rollout)
		}
	}
	if stops == 0 {
		t.Error("no interruption was in a rollout that had been stopped")
	}
}

func TestRecurrentRefusesPartsOfSequences(t *testing.T) {
	p := New(recurrent(envs.Discrete{N: 2}))
	_, err := p.Learn(collecting.Random(rand.New(rand.NewPCG(1, 1)), p, 6))
	if e, ok := errors.AsType[*policies.UpdateError](err); !ok || !strings.Contains(e.Error(), "6 rows, want whole sequences of 4 steps") {
		t.Errorf("%v", err)
	}
}

func TestRecurrentActAndLearnAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, space := range spaces {
		cfg := recurrent(space)
		cfg.KLCoef, cfg.StopKL = 0.2, 1e9
		p := New(cfg)
		b := collecting.Random(rng, p, 16)
		act := policies.Act{
			Obs: b.Floats(policies.Obs), Action: b.Floats(policies.Action), Rand: rng, State: make([]float32, 16*8), Reset: make([]bool, 16),
		}
		for _, c := range p.Spec().Extra {
			act.Extra = append(act.Extra, make([]float32, 16*c.Width()))
		}
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
