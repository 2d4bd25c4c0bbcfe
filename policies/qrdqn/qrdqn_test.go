package qrdqn

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

var two = envs.Discrete{N: 2}

// small returns a QRDQN without hidden layers, of one observed number, with two quantiles, of tau 1/4 and 3/4.
// Its networks have the quantiles s*w: two of action 0, then two of action 1.
func small(edit func(*Config)) *QRDQN {
	cfg := Config{Obs: envs.NewBox(-10, 10, 1), Action: two, Seed: 3, Hidden: []int{}, Quantiles: 2}
	if edit != nil {
		edit(&cfg)
	}
	return New(cfg)
}

// setWeights sets the first weights of a network, and the others to zero.
func setWeights(n *nn.Net, first ...float32) {
	clear(n.Weights())
	copy(n.Weights(), first)
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

// TestP1LossEqualsHandComputedNumbers: the quantiles of action 0 are 0 and 2. At the next observation the
// target network has 4, 8 (mean 6) and -2, 12 (mean 5), and the online network prefers the second. With
// r = 1 and gamma = 0.5:
//
//	targets 3, 5:  theta 0, u = 3, 5:   .25 (2.5 + 4.5) = 1.75;  theta 2, u = 1, 3:    .75 (.5 + 2.5) = 2.25
//	targets 0, 7:  theta 0, u = 0, 7:   .25 (0 + 6.5) = 1.625;   theta 2, u = -2, 5:   .25*1.5 + .75*4.5 = 3.75
//	targets 2, 3:  theta 0, u = 2, 3:   .25 (1.5 + 2.5) = 1;     theta 2, u = 0, 1:    .75*.5 = .375
//	targets 1, 1:  theta 0, u = 1, 1:   .25 (.5 + .5) = .25;     theta 2, u = -1, -1:  .25 (.5 + .5) = .25
//
// and the loss is half of the sum of both, as the mean over two targets.
func TestP1LossEqualsHandComputedNumbers(t *testing.T) {
	for _, c := range []struct {
		name     string
		double   bool
		steps    int
		end      bool
		targets  []float32
		loss     float64
		priority float32
	}{
		{"best of the target network", false, 1, false, []float32{3, 5}, (1.75 + 2.25) / 2, 3},
		{"best of the online network", true, 1, false, []float32{0, 7}, (1.625 + 3.75) / 2, 2.5},
		{"two steps", false, 2, false, []float32{2, 3}, (1 + 0.375) / 2, 1.5},
		{"terminated", false, 1, true, []float32{1, 1}, (0.25 + 0.25) / 2, 0},
	} {
		p := small(func(cfg *Config) { cfg.Gamma, cfg.Double = 0.5, c.double })
		setWeights(p.Target, 2, 4, -1, 6)
		setWeights(p.Online, 0, 2, 1, 2)
		b := rows(policies.Transition{Action: []float32{0}, Reward: 1, Steps: c.steps, Terminated: c.end})
		td := policies.Column{Name: policies.TDError, Kind: policies.Float32}
		b.Columns = append(b.Columns, policies.Block{Column: td, Floats: []float32{7}})
		m, err := p.Learn(b)
		if err != nil || !slices.Equal(p.targets, c.targets) {
			t.Errorf("%s: targets %v, want %v: %v", c.name, p.targets, c.targets, err)
			continue
		}
		if math.Abs(m[0].Value-c.loss) > 1e-6 || math.Abs(m[1].Value-1) > 1e-6 || b.Floats(policies.TDError)[0] != c.priority {
			t.Errorf("%s: loss %v, value %v and priority %v, want %v, 1 and %v",
				c.name, m[0].Value, m[1].Value, b.Floats(policies.TDError)[0], c.loss, c.priority)
		}
	}
}

// TestKappaIsTheOneOfTheConfig: at a difference of 3, Huber's function of 2 is 2*(3-1) and that of 1 is
// 2.5. Both quantiles are 0 and the target is 3, so that the factors 1/4 and 3/4 add up to 1.
func TestKappaIsTheOneOfTheConfig(t *testing.T) {
	for kappa, want := range map[float64]float64{0: 2.5, 1: 2.5, 2: 4, 10: 4.5} {
		p := small(func(c *Config) { c.Kappa = kappa })
		clear(p.Online.Weights())
		m, err := p.Learn(rows(policies.Transition{Action: []float32{0}, Reward: 3, Steps: 1, Terminated: true}))
		if err != nil || math.Abs(m[0].Value-want) > 1e-6 {
			t.Errorf("kappa %v: %v, want %v: %v", kappa, m, want, err)
		}
	}
}

// TestRowsCountByTheirWeight: the loss is the weighted mean of those of the rows.
func TestRowsCountByTheirWeight(t *testing.T) {
	p := small(nil)
	clear(p.Online.Weights())
	end := policies.Transition{Action: []float32{0}, Steps: 1, Terminated: true}
	first, second := end, end
	first.Reward, second.Reward = 3, -1 // losses of 2.5 and 0.5
	b := rows(first, second)
	w := policies.Column{Name: policies.Weight, Kind: policies.Float32}
	b.Columns = append(b.Columns, policies.Block{Column: w, Floats: []float32{0.5, 2}})
	if m, err := p.Learn(b); err != nil || math.Abs(m[0].Value-(0.5*2.5+2*0.5)/2) > 1e-6 {
		t.Errorf("%v, %v", m, err)
	}
}

// TestLearnsADistribution: action 1 earns 1, 2, 3 or 10 with equal probability, of which the quantiles of
// 1/8, 3/8, 5/8 and 7/8 are these numbers. Action 0 always earns 3. A small kappa is near to the quantile
// regression without Huber's function, which blurs them.
func TestLearnsADistribution(t *testing.T) {
	p := small(func(c *Config) { c.Quantiles, c.Kappa, c.Adam.Rate = 4, 0.01, 0.05 })
	end := func(action, reward float32) policies.Transition {
		return policies.Transition{Action: []float32{action}, Reward: reward, Steps: 1, Terminated: true}
	}
	b := rows(end(1, 1), end(1, 2), end(1, 3), end(1, 10), end(0, 3))
	for i := range 3000 {
		p.SetRate(0.05 * (1 - float64(i)/3000))
		if _, err := p.Learn(b); err != nil {
			t.Fatal(err)
		}
	}
	got := p.Online.Forward(nn.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}).Data
	for i, want := range []float32{3, 3, 3, 3, 1, 2, 3, 10} {
		if math.Abs(float64(got[i]-want)) > 0.05 {
			t.Errorf("quantiles %v: number %d, want %v", got, i, want)
		}
	}
	a := policies.Act{Obs: []float32{1}, Action: make([]float32, 1), Greedy: true}
	if err := p.Act(&a); err != nil || a.Action[0] != 1 {
		t.Errorf("action %v: %v", a.Action, err)
	}
}

