package nn_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// optimizers are all, with settings under which each of their parts counts.
var optimizers = []struct {
	name, kind string
	build      func(size int) nn.Optimizer
}{
	{"adam", "adam", nn.AdamConfig{Rate: 1e-2}.New},
	{"adamw", "adam", nn.AdamConfig{Rate: 1e-2, WeightDecay: 0.1}.New},
	{"sgd", "sgd", nn.SGDConfig{Rate: 1e-2}.New},
	{"momentum", "sgd", nn.SGDConfig{Rate: 1e-2, Momentum: 0.9}.New},
	{"nesterov", "sgd", nn.SGDConfig{Rate: 1e-2, Momentum: 0.9, Nesterov: true}.New},
	{"rmsprop", "rmsprop", nn.RMSpropConfig{Rate: 1e-3}.New},
	{"rmsprop, momentum", "rmsprop", nn.RMSpropConfig{Rate: 1e-3, Momentum: 0.9}.New},
	{"tensorflow", "rmsprop", nn.RMSpropConfig{Rate: 1e-3, Epsilon: 0.1, TensorFlow: true}.New},
	{"tensorflow, momentum", "rmsprop", nn.RMSpropConfig{Rate: 1e-3, Epsilon: 0.1, Momentum: 0.9, TensorFlow: true}.New},
}

// TestP1OptimizersEqualHandComputedNumbers over three steps from 1, with gradients 2, -1 and 0.5
// and a rate of 0.1: every line stands for a step.
func TestP1OptimizersEqualHandComputedNumbers(t *testing.T) {
	sqrt := math.Sqrt
	for _, c := range []struct {
		name string
		opt  nn.Optimizer
		want [3]float64
	}{
		// Adam's steps are m/(1-.9^t) / sqrt(v/(1-.99^t)), with
		// m = .2, .08, .122 and v = .04, .0496, .051604 for decays of .9 and .99; the weight loses a
		// tenth of .5 of itself before each.
		{"adamw", nn.AdamConfig{Rate: 0.1, Beta2: 0.99, WeightDecay: 0.5}.New(1), [3]float64{
			0.95 - 0.1,
			0.95*0.85 - 0.1*(0.08/0.19)/sqrt(0.0496/0.0199),
			0.95*(0.95*0.85-0.1*(0.08/0.19)/sqrt(0.0496/0.0199)) - 0.1*(0.122/0.271)/sqrt(0.051604/0.029701),
		}},
		// b = 2, 0, .5.
		{"sgd", nn.SGDConfig{Rate: 0.1, Momentum: 0.5}.New(1), [3]float64{0.8, 0.8, 0.75}},
		// The steps are grad + b/2 = 3, -1, .75.
		{"nesterov", nn.SGDConfig{Rate: 0.1, Momentum: 0.5, Nesterov: true}.New(1), [3]float64{0.7, 0.8, 0.725}},
		// v = .5*0 + .5*4 = 2, 1.5, .875.
		{"rmsprop", nn.RMSpropConfig{Rate: 0.1, Alpha: 0.5, Epsilon: 0.25}.New(1), [3]float64{
			1 - 0.2/(sqrt(2)+0.25),
			1 - 0.2/(sqrt(2)+0.25) + 0.1/(sqrt(1.5)+0.25),
			1 - 0.2/(sqrt(2)+0.25) + 0.1/(sqrt(1.5)+0.25) - 0.05/(sqrt(0.875)+0.25),
		}},
		// v = .5*1 + .5*4 = 2.5, 1.75, 1, and epsilon stands inside of the root.
		{"tensorflow", nn.RMSpropConfig{Rate: 0.1, Alpha: 0.5, Epsilon: 0.25, TensorFlow: true}.New(1), [3]float64{
			1 - 0.2/sqrt(2.75),
			1 - 0.2/sqrt(2.75) + 0.1/sqrt(2),
			1 - 0.2/sqrt(2.75) + 0.1/sqrt(2) - 0.05/sqrt(1.25),
		}},
		// b = a, a/2 + b', a/4 + b'/2 + c': the weight has lost 1.75 a + 1.5 b' + c' after three.
		{"rmsprop, momentum", nn.RMSpropConfig{Rate: 0.1, Alpha: 0.5, Epsilon: 0.25, Momentum: 0.5}.New(1), [3]float64{
			1 - 0.2/(sqrt(2)+0.25),
			1 - 1.5*0.2/(sqrt(2)+0.25) + 0.1/(sqrt(1.5)+0.25),
			1 - 1.75*0.2/(sqrt(2)+0.25) + 1.5*0.1/(sqrt(1.5)+0.25) - 0.05/(sqrt(0.875)+0.25),
		}},
	} {
		w := []float32{1}
		for step, g := range []float32{2, -1, 0.5} {
			c.opt.Step(w, []float32{g})
			if math.Abs(float64(w[0])-c.want[step]) > 1e-6 {
				t.Errorf("%s, step %d: %v, want %v", c.name, step+1, w[0], c.want[step])
			}
		}
	}
}

