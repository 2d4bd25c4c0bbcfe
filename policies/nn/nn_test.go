package nn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

func random(rng *rand.Rand, rows, cols int) nn.Matrix {
	m := nn.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = float32(rng.NormFloat64())
	}
	return m
}

// losses are means over the elements of a prediction, given as many targets.
var losses = map[string]func(pred, target nn.Value) nn.Value{
	"mse":   func(p, t nn.Value) nn.Value { return p.Sub(t).Square().Mean() },
	"huber": func(p, t nn.Value) nn.Value { return p.Sub(t).Huber(1).Mean() },
}

// forward records the output of x.
func forward(t *nn.Tape, net *nn.Net, x nn.Matrix) nn.Value {
	return net.Apply(t, t.Const(x.Rows, x.Cols, x.Data))
}

// backward adds the gradients of the weights, given the derivative of the loss by the output of x.
func backward(net *nn.Net, x, dy nn.Matrix) {
	var t nn.Tape
	t.Train(net)
	t.BackwardFrom(forward(&t, net, x), slices.Clone(dy.Data))
}

var nets = []struct {
	name  string
	build func() *nn.Net
}{
	{"dense", func() *nn.Net { return nn.New(5, 1, nn.Dense(3, nn.Glorot)) }},
	{"relu", func() *nn.Net { return nn.New(5, 1, nn.Dense(17, nn.Kaiming), nn.ReLU(), nn.Dense(3, nn.FanIn)) }},
	{"tanh", func() *nn.Net {
		return nn.New(5, 1, nn.Dense(6, nn.Orthogonal(math.Sqrt2)), nn.Tanh(), nn.Dense(2, nn.Glorot))
	}},
	{"dueling", func() *nn.Net {
		return nn.New(5, 1, nn.Dense(9, nn.Glorot), nn.Tanh(), nn.Dense(4, nn.Glorot), nn.Dueling())
	}},
	{"dueling of groups", func() *nn.Net {
		return nn.New(5, 1, nn.Dense(9, nn.Glorot), nn.Tanh(), nn.Dense(12, nn.Glorot), nn.DuelingGroups(3))
	}},
	{"state-dependent deviations", func() *nn.Net { return nn.New(5, 1, nn.NewStateDeviation(2, nn.Glorot, -0.5)) }},
	{"first layer is an activation", func() *nn.Net { return nn.New(5, 1, nn.Tanh(), nn.Dense(2, nn.Glorot)) }},
}

// TestP2GradientsEqualCentralDifferences checks every weight's gradient of
// each loss, and so every layer's way back.
func TestP2GradientsEqualCentralDifferences(t *testing.T) {
	for _, c := range nets {
		for name, loss := range losses {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				// A seed that brings no unit within h of the rectifier's kink.
				rng := rand.New(rand.NewPCG(8, 8))
				net := c.build()
				x := random(rng, 6, net.In())
				target := random(rng, 6, net.Out())
				var tape nn.Tape
				tape.Train(net)
				record := func() nn.Value {
					tape.Reset()
					return loss(forward(&tape, net, x), tape.Const(target.Rows, target.Cols, target.Data))
				}
				at := func() float64 { return float64(record().Number()) }
				net.ZeroGrad()
				tape.Backward(record())
				for _, p := range net.Params() {
					for i, v := range p.Value {
						const h = 1e-3
						p.Value[i] = v + h
						up := at()
						p.Value[i] = v - h
						down := at()
						p.Value[i] = v
						want := (up - down) / (2 * h)
						if got := float64(p.Grad[i]); math.Abs(got-want) > 2e-3*(1+math.Abs(want)) {
							t.Errorf("%s[%d]: gradient %v, differences give %v", p.Name, i, got, want)
						}
					}
				}
			})
		}
	}
}

func TestBackwardAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	net := nets[1].build()
	x, dy := random(rng, 4, 5), random(rng, 4, 3)
	backward(net, x, dy)
	once := slices.Clone(net.Grad())
	backward(net, x, dy)
	for i, g := range net.Grad() {
		if math.Abs(float64(g-2*once[i])) > 1e-5 {
			t.Fatalf("gradient %d is %v after two passes, %v after one", i, g, once[i])
		}
	}
}

func TestP1LossesEqualHandComputedNumbers(t *testing.T) {
	pred, target := []float32{1, 2, -1, 0}, []float32{0, 2.5, 2, 0}
	for _, c := range []struct {
		name string
		want float32
		grad []float32
	}{
		// Differences 1, -0.5, -3, 0.
		{"mse", (1 + 0.25 + 9) / 4, []float32{0.5, -0.25, -1.5, 0}},
		{"huber", (0.5 + 0.125 + 2.5) / 4, []float32{0.25, -0.125, -0.25, 0}},
	} {
		var tape nn.Tape
		p := tape.Variable(4, 1, pred)
		l := losses[c.name](p, tape.Column(target))
		tape.Backward(l)
		if got := l.Number(); got != c.want || !slices.Equal(p.Grad(), c.grad) {
			t.Errorf("%s: %v %v, want %v %v", c.name, got, p.Grad(), c.want, c.grad)
		}
	}
}

func TestDuelingEqualsHandComputedNumbers(t *testing.T) {
	net := nn.New(3, 1, nn.Dueling())
	q := net.Forward(nn.Matrix{Rows: 1, Cols: 3, Data: []float32{10, 1, 3}})
	if !slices.Equal(q.Data, []float32{9, 11}) {
		t.Errorf("V 10, A 1 and 3: Q %v, want 9 and 11", q.Data)
	}
	groups := nn.New(6, 1, nn.DuelingGroups(2)).Forward(nn.Matrix{Rows: 1, Cols: 6, Data: []float32{10, 20, 1, 2, 3, 8}})
	if !slices.Equal(groups.Data, []float32{9, 17, 11, 23}) {
		t.Errorf("V 10 and 20, A 1, 2 and 3, 8: Q %v, want 9, 17 and 11, 23", groups.Data)
	}
}

func TestOptimizersEqualHandComputedNumbers(t *testing.T) {
	// Adam's first step has the size of the rate, whatever the gradient.
	w := []float32{1, 1}
	adam := nn.NewAdam(nn.AdamConfig{Rate: 0.1}, 2)
	adam.Step(w, []float32{5, -0.01})
	if math.Abs(float64(w[0])-0.9) > 1e-6 || math.Abs(float64(w[1])-1.1) > 1e-6 {
		t.Errorf("adam: %v, want 0.9 and 1.1", w)
	}
	// Second step, by hand: m = .9*.5+.1*1 = .55 over .19, v = .999*.025+.001 = .025975 over .001999.
	adam.Step(w, []float32{1, 0})
	if want := 0.9 - 0.1*(0.55/0.19)/math.Sqrt(0.025975/0.001999); math.Abs(float64(w[0])-want) > 1e-6 {
		t.Errorf("adam: %v, want %v", w[0], want)
	}
	w = []float32{1}
	sgd := nn.NewSGD(0.1, 0.5, 1)
	sgd.Step(w, []float32{2})
	sgd.Step(w, []float32{2})
	if math.Abs(float64(w[0])-0.5) > 1e-6 {
		t.Errorf("sgd: %v, want 1 - 0.2 - 0.3", w[0])
	}
	g := []float32{3, 0, 0, 0, 4}
	if n := nn.ClipNorm(1, g); n != 5 || math.Abs(float64(g[0])-0.6) > 1e-6 || math.Abs(float64(g[4])-0.8) > 1e-6 {
		t.Errorf("clip: norm %v, %v", n, g)
	}
	if n := nn.ClipNorm(2, g); math.Abs(n-1) > 1e-6 || math.Abs(float64(g[0])-0.6) > 1e-6 {
		t.Errorf("clip below the limit: norm %v, %v", n, g)
	}
}

