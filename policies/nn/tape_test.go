package nn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/policies/nn"
)

// samples are numbers for an operation that needs others beside its operands.
var samples = []float32{0.3, -2, 1, 4, 0.1, -0.6, 2, -1, 0.5}

// operations are all of the tape's on values of 3 x 4, 3 x 1, 1 x 4 and 1 x 1.
var operations = map[string]func(v, column, row, one nn.Value) nn.Value{
	"add":                 func(v, _, _, _ nn.Value) nn.Value { return v.Add(v.Scale(2)) },
	"add column":          func(v, c, _, _ nn.Value) nn.Value { return v.Add(c) },
	"minus row":           func(v, _, r, _ nn.Value) nn.Value { return v.Sub(r) },
	"plus row":            func(v, _, r, _ nn.Value) nn.Value { return v.Add(r) },
	"times row":           func(v, _, r, _ nn.Value) nn.Value { return v.Mul(r) },
	"row times":           func(v, _, r, _ nn.Value) nn.Value { return r.Mul(v) },
	"row plus number":     func(_, _, r, o nn.Value) nn.Value { return r.Add(o) },
	"number times":        func(v, _, _, o nn.Value) nn.Value { return o.Mul(v) },
	"column times number": func(_, c, _, o nn.Value) nn.Value { return c.Mul(o) },
	"column minus column": func(_, c, _, _ nn.Value) nn.Value { return c.Sub(c.Square()) },
	"row minus":           func(v, _, r, _ nn.Value) nn.Value { return r.Sub(v) },
	"mul":                 func(v, _, _, _ nn.Value) nn.Value { return v.Mul(v.AddNumber(1)) },
	"column times row":    func(_, c, r, _ nn.Value) nn.Value { return c.Mul(r) },
	"div":                 func(v, _, _, o nn.Value) nn.Value { return v.Div(o.Square().AddNumber(1)) },
	"number divided":      func(v, _, _, o nn.Value) nn.Value { return o.Div(v.Square().AddNumber(1)) },
	"min":                 func(v, c, _, _ nn.Value) nn.Value { return v.Min(c) },
	"max":                 func(v, _, r, _ nn.Value) nn.Value { return r.Max(v) },
	"scale":               func(v, _, _, _ nn.Value) nn.Value { return v.Scale(-3) },
	"neg":                 func(v, _, _, _ nn.Value) nn.Value { return v.Neg() },
	"square":              func(v, _, _, _ nn.Value) nn.Value { return v.Square() },
	"sqrt":                func(v, _, _, _ nn.Value) nn.Value { return v.Square().AddNumber(0.5).Sqrt() },
	"abs":                 func(v, _, _, _ nn.Value) nn.Value { return v.Abs() },
	"exp":                 func(v, _, _, _ nn.Value) nn.Value { return v.Exp() },
	"log":                 func(v, _, _, _ nn.Value) nn.Value { return v.Square().AddNumber(1).Log() },
	"tanh":                func(v, _, _, _ nn.Value) nn.Value { return v.Tanh() },
	"sigmoid":             func(v, _, _, _ nn.Value) nn.Value { return v.Sigmoid() },
	"softplus":            func(v, _, _, _ nn.Value) nn.Value { return v.Softplus() },
	"relu":                func(v, _, _, _ nn.Value) nn.Value { return v.ReLU() },
	"clamp":               func(v, _, _, _ nn.Value) nn.Value { return v.Clamp(-0.5, 0.7) },
	"huber":               func(v, _, _, _ nn.Value) nn.Value { return v.Huber(0.8) },
	"sum":                 func(v, _, _, _ nn.Value) nn.Value { return v.Sum() },
	"mean":                func(v, _, _, _ nn.Value) nn.Value { return v.Mean() },
	"row sums":            func(v, _, _, _ nn.Value) nn.Value { return v.RowSums() },
	"column means":        func(v, _, _, _ nn.Value) nn.Value { return v.ColumnMeans() },
	"log sum exp":         func(v, _, _, _ nn.Value) nn.Value { return v.LogSumExp() },
	"log softmax":         func(v, _, _, _ nn.Value) nn.Value { return v.LogSoftmax() },
	"softmax":             func(v, _, _, _ nn.Value) nn.Value { return v.Softmax() },
	"pick":                func(v, _, _, _ nn.Value) nn.Value { return v.Pick([]float32{3, 0, 3}) },
	"pick group":          func(v, _, _, _ nn.Value) nn.Value { return v.PickGroup([]float32{1, 0, 1}, 2) },
	"quantile huber":      func(v, _, _, _ nn.Value) nn.Value { return v.QuantileHuber(v.Tape().Const(3, 3, samples), 0.8) },
	"columns":             func(v, _, _, _ nn.Value) nn.Value { return v.Columns(1, 3) },
	"beside":              func(v, c, _, _ nn.Value) nn.Value { return c.Beside(v).Beside(v) },
	"reshape":             func(v, _, _, _ nn.Value) nn.Value { return v.Reshape(2, 6) },
	"product":             func(v, c, _, _ nn.Value) nn.Value { return v.Reshape(4, 3).MatMul(c) },
	"product with itself": func(v, _, _, _ nn.Value) nn.Value { return v.MatMul(v.Reshape(4, 3)) },
	"used twice":          func(v, _, _, _ nn.Value) nn.Value { return v.Exp().Add(v.Square()).Mul(v) },
	"detached":            func(v, _, _, _ nn.Value) nn.Value { return v.Mul(v.Detach()) },
}

