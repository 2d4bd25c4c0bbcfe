package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// modules are networks with every kind of layer. The seeds bring no unit within h of a kink.
var modules = []struct {
	name  string
	build func() *nn.Net
}{
	{"layer norm", func() *nn.Net {
		return nn.New(5, 1, nn.Dense(6, nn.Glorot), nn.LayerNorm(), nn.Tanh(), nn.Dense(2, nn.Glorot))
	}},
	{"layer norm first", func() *nn.Net { return nn.New(5, 1, nn.LayerNorm(), nn.Dense(2, nn.Glorot)) }},
	{"learned", func() *nn.Net { return nn.New(5, 1, nn.Dense(3, nn.Glorot), nn.Learned(3, -0.5)) }},
	{"scale", func() *nn.Net { return nn.New(5, 1, nn.Scale(1.0/255), nn.Dense(3, nn.Glorot)) }},
	{"rescale", func() *nn.Net {
		return nn.New(5, 1, nn.Dense(2, nn.Glorot), nn.Tanh(), nn.Rescale([]float32{-2, 1}, []float32{2, 4}))
	}},
	{"noisy", func() *nn.Net {
		net := nn.New(5, 1, nn.NoisyDense(4, 0.5), nn.Tanh(), nn.NoisyDense(2, 0.5))
		net.RedrawNoise(rand.New(rand.NewPCG(6, 6)))
		return net
	}},
	{"noisy without noise", func() *nn.Net { return nn.New(5, 1, nn.NoisyDense(4, 0.5), nn.Tanh()) }},
	{"convolution", func() *nn.Net {
		return nn.New(6*5*2, 1, nn.Image(6, 5, 2), nn.Conv2D(3, 3, 1, nn.KaimingNormal), nn.Tanh(), nn.Conv2D(4, 2, 2, nn.GlorotNormal))
	}},
	{"convolution, relu, dense", func() *nn.Net {
		return nn.New(5*5, 1, nn.Image(5, 5, 1), nn.Conv2D(4, 3, 2, nn.Kaiming), nn.ReLU(), nn.Dense(2, nn.Glorot))
	}},
}

// differenceTolerance is for float32 losses of the order of 1 and steps of 2e-3.
const differenceTolerance = 2e-3

// checkGradients compares the derivatives of a loss by the inputs and the weights with central
// differences.
func checkGradients(t *testing.T, net *nn.Net, inputs []nn.Matrix, loss func(t *nn.Tape, in []nn.Value) nn.Value) {
	t.Helper()
	var tape nn.Tape
	tape.Train(net)
	record := func() (nn.Value, []nn.Value) {
		tape.Reset()
		var in []nn.Value
		for _, m := range inputs {
			in = append(in, tape.Variable(m.Rows, m.Cols, m.Data))
		}
		return loss(&tape, in), in
	}
	net.ZeroGrad()
	l, in := record()
	tape.Backward(l)
	names, values, grads := []string{}, [][]float32{}, [][]float32{}
	for i, v := range in {
		names, values, grads = append(names, fmt.Sprintf("input %d", i)), append(values, inputs[i].Data), append(grads, slices.Clone(v.Grad()))
	}
	for _, p := range net.Params() {
		names, values, grads = append(names, p.Name), append(values, p.Value), append(grads, p.Grad)
	}
	at := func() float64 {
		l, _ := record()
		return float64(l.Number())
	}
	for k, name := range names {
		for i, v := range values[k] {
			const h = 2e-3
			values[k][i] = v + h
			up := at()
			values[k][i] = v - h
			down := at()
			values[k][i] = v
			want := (up - down) / (2 * h)
			if got := float64(grads[k][i]); math.Abs(got-want) > differenceTolerance*(1+math.Abs(want)) {
				t.Errorf("%s[%d]: gradient %v, differences give %v", name, i, got, want)
			}
		}
	}
}

// TestP2GradientsOfModulesEqualCentralDifferences: those of all weights and inputs.
func TestP2GradientsOfModulesEqualCentralDifferences(t *testing.T) {
	for _, c := range modules {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(2, 2))
			net := c.build()
			x, target := random(rng, 4, net.In()), random(rng, 4, net.Out())
			checkGradients(t, net, []nn.Matrix{x}, func(tape *nn.Tape, in []nn.Value) nn.Value {
				return net.Apply(tape, in[0]).Sub(tape.Const(target.Rows, target.Cols, target.Data)).Square().Mean()
			})
		})
	}
}