// TestP7NonFiniteWeightsAreNamed, those of the target network too.
func TestP7NonFiniteWeightsAreNamed(t *testing.T) {
	for want, spoil := range map[string]func(*QRDQN){
		"dense0.weight":      func(p *QRDQN) { p.Online.Params()[0].Value[1] = float32(math.NaN()) },
		"target.dense0.bias": func(p *QRDQN) { p.Target.Params()[1].Value[2] = float32(math.Inf(1)) },
	} {
		p := small(nil)
		spoil(p)
		_, err := p.Learn(rows(policies.Transition{Action: []float32{0}, Steps: 1}))
		e, ok := errors.AsType[*nn.NonFiniteError](err)
		update, is := errors.AsType[*policies.UpdateError](err)
		if !ok || !is || e.Tensor != want || update.Algorithm != "qrdqn" || p.Version() != 0 {
			t.Errorf("error %v, want one of qrdqn and of tensor %s", err, want)
		}
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{Quantiles: -1, Kappa: -2, Gamma: 2, Hidden: []int{-1}}.Validate()
	for _, word := range []string{"Obs", "Action", "Hidden[0]", "Gamma", "Quantiles is -1", "Kappa is -2"} {
		if err == nil || !strings.Contains(err.Error(), "qrdqn config: "+word) {
			t.Errorf("%s is not in %v", word, err)
		}
	}
	for _, kappa := range []float64{math.NaN(), math.Inf(1)} {
		if (Config{Obs: envs.NewBox(-1, 1, 1), Action: two, Kappa: kappa}).Validate() == nil {
			t.Errorf("a kappa of %v passes", kappa)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New takes a wrong config")
		}
	}()
	New(Config{})
}

func TestDefaultsAreSB3s(t *testing.T) {
	got := New(Config{Obs: envs.NewBox(-1, 1, 1), Action: two}).Config()
	if got.Epsilon(0) != 1 || got.Epsilon(250_000) != 0.01 {
		t.Errorf("epsilon from %v to %v", got.Epsilon(0), got.Epsilon(250_000))
	}
	got.Epsilon = nil
	want := Config{
		Obs: envs.NewBox(-1, 1, 1), Action: two, Hidden: []int{64, 64}, Quantiles: 200, Kappa: 1, NStep: 1, Gamma: 0.99,
		Adam: nn.AdamConfig{Rate: 5e-5, Epsilon: 0.01 / 32}, TargetEvery: 2500,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("defaults %+v, want %+v", got, want)
	}
}
