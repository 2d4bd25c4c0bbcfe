package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// cores are the recurrent networks: alone, between other layers, and two in a row.
var cores = []struct {
	name  string
	build func() *nn.Net
}{
	{"lstm", func() *nn.Net { return nn.New(3, 1, nn.LSTM(4, nil)) }},
	{"gru", func() *nn.Net { return nn.New(3, 1, nn.GRU(4, nil)) }},
	{"lstm with kernels' edges", func() *nn.Net { return nn.New(3, 1, nn.LSTM(9, nn.Orthogonal(1))) }},
	{"dense, gru, dense", func() *nn.Net {
		return nn.New(3, 1, nn.Dense(5, nn.Glorot), nn.Tanh(), nn.GRU(4, nn.Orthogonal(1)), nn.LayerNorm(), nn.Dense(2, nn.Glorot))
	}},
	{"gru, lstm", func() *nn.Net { return nn.New(3, 1, nn.GRU(3, nil), nn.LSTM(2, nil)) }},
	{"no state", func() *nn.Net { return nn.New(3, 1, nn.Dense(2, nn.Glorot)) }},
}

// resets are those of 2 sequences of 4 steps: one in the middle, one at the first step.
var resets = []bool{false, false, true, false, true, false, false, false}

// TestP2GradientsThroughTimeEqualCentralDifferences: by weights, inputs and first states; every
// output and every number of the last state counts.
func TestP2GradientsThroughTimeEqualCentralDifferences(t *testing.T) {
	for _, c := range cores {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 2))
			net := c.build()
			x, state := random(rng, 8, 3), random(rng, 2, net.StateSize())
			weight, last := random(rng, 8, net.Out()), random(rng, 2, net.StateSize())
			inputs := []nn.Matrix{x, state}
			checkGradients(t, net, inputs, func(tape *nn.Tape, in []nn.Value) nn.Value {
				y, next := net.Unroll(tape, in[0], in[1], resets)
				loss := y.Mul(tape.Const(8, net.Out(), weight.Data)).Sum()
				if net.StateSize() == 0 {
					return loss
				}
				return loss.Add(next.Mul(tape.Const(2, net.StateSize(), last.Data)).Sum())
			})
		})
	}
}

// stepTolerance allows for products of other numbers of rows, which may round differently.
const stepTolerance = 1e-6

func near(a, b float32) bool { return math.Abs(float64(a-b)) <= stepTolerance }

// TestUnrollEqualsSteps, one at a time: in acting and learning a network is the same.
func TestUnrollEqualsSteps(t *testing.T) {
	for _, c := range cores {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 2))
			net := c.build()
			const sequences, steps = 2, 4
			x, first := random(rng, sequences*steps, 3), random(rng, sequences, net.StateSize())
			var tape nn.Tape
			y, next := net.Unroll(&tape, tape.Const(x.Rows, 3, x.Data), tape.Const(sequences, net.StateSize(), first.Data), resets)
			state := slices.Clone(first.Data)
			for step := range steps {
				in, reset := nn.Matrix{Rows: sequences, Cols: 3}, make([]bool, sequences)
				for s := range sequences {
					in.Data = append(in.Data, x.Row(s*steps+step)...)
					reset[s] = resets[s*steps+step]
				}
				out := net.Step(in, state, reset)
				for s := range sequences {
					row := s*steps + step
					if want := y.Data()[row*net.Out() : (row+1)*net.Out()]; !slices.EqualFunc(out.Row(s), want, near) {
						t.Errorf("sequence %d, step %d: %v alone, %v unrolled", s, step, out.Row(s), want)
					}
				}
			}
			if !slices.EqualFunc(state, next.Data(), near) {
				t.Errorf("state %v after the steps, %v after the sequence", state, next.Data())
			}
		})
	}
}