func TestP2GradientOfEmbeddingEqualsCentralDifferences(t *testing.T) {
	net := nn.New(1, 1, nn.Embedding(4, 3, nn.Normal(1)), nn.Tanh(), nn.Dense(2, nn.Glorot))
	target := random(rand.New(rand.NewPCG(2, 2)), 5, 2)
	checkGradients(t, net, nil, func(tape *nn.Tape, _ []nn.Value) nn.Value {
		return net.Apply(tape, tape.Column([]float32{3, 0, 1, 3, 3})).Sub(tape.Const(5, 2, target.Data)).Square().Mean()
	})
}

// TestModulesKeepTheRulesOfLayers: no allocation, no dependence on the batch, and on what a
// larger batch left behind; an empty batch passes.
func TestModulesKeepTheRulesOfLayers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, c := range modules {
		net := c.build()
		trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 10}, net)
		x, y := random(rng, 64, net.In()), random(rng, 64, net.Out())
		if n := testing.AllocsPerRun(20, func() {
			net.Forward(x)
			if _, err := trainer.Step(func(t *nn.Tape) nn.Value {
				return losses["mse"](forward(t, net, x), t.Const(y.Rows, y.Cols, y.Data))
			}); err != nil {
				panic(err)
			}
		}); n != 0 {
			t.Errorf("%s: a training step allocates %v times", c.name, n)
		}
		all := slices.Clone(net.Forward(x).Data)
		for _, i := range []int{0, 40, 63} {
			one := net.Forward(nn.Matrix{Rows: 1, Cols: x.Cols, Data: x.Row(i)})
			if !slices.Equal(one.Data, all[i*net.Out():(i+1)*net.Out()]) {
				t.Errorf("%s: row %d alone gives %v, in the batch %v", c.name, i, one.Data, all[i*net.Out():(i+1)*net.Out()])
			}
		}
		net.ZeroGrad()
		backward(net, nn.Matrix{Cols: net.In()}, nn.Matrix{Cols: net.Out()})
		if slices.ContainsFunc(net.Grad(), func(g float32) bool { return g != 0 }) {
			t.Errorf("%s: an empty batch has a gradient", c.name)
		}
		same := c.build()
		if !slices.Equal(same.Weights(), c.build().Weights()) {
			t.Errorf("%s: the seed does not fix the weights", c.name)
		}
		if err := same.Load(net.State(1)); err != nil || !slices.Equal(same.Forward(x).Data, all) {
			t.Errorf("%s: loaded weights act otherwise", c.name)
		}
	}
}

func TestP1LayerNormEqualsHandComputedNumbers(t *testing.T) {
	net := nn.New(4, 1, nn.LayerNorm())
	// Mean 2.5, variance 1.25.
	y := net.Forward(nn.Matrix{Rows: 2, Cols: 4, Data: []float32{1, 2, 3, 4, 1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 4}})
	for i, v := range y.Data {
		if want := (float64(i%4) - 1.5) / math.Sqrt(1.25+1e-5); math.Abs(float64(v)-want) > 1e-6 {
			t.Errorf("value %d: %v, want %v", i, v, want)
		}
	}
	copy(net.Weights(), []float32{2, 2, 2, 2, 1, 0, 0, 0})
	y = net.Forward(nn.Matrix{Rows: 1, Cols: 4, Data: []float32{5, 5, 5, 5}})
	if !slices.Equal(y.Data, []float32{1, 0, 0, 0}) {
		t.Errorf("a constant row gives %v, want the biases", y.Data)
	}
}

func TestP1EmbeddingEqualsItsTable(t *testing.T) {
	net := nn.New(1, 1, nn.Embedding(3, 2, nn.Zeros))
	copy(net.Weights(), []float32{1, 2, 3, 4, 5, 6})
	y := net.Forward(nn.Matrix{Rows: 3, Cols: 1, Data: []float32{2, 0, 2}})
	if !slices.Equal(y.Data, []float32{5, 6, 1, 2, 5, 6}) {
		t.Errorf("%v", y.Data)
	}
	backward(net, nn.Matrix{Rows: 3, Cols: 1, Data: []float32{2, 0, 2}}, nn.Matrix{Rows: 3, Cols: 2, Data: []float32{1, 2, 3, 4, 5, 6}})
	if !slices.Equal(net.Grad(), []float32{3, 4, 0, 0, 6, 8}) {
		t.Errorf("gradient %v", net.Grad())
	}
}