// TestP2GradientsOfOperationsEqualCentralDifferences: those of all elements of all operands,
// where every element of the result counts with its own weight.
func TestP2GradientsOfOperationsEqualCentralDifferences(t *testing.T) {
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(4, 4))
			inputs := []nn.Matrix{random(rng, 3, 4), random(rng, 3, 1), random(rng, 1, 4), random(rng, 1, 1)}
			weights := random(rng, 1, 64).Data
			frozen := slices.Clone(inputs[0].Data)
			var tape nn.Tape
			var in []nn.Value
			record := func(op func(v, column, row, one nn.Value) nn.Value) nn.Value {
				tape.Reset()
				in = in[:0]
				for _, m := range inputs {
					in = append(in, tape.Variable(m.Rows, m.Cols, m.Data))
				}
				y := op(in[0], in[1], in[2], in[3])
				return y.Mul(tape.Const(y.Rows(), y.Cols(), weights[:y.Rows()*y.Cols()])).Sum()
			}
			tape.Backward(record(op))
			if name == "detached" { // a constant does not change with the input
				op = func(v, _, _, _ nn.Value) nn.Value { return v.Mul(tape.Const(3, 4, frozen)) }
			}
			var grads [][]float32
			for i, v := range in {
				g := v.Grad()
				if g == nil {
					g = make([]float32, len(inputs[i].Data))
				}
				grads = append(grads, slices.Clone(g))
			}
			for i, m := range inputs {
				for k, x := range m.Data {
					const h = 1e-3
					m.Data[k] = x + h
					high := float64(record(op).Number())
					m.Data[k] = x - h
					low := float64(record(op).Number())
					m.Data[k] = x
					want := (high - low) / (2 * h)
					if got := float64(grads[i][k]); math.Abs(got-want) > 4e-3*(1+math.Abs(want)) {
						t.Errorf("operand %d, element %d: gradient %v, differences give %v", i, k, got, want)
					}
				}
			}
		})
	}
}