// reference computes a step of an LSTM or a GRU from the equations, unit by unit in float64. The
// weights are those of the network, by PyTorch's names and order of gates.
func reference(net *nn.Net, kind string, x, state []float64) []float64 {
	p := net.Params()
	wi, wh, bi, bh := p[0], p[1], p[2], p[3]
	gates := wi.Shape[1]
	hidden := wh.Shape[0]
	part := func(w, b *nn.Param, in []float64, gate, unit int) float64 {
		sum := float64(b.Value[gate*hidden+unit])
		for i, v := range in {
			sum += v * float64(w.Value[i*gates+gate*hidden+unit])
		}
		return sum
	}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	h := state[:hidden]
	next := make([]float64, len(state))
	for u := range hidden {
		in := func(gate int) float64 { return part(wi, bi, x, gate, u) }
		rec := func(gate int) float64 { return part(wh, bh, h, gate, u) }
		if kind == "lstm" {
			i, f, g, o := sigmoid(in(0)+rec(0)), sigmoid(in(1)+rec(1)), math.Tanh(in(2)+rec(2)), sigmoid(in(3)+rec(3))
			next[hidden+u] = f*state[hidden+u] + i*g
			next[u] = o * math.Tanh(next[hidden+u])
			continue
		}
		r, z := sigmoid(in(0)+rec(0)), sigmoid(in(1)+rec(1))
		n := math.Tanh(in(2) + r*rec(2))
		next[u] = (1-z)*n + z*h[u]
	}
	return next
}

// TestP1RecurrentLayersEqualTheirEquations over 30 steps, with an episode that ends in between.
func TestP1RecurrentLayersEqualTheirEquations(t *testing.T) {
	for kind, build := range map[string]func(int, nn.Init) nn.Layer{"lstm": nn.LSTM, "gru": nn.GRU} {
		net := nn.New(3, 7, build(5, nil))
		rng := rand.New(rand.NewPCG(2, 2))
		state, want := make([]float32, net.StateSize()), make([]float64, net.StateSize())
		for step := range 30 {
			x := random(rng, 1, 3)
			reset := step == 12
			if reset {
				clear(want)
			}
			wide := make([]float64, 3)
			for i, v := range x.Data {
				wide[i] = float64(v)
			}
			want = reference(net, kind, wide, want)
			y := net.Step(x, state, []bool{reset})
			for i, v := range state {
				if math.Abs(float64(v)-want[i]) > 2e-6 {
					t.Fatalf("%s, step %d: state %v, want %v", kind, step, state, want)
				}
			}
			if !slices.Equal(y.Data, state[:5]) {
				t.Fatalf("%s: output %v and state %v", kind, y.Data, state)
			}
		}
	}
}

// TestP1RecurrentLayersEqualHandComputedNumbers with one unit, and weights by which the gates
// differ: their order is PyTorch's.
func TestP1RecurrentLayersEqualHandComputedNumbers(t *testing.T) {
	net := nn.New(1, 1, nn.LSTM(1, nil))
	copy(net.Weights(), []float32{1, 2, 0.5, -1, 0, 0, 1, 0, 0, -2, 0, 1, 0, 0, 0, 0})
	state := []float32{0.5, 2}
	net.Step(nn.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}, state, nil)
	// i = sigmoid(1) = .7310586, f = sigmoid(2-2) = .5, g = tanh(.5+.5) = .7615942, o = sigmoid(-1+1) = .5;
	// c = .5*2 + .7310586*.7615942 = 1.5567700, h = .5*tanh(1.55677) = .4574478.
	if math.Abs(float64(state[1])-1.5567700) > 1e-6 || math.Abs(float64(state[0])-0.4574478) > 1e-6 {
		t.Errorf("lstm: h, c %v, want 0.4574478 and 1.5567700", state)
	}
	net = nn.New(1, 1, nn.GRU(1, nil))
	copy(net.Weights(), []float32{1, -1, 0.5, 0, 0, 2, -1, 1, 0, 0, 0, 1})
	state = []float32{0.5}
	net.Step(nn.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}, state, nil)
	// r = sigmoid(1-1) = .5, z = sigmoid(-1+1) = .5, n = tanh(.5 + .5*(2*.5+1)) = tanh(1.5) = .9051483;
	// h = .5*.9051483 + .5*.5 = .7025741.
	if math.Abs(float64(state[0])-0.7025741) > 1e-6 {
		t.Errorf("gru: h %v, want 0.7025741", state[0])
	}
}

