package qnetwork_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// config returns the config of a model whose networks are linear maps of one observed number.
func config(edit func(*qnetwork.Config)) qnetwork.Config {
	cfg := qnetwork.Config{
		Algorithm: "toy", Obs: envs.NewBox(-10, 10, 1), Action: envs.Discrete{N: 2}, Seed: 3, Init: nn.FanIn, NStep: 2, Gamma: 0.5,
		Epsilon: policies.Constant(0), Adam: nn.AdamConfig{Rate: 0.1}, TargetEvery: 2,
	}
	if edit != nil {
		edit(&cfg)
	}
	return cfg
}

// setWeights sets the first weights of a network, and the others to zero.
func setWeights(n *nn.Net, first ...float32) {
	clear(n.Weights())
	copy(n.Weights(), first)
}

// transitions have the observation 1, the next observation 2 and action 1.
func transitions(n int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(policies.TransitionColumns(1, 1)...)
	for i := range n {
		b.Append(policies.Transition{
			Obs: []float32{1}, NextObs: []float32{2}, Action: []float32{1}, Reward: float32(i), Steps: i + 1, Terminated: i == 1, Truncated: i == 2,
		})
	}
	return b
}

// pairs returns a head of two columns for each action, whose sum is the value.
func pairs(out nn.Value) (distributions, values nn.Value) {
	return out, out.Reshape(out.Rows()*2, 2).RowSums().Reshape(out.Rows(), 2)
}

// TestNextIsTheTargetsDistributionOfTheBestAction: at 2 the target network has the distributions (2, 8)
// and (6, 0) of values 10 and 6, and the online network (2, 0) and (0, 4) of values 2 and 4.
func TestNextIsTheTargetsDistributionOfTheBestAction(t *testing.T) {
	for double, want := range map[bool][]float32{false: {2, 8}, true: {6, 0}} {
		m := qnetwork.New(config(func(c *qnetwork.Config) { c.Width, c.Head, c.Double = 2, pairs, double }))
		setWeights(m.Target, 1, 4, 3, 0)
		setWeights(m.Online, 1, 0, 0, 2)
		if got := m.Next(transitions(1)).Data(); !slices.Equal(got, want) {
			t.Errorf("double %v: %v, want %v", double, got, want)
		}
		if got := m.Values([]float32{2}).Data; !slices.Equal(got, []float32{2, 4}) {
			t.Errorf("values %v, want 2 and 4", got)
		}
	}
}

// TestDiscountsAreThoseOfTheSteps, and 0 behind a terminated row, but not behind a truncated one.
func TestDiscountsAreThoseOfTheSteps(t *testing.T) {
	m := qnetwork.New(config(nil))
	for range 2 {
		if got := m.Discounts(transitions(4)); !slices.Equal(got, []float32{0.5, 0, 0.125, 0.0625}) {
			t.Errorf("discounts %v", got)
		}
	}
}

// TestUpdateGivesTheOutputOfTheActions, weighs the rows, and writes the priorities where they are wanted.
func TestUpdateGivesTheOutputOfTheActions(t *testing.T) {
	m := qnetwork.New(config(func(c *qnetwork.Config) { c.Width, c.Head = 2, pairs }))
	setWeights(m.Online, 1, 2, 3, 4)
	b := transitions(2)
	for _, name := range []string{policies.Weight, policies.TDError} {
		b.Columns = append(b.Columns, policies.Block{Column: policies.Column{Name: name, Kind: policies.Float32}, Floats: []float32{0.5, 2}})
	}
	learn := func(priorities bool) []policies.Metric {
		if err := m.Begin(b); err != nil {
			t.Fatal(err)
		}
		metrics, err := m.Update(b, func(_ *nn.Tape, out nn.Value) qnetwork.Loss {
			if m.Version() == 0 && !slices.Equal(out.Data(), []float32{3, 4, 3, 4}) {
				t.Errorf("output %v, want that of action 1", out.Data())
			}
			l := qnetwork.Loss{Rows: out.RowSums(), Values: out.RowSums().Scale(0.5)}
			if priorities {
				l.Priorities = l.Values.Scale(2)
			}
			return l
		})
		if err != nil {
			t.Fatal(err)
		}
		return metrics
	}
	first := learn(false)
	if loss, value := first[0].Value, first[1].Value; math.Abs(loss-(7*0.5+7*2)/2) > 1e-6 || math.Abs(value-3.5) > 1e-6 {
		t.Errorf("loss %v and value %v, want 8.75 and 3.5", loss, value)
	}
	if got := b.Floats(policies.TDError); !slices.Equal(got, []float32{0.5, 2}) {
		t.Errorf("without priorities their column is %v", got)
	}
	learn(true)
	if got := b.Floats(policies.TDError); got[0] != got[1] || got[0] == 0.5 {
		t.Errorf("priorities %v, want those of equal rows", got)
	}
}