// TestEmbeddingNamesAWrongIndex by table, number and row.
func TestEmbeddingNamesAWrongIndex(t *testing.T) {
	net := nn.New(1, 1, nn.Embedding(3, 2, nn.Zeros))
	for _, v := range []float32{3, -1, 0.5, float32(math.NaN()), float32(math.Inf(1)), 1e20} {
		panics(t, fmt.Sprintf("nn: embedding0.weight: index %v in row 1, want a whole number from 0 to 2", v), func() {
			net.Forward(nn.Matrix{Rows: 2, Cols: 1, Data: []float32{0, v}})
		})
	}
}

// TestP1ConvolutionEqualsHandComputedNumbers: an image of 3 x 3 pixels with 2 channels, a kernel
// of 2 x 2.
func TestP1ConvolutionEqualsHandComputedNumbers(t *testing.T) {
	net := nn.New(18, 1, nn.Image(3, 3, 2), nn.Conv2D(1, 2, 1, nn.Zeros))
	copy(net.Weights(), []float32{1, 10, 2, 20, 3, 30, 4, 40, 0.5})
	x := make([]float32, 18)
	for i := range 9 {
		x[2*i], x[2*i+1] = float32(i), float32(-i) // channel 1 is the negative of channel 0
	}
	// With window a b / c d: (1-10) a + (2-20) b + (3-30) c + (4-40) d + 1/2.
	want := []float32{
		-9*0 - 18*1 - 27*3 - 36*4 + 0.5, -9*1 - 18*2 - 27*4 - 36*5 + 0.5,
		-9*3 - 18*4 - 27*6 - 36*7 + 0.5, -9*4 - 18*5 - 27*7 - 36*8 + 0.5,
	}
	if y := net.Forward(nn.Matrix{Rows: 1, Cols: 18, Data: x}); !slices.Equal(y.Data, want) {
		t.Errorf("%v, want %v", y.Data, want)
	}
}

// TestP1ConvolutionEqualsItsDefinition, by loops over output, kernel and channels in float64, for
// strides that leave pixels over.
func TestP1ConvolutionEqualsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, c := range []struct{ h, w, in, out, kernel, stride, rows int }{
		{5, 7, 3, 4, 3, 2, 3}, {4, 4, 1, 20, 4, 1, 2}, {9, 8, 2, 5, 3, 3, 1}, {6, 6, 2, 3, 1, 1, 40}, {20, 20, 4, 32, 8, 4, 2},
	} {
		net := nn.New(c.h*c.w*c.in, 1, nn.Image(c.h, c.w, c.in), nn.Conv2D(c.out, c.kernel, c.stride, nn.FanIn))
		x, weight, bias := random(rng, c.rows, net.In()), net.Params()[0].Value, net.Params()[1].Value
		y := net.Forward(x)
		oh, ow := (c.h-c.kernel)/c.stride+1, (c.w-c.kernel)/c.stride+1
		if y.Cols != oh*ow*c.out {
			t.Fatalf("%+v: %d columns", c, y.Cols)
		}
		for at, got := range y.Data {
			o, ox, oy, row := at%c.out, at/c.out%ow, at/c.out/ow%oh, at/c.out/ow/oh
			want := float64(bias[o])
			for ky := range c.kernel {
				for kx := range c.kernel {
					for ch := range c.in {
						pixel := x.Row(row)[((oy*c.stride+ky)*c.w+ox*c.stride+kx)*c.in+ch]
						want += float64(pixel) * float64(weight[((ky*c.kernel+kx)*c.in+ch)*c.out+o])
					}
				}
			}
			if math.Abs(float64(got)-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("%+v, row %d, place %d, %d, channel %d: %v, want %v", c, row, oy, ox, o, got, want)
			}
		}
	}
}

// TestGradientOfABatchIsTheSumOfItsRows, also where a convolution works on it part by part.
func TestGradientOfABatchIsTheSumOfItsRows(t *testing.T) {
	net := nn.New(8*8*2, 1, nn.Image(8, 8, 2), nn.Conv2D(3, 3, 1, nn.Kaiming), nn.Tanh(), nn.Conv2D(5, 2, 2, nn.Kaiming))
	rng := rand.New(rand.NewPCG(5, 5))
	x, dy := random(rng, 37, net.In()), random(rng, 37, net.Out())
	backward(net, x, dy)
	all := slices.Clone(net.Grad())
	net.ZeroGrad()
	for i := range x.Rows {
		backward(net, nn.Matrix{Rows: 1, Cols: x.Cols, Data: x.Row(i)}, nn.Matrix{Rows: 1, Cols: dy.Cols, Data: dy.Row(i)})
	}
	for i, want := range net.Grad() {
		if math.Abs(float64(all[i]-want)) > 1e-4*(1+math.Abs(float64(want))) {
			t.Fatalf("gradient %d: %v of the batch, %v of its rows", i, all[i], want)
		}
	}
}