// A bias is drawn as PyTorch draws it with FanIn, and zero with the others.
func TestInitialBiases(t *testing.T) {
	image := func(init nn.Init) *nn.Net { return nn.New(6*6*4, 1, nn.Image(6, 6, 4), nn.Conv2D(256, 3, 1, init)) }
	dense := func(init nn.Init) *nn.Net { return nn.New(36, 1, nn.Dense(256, init)) }
	for name, build := range map[string]func(nn.Init) *nn.Net{"dense": dense, "convolution": image} {
		for _, init := range []nn.Init{nn.Kaiming, nn.Glorot, nn.Orthogonal(1), nn.Zeros, nn.Uniform(1), nn.Fill(1), nn.KaimingNormal} {
			for _, b := range build(init).Params()[1].Value {
				if b != 0 {
					t.Fatalf("%s: a bias of %v", name, b)
				}
			}
		}
		const bound = 1. / 6 // of 36 inputs
		var sum, square float64
		p := build(nn.FanIn).Params()[1]
		for _, v := range p.Value {
			if math.Abs(float64(v)) > bound {
				t.Fatalf("%s: %v beyond %v", p.Name, v, bound)
			}
			sum += float64(v)
			square += float64(v) * float64(v)
		}
		if got := square / 256 / (bound * bound / 3); got < 0.75 || got > 1.25 || math.Abs(sum/256) > bound/5 {
			t.Errorf("%s: variance is %v of what it should be, mean %v", p.Name, got, sum/256)
		}
	}
}

func TestInitialWeights(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	w := nn.Matrix{Rows: 40, Cols: 24, Data: make([]float32, 40*24)}
	for _, c := range []struct {
		name  string
		init  nn.Init
		bound float64
	}{
		{"kaiming", nn.Kaiming, math.Sqrt(6. / 40)}, {"glorot", nn.Glorot, math.Sqrt(6. / 64)},
		{"fan in", nn.FanIn, 1 / math.Sqrt(40)},
	} {
		c.init(w, nil, rng)
		var square float64
		for _, v := range w.Data {
			if math.Abs(float64(v)) > c.bound {
				t.Fatalf("%s: %v beyond %v", c.name, v, c.bound)
			}
			square += float64(v) * float64(v)
		}
		// The variance of a uniform distribution is bound^2/3.
		if got := square / float64(len(w.Data)) / (c.bound * c.bound / 3); got < 0.9 || got > 1.1 {
			t.Errorf("%s: variance is %v of what it should be", c.name, got)
		}
	}
	for _, shape := range [][2]int{{40, 24}, {24, 40}, {8, 8}} {
		w := nn.Matrix{Rows: shape[0], Cols: shape[1], Data: make([]float32, shape[0]*shape[1])}
		nn.Orthogonal(2)(w, nil, rng)
		n := min(w.Rows, w.Cols)
		at := func(i, j int) float64 { // vector i of the smaller side
			if w.Rows <= w.Cols {
				return float64(w.Row(i)[j])
			}
			return float64(w.Row(j)[i])
		}
		for i := range n {
			for j := range n {
				var dot, want float64
				for p := range max(w.Rows, w.Cols) {
					dot += at(i, p) * at(j, p)
				}
				if i == j {
					want = 4
				}
				if math.Abs(dot-want) > 1e-5 {
					t.Fatalf("orthogonal %v: vectors %d and %d have product %v", shape, i, j, dot)
				}
			}
		}
	}
}

func train(net *nn.Net, opt nn.Optimizer, steps int) {
	rng := rand.New(rand.NewPCG(3, 3))
	x, y := random(rng, 64, net.In()), random(rng, 64, net.Out())
	trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: func(int) nn.Optimizer { return opt }, MaxGradNorm: 10}, net)
	for range steps {
		if _, err := trainer.Step(func(t *nn.Tape) nn.Value {
			return losses["mse"](forward(t, net, x), t.Const(y.Rows, y.Cols, y.Data))
		}); err != nil {
			panic(err)
		}
	}
}