// TestResetForgetsWhatWasBefore: neither the state before nor its gradient passes, and a state
// that is not finite does no harm.
func TestResetForgetsWhatWasBefore(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range cores[:5] {
		net := c.build()
		x := random(rand.New(rand.NewPCG(2, 2)), 2, 3)
		pass := func(fill float32, reset []bool) (out, grad, weights []float32) {
			var tape nn.Tape
			tape.Train(net)
			net.ZeroGrad()
			state := tape.Variable(1, net.StateSize(), slices.Repeat([]float32{fill}, net.StateSize()))
			y, _ := net.Unroll(&tape, tape.Const(2, 3, x.Data), state, reset)
			tape.Backward(y.Square().Sum())
			return slices.Clone(y.Data()), state.Grad(), slices.Clone(net.Grad())
		}
		fresh, _, weights := pass(0, nil)
		out, grad, again := pass(nan, []bool{true, false})
		if !slices.Equal(out, fresh) || !slices.Equal(again, weights) || slices.ContainsFunc(grad, func(g float32) bool { return g != 0 }) {
			t.Errorf("%s: with a reset %v, with zeros %v; gradient of the state %v", c.name, out, fresh, grad)
		}
		out, _, _ = pass(0.5, []bool{false, true})
		one := net.Step(nn.Matrix{Rows: 1, Cols: 3, Data: x.Row(1)}, make([]float32, net.StateSize()), nil)
		if !slices.EqualFunc(out[net.Out():], one.Data, near) {
			t.Errorf("%s: after a reset %v, alone %v", c.name, out[net.Out():], one.Data)
		}
	}
}

// TestRecurrentNetworksAllocateNothing in a steady step, neither when they act nor when they
// learn.
func TestRecurrentNetworksAllocateNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, c := range cores {
		net := c.build()
		trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 10}, net)
		x, state, y := random(rng, 8, 3), random(rng, 2, net.StateSize()), random(rng, 8, net.Out())
		now := nn.Matrix{Rows: 2, Cols: 3, Data: x.Data[:6]}
		if n := testing.AllocsPerRun(20, func() {
			net.Step(now, state.Data, resets[3:5])
			if _, err := trainer.Step(func(t *nn.Tape) nn.Value {
				out, _ := net.Unroll(t, t.Const(8, 3, x.Data), t.Const(2, net.StateSize(), state.Data), resets)
				return losses["mse"](out, t.Const(8, net.Out(), y.Data))
			}); err != nil {
				panic(err)
			}
		}); n != 0 {
			t.Errorf("%s: a step allocates %v times", c.name, n)
		}
	}
}

// TestGradientReachesStateAndInputsOfANetworkThatDoesNotTrain, and nothing else.
func TestGradientReachesStateAndInputsOfANetworkThatDoesNotTrain(t *testing.T) {
	for _, c := range cores[:5] {
		net := c.build()
		var tape nn.Tape
		x := random(rand.New(rand.NewPCG(2, 2)), 4, 3)
		state := tape.Variable(2, net.StateSize(), make([]float32, 2*net.StateSize()))
		_, next := net.Unroll(&tape, tape.Const(4, 3, x.Data), state, nil)
		tape.Backward(next.Sum())
		if state.Grad() == nil || state.Grad()[0] == 0 || slices.ContainsFunc(net.Grad(), func(g float32) bool { return g != 0 }) {
			t.Errorf("%s: gradient of the state %v, of the weights %v", c.name, state.Grad(), net.Grad())
		}
	}
}