func TestValuesOfOperations(t *testing.T) {
	var tape nn.Tape
	v := tape.Const(2, 2, []float32{-1, 2, 0, 3})
	big := tape.Const(1, 3, []float32{1000, 1000, -1000})
	for name, c := range map[string]struct {
		got  nn.Value
		want []float32
	}{
		"min":         {v.Min(tape.Scalar(1)), []float32{-1, 1, 0, 1}},
		"max":         {tape.Const(1, 2, []float32{0, 9}).Max(v), []float32{0, 9, 0, 9}},
		"div":         {v.Div(tape.Column([]float32{2, 4})), []float32{-0.5, 1, 0, 0.75}},
		"clamp":       {v.Clamp(0, 2), []float32{0, 2, 0, 2}},
		"huber":       {v.Huber(1), []float32{0.5, 1.5, 0, 2.5}},
		"sum":         {v.Sum(), []float32{4}},
		"mean":        {v.Mean(), []float32{1}},
		"row sums":    {v.RowSums(), []float32{1, 3}},
		"column mean": {v.ColumnMeans(), []float32{-0.5, 2.5}},
		"pick":        {v.Pick([]float32{1, 0}), []float32{2, 0}},
		"pick group":  {big.Beside(tape.Scalar(7)).PickGroup([]float32{1}, 2), []float32{-1000, 7}},
		"columns":     {v.Columns(1, 2), []float32{2, 3}},
		"beside":      {v.Columns(1, 2).Beside(v), []float32{2, -1, 2, 3, 0, 3}},
		"reshape":     {v.Reshape(1, 4), []float32{-1, 2, 0, 3}},
		"product":     {v.MatMul(v), []float32{1, 4, 0, 9}},
		"log sum exp": {big.LogSumExp(), []float32{1000.6931}},
		"log softmax": {big.LogSoftmax(), []float32{-0.6931472, -0.6931472, -2000.6931}},
		"softplus":    {big.Softplus(), []float32{1000, 1000, 0}},
		"sigmoid":     {big.Sigmoid(), []float32{1, 1, 0}},
		"no rows":     {tape.Const(0, 3, nil).RowSums(), []float32{}},
	} {
		if !slices.EqualFunc(c.got.Data(), c.want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*(1+math.Abs(float64(b))) }) {
			t.Errorf("%s: %v, want %v", name, c.got.Data(), c.want)
		}
	}
}

// TestP1QuantileHuberEqualsHandComputedNumbers: quantiles 0 and 2, of tau 1/4 and 3/4, by the targets
// 1, -1 and 4. The first one has the terms .25*.5, .75*.5 and .25*3.5, the second .25*.5, .25*2.5 and
// .75*1.5. With a kappa of 2, Huber's function of 2, 3 and 4 is 2, 4 and 6.
func TestP1QuantileHuberEqualsHandComputedNumbers(t *testing.T) {
	for kappa, want := range map[float32][3]float32{
		1: {(0.125 + 0.375 + 0.875 + 0.125 + 0.625 + 1.125) / 3, -(0.25 - 0.75 + 0.25) / 3., -(-0.25 - 0.25 + 0.75) / 3.},
		2: {(0.125 + 0.375 + 0.25*6 + 0.125 + 0.25*4 + 0.75*2) / 3, -(0.25 - 0.75 + 0.25*2) / 3., -(-0.25 - 0.25*2 + 0.75*2) / 3.},
	} {
		var tape nn.Tape
		v := tape.Variable(1, 2, []float32{0, 2})
		loss := v.QuantileHuber(tape.Const(1, 3, []float32{1, -1, 4}), kappa)
		tape.Backward(loss)
		for i, got := range []float32{loss.Number(), v.Grad()[0], v.Grad()[1]} {
			if math.Abs(float64(got-want[i])) > 1e-6 {
				t.Errorf("kappa %v: number %d is %v, want %v", kappa, i, got, want[i])
			}
		}
	}
}

// TestWideLogSoftmaxEqualsItsDefinition, and its gradient, for widths at which other code computes it.
func TestWideLogSoftmaxEqualsItsDefinition(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, cols := range []int{15, 16, 17, 51, 101} {
		x, g := random(rng, 3, cols), random(rng, 3, cols)
		for i := range x.Data {
			x.Data[i] *= 20
		}
		var tape nn.Tape
		v := tape.Variable(3, cols, x.Data)
		y := v.LogSoftmax()
		tape.BackwardFrom(y, g.Data)
		for i := range 3 {
			var sum, slopes float64
			for j, logit := range x.Row(i) {
				sum += math.Exp(float64(logit))
				slopes += float64(g.Row(i)[j])
			}
			for j, logit := range x.Row(i) {
				k := i*cols + j
				want := float64(logit) - math.Log(sum)
				slope := float64(g.Data[k]) - slopes*math.Exp(want)
				if math.Abs(float64(y.Data()[k])-want) > 1e-5*(1+math.Abs(want)) || math.Abs(float64(v.Grad()[k])-slope) > 1e-5*(1+math.Abs(slope)) {
					t.Fatalf("%d columns, row %d, column %d: %v and gradient %v, want %v and %v", cols, i, j, y.Data()[k], v.Grad()[k], want, slope)
				}
			}
		}
	}
}