// TestTensorFlowsMomentumKeepsItsRate: what was added to it at the old rate stays.
func TestTensorFlowsMomentumKeepsItsRate(t *testing.T) {
	for tf, want := range map[bool]float32{false: 1, true: 1.5} {
		opt := nn.RMSpropConfig{Rate: 0.1, Momentum: 0.5, TensorFlow: tf}.New(1)
		w := []float32{0}
		opt.Step(w, []float32{1})
		first := w[0]
		opt.SetRate(0)
		if opt.Step(w, []float32{0}); math.Abs(float64(w[0]/first-want)) > 1e-6 {
			t.Errorf("tensorflow %v: a second step at a rate of 0 goes from %v to %v", tf, first, w[0])
		}
	}
}

// TestP4EveryOptimizerResumesExactly from a file.
func TestP4EveryOptimizerResumesExactly(t *testing.T) {
	for _, c := range optimizers {
		straight, first := nets[3].build(), nets[3].build()
		train(straight, c.build(straight.Size()), 20)
		half := c.build(first.Size())
		train(first, half, 10)
		var a, b nn.Archive
		a.Put("net", first.State(10))
		a.Put("opt", half.State())
		file, err := a.AppendBinary(nil)
		if err := errors.Join(err, b.UnmarshalBinary(file)); err != nil {
			t.Fatal(err)
		}
		resumed := nets[3].build()
		rest := c.build(resumed.Size())
		net, err1 := b.State("net")
		state, err2 := b.State("opt")
		if err := errors.Join(err1, err2, resumed.Load(net), rest.Load(state)); err != nil {
			t.Fatal(err)
		}
		train(resumed, rest, 10)
		if !slices.Equal(straight.Weights(), resumed.Weights()) || rest.State().Version != 20 {
			t.Errorf("%s: 20 steps and 10 + 10 steps differ", c.name)
		}
	}
}

// TestEveryOptimizerAllocatesNothing, and refuses other lengths.
func TestEveryOptimizerAllocatesNothing(t *testing.T) {
	for _, c := range optimizers {
		opt, w, g := c.build(100), make([]float32, 100), slices.Repeat([]float32{0.5}, 100)
		if n := testing.AllocsPerRun(20, func() { opt.Step(w, g) }); n != 0 {
			t.Errorf("%s: a step allocates %v times", c.name, n)
		}
		panics(t, fmt.Sprintf("nn: %s of 100 weights got 99 and 100 gradients", c.kind), func() { opt.Step(w[:99], g) })
		panics(t, fmt.Sprintf("nn: %s of 100 weights got 100 and 99 gradients", c.kind), func() { opt.Step(w, g[:99]) })
	}
}

func TestDefaultsOfOptimizers(t *testing.T) {
	for name, c := range map[string][2]nn.Optimizer{
		"sgd":     {nn.SGDConfig{}.New(1), nn.NewSGD(1e-3, 0, 1)},
		"rmsprop": {nn.RMSpropConfig{}.New(1), nn.RMSpropConfig{Rate: 1e-2, Alpha: 0.99, Epsilon: 1e-8}.New(1)},
	} {
		x, y := []float32{0.5}, []float32{0.5}
		for _, g := range []float32{1e-7, -3, 2e-4} {
			c[0].Step(x, []float32{g})
			c[1].Step(y, []float32{g})
		}
		if x[0] != y[0] || x[0] == 0.5 {
			t.Errorf("%s: %v with the defaults, %v with PyTorch's", name, x[0], y[0])
		}
	}
	panics(t, "nn: sgd with nesterov and without momentum", func() { nn.SGDConfig{Nesterov: true}.New(1) })
}

func TestRMSpropRefusesAStateOfOthers(t *testing.T) {
	tensor := func(name string, n int) nn.Tensor {
		return nn.Tensor{Name: name, Shape: []int{n}, Data: make([]float32, n)}
	}
	for want, tensors := range map[string][]nn.Tensor{
		"load rmsprop: tensor v or b is missing":                {tensor("v", 2)},
		"load rmsprop: tensor v is [3] with 3 values, want [2]": {tensor("v", 3), tensor("b", 2)},
		"load rmsprop: tensor b is [1] with 1 values, want [2]": {tensor("v", 2), tensor("b", 1)},
	} {
		opt := nn.NewRMSprop(nn.RMSpropConfig{Momentum: 0.9, TensorFlow: true}, 2)
		err := opt.Load(nn.State{Version: 5, Tensors: tensors})
		if s := opt.State(); err == nil || err.Error() != want || s.Version != 0 || s.Tensors[0].Data[1] != 1 {
			t.Errorf("error %v, want %q; state %+v", err, want, s)
		}
	}
	if err := nn.NewRMSprop(nn.RMSpropConfig{}, 2).Load(nn.State{}); err == nil {
		t.Error("a state without tensors passes")
	}
}

func ExampleRMSpropConfig() {
	net := nn.New(4, 1, nn.Dense(2, nn.Orthogonal(1)))
	a2c := nn.RMSpropConfig{Rate: 7e-4, Epsilon: 1e-5, TensorFlow: true}
	trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: a2c.New, MaxGradNorm: 0.5}, net)
	step, err := trainer.Step(func(t *nn.Tape) nn.Value { return net.Apply(t, t.Const(1, 4, []float32{0, 0, 0, 0})).Sum() })
	fmt.Println(step.Loss, err)
	// Output: 0 <nil>
}