// TestFaultsOfEveryFieldAreReported together.
func TestFaultsOfEveryFieldAreReported(t *testing.T) {
	faults := qnetwork.Config{
		Algorithm: "toy", Hidden: []int{0}, Noisy: true, Epsilon: policies.Constant(1), NStep: 256, Gamma: 1.5, Tau: -1, TargetEvery: -1,
	}.Faults()
	text := fmt.Sprint(faults)
	for _, word := range []string{
		"Obs is", "Action has 0", "Noisy and Epsilon", "Hidden[0] is 0", "NStep is 256", "Gamma is 1.5", "Adam.Rate is 0",
		"Tau is -1, want", "TargetEvery is -1, want", "TargetEvery is -1 and Tau is -1",
	} {
		if !strings.Contains(text, "toy config: "+word) {
			t.Errorf("%q is not in %s", word, text)
		}
	}
	if faults := config(nil).Faults(); faults != nil {
		t.Errorf("faults of a valid config: %v", faults)
	}
}

// TestEachUpdateHasNoiseOfItsOwn in both networks, and none after a greedy action.
func TestEachUpdateHasNoiseOfItsOwn(t *testing.T) {
	m := qnetwork.New(config(func(c *qnetwork.Config) { c.Noisy, c.Epsilon = true, nil }))
	b := transitions(1)
	mean := m.Values([]float32{2}).Data[0]
	seen := []float32{mean}
	for range 2 {
		if err := m.Begin(b); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, m.Next(b).Number(), m.Values([]float32{2}).Data[0])
	}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 5 {
		t.Errorf("values %v, want different ones", seen)
	}
	a := policies.Act{Obs: []float32{2}, Action: make([]float32, 1), Greedy: true}
	if err := m.Act(&a); err != nil || m.Values([]float32{2}).Data[0] != mean {
		t.Errorf("after a greedy action the value is %v, want %v: %v", m.Values([]float32{2}).Data[0], mean, err)
	}
}

// TestNoiseHasAStreamOfEachAlgorithm: equal seeds draw other noise.
func TestNoiseHasAStreamOfEachAlgorithm(t *testing.T) {
	saved := func(algorithm string) []byte {
		var a nn.Archive
		if err := qnetwork.New(config(func(c *qnetwork.Config) { c.Algorithm = algorithm })).Save(&a); err != nil {
			t.Fatal(err)
		}
		s, err := a.State(algorithm + ".random")
		if err != nil || len(s.Tensors) != 1 {
			t.Fatal(err)
		}
		return s.Tensors[0].Bytes
	}
	if slices.Equal(saved("toy"), saved("yot")) {
		t.Error("two algorithms have one stream")
	}
}

// Regress the values of two actions on their rewards.
func ExampleModel() {
	m := qnetwork.New(qnetwork.Config{
		Algorithm: "bandit", Obs: envs.NewBox(0, 1, 1), Action: envs.Discrete{N: 2}, Init: nn.FanIn, NStep: 1, Gamma: 0.99,
		Epsilon: policies.Constant(0.1), Adam: nn.AdamConfig{Rate: 0.05}, TargetEvery: 100,
	})
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for a := range 2 {
		b.Append(policies.Transition{
			Obs: []float32{1}, NextObs: []float32{1}, Action: []float32{float32(a)}, Reward: float32(10 * a), Terminated: true, Steps: 1,
		})
	}
	for range 1000 {
		if err := m.Begin(&b); err != nil {
			fmt.Println(err)
		}
		_, err := m.Update(&b, func(t *nn.Tape, value nn.Value) qnetwork.Loss {
			return qnetwork.Loss{Rows: value.Sub(t.Column(b.Floats(policies.Reward))).Square(), Values: value}
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("%.1f\n", m.Values([]float32{1}).Data)
	act := policies.Act{Obs: []float32{1}, Action: make([]float32, 1), Rand: rand.New(rand.NewPCG(1, 1)), Greedy: true}
	fmt.Println(m.Act(&act), act.Action)
	// Output:
	// [0.0 10.0]
	// <nil> [1]
}