func TestNoSequences(t *testing.T) {
	for _, c := range cores {
		net := c.build()
		if y := net.Step(nn.Matrix{Cols: 3}, nil, nil); y.Rows != 0 || y.Cols != net.Out() {
			t.Errorf("%s: %+v", c.name, y)
		}
	}
}

// TestInitialWeightsOfRecurrentLayers: PyTorch's without an initialiser; with one, biases of zero.
func TestInitialWeightsOfRecurrentLayers(t *testing.T) {
	net := nn.New(3, 1, nn.GRU(16, nil))
	var square float64
	for _, v := range net.Weights() {
		if square += float64(v) * float64(v); math.Abs(float64(v)) > 0.25 {
			t.Errorf("%v beyond 1/sqrt(16)", v)
		}
	}
	if got := square / float64(net.Size()) / (0.0625 / 3); got < 0.9 || got > 1.1 {
		t.Errorf("the variance is %v of what it should be", got)
	}
	net = nn.New(3, 1, nn.LSTM(16, nn.Fill(2)))
	p := net.Params()
	for i, want := range []struct {
		name  string
		value float32
	}{{"lstm0.weight_input", 2}, {"lstm0.weight_hidden", 2}, {"lstm0.bias_input", 0}, {"lstm0.bias_hidden", 0}} {
		if p[i].Name != want.name || p[i].Value[5] != want.value {
			t.Errorf("%s begins with %v, want %+v", p[i].Name, p[i].Value[5], want)
		}
	}
}

func TestRecurrentNetworksThatCannotBeAreRefused(t *testing.T) {
	gru := func() *nn.Net { return nn.New(1, 1, nn.GRU(1, nil)) }
	for text, f := range map[string]func(){
		"nn: lstm of 0 columns": func() { nn.LSTM(0, nil) },
		"nn: gru of -1 columns": func() { nn.GRU(-1, nil) },
		"nn: a network with gru needs its state: call Unroll or Step": func() { gru().Forward(nn.Matrix{Rows: 1, Cols: 1, Data: []float32{1}}) },
		"nn: state of 2 x 2, want 1 columns":                          func() { stateOfTwo(gru()) },
		"nn: 3 rows in 2 sequences":                                   func() { unroll(nn.New(1, 1, nn.Tanh()), 3, 2, nil) },
		"nn: 0 rows in 2 sequences":                                   func() { unroll(nn.New(1, 1, nn.Tanh()), 0, 2, nil) },
		"nn: 1 rows in 0 sequences":                                   func() { unroll(gru(), 1, 0, nil) },
		"nn: 1 resets of 2 rows":                                      func() { unroll(gru(), 2, 1, make([]bool, 1)) },
		"nn: constant of 2 x 1 with 1 values": func() {
			gru().Step(nn.Matrix{Rows: 2, Cols: 1, Data: make([]float32, 2)}, make([]float32, 1), nil)
		},
	} {
		panics(t, text, f)
	}
}

func stateOfTwo(net *nn.Net) {
	var tape nn.Tape
	net.Unroll(&tape, tape.Zeros(2, 1), tape.Zeros(2, 2), nil)
}

func unroll(net *nn.Net, rows, sequences int, reset []bool) {
	var tape nn.Tape
	net.Unroll(&tape, tape.Zeros(rows, net.In()), tape.Zeros(sequences, net.StateSize()), reset)
}

