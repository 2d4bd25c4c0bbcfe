package c51

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
	"github.com/ditask/ditask/policies/nn"
)

var two = envs.Discrete{N: 2}

// small returns a C51 without hidden layers, of one observed number, with the atoms 0, 1 and 2. Its networks
// have the logits s*w: three of action 0, then three of action 1.
func small(edit func(*Config)) *C51 {
	cfg := Config{Obs: envs.NewBox(-10, 10, 1), Action: two, Seed: 3, Hidden: []int{}, Atoms: 3, Low: 0, High: 2}
	if edit != nil {
		edit(&cfg)
	}
	return New(cfg)
}

func near(got, want []float32) bool {
	return slices.EqualFunc(got, want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 2e-6 })
}

// TestP1ProjectionEqualsHandComputedNumbers: probabilities .2, .5 and .3 of the atoms -1, 0 and 1.
func TestP1ProjectionEqualsHandComputedNumbers(t *testing.T) {
	for _, c := range []struct {
		name        string
		r, discount float64
		want        []float32
	}{
		{"unchanged", 0, 1, []float32{0.2, 0.5, 0.3}},
		{"to -.5, 0 and .5", 0, 0.5, []float32{0.1, 0.1 + 0.5 + 0.15, 0.15}},
		{"to -.75, .25 and 1.25, which is 1", 0.25, 1, []float32{0.2 * 0.75, 0.2*0.25 + 0.5*0.75, 0.5*0.25 + 0.3}},
		{"all beyond the highest", 7, 1, []float32{0, 0, 1}},
		{"all beyond the lowest", -7, 1, []float32{1, 0, 0}},
		{"terminated, at .3", 0.3, 0, []float32{0, 0.7, 0.3}},
		{"terminated, at an atom", 0, 0, []float32{0, 1, 0}},
		{"terminated, at the highest", 1, 0, []float32{0, 0, 1}},
		{"turned round", 0, -1, []float32{0.3, 0.5, 0.2}},
	} {
		got := make([]float32, 3)
		project(got, []float32{0.2, 0.5, 0.3}, -1, 1, c.r, c.discount)
		if !near(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestProjectionKeepsMassAndMean of distributions that lie within the atoms.
func TestProjectionKeepsMassAndMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		p, got := make([]float32, 51), make([]float32, 51)
		var sum float32
		for i := range p {
			p[i] = rng.Float32()
			sum += p[i]
		}
		r, discount := 4*rng.Float64()-2, 0.8*rng.Float64() // of atoms from -10 to 10
		project(got, p, -10, 10, r, discount)
		var mass, mean, want float64
		for i := range p {
			z := -10 + 0.4*float64(i)
			mass += float64(got[i])
			mean += float64(got[i]) * z
			want += float64(p[i]) * (r + discount*z)
		}
		if math.Abs(mass-float64(sum)) > 1e-4 || math.Abs(mean-want) > 1e-3 || slices.Min(got) < 0 {
			t.Errorf("r %v and discount %v: mass %v of %v, mean %v, want %v", r, discount, mass, sum, mean, want)
		}
	}
}

// rows have the observation 1 and the next observation 2.
func rows(all ...policies.Transition) *policies.Batch {
	b := new(policies.Batch)
	b.Init(policies.TransitionColumns(1, 1)...)
	for _, t := range all {
		t.Obs, t.NextObs = []float32{1}, []float32{2}
		b.Append(t)
	}
	return b
}

// logs are logits whose probabilities are in the given proportions where the observation is s.
func logs(s float64, proportions ...float64) []float32 {
	out := make([]float32, len(proportions))
	for i, p := range proportions {
		out[i] = float32(math.Log(p) / s)
	}
	return out
}

// TestP1LossEqualsHandComputedNumbers: at the next observation the target network has the probabilities
// .5, .25, .25 (mean .75) and .25, .25, .5 (mean 1.25), and the online network the means 1.5 and .75, so
// that double takes the other action. At the observation the online network says .25, .25, .5 of action
// 0. With r = 0.5 and gamma = 0.5, z becomes .5, 1 and 1.5.
func TestP1LossEqualsHandComputedNumbers(t *testing.T) {
	for _, c := range []struct {
		name    string
		double  bool
		steps   int
		end     bool
		targets []float32
	}{
		{"best of the target network", false, 1, false, []float32{0.125, 0.125 + 0.25 + 0.25, 0.25}},
		{"best of the online network", true, 1, false, []float32{0.25, 0.25 + 0.25 + 0.125, 0.125}},
		{"two steps: .5, .75 and 1", false, 2, false, []float32{0.125 + 0.0625, 0.125 + 0.1875 + 0.5, 0}},
		{"terminated: .5", false, 1, true, []float32{0.5, 0.5, 0}},
	} {
		p := small(func(cfg *Config) { cfg.Gamma, cfg.Double = 0.5, c.double })
		clear(p.Target.Weights())
		copy(p.Target.Weights(), append(logs(2, 2, 1, 1), logs(2, 1, 1, 2)...))
		online := append(logs(1, 1, 1, 2), logs(1, 9, 3, 4)...) // at 2: 1, 1, 4 and 81, 9, 16
		clear(p.Online.Weights())
		copy(p.Online.Weights(), online)
		b := rows(policies.Transition{Action: []float32{0}, Reward: 0.5, Steps: c.steps, Terminated: c.end})
		td := policies.Column{Name: policies.TDError, Kind: policies.Float32}
		b.Columns = append(b.Columns, policies.Block{Column: td, Floats: []float32{7}})
		m, err := p.Learn(b)
		if err != nil || !near(p.projected, c.targets) {
			t.Errorf("%s: projected %v, want %v: %v", c.name, p.projected, c.targets, err)
			continue
		}
		var cross, divergence float64
		for i, q := range []float64{0.25, 0.25, 0.5} {
			target := float64(c.targets[i])
			cross -= target * math.Log(q)
			if target > 0 {
				divergence += target * math.Log(target/q)
			}
		}
		if math.Abs(m[0].Value-cross) > 1e-6 || math.Abs(m[1].Value-1.25) > 1e-6 {
			t.Errorf("%s: loss %v and value %v, want %v and 1.25", c.name, m[0].Value, m[1].Value, cross)
		}
		if got := b.Floats(policies.TDError)[0]; math.Abs(float64(got)-divergence) > 1e-6 {
			t.Errorf("%s: priority %v, want %v", c.name, got, divergence)
		}
	}
}

// TestPrioritiesAreNeverNegative where predictions equal their targets, and rounding is left.
func TestPrioritiesAreNeverNegative(t *testing.T) {
	p := small(func(cfg *Config) { cfg.Atoms, cfg.Low, cfg.High, cfg.Gamma = 51, -10, 10, 1 })
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range p.Online.Weights() {
		p.Online.Weights()[i] = float32(rng.NormFloat64())
	}
	p.Target.CopyFrom(p.Online)
	const n = 100
	a := policies.Act{Obs: make([]float32, n), Action: make([]float32, n), Greedy: true}
	for i := range a.Obs {
		a.Obs[i] = float32(rng.NormFloat64())
	}
	var b policies.Batch
	b.Init(append(policies.TransitionColumns(1, 1), policies.Column{Name: policies.TDError, Kind: policies.Float32})...)
	b.Resize(n)
	err := p.Act(&a)
	copy(b.Floats(policies.Obs), a.Obs)
	copy(b.Floats(policies.NextObs), a.Obs)
	copy(b.Floats(policies.Action), a.Action)
	for i := range n {
		b.Bytes(policies.Steps)[i] = 1
	}
	_, err2 := p.Learn(&b)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if out := b.Floats(policies.TDError); slices.Min(out) < 0 || slices.Max(out) > 1e-5 {
		t.Errorf("priorities from %v to %v, want 0 but for rounding", slices.Min(out), slices.Max(out))
	}
}

// TestRowsCountByTheirWeight: the loss is the weighted mean of those of the rows.
func TestRowsCountByTheirWeight(t *testing.T) {
	loss := func(weights []float32, rewards ...float32) float64 {
		b := rows()
		for _, r := range rewards {
			b.AppendBatch(rows(policies.Transition{Action: []float32{1}, Reward: r, Steps: 1, Terminated: true}))
		}
		if weights != nil {
			w := policies.Column{Name: policies.Weight, Kind: policies.Float32}
			b.Columns = append(b.Columns, policies.Block{Column: w, Floats: weights})
		}
		m, err := small(nil).Learn(b)
		if err != nil {
			t.Fatal(err)
		}
		return m[0].Value
	}
	first, second := loss(nil, 0.5), loss(nil, 1.75)
	if got, want := loss([]float32{0.5, 2}, 0.5, 1.75), (0.5*first+2*second)/2; math.Abs(got-want) > 1e-6 || first == second {
		t.Errorf("loss %v, want %v of %v and %v", got, want, first, second)
	}
}

// TestLearnsADistribution: action 1 earns 0 or 2 with equal probability, action 0 always 0.75. The
// mean of the first is greater.
func TestLearnsADistribution(t *testing.T) {
	p := small(func(c *Config) { c.Adam.Rate = 0.05 })
	end := func(action, reward float32) policies.Transition {
		return policies.Transition{Action: []float32{action}, Reward: reward, Steps: 1, Terminated: true}
	}
	b := rows(end(1, 0), end(1, 2), end(0, 0.75))
	for range 500 {
		if _, err := p.Learn(b); err != nil {
			t.Fatal(err)
		}
	}
	var tape nn.Tape
	probs, values := p.head(p.Online.Apply(&tape, tape.Const(1, 1, []float32{1})))
	for i, want := range []float32{0.25, 0.75, 0, 0.5, 0, 0.5} {
		if math.Abs(float64(probs.Data()[i]-want)) > 0.01 {
			t.Errorf("probabilities %v: number %d, want %v", probs.Data(), i, want)
		}
	}
	a := policies.Act{Obs: []float32{1}, Action: make([]float32, 1), Greedy: true}
	if err := p.Act(&a); err != nil || a.Action[0] != 1 {
		t.Errorf("action %v of values %v: %v", a.Action, values.Data(), err)
	}
}

// TestP7NonFiniteWeightsAreNamed, those of the target network too.
func TestP7NonFiniteWeightsAreNamed(t *testing.T) {
	for want, spoil := range map[string]func(*C51){
		"dense0.weight":      func(p *C51) { p.Online.Params()[0].Value[1] = float32(math.NaN()) },
		"target.dense0.bias": func(p *C51) { p.Target.Params()[1].Value[2] = float32(math.Inf(1)) },
	} {
		p := small(nil)
		spoil(p)
		_, err := p.Learn(rows(policies.Transition{Action: []float32{0}, Steps: 1}))
		e, ok := errors.AsType[*nn.NonFiniteError](err)
		update, is := errors.AsType[*policies.UpdateError](err)
		if !ok || !is || e.Tensor != want || update.Algorithm != "c51" || p.Version() != 0 {
			t.Errorf("error %v, want one of c51 and of tensor %s", err, want)
		}
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{Atoms: 1, Low: 3, High: 2, Gamma: 2, Hidden: []int{-1}}.Validate()
	for _, word := range []string{"Obs", "Action", "Hidden[0]", "Gamma", "Atoms is 1", "Low is 3 and High is 2"} {
		if err == nil || !strings.Contains(err.Error(), "c51 config: "+word) {
			t.Errorf("%s is not in %v", word, err)
		}
	}
	for _, bounds := range [][2]float64{{1, 1}, {math.NaN(), 1}, {0, math.Inf(1)}, {-math.MaxFloat64, math.MaxFloat64}} {
		if (Config{Obs: envs.NewBox(-1, 1, 1), Action: two, Low: bounds[0], High: bounds[1]}).Validate() == nil {
			t.Errorf("the bounds %v pass", bounds)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New takes a wrong config")
		}
	}()
	New(Config{})
}

func TestDefaultsAreCleanRLs(t *testing.T) {
	got := New(Config{Obs: envs.NewBox(-1, 1, 1), Action: two}).Config()
	if got.Epsilon(0) != 1 || got.Epsilon(250_000) != 0.05 {
		t.Errorf("epsilon from %v to %v", got.Epsilon(0), got.Epsilon(250_000))
	}
	got.Epsilon = nil
	want := Config{
		Obs: envs.NewBox(-1, 1, 1), Action: two, Hidden: []int{120, 84}, Atoms: 101, Low: -100, High: 100, NStep: 1, Gamma: 0.99,
		Adam: nn.AdamConfig{Rate: 2.5e-4, Epsilon: 0.01 / 128}, TargetEvery: 50,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
	p := small(nil)
	if p.SetRate(0.25); p.Config().Adam.Rate != 0.25 || !slices.Equal(p.atoms, []float32{0, 1, 2}) {
		t.Errorf("rate %v, atoms %v", p.Config().Adam.Rate, p.atoms)
	}
}