func TestP3SameSeedSameWeights(t *testing.T) {
	weights := func() []float32 {
		net := nets[3].build()
		train(net, nn.NewAdam(nn.AdamConfig{}, net.Size()), 50)
		return net.Weights()
	}
	if !slices.Equal(weights(), weights()) {
		t.Error("two runs with one seed differ")
	}
}

func TestP4ResumeIsExact(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  func(int) nn.Optimizer
	}{
		{"adam", func(n int) nn.Optimizer { return nn.NewAdam(nn.AdamConfig{Rate: 1e-2}, n) }},
		{"sgd", func(n int) nn.Optimizer { return nn.NewSGD(1e-2, 0.9, n) }},
	} {
		straight, first := nets[3].build(), nets[3].build()
		opt := c.opt(straight.Size())
		train(straight, opt, 20)

		half := c.opt(first.Size())
		train(first, half, 10)
		var a nn.Archive
		a.Put("net", first.State(10))
		a.Put("opt", half.State())
		file, err := a.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}

		var b nn.Archive
		if err := b.UnmarshalBinary(file); err != nil {
			t.Fatal(err)
		}
		resumed := nets[3].build()
		rest := c.opt(resumed.Size())
		net, err1 := b.State("net")
		state, err2 := b.State("opt")
		if err := errors.Join(err1, err2, resumed.Load(net), rest.Load(state)); err != nil {
			t.Fatal(err)
		}
		train(resumed, rest, 10)
		if !slices.Equal(straight.Weights(), resumed.Weights()) {
			t.Errorf("%s: 20 steps and 10 + 10 steps differ", c.name)
		}
	}
}

func TestTrainingAllocatesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, c := range nets {
		net := c.build()
		trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 10}, net)
		x, y := random(rng, 64, net.In()), random(rng, 64, net.Out())
		target, loss := c.build(), losses["mse"]
		if n := testing.AllocsPerRun(20, func() {
			net.Forward(x)
			_, err := trainer.Step(func(t *nn.Tape) nn.Value {
				return loss(forward(t, net, x), t.Const(y.Rows, y.Cols, y.Data))
			})
			if err != nil {
				panic(err)
			}
			target.Approach(net, 0.01)
			target.CopyFrom(net)
		}); n != 0 {
			t.Errorf("%s: a training step allocates %v times", c.name, n)
		}
	}
}

func TestActionsDoNotDependOnTheBatch(t *testing.T) {
	net, rng := nets[1].build(), rand.New(rand.NewPCG(3, 3))
	x := random(rng, 9, 5)
	for i := range net.Weights() { // biases too
		net.Weights()[i] = float32(rng.NormFloat64())
	}
	all := slices.Clone(net.Forward(x).Data)
	for i := range x.Rows {
		one := net.Forward(nn.Matrix{Rows: 1, Cols: 5, Data: x.Row(i)})
		if !slices.Equal(one.Data, all[3*i:3*i+3]) {
			t.Errorf("row %d alone gives %v, in the batch %v", i, one.Data, all[3*i:3*i+3])
		}
	}
}