func TestTapeRefuses(t *testing.T) {
	var tape, other nn.Tape
	v, w := tape.Const(2, 3, make([]float32, 6)), tape.Const(3, 3, make([]float32, 9))
	for want, f := range map[string]func(){
		"nn: constant of 2 x 2 with 3 values":              func() { tape.Const(2, 2, make([]float32, 3)) },
		"nn: values of 2 x 3 and 3 x 3 do not fit":         func() { v.Add(w) },
		"nn: values of two tapes":                          func() { v.Add(other.Scalar(1)) },
		"nn: value that is on no tape":                     func() { nn.Value{}.Exp() },
		"nn: value of 2 x 3 is not one number":             func() { v.Number() },
		"nn: backward from a value of 2 x 3, want one":     func() { tape.Backward(v) },
		"nn: 2 derivatives of a value of 2 x 3":            func() { tape.BackwardFrom(v, make([]float32, 2)) },
		"nn: pick of 1 elements from 2 rows":               func() { v.Pick([]float32{0}) },
		"nn: pick of column 0.5":                           func() { v.Pick([]float32{0.5, 0}) },
		"nn: pick of column 3 of 3":                        func() { v.Pick([]float32{0, 3}) },
		"nn: pick of column -1 of 3":                       func() { v.Pick([]float32{-1, 0}) },
		"nn: pick of groups of 2 from 3 columns":           func() { v.PickGroup([]float32{0, 0}, 2) },
		"nn: pick of groups of 0 from 3 columns":           func() { v.PickGroup([]float32{0, 0}, 0) },
		"nn: pick of column 1 of 1":                        func() { v.PickGroup([]float32{0, 1}, 3) },
		"nn: quantiles of 2 x 3 with targets of 3 x 3":     func() { v.QuantileHuber(w, 1) },
		"nn: quantiles of 2 x 3 with targets of 2 x 3":     func() { v.QuantileHuber(v, 0) },
		"nn: columns 2 to 4 of 3":                          func() { v.Columns(2, 4) },
		"nn: values of 2 and 3 rows beside each other":     func() { v.Beside(w) },
		"nn: value of 2 x 3 as 2 x 2":                      func() { v.Reshape(2, 2) },
		"nn: product of 3 x 3 and 2 x 3":                   func() { w.MatMul(v) },
		"nn: input of 2 x 3 with 6 values, want 2 columns": func() { nn.New(2, 1, nn.Dense(1, nn.Zeros)).Apply(&tape, v) },
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, want) {
					t.Errorf("panic %q, want %q", p, want)
				}
			}()
			f()
		}()
	}
}

// TestOnlyNetworksThatTrainGetGradients: the gradient still flows through the others.
func TestOnlyNetworksThatTrainGetGradients(t *testing.T) {
	actor := nn.New(2, 1, nn.Dense(3, nn.Glorot), nn.Tanh())
	critic := nn.New(3, 2, nn.Dense(1, nn.Glorot))
	var tape nn.Tape
	tape.Train(actor)
	x := tape.Const(4, 2, []float32{1, 2, 3, 4, 5, 6, 7, 8})
	tape.Backward(critic.Apply(&tape, actor.Apply(&tape, x)).Mean())
	zero := func(g []float32) bool { return !slices.ContainsFunc(g, func(v float32) bool { return v != 0 }) }
	if zero(actor.Grad()) || !zero(critic.Grad()) {
		t.Errorf("gradients of the actor %v and of the critic %v", actor.Grad(), critic.Grad())
	}
}

// own is a layer of a user's: a scale for each column.
type own struct{ scale *nn.Param }

func (o *own) Build(b *nn.Builder, in int) int {
	o.scale = b.Param("own", "scale", []int{in}, func(w nn.Matrix, _ []float32, _ *rand.Rand) {
		for i := range w.Data {
			w.Data[i] = float32(i + 1)
		}
	})
	return in
}

func (o *own) Apply(t *nn.Tape, x nn.Value) nn.Value { return x.Mul(o.scale.On(t)) }