// nature returns the network of V. Mnih et al. (2015).
func nature(actions int) *nn.Net {
	return nn.New(84*84*4, 1, nn.Image(84, 84, 4), nn.Scale(1.0/255),
		nn.Conv2D(32, 8, 4, nn.Kaiming), nn.ReLU(), nn.Conv2D(64, 4, 2, nn.Kaiming), nn.ReLU(), nn.Conv2D(64, 3, 1, nn.Kaiming), nn.ReLU(),
		nn.Dense(512, nn.Kaiming), nn.ReLU(), nn.Dense(actions, nn.FanIn))
}

// TestNaturesNetworkHasItsPublishedSize: 1,686,180 weights for 4 actions, as PyTorch counts them.
func TestNaturesNetworkHasItsPublishedSize(t *testing.T) {
	net := nature(4)
	want := (8*8*4*32 + 32) + (4*4*32*64 + 64) + (3*3*64*64 + 64) + (7*7*64*512 + 512) + (512*4 + 4)
	if net.Size() != want || net.Out() != 4 {
		t.Errorf("%d weights, want %d; %d outputs", net.Size(), want, net.Out())
	}
	if p := net.Params()[4]; p.Name != "conv6.weight" || !slices.Equal(p.Shape, []int{3, 3, 64, 64}) {
		t.Errorf("%s %v", p.Name, p.Shape)
	}
}

func TestModulesThatCannotBeAreRefused(t *testing.T) {
	conv := func() nn.Layer { return nn.Conv2D(2, 3, 1, nn.Zeros) }
	for text, f := range map[string]func(){
		"nn: embedding of 0 numbers in 2 columns":              func() { nn.Embedding(0, 2, nn.Zeros) },
		"nn: embedding of 2 numbers in 0 columns":              func() { nn.Embedding(2, 0, nn.Zeros) },
		"nn: embedding of 2 numbers in 3 columns":              func() { nn.Embedding(2, 3, nil) },
		"nn: embedding of 2 columns, want 1":                   func() { nn.New(2, 1, nn.Embedding(2, 3, nn.Zeros)) },
		"nn: rescaled columns with 1 lower and 2 upper bounds": func() { nn.Rescale([]float32{0}, []float32{1, 2}) },
		"nn: rescaled columns with 0 lower and 0 upper bounds": func() { nn.Rescale(nil, nil) },
		"nn: rescaled column 0 with bounds 0 and +Inf":         func() { nn.Rescale([]float32{0}, []float32{float32(math.Inf(1))}) },
		"nn: 1 rescaled columns of 2":                          func() { nn.New(2, 1, nn.Rescale([]float32{0}, []float32{1})) },
		"nn: 0 learned columns":                                func() { nn.Learned(0, 1) },
		"nn: noisy layer of 0 columns, sigma 0.5":              func() { nn.NoisyDense(0, 0.5) },
		"nn: noisy layer of 2 columns, sigma -1":               func() { nn.NoisyDense(2, -1) },
		"nn: image of 3 x 0 x 1":                               func() { nn.Image(3, 0, 1) },
		"nn: image of 3 x 3 x 1 in 8 columns":                  func() { nn.New(8, 1, nn.Image(3, 3, 1)) },
		"nn: convolution of 0 channels, kernel 3, stride 1":    func() { nn.Conv2D(0, 3, 1, nn.Zeros) },
		"nn: convolution of 1 channels, kernel 0, stride 1":    func() { nn.Conv2D(1, 0, 1, nn.Zeros) },
		"nn: convolution of 1 channels, kernel 2, stride 0":    func() { nn.Conv2D(1, 2, 0, nn.Zeros) },
		"nn: convolution of 1 channels, kernel 2, stride 1":    func() { nn.Conv2D(1, 2, 1, nil) },
		"nn: convolution of 9 columns, which are no image":     func() { nn.New(9, 1, conv()) },
		"nn: convolution of 4 columns, which are no image":     func() { nn.New(9, 1, nn.Image(3, 3, 1), nn.Dense(4, nn.Zeros), conv()) },
		"nn: convolution of 18 columns, which are no image":    func() { nn.New(18, 1, nn.Image(3, 3, 2), nn.Dense(18, nn.Zeros), conv()) },
		"nn: convolution with kernel 3 of an image of 2 x 9":   func() { nn.New(18, 1, nn.Image(2, 9, 1), conv()) },
		"nn: input of 1 x 3 with 3 values, want 4 columns": func() {
			nn.New(4, 1, nn.LayerNorm()).Forward(nn.Matrix{Rows: 1, Cols: 3, Data: make([]float32, 3)})
		},
		"nn: a masked value of 1 x 2 with 3 flags":     func() { new(nn.Tape).Zeros(1, 2).Where(make([]bool, 3), 0) },
		"nn: log-softmax of groups [2 2] in 3 columns": func() { new(nn.Tape).Zeros(1, 3).LogSoftmaxGroups([]int{2, 2}) },
		"nn: log-softmax of groups [3 0] in 3 columns": func() { new(nn.Tape).Zeros(1, 3).LogSoftmaxGroups([]int{3, 0}) },
		"nn: value that is on no tape":                 func() { nn.Value{}.Tape() },
	} {
		panics(t, text, f)
	}
}