func TestP7LoadRefuses(t *testing.T) {
	good := func() nn.State { return nets[0].build().State(3) }
	nan := good()
	nan.Tensors[1].Data[2] = float32(math.NaN())
	missing := good()
	missing.Tensors = missing.Tensors[:1]
	shape := good()
	shape.Tensors[0].Shape = []int{3, 5}
	for _, c := range []struct {
		name, text string
		s          nn.State
	}{
		{"nan", "load weights: tensor dense0.bias is not finite: value 2 is NaN", nan},
		{"missing", "load weights: tensor dense0.bias is missing", missing},
		{"shape", "load weights: tensor dense0.weight is [3 5] with 15 values, want [5 3]", shape},
	} {
		net := nets[0].build()
		before := slices.Clone(net.Weights())
		if err := net.Load(c.s); err == nil || err.Error() != c.text {
			t.Errorf("%s: error %v, want %q", c.name, err, c.text)
		}
		if !slices.Equal(before, net.Weights()) {
			t.Errorf("%s: a refused state changed the network", c.name)
		}
	}
	var e *nn.NonFiniteError
	if err := nan.CheckFinite(); !errors.As(err, &e) || e.Tensor != "dense0.bias" || e.Index != 2 {
		t.Errorf("CheckFinite: %v", err)
	}
	if err := good().CheckFinite(); err != nil {
		t.Error(err)
	}
	for _, v := range []float64{math.Inf(1), math.Inf(-1), math.NaN()} {
		if nn.FindNonFinite([]float32{0, math.MaxFloat32, float32(v)}) != 2 {
			t.Errorf("%v passes as finite", v)
		}
	}
}

func TestStateIsACopy(t *testing.T) {
	net := nets[0].build()
	s := net.State(1)
	net.Weights()[0]++
	if s.Tensors[0].Data[0] == net.Weights()[0] {
		t.Error("the state changes with the network")
	}
}