func TestLayerOfAUsersOwn(t *testing.T) {
	net := nn.New(2, 1, &own{}, nn.Dense(2, nn.Glorot), &own{})
	if y := nn.New(2, 1, &own{}).Forward(nn.Matrix{Rows: 1, Cols: 2, Data: []float32{3, 5}}); !slices.Equal(y.Data, []float32{3, 10}) {
		t.Errorf("%v", y.Data)
	}
	x, y := []float32{1, 2, 3, 4}, []float32{2, 1, 4, 3}
	trainer := nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: 0.05}.New}, net)
	var last nn.TrainStep
	for range 500 {
		step, err := trainer.Step(func(t *nn.Tape) nn.Value {
			return net.Apply(t, t.Const(2, 2, x)).Sub(t.Const(2, 2, y)).Square().Mean()
		})
		if err != nil {
			t.Fatal(err)
		}
		last = step
	}
	if last.Loss > 1e-3 {
		t.Errorf("loss %v after 500 steps", last.Loss)
	}
	if names := net.Params(); names[0].Name != "own0.scale" || names[3].Name != "own2.scale" {
		t.Errorf("weights %v and %v", names[0].Name, names[3].Name)
	}
}

// TestP7TrainerNamesWhatIsNotFinite, and leaves the weights as they were.
func TestP7TrainerNamesWhatIsNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for want, c := range map[string]struct {
		weight, x float32
		loss      func(y nn.Value) nn.Value
	}{
		"tensor loss is not finite: value 0 is NaN":               {1, nan, nn.Value.Mean},
		"tensor dense0.weight is not finite: value 0 is +Inf":     {inf, 1, nn.Value.Mean},
		"tensor dense0.weight.grad is not finite: value 0 is NaN": {1, 0, func(y nn.Value) nn.Value { return y.Log().Exp().Sum() }},
	} {
		net := nn.New(1, 1, nn.Dense(1, nn.Zeros))
		net.Weights()[0] = c.weight
		before := slices.Clone(net.Weights())
		trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 1}, net)
		_, err := trainer.Step(func(t *nn.Tape) nn.Value { return c.loss(net.Apply(t, t.Const(2, 1, []float32{c.x, c.x}))) })
		if err == nil || err.Error() != want || !slices.Equal(net.Weights(), before) {
			t.Errorf("error %v, want %s; weights %v", err, want, net.Weights())
		}
	}
}

// TestTrainerClipsAllNetworksTogether and steps each with its own optimiser.
func TestTrainerClipsAllNetworksTogether(t *testing.T) {
	a, b := nn.New(1, 1, nn.Dense(1, nn.Zeros)), nn.New(1, 1, nn.Dense(1, nn.Zeros))
	trainer := nn.NewTrainer(nn.TrainerConfig{MaxGradNorm: 1, Optimizer: func(n int) nn.Optimizer { return nn.NewSGD(1, 0, n) }}, a, b)
	step, err := trainer.Step(func(t *nn.Tape) nn.Value {
		x := t.Const(1, 1, []float32{0})
		return a.Apply(t, x).Scale(3).Add(b.Apply(t, x).Scale(4))
	})
	if err != nil || step.GradNorm != 5 || math.Abs(float64(a.Weights()[1])+0.6) > 1e-6 || math.Abs(float64(b.Weights()[1])+0.8) > 1e-6 {
		t.Errorf("%+v, %v: biases %v and %v", step, err, a.Weights()[1], b.Weights()[1])
	}
	if len(trainer.Optimizers()) != 2 || trainer.Optimizers()[1].State().Version != 1 {
		t.Error("the second network has no optimiser that has made a step")
	}
	trainer.SetRate(0)
	if _, err := trainer.Step(func(t *nn.Tape) nn.Value {
		return a.Apply(t,
			t.Scalar(1)).Sum()
	}); err != nil || math.Abs(float64(a.Weights()[1])+0.6) > 1e-6 {
		t.Errorf("at a rate of 0 the bias becomes %v, %v", a.Weights()[1], err)
	}
}

func ExampleTape() {
	var t nn.Tape
	x := t.Variable(2, 2, []float32{1, 2, 3, 4})
	loss := x.Square().Mean()
	t.Backward(loss)
	fmt.Println(loss.Number(), x.Grad())
	// Output: 7.5 [0.5 1 1.5 2]
}