// TestNoiseIsThatOfThePaper: y = x (W + S f(p) f(q)) + b + s f(q), and the mean weights without.
func TestNoiseIsThatOfThePaper(t *testing.T) {
	const in, out = 2, 3
	net := nn.New(in, 1, nn.NoisyDense(out, 0.5))
	x := []float32{2, -3}
	w, b, sw, sb := net.Params()[0].Value, net.Params()[1].Value, net.Params()[2].Value, net.Params()[3].Value
	for _, v := range append(slices.Clone(w), b...) {
		if math.Abs(float64(v)) > 1/math.Sqrt(in) {
			t.Errorf("mean %v beyond 1/sqrt(%d)", v, in)
		}
	}
	if want := float32(0.5 / math.Sqrt(in)); sw[0] != want || sb[2] != want {
		t.Errorf("sigmas %v and %v, want %v", sw[0], sb[2], want)
	}
	expect := func(p, q []float64) {
		t.Helper()
		y := net.Forward(nn.Matrix{Rows: 1, Cols: in, Data: x}).Data
		for j := range out {
			want := float64(b[j]) + float64(sb[j])*q[j]
			for i := range in {
				want += float64(x[i]) * (float64(w[i*out+j]) + float64(sw[i*out+j])*p[i]*q[j])
			}
			if math.Abs(float64(y[j])-want) > 1e-5 {
				t.Errorf("output %d: %v, want %v", j, y[j], want)
			}
		}
	}
	none := []float64{0, 0, 0}
	expect(none, none)
	net.RedrawNoise(rand.New(rand.NewPCG(9, 9)))
	rng := rand.New(rand.NewPCG(9, 9))
	draw := func(n int) []float64 {
		v := make([]float64, n)
		for i := range v {
			e := rng.NormFloat64()
			v[i] = math.Copysign(math.Sqrt(math.Abs(e)), e)
		}
		return v
	}
	p := draw(in)
	expect(p, draw(out))
	net.ClearNoise()
	expect(none, none)
}

// TestRedrawnNoiseDoesNotChangeATape: the gradient belongs to the noise that was recorded.
func TestRedrawnNoiseDoesNotChangeATape(t *testing.T) {
	gradient := func(again bool) []float32 {
		rng := rand.New(rand.NewPCG(9, 9))
		net := nn.New(2, 1, nn.NoisyDense(3, 0.5))
		net.RedrawNoise(rng)
		var tape nn.Tape
		tape.Train(net)
		y := net.Apply(&tape, tape.Const(1, 2, []float32{1, 2}))
		if again {
			net.RedrawNoise(rng)
		}
		tape.Backward(y.Square().Sum())
		return net.Grad()
	}
	if !slices.Equal(gradient(false), gradient(true)) {
		t.Error("a redraw between forward and backward changes the gradient")
	}
}

func TestNormalInitialWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := nn.Matrix{Rows: 100, Cols: 60, Data: make([]float32, 6000)}
	for name, c := range map[string]struct {
		init     nn.Init
		variance float64
	}{
		"he normal": {nn.KaimingNormal, 2. / 100}, "xavier normal": {nn.GlorotNormal, 2. / 160}, "normal": {nn.Normal(0.3), 0.09},
		"uniform": {nn.Uniform(0.3), 0.03}, "fill": {nn.Fill(2), 4},
	} {
		c.init(w, nil, rng)
		var sum, square float64
		for _, v := range w.Data {
			sum += float64(v)
			square += float64(v) * float64(v)
		}
		if got := square / 6000 / c.variance; got < 0.93 || got > 1.07 {
			t.Errorf("%s: the mean square is %v of what it should be", name, got)
		}
		if mean := sum / 6000; name != "fill" && math.Abs(mean) > 5*math.Sqrt(c.variance/6000) {
			t.Errorf("%s: mean %v", name, mean)
		}
	}
}