// ExampleNet_Unroll learns to say at the end of an episode of 4 steps what was seen at its
// beginning.
func ExampleNet_Unroll() {
	const episodes, steps = 2, 4
	net := nn.New(1, 3, nn.GRU(8, nil), nn.Dense(1, nn.FanIn))
	x := []float32{1, 0, 0, 0, -1, 0, 0, 0} // row episode*steps + step
	first := []bool{true, false, false, false, true, false, false, false}
	trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: 0.02}.New}, net)
	for range 300 {
		_, err := trainer.Step(func(t *nn.Tape) nn.Value {
			y, _ := net.Unroll(t, t.Column(x), t.Zeros(episodes, net.StateSize()), first)
			end := y.Reshape(episodes, steps).Columns(steps-1, steps)
			return end.Sub(t.Column([]float32{1, -1})).Square().Mean()
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	// To act, the caller holds the state.
	state := make([]float32, episodes*net.StateSize())
	for step := range steps {
		y := net.Step(nn.Matrix{Rows: episodes, Cols: 1, Data: []float32{x[step], x[steps+step]}}, state, []bool{step == 0, step == 0})
		if step == steps-1 {
			fmt.Printf("%.1f\n", y.Data)
		}
	}
	// Output: [1.0 -1.0]
}

func BenchmarkRecurrent(b *testing.B) {
	for _, c := range []struct {
		name  string
		layer func(int, nn.Init) nn.Layer
	}{{"lstm", nn.LSTM}, {"gru", nn.GRU}} {
		net := nn.New(64, 1, c.layer(128, nil))
		x, state := random(rand.New(rand.NewPCG(1, 1)), 32*16, 64), make([]float32, 32*net.StateSize())
		b.Run(c.name+"/step/32", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				net.Step(nn.Matrix{Rows: 32, Cols: 64, Data: x.Data[:32*64]}, state, nil)
			}
		})
		trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: 1e-6}.New}, net)
		b.Run(c.name+"/train/32x16", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := trainer.Step(func(t *nn.Tape) nn.Value {
					y, _ := net.Unroll(t, t.Const(x.Rows, x.Cols, x.Data), t.Zeros(32, net.StateSize()), nil)
					return y.Square().Mean()
				}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// running is a recurrent layer of a user's: the sum of all inputs of an episode so far, by
// operations on the tape alone. It knows no resets.
type running struct{ columns int }

func (r *running) Build(_ *nn.Builder, in int) int {
	r.columns = in
	return in
}

func (r *running) StateSize() int { return r.columns }

func (*running) Apply(*nn.Tape, nn.Value) nn.Value { panic("a state is needed") }

func (r *running) Unroll(_ *nn.Tape, x, state nn.Value, _ []bool) (y, next nn.Value) {
	sequences := state.Rows()
	steps := x.Rows() / sequences
	x = x.Reshape(sequences, steps*r.columns)
	for i := range steps {
		state = state.Add(x.Columns(i*r.columns, (i+1)*r.columns))
		if i == 0 {
			y = state
		} else {
			y = y.Beside(state)
		}
	}
	return y.Reshape(sequences*steps, r.columns), state
}

// TestRecurrentLayerOfAUsersOwn, behind one of ours: each has its columns of the state.
func TestRecurrentLayerOfAUsersOwn(t *testing.T) {
	net := nn.New(1, 1, nn.LSTM(2, nn.Zeros), &running{})
	if net.StateSize() != 6 {
		t.Fatalf("a state of %d columns", net.StateSize())
	}
	net = nn.New(2, 1, &running{}, nn.GRU(1, nn.Zeros))
	state := []float32{1, 2, 0.5, 10, 20, 0}
	net.Step(nn.Matrix{Rows: 2, Cols: 2, Data: []float32{1, 1, 2, 2}}, state, nil)
	// With weights of zero a GRU halves its state.
	if !slices.Equal(state, []float32{2, 3, 0.25, 12, 22, 0}) {
		t.Errorf("state %v", state)
	}
	checkGradients(t, net, []nn.Matrix{random(rand.New(rand.NewPCG(1, 1)), 4, 2), random(rand.New(rand.NewPCG(2, 1)), 2, 3)},
		func(tape *nn.Tape, in []nn.Value) nn.Value {
			y, next := net.Unroll(tape, in[0], in[1], nil)
			return y.Sum().Add(next.Square().Sum())
		})
}
