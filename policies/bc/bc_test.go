package bc

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// kinds are a config's edits for each kind of action.
var kinds = map[string]func(*Config){
	"box":                         func(c *Config) { c.Action = envs.Box{Low: []float32{-1, 0}, High: []float32{1, 4}} },
	"discrete":                    func(c *Config) { c.Action = envs.Discrete{N: 3, Start: -1} },
	"without the logits' squares": func(c *Config) { c.Action, c.Beta = envs.Discrete{N: 2}, -1 },
}

func small(edits ...func(*Config)) *BC {
	cfg := Config{Obs: envs.NewBox(-1, 1, 3), Hidden: []int{6}, Seed: 3}
	for _, edit := range edits {
		edit(&cfg)
	}
	return New(cfg)
}

// says makes the network answer the same whatever it observes.
func says(p *BC, values ...float32) {
	w := p.actor.Weights()
	clear(w)
	copy(w[len(w)-len(values):], values)
}

func batch(p *BC, actions ...float32) *policies.Batch {
	b := new(policies.Batch)
	b.Init(p.Spec().Learns...)
	b.Resize(len(actions) / p.Spec().Action.Dim())
	clear(b.Floats(policies.Obs))
	copy(b.Floats(policies.Action), actions)
	return b
}

// TestP1LossesEqualHandComputedNumbers: probabilities 0.2, 0.3 and 0.5 of three actions, and actions of
// (0, 2), which are the middles of the intervals.
func TestP1LossesEqualHandComputedNumbers(t *testing.T) {
	p := small(kinds["discrete"])
	logits := []float64{math.Log(0.2), math.Log(0.3), math.Log(0.5)}
	says(p, float32(logits[0]), float32(logits[1]), float32(logits[2]))
	squares := (logits[0]*logits[0] + logits[1]*logits[1] + logits[2]*logits[2]) / 3
	m, err := p.Learn(batch(p, 1, -1, 0, 1))
	want := -(math.Log(0.5)+math.Log(0.2)+math.Log(0.3)+math.Log(0.5))/4 + 0.5*squares
	if err != nil || math.Abs(m[0].Value-want) > 1e-6 || m[1] != (policies.Metric{Name: "train/accuracy", Value: 0.5}) {
		t.Errorf("%v, want a loss of %v: %v", m, want, err)
	}
	c := small(kinds["box"])
	says(c, 0, 0)
	if m, err = c.Learn(batch(c, 0.5, 2, -1, 3)); err != nil || math.Abs(m[0].Value-(0.25+0+1+0.25)/4) > 1e-6 {
		t.Errorf("%v, want a loss of 0.375: %v", m, err)
	}
}

// TestActs: in the units of the box, and discrete actions with their probabilities.
func TestActs(t *testing.T) {
	c := small(kinds["box"])
	says(c, float32(math.Atanh(0.5)), 100)
	act := policies.Act{Obs: make([]float32, 3), Action: make([]float32, 2), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := c.Act(&act); err != nil || math.Abs(float64(act.Action[0])-0.5) > 1e-6 || act.Action[1] != 4 {
		t.Errorf("%v, want 0.5 and 4: %v", act.Action, err)
	}
	p := small(kinds["discrete"])
	says(p, float32(math.Log(0.2)), float32(math.Log(0.5)), float32(math.Log(0.3)))
	const rows = 3000
	act = policies.Act{Obs: make([]float32, 3*rows), Action: make([]float32, rows), Rand: rand.New(rand.NewPCG(1, 1))}
	if err := p.Act(&act); err != nil {
		t.Fatal(err)
	}
	var count [3]float64
	for _, a := range act.Action {
		count[int(a)+1]++
	}
	for i, want := range []float64{0.2, 0.5, 0.3} {
		if math.Abs(count[i]/rows-want) > 0.03 {
			t.Errorf("action %d was drawn %v times of %d, want %v of them", i-1, count[i], rows, want)
		}
	}
	act.Greedy = true
	if err := p.Act(&act); err != nil || slices.Max(act.Action) != 0 || slices.Min(act.Action) != 0 {
		t.Errorf("greedy actions %v, %v", act.Action[:4], err)
	}
}

// TestClonesAThreshold: the action is whether the first observed value is positive.
func TestClonesAThreshold(t *testing.T) {
	for _, kind := range []string{"discrete", "box"} {
		p := small(kinds[kind], func(c *Config) { c.Hidden, c.Adam.Rate = []int{32}, 1e-2 })
		rng := rand.New(rand.NewPCG(1, 2))
		b := batch(p, make([]float32, 64*p.Spec().Action.Dim())...)
		fill := func() {
			obs, actions, n := b.Floats(policies.Obs), b.Floats(policies.Action), p.Spec().Action.Dim()
			for i := range obs {
				obs[i] = 2*rng.Float32() - 1
			}
			for i := range b.N {
				sign := float32(math.Copysign(1, float64(obs[3*i])))
				actions[n*i] = sign
				if n == 2 {
					actions[n*i], actions[n*i+1] = sign/2, 2+sign
				}
			}
		}
		for range 400 {
			fill()
			if _, err := p.Learn(b); err != nil {
				t.Fatal(err)
			}
		}
		fill()
		act := policies.Act{Obs: b.Floats(policies.Obs), Action: make([]float32, len(b.Floats(policies.Action))), Greedy: true}
		if err := p.Act(&act); err != nil {
			t.Fatal(err)
		}
		wrong := 0
		for i, a := range act.Action {
			if math.Abs(float64(a-b.Floats(policies.Action)[i])) > 0.5 {
				wrong++
			}
		}
		if wrong > len(act.Action)/10 {
			t.Errorf("%s: %d of %d actions are not those of the data", kind, wrong, len(act.Action))
		}
	}
}

func TestFaultsAreNamed(t *testing.T) {
	p := small(kinds["discrete"])
	const want = "bc update 0: row 1 has the action [2], which is not in Discrete(3, start=-1)"
	if _, err := p.Learn(batch(p, 0, 2)); err == nil || err.Error() != want {
		t.Error(err)
	}
	p.actor.Weights()[0] = float32(math.NaN())
	act := policies.Act{Obs: []float32{1, 1, 1}, Action: make([]float32, 1), Greedy: true}
	if err := p.Act(&act); err == nil || !strings.Contains(err.Error(), "dense0.weight") {
		t.Error(err)
	}
	p.SetRate(0.5)
	if p.Config().Adam.Rate != 0.5 {
		t.Errorf("rate %v", p.Config().Adam.Rate)
	}
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{
		Action: envs.Box{Low: []float32{0, float32(math.Inf(-1))}, High: []float32{0, 1}}, Hidden: []int{0}, Beta: math.Inf(1),
		Adam: nn.AdamConfig{Rate: -1},
	}.Validate()
	for _, want := range []string{"Obs is", "of value 0, want finite", "of value 1, want finite", "Hidden[0] is 0", "Beta is",
		"Adam.Rate is -1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, action := range []envs.Space{nil, envs.Box{}, envs.Discrete{N: 1}, envs.MultiBinary{N: 2}} {
		if err := (Config{Obs: envs.NewBox(0, 1, 1), Action: action}).Validate(); err == nil || !strings.Contains(err.Error(), "Action is") {
			t.Errorf("%v: %v", action, err)
		}
	}
}