// TestOperationsForDistributions, by values and by central differences.
func TestOperationsForDistributions(t *testing.T) {
	var tape nn.Tape
	v := tape.Const(2, 3, []float32{1, 2, 3, 4, 5, 6})
	if got := v.Where([]bool{true, false, true, false, true, true}, -9).Data(); !slices.Equal(got, []float32{1, -9, 3, -9, 5, 6}) {
		t.Errorf("where: %v", got)
	}
	groups := tape.Const(1, 5, []float32{1000, 1000, 3, 3, 3}).LogSoftmaxGroups([]int{2, 3}).Data()
	for i, want := range []float64{-math.Ln2, -math.Ln2, -math.Log(3), -math.Log(3), -math.Log(3)} {
		if math.Abs(float64(groups[i])-want) > 1e-6 {
			t.Errorf("groups: value %d is %v, want %v", i, groups[i], want)
		}
	}
	rng := rand.New(rand.NewPCG(2, 2))
	none, x, y := nn.New(1, 1, nn.Tanh()), random(rng, 3, 6), random(rng, 3, 6)
	for name, op := range map[string]func(v nn.Value) nn.Value{
		"where":  func(v nn.Value) nn.Value { return v.Where(slices.Repeat([]bool{true, false, true}, 6), 2) },
		"groups": func(v nn.Value) nn.Value { return v.LogSoftmaxGroups([]int{3, 1, 2}) },
	} {
		t.Run(name, func(t *testing.T) {
			checkGradients(t, none, []nn.Matrix{x}, func(tape *nn.Tape, in []nn.Value) nn.Value {
				return op(in[0]).Mul(tape.Const(3, 6, y.Data)).Sum()
			})
		})
	}
}

func ExampleRescale() {
	net := nn.New(2, 1, nn.Rescale([]float32{-2, 0}, []float32{2, 10}))
	fmt.Println(net.Forward(nn.Matrix{Rows: 2, Cols: 2, Data: []float32{-1, -1, 0.5, 1}}).Data)
	// Output: [-2 0 1 10]
}

func ExampleConv2D() {
	// The mean of each window of 2 x 2 pixels of an image with one channel.
	net := nn.New(3*3, 1, nn.Image(3, 3, 1), nn.Conv2D(1, 2, 1, nn.Fill(0.25)))
	y := net.Forward(nn.Matrix{Rows: 1, Cols: 9, Data: []float32{
		1, 2, 3,
		4, 5, 6,
		7, 8, 9,
	}})
	fmt.Println(y.Data)
	// Output: [3 4 6 7]
}

func ExampleEmbedding() {
	net := nn.New(1, 1, nn.Embedding(16, 8, nn.Normal(1)), nn.Dense(4, nn.FanIn)) // FrozenLake: 16 places, 4 actions
	q := net.Forward(nn.Matrix{Rows: 2, Cols: 1, Data: []float32{0, 15}})
	fmt.Println(q.Rows, q.Cols)
	// Output: 2 4
}

func ExampleNoisyDense() {
	net := nn.New(4, 1, nn.NoisyDense(2, 0.5))
	x := nn.Matrix{Rows: 1, Cols: 4, Data: []float32{1, 2, 3, 4}}
	mean := net.Forward(x).Data[0]
	net.RedrawNoise(rand.New(rand.NewPCG(1, 1))) // before each action, and before each update
	explores := net.Forward(x).Data[0]
	net.ClearNoise() // to evaluate
	fmt.Println(explores != mean, net.Forward(x).Data[0] == mean)
	// Output: true true
}

func BenchmarkNature(b *testing.B) {
	net := nature(6)
	x := random(rand.New(rand.NewPCG(1, 1)), 32, net.In())
	b.Run("forward/32", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			net.Forward(x)
		}
	})
	b.Run("train/32", func(b *testing.B) {
		trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: 1e-6}.New}, net)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := trainer.Step(func(t *nn.Tape) nn.Value { return forward(t, net, x).Square().Mean() }); err != nil {
				b.Fatal(err)
			}
		}
	})
}