func TestArchiveRefuses(t *testing.T) {
	twice := nn.Archive{Tensors: []nn.Tensor{{Name: "a", Shape: []int{1}, Data: []float32{1}},
		{Name: "a", Shape: []int{1}, Data: []float32{1}}}}
	if _, err := twice.AppendBinary(nil); err == nil {
		t.Error("a name used twice passes")
	}
	var a nn.Archive
	a.Put("x", nets[0].build().State(1))
	file, err := a.AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range file {
		if err := new(nn.Archive).UnmarshalBinary(file[:n]); !errors.Is(err, nn.ErrArchive) {
			t.Fatalf("the first %d bytes of %d: error %v", n, len(file), err)
		}
	}
	if err := new(nn.Archive).UnmarshalBinary(append(file, 0)); !errors.Is(err, nn.ErrArchive) {
		t.Errorf("a byte too much: %v", err)
	}
	other := nn.Archive{Tensors: []nn.Tensor{{Name: "a", Shape: []int{2}, Data: []float32{1}}}}
	if _, err := other.AppendBinary(nil); err == nil {
		t.Error("data that does not fit its shape passes")
	}
	for _, shape := range []string{"-1", "1,-1", "4294967296,4294967296", "1"} {
		text := fmt.Sprintf(`{"a":{"dtype":"F32","shape":[%s],"data_offsets":[0,0]}}`, shape)
		if err := new(nn.Archive).UnmarshalBinary(binaryHeader(text)); !errors.Is(err, nn.ErrArchive) {
			t.Errorf("shape %s without values: %v", shape, err)
		}
	}
	if err := new(nn.Archive).UnmarshalBinary(binaryHeader(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`)); err != nil {
		t.Errorf("a tensor of no values: %v", err)
	}
	if _, err := a.State("y"); err == nil || err.Error() != "archive: y/version is missing" {
		t.Errorf("an unknown prefix: %v", err)
	}
}

func FuzzArchive(f *testing.F) {
	var a nn.Archive
	a.Put("x", nets[0].build().State(1))
	file, _ := a.AppendBinary(nil)
	f.Add(file)
	f.Add([]byte("\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":{}}        "))
	f.Add(binaryHeader(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		var a, b nn.Archive
		if a.UnmarshalBinary(src) != nil {
			return
		}
		again, err := a.AppendBinary(nil)
		if err != nil {
			t.Fatalf("read, but not written: %v", err)
		}
		if err := b.UnmarshalBinary(again); err != nil {
			t.Fatalf("written, but not read: %v", err)
		}
		if third, _ := b.AppendBinary(nil); !bytes.Equal(again, third) {
			t.Fatal("writing twice differs")
		}
	})
}

func binaryHeader(text string) []byte {
	return append([]byte{byte(len(text)), 0, 0, 0, 0, 0, 0, 0}, text...)
}

func ExampleNew() {
	net := nn.New(1, 1, nn.Dense(16, nn.Kaiming), nn.Tanh(), nn.Dense(1, nn.Glorot))
	trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: 0.01}.New}, net)
	x := nn.Matrix{Rows: 5, Cols: 1, Data: []float32{-2, -1, 0, 1, 2}}
	squares := []float32{4, 1, 0, 1, 4}
	for range 2000 {
		_, err := trainer.Step(func(t *nn.Tape) nn.Value {
			return net.Apply(t, t.Column(x.Data)).Sub(t.Column(squares)).Square().Mean()
		})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, y := range net.Forward(x).Data {
		fmt.Printf("%.1f ", math.Abs(float64(y)))
	}
	// Output: 4.0 1.0 0.0 1.0 4.0
}

// TestSetRateCountsFromTheNextStep, for both optimisers.
func TestSetRateCountsFromTheNextStep(t *testing.T) {
	type optimizer interface {
		Step(weights, grad []float32)
		SetRate(rate float64)
	}
	for name, o := range map[string]optimizer{
		"adam": nn.NewAdam(nn.AdamConfig{Rate: 0.1}, 1), "sgd": nn.NewSGD(0.1, 0, 1),
	} {
		w := []float32{1}
		o.SetRate(0.25)
		o.Step(w, []float32{1})
		if math.Abs(float64(w[0])-0.75) > 1e-6 {
			t.Errorf("%s: %v, want 0.75", name, w[0])
		}
		o.SetRate(0)
		before := w[0]
		if o.Step(w, []float32{1}); w[0] != before {
			t.Errorf("%s: at a rate of 0 the weight moves from %v to %v", name, before, w[0])
		}
	}
}

// TestOptimizersCountTheirSteps, over a save and a load.
func TestOptimizersCountTheirSteps(t *testing.T) {
	type optimizer interface {
		Step(weights, grad []float32)
		State() nn.State
		Load(s nn.State) error
	}
	for name, build := range map[string]func() optimizer{
		"adam": func() optimizer { return nn.NewAdam(nn.AdamConfig{}, 2) },
		"sgd":  func() optimizer { return nn.NewSGD(0.1, 0.9, 2) },
	} {
		first, again := build(), build()
		first.Step([]float32{1, 2}, []float32{3, 4})
		first.Step([]float32{1, 2}, []float32{3, 4})
		state := first.State()
		if err := again.Load(state); err != nil {
			t.Fatal(err)
		}
		again.Step([]float32{1, 2}, []float32{3, 4})
		if a, b := state.Version, again.State().Version; a != 2 || b != 3 {
			t.Errorf("%s: %d steps, %d after a load and one more", name, a, b)
		}
		first.Step([]float32{1, 2}, []float32{30, 40})
		if got := first.State(); slices.Equal(got.Tensors[0].Data, state.Tensors[0].Data) {
			t.Errorf("%s: the state changes with the optimiser, or not at all", name)
		}
	}
}

// TestAdamDefaults are those of the paper.
func TestAdamDefaults(t *testing.T) {
	a, b := nn.NewAdam(nn.AdamConfig{}, 1), nn.NewAdam(nn.AdamConfig{Rate: 1e-3, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}, 1)
	x, y := []float32{0.5}, []float32{0.5}
	for _, g := range []float32{1e-7, -3, 2e-4, 1e-8} {
		a.Step(x, []float32{g})
		b.Step(y, []float32{g})
	}
	if x[0] != y[0] {
		t.Errorf("%v with the defaults, %v with the paper's", x[0], y[0])
	}
}

// TestApproachGoesAFractionOfTheWay, whatever the weights were.
func TestApproachGoesAFractionOfTheWay(t *testing.T) {
	a, b := nn.New(2, 1, nn.Dense(2, nn.Glorot)), nn.New(2, 2, nn.Dense(2, nn.Glorot))
	before := slices.Clone(a.Weights())
	a.Approach(b, 0.25)
	for i, w := range a.Weights() {
		if want := 0.75*before[i] + 0.25*b.Weights()[i]; math.Abs(float64(w-want)) > 1e-6 {
			t.Errorf("weight %d is %v, want %v between %v and %v", i, w, want, before[i], b.Weights()[i])
		}
	}
}

// TestClipLeavesWhatHasNoNorm as it is: the caller names it.
func TestClipLeavesWhatHasNoNorm(t *testing.T) {
	inf := float32(math.Inf(1))
	g := []float32{1, inf, -3}
	if n := nn.ClipNorm(1, g); !math.IsInf(n, 1) || !slices.Equal(g, []float32{1, inf, -3}) {
		t.Errorf("norm %v, gradients %v", n, g)
	}
}

func TestFindNonFinite(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		v    []float32
		want int
	}{
		{nil, -1},
		{[]float32{0, 1, -1, 1.5, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32}, -1},
		{[]float32{0, nan}, 1}, {[]float32{inf, 0}, 0}, {[]float32{0, 0, -inf}, 2}, {[]float32{1, nan, inf}, 1},
	} {
		if got := nn.FindNonFinite(c.v); got != c.want {
			t.Errorf("%v: %d, want %d", c.v, got, c.want)
		}
	}
}

func TestSeedChoosesTheWeights(t *testing.T) {
	build := func(seed uint64) []float32 { return nn.New(3, seed, nn.Dense(4, nn.Kaiming)).Weights() }
	if slices.Equal(build(1), build(2)) || !slices.Equal(build(2), build(2)) {
		t.Error("two seeds give the same weights, or one gives two")
	}
}

// TestHuberIsClippedFromOne: its gradient is, and its value continues in a straight line.
func TestHuberIsClippedFromOne(t *testing.T) {
	for _, c := range []struct{ d, loss, grad float32 }{{0.5, 0.125, 0.5}, {1, 0.5, 1}, {1.5, 1, 1}, {-1.5, 1, -1}, {4, 3.5, 1}} {
		var tape nn.Tape
		d := tape.Variable(1, 1, []float32{c.d})
		loss := d.Huber(1)
		tape.Backward(loss)
		if loss.Number() != c.loss || d.Grad()[0] != c.grad {
			t.Errorf("at %v: %v with gradient %v, want %v and %v", c.d, loss.Number(), d.Grad()[0], c.loss, c.grad)
		}
	}
}

// TestArchiveIsWhatOthersRead: values begin at a multiple of 8, and what is not of
// 32 bits or no number is refused.
func TestArchiveIsWhatOthersRead(t *testing.T) {
	for n := range 8 {
		var a nn.Archive
		a.SetText("pad", "xxxxxxxx"[:n])
		a.Put("w", nn.State{Version: 12, Tensors: []nn.Tensor{{Name: "t", Shape: []int{2}, Data: []float32{1, 2}}}})
		file, err := a.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		if head := binary.LittleEndian.Uint64(file); head%8 != 0 || int(head)+16 != len(file) {
			t.Errorf("a header of %d bytes in a file of %d", head, len(file))
		}
		half := bytes.Replace(file, []byte(`"F32"`), []byte(`"F16"`), 1)
		if err := new(nn.Archive).UnmarshalBinary(half); !errors.Is(err, nn.ErrArchive) {
			t.Errorf("F16: %v", err)
		}
		for _, text := range []string{"12x", "012", "+12", " 12", ""} {
			a.SetText("w/version", text)
			if v, err := a.Number("w/version"); err == nil {
				t.Errorf("%q is the number %d", text, v)
			}
		}
	}
}
