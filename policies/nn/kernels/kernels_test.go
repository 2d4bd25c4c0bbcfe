package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// operation is a function of slices of one length; the first out are written.
type operation struct {
	name string
	out  int
	in   int
	run  func(l level, s [][]float32)
	want func(x []float64) []float64 // of one value, by definition
	// relative to the magnitudes of the operands
	tolerance float64
}

func heaviside(ok bool, x float64) float64 {
	if ok {
		return x
	}
	return 0
}

func one64(x float64) []float64 { return []float64{x} }

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

const tiny = 1e-6

// operations lists the elementwise kernels with their definitions. Slices that
// are written come first; x has the values of all slices before the call.
func operations() []operation {
	return []operation{
		{"add", 1, 2, func(l level, s [][]float32) { l.add(s[0], s[1], s[2]) }, func(x []float64) []float64 { return one64(x[1] + x[2]) }, tiny},
		{"sub", 1, 2, func(l level, s [][]float32) { l.sub(s[0], s[1], s[2]) }, func(x []float64) []float64 { return one64(x[1] - x[2]) }, tiny},
		{"mul", 1, 2, func(l level, s [][]float32) { l.mul(s[0], s[1], s[2]) }, func(x []float64) []float64 { return one64(x[1] * x[2]) }, tiny},
		{"div", 1, 2, func(l level, s [][]float32) { l.div(s[0], s[1], s[2]) }, func(x []float64) []float64 { return one64(x[1] / x[2]) }, tiny},
		{"min", 1, 2, func(l level, s [][]float32) { l.minimum(s[0], s[1], s[2]) },
			func(x []float64) []float64 { return one64(min(x[1], x[2])) }, 0},
		{"max", 1, 2, func(l level, s [][]float32) { l.maximum(s[0], s[1], s[2]) },
			func(x []float64) []float64 { return one64(max(x[1], x[2])) }, 0},
		{"clamp", 1, 1, func(l level, s [][]float32) { l.clamp(s[0], s[1], -0.5, 0.25) }, func(x []float64) []float64 {
			return one64(min(max(x[1], -0.5), 0.25))
		}, 0},
		{"scale", 1, 1, func(l level, s [][]float32) { l.scale(s[0], s[1], 0.75) }, func(x []float64) []float64 { return one64(0.75 * x[1]) },
			tiny},
		{"axpy", 1, 1, func(l level, s [][]float32) { l.axpy(s[0], s[1], 0.75) },
			func(x []float64) []float64 { return one64(x[0] + 0.75*x[1]) }, tiny},
		{"polyak", 1, 1, func(l level, s [][]float32) { l.polyak(s[0], s[1], 0.125) }, func(x []float64) []float64 {
			return one64(x[0] + 0.125*(x[1]-x[0]))
		}, tiny},
		{"mulAdd", 1, 2, func(l level, s [][]float32) { l.mulAdd(s[0], s[1], s[2]) },
			func(x []float64) []float64 { return one64(x[0] + x[1]*x[2]) }, tiny},
		{"divAdd", 1, 2, func(l level, s [][]float32) { l.divAdd(s[0], s[1], s[2]) },
			func(x []float64) []float64 { return one64(x[0] + x[1]/x[2]) }, tiny},
		{"divSub", 1, 3, func(l level, s [][]float32) { l.divSub(s[0], s[1], s[2], s[3]) }, func(x []float64) []float64 {
			return one64(x[0] - x[1]*x[2]/x[3])
		}, tiny},
		{"relu", 1, 1, func(l level, s [][]float32) { l.relu(s[0], s[1]) }, func(x []float64) []float64 { return one64(max(0, x[1])) }, 0},
		{"exp", 1, 1, func(l level, s [][]float32) { l.exp(s[0], s[1]) }, func(x []float64) []float64 { return one64(math.Exp(x[1])) }, tiny},
		{"log", 1, 1, func(l level, s [][]float32) { l.log(s[0], s[1]) }, func(x []float64) []float64 { return one64(math.Log(x[1])) }, tiny},
		{"tanh", 1, 1, func(l level, s [][]float32) { l.tanh(s[0], s[1]) }, func(x []float64) []float64 { return one64(math.Tanh(x[1])) }, tiny},
		{"sigmoid", 1, 1, func(l level, s [][]float32) { l.sigmoid(s[0], s[1]) }, func(x []float64) []float64 { return one64(logistic(x[1])) },
			tiny},
		{"softplus", 1, 1, func(l level, s [][]float32) { l.softplus(s[0], s[1]) }, func(x []float64) []float64 {
			return one64(math.Log1p(math.Exp(x[1])))
		}, tiny},
		{"reluBackward", 1, 2, func(l level, s [][]float32) { l.reluBackward(s[0], s[1], s[2]) }, func(x []float64) []float64 {
			return one64(x[0] + heaviside(x[2] > 0, x[1]))
		}, tiny},
		{"tanhBackward", 1, 2, func(l level, s [][]float32) { l.tanhBackward(s[0], s[1], s[2]) }, func(x []float64) []float64 {
			return one64(x[0] + x[1]*(1-x[2]*x[2]))
		}, tiny},
		{"sigmoidBackward", 1, 2, func(l level, s [][]float32) { l.sigmoidBackward(s[0], s[1], s[2]) }, func(x []float64) []float64 {
			return one64(x[0] + x[1]*(x[2]-x[2]*x[2]))
		}, tiny},
		{"softplusBackward", 1, 2, func(l level, s [][]float32) { l.softplusBackward(s[0], s[1], s[2]) }, func(x []float64) []float64 {
			return one64(x[0] + x[1]*logistic(x[2]))
		}, tiny},
		{"clampBackward", 1, 2, func(l level, s [][]float32) { l.clampBackward(s[0], s[1], s[2], -0.5, 0.25) }, func(x []float64) []float64 {
			return one64(x[0] + heaviside(-0.5 <= x[2] && x[2] <= 0.25, x[1]))
		}, tiny},
		{"minBackward", 2, 3, func(l level, s [][]float32) { l.minBackward(s[0], s[1], s[2], s[3], s[4]) }, func(x []float64) []float64 {
			return []float64{x[0] + heaviside(x[3] <= x[4], x[2]), x[1] + heaviside(x[3] > x[4], x[2])}
		}, tiny},
		{"maxBackward", 2, 3, func(l level, s [][]float32) { l.maxBackward(s[0], s[1], s[2], s[3], s[4]) }, func(x []float64) []float64 {
			return []float64{x[0] + heaviside(x[3] >= x[4], x[2]), x[1] + heaviside(x[3] < x[4], x[2])}
		}, tiny},
		{"reluGrad", 1, 1, func(l level, s [][]float32) { l.reluGrad(s[0], s[1]) }, func(x []float64) []float64 {
			return one64(heaviside(x[1] > 0, x[0]))
		}, 0},
		{"tanhGrad", 1, 1, func(l level, s [][]float32) { l.tanhGrad(s[0], s[1]) }, func(x []float64) []float64 {
			return one64(x[0] * (1 - x[1]*x[1]))
		}, tiny},
	}
}

// draw returns n normal values.
func draw(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// moderate returns n values from 0.25 to 4 with random signs.
func moderate(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Copysign(0.25+3.75*rng.Float64(), rng.Float64()-0.5))
	}
	return x
}

// pattern returns the bits of x; all NaN have the same.
func pattern(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i, v := range x {
		if b[i] = math.Float32bits(v); v != v {
			b[i] = 0x7fc00000
		}
	}
	return b
}

func TestElementwiseEqualsItsDefinitionAndItsPlainForm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, op := range operations() {
		for n := range 71 {
			var before [][]float32
			for range op.out + op.in {
				before = append(before, moderate(rng, n))
			}
			want := runOn(plain, op, before)
			checkDefinition(t, op, before, want)
			for _, l := range levels() {
				got := runOn(l, op, before)
				for i := range got {
					if !slices.Equal(pattern(got[i]), pattern(want[i])) {
						t.Fatalf("%v %s of %d: slice %d is %v, plain Go %v", l, op.name, n, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// runOn returns all slices after the operation.
func runOn(l level, op operation, before [][]float32) [][]float32 {
	var s [][]float32
	for _, x := range before {
		s = append(s, slices.Clone(x))
	}
	op.run(l, s)
	return s
}

func checkDefinition(t *testing.T, op operation, before, after [][]float32) {
	t.Helper()
	for i := range before[0] {
		var x []float64
		size := 64.0 // the greatest product of three moderate values
		for _, s := range before {
			x = append(x, float64(s[i]))
			size += math.Abs(float64(s[i]))
		}
		for o, want := range op.want(x) {
			got := float64(after[o][i])
			if math.IsNaN(got) && math.IsNaN(want) {
				continue
			}
			if !(math.Abs(got-want) <= op.tolerance*(size+math.Abs(want))) {
				t.Fatalf("%s of %v is %v, want %v", op.name, x, got, want)
			}
		}
	}
}

// specials returns the values at which functions go wrong.
func specials() []float32 {
	inf := float32(math.Inf(1))
	x := []float32{
		0, 1, 0.5, 2, 1e-30, 1e30, 88, 89, 103, 104, 105, 1e4, 9, 10, 0x1p-126, 0x1p-127, 0x1p-149, 0x1.fffffcp-127,
		math.MaxFloat32, inf, 0.41421356, 0.70710678, 1.4142135, 0.34657359, 0.34657362, 87.33654, 88.72284, 88.722835, 103.97208, 103.97209,
	}
	for _, v := range slices.Clone(x) {
		x = append(x, -v)
	}
	return append(x, float32(math.NaN()))
}

func TestSpecialValuesHaveTheSameBitsOnAllLevels(t *testing.T) {
	values := specials()
	for _, op := range operations() {
		if slices.Contains([]string{"scale", "axpy", "polyak", "mulAdd", "divAdd", "divSub", "reluGrad", "tanhGrad"}, op.name) ||
			strings.HasSuffix(op.name, "Backward") {
			continue // denormals count as 0 in these
		}
		before := make([][]float32, op.out+op.in)
		for _, a := range values {
			for _, b := range values {
				before[0] = append(before[0], 0)
				for i := 1; i < len(before); i++ {
					before[i] = append(before[i], a)
					a, b = b, a
				}
			}
		}
		want := runOn(plain, op, before)
		for _, l := range levels() {
			got := runOn(l, op, before)
			g, w := pattern(got[0]), pattern(want[0])
			for i := range g {
				if g[i] != w[i] {
					t.Errorf("%v %s of %v: %v, plain Go %v", l, op.name, before[1][i], got[0][i], want[0][i])
				}
			}
		}
	}
}

func TestResultsDoNotDependOnAlignment(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, op := range operations() {
		const n = 45
		var before [][]float32
		for range op.out + op.in {
			before = append(before, draw(rng, n))
		}
		for _, l := range levels() {
			want := runOn(l, op, before)
			for shift := 1; shift < 16; shift++ {
				var s [][]float32
				for _, x := range before {
					s = append(s, append(make([]float32, shift, shift+n), x...)[shift:])
				}
				op.run(l, s)
				for i := range s {
					if !slices.Equal(pattern(s[i]), pattern(want[i])) {
						t.Fatalf("%v %s: other bits when shifted by %d", l, op.name, shift)
					}
				}
			}
		}
	}
}

func TestAdamEqualsItsPlainForm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, decay := range []float32{0, 0.01} {
		s := AdamStep{Decay1: 0.9, Gain1: 0.1, Decay2: 0.999, Gain2: 0.001, Rate: 1e-3, Epsilon: 1e-8, WeightDecay: decay}
		for n := range 71 {
			start := [][]float32{draw(rng, n), draw(rng, n), draw(rng, n), draw(rng, n)}
			for i, v := range start[3] {
				start[3][i] = v * v
			}
			for _, l := range levels() {
				got, want := cloneAll(start), cloneAll(start)
				for range 3 {
					l.adamStep(got[0], got[1], got[2], got[3], s)
					plain.adamStep(want[0], want[1], want[2], want[3], s)
				}
				for i := range got {
					if !slices.Equal(pattern(got[i]), pattern(want[i])) {
						t.Fatalf("%v adam of %d: slice %d differs", l, n, i)
					}
				}
			}
		}
	}
}

func TestAdamEqualsItsDefinition(t *testing.T) {
	s := AdamStep{Decay1: 0.5, Gain1: 0.5, Decay2: 0.75, Gain2: 0.25, Rate: 0.5, Epsilon: 1, WeightDecay: 0.25}
	w, m, v := []float32{8}, []float32{2}, []float32{12}
	Adam(w, []float32{6}, m, v, s)
	if m[0] != 4 || v[0] != 18 { // 0.5*2 + 0.5*6; 0.75*12 + 0.25*36
		t.Errorf("moments are %v and %v", m, v)
	}
	if want := 0.75*8 - 0.5*4/(math.Sqrt(18)+1); math.Abs(float64(w[0])-want) > 1e-6 {
		t.Errorf("the weight is %v, want %v", w[0], want)
	}
}

func cloneAll(x [][]float32) [][]float32 {
	var c [][]float32
	for _, s := range x {
		c = append(c, slices.Clone(s))
	}
	return c
}

func TestSumSquares(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for n := range 71 {
		x := draw(rng, n)
		want := 0.0
		for _, v := range x {
			want += float64(v) * float64(v)
		}
		for _, l := range levels() {
			got := l.sumSquares(x)
			if got != plain.sumSquares(x) || math.Abs(got-want) > 1e-13*want {
				t.Fatalf("%v: sum of %d squares is %v, want %v", l, n, got, want)
			}
		}
	}
}

func TestSoftmax(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for cols := 1; cols < 71; cols++ {
		x := Matrix{3, cols, cols + 2, draw(rng, 3*(cols+2))}
		for i := range x.Data {
			x.Data[i] *= 20
		}
		for _, l := range levels() {
			soft, logs := clone(x), clone(x)
			plainSoft, plainLogs := clone(x), clone(x)
			l.softmax(soft, x)
			l.logSoftmax(logs, x)
			plain.softmax(plainSoft, x)
			plain.logSoftmax(plainLogs, x)
			if !slices.Equal(pattern(soft.Data), pattern(plainSoft.Data)) || !slices.Equal(pattern(logs.Data), pattern(plainLogs.Data)) {
				t.Fatalf("%v: softmax of %d columns has other bits than plain Go", l, cols)
			}
			for i := range x.Rows {
				checkSoftmax(t, x.Row(i), soft.Row(i), logs.Row(i))
			}
		}
	}
}

func TestSoftmaxInPlace(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	for cols := range 20 {
		x := drawMatrix(rng, 130, cols, 3)
		for _, l := range levels() {
			for name, f := range map[string]func(dst, x Matrix){"softmax": l.softmax, "logSoftmax": l.logSoftmax} {
				want, got := clone(x), clone(x)
				f(want, x)
				f(got, got)
				if !slices.Equal(pattern(got.Data), pattern(want.Data)) {
					t.Errorf("%v: %s of %d columns in place has other bits, or changed a gap", l, name, cols)
				}
			}
		}
	}
}

func checkSoftmax(t *testing.T, x, soft, logs []float32) {
	t.Helper()
	peak, sum := math.Inf(-1), 0.0
	for _, v := range x {
		peak = max(peak, float64(v))
	}
	for _, v := range x {
		sum += math.Exp(float64(v) - peak)
	}
	for j, v := range x {
		want := float64(v) - peak - math.Log(sum)
		if math.Abs(float64(logs[j])-want) > 1e-6*(1+math.Abs(want)) || math.Abs(float64(soft[j])-math.Exp(want)) > 1e-6 {
			t.Fatalf("softmax of %v is %v and %v, want %v", v, soft[j], logs[j], want)
		}
	}
}

func TestSoftmaxOfSpecialRows(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	for _, l := range levels() {
		x := Matrix{4, 3, 3, []float32{-inf, 0, 0, -inf, -inf, -inf, nan, 0, 1, 1e38, -1e38, 0}}
		y := clone(x)
		l.softmax(y, x)
		want := []float32{0, 0.5, 0.5, nan, nan, nan, nan, nan, nan, 1, 0, 0}
		if !slices.Equal(pattern(y.Data), pattern(want)) {
			t.Errorf("%v: softmax is %v, want %v", l, y.Data, want)
		}
	}
}

func clone(m Matrix) Matrix {
	m.Data = slices.Clone(m.Data)
	return m
}

// panics returns the value with which f panics.
func panics(f func()) (message string) {
	defer func() {
		if r := recover(); r != nil {
			message, _ = r.(string)
		}
	}()
	f()
	return ""
}

func TestWrongDimensionsPanic(t *testing.T) {
	var w Workspace
	a, b := make([]float32, 3), make([]float32, 4)
	m := func(rows, cols int) Matrix { return Matrix{rows, cols, max(1, cols), make([]float32, rows*cols)} }
	cases := map[string]func(){
		"Add":              func() { Add(a, a, b) },
		"Sub":              func() { Sub(a, b, a) },
		"Mul":              func() { Mul(b, a, a) },
		"Div":              func() { Div(b, a, a) },
		"Min":              func() { Min(b, a, a) },
		"Max":              func() { Max(b, a, a) },
		"Clamp":            func() { Clamp(b, a, 0, 1) },
		"Scale":            func() { Scale(a, b, 1) },
		"Axpy":             func() { Axpy(a, b, 1) },
		"Polyak":           func() { Polyak(a, b, 1) },
		"MulAdd":           func() { MulAdd(a, a, b) },
		"DivAdd":           func() { DivAdd(a, a, b) },
		"DivBackward":      func() { DivBackward(a, a, a, b) },
		"MinBackward":      func() { MinBackward(a, a, a, a, b) },
		"MaxBackward":      func() { MaxBackward(a, a, a, a, b) },
		"ReLU":             func() { ReLU(a, b) },
		"Exp":              func() { Exp(a, b) },
		"Log":              func() { Log(a, b) },
		"Tanh":             func() { Tanh(a, b) },
		"Sigmoid":          func() { Sigmoid(a, b) },
		"Softplus":         func() { Softplus(a, b) },
		"TanhBackward":     func() { TanhBackward(a, b, a) },
		"ReLUBackward":     func() { ReLUBackward(a, b, a) },
		"SigmoidBackward":  func() { SigmoidBackward(a, a, b) },
		"SoftplusBackward": func() { SoftplusBackward(b, a, a) },
		"ClampBackward":    func() { ClampBackward(a, a, b, 0, 1) },
		"Adam":             func() { Adam(a, a, b, a, AdamStep{}) },
		"Softmax":          func() { Softmax(m(2, 3), m(3, 2)) },
		"LogSoftmax":       func() { LogSoftmax(m(2, 3), Matrix{2, 3, 3, a}) },
		"Gemm: product": func() {
			Gemm(&w, m(2, 2), 0, m(2, 3), false, m(2, 3), false)
		},
		"Gemm: a":           func() { Gemm(&w, m(2, 2), 0, Matrix{2, 3, 2, make([]float32, 9)}, false, m(3, 2), false) },
		"Gemm: b":           func() { Gemm(&w, m(2, 2), 0, m(2, 3), false, Matrix{3, 2, 2, make([]float32, 5)}, false) },
		"Gemm: c":           func() { Gemm(&w, Matrix{-1, 2, 2, nil}, 0, m(2, 3), false, m(3, 2), false) },
		"Dense: x":          func() { Dense(&w, m(2, 4), m(2, 2), m(3, 4), nil, ActReLU) },
		"Dense: y":          func() { Dense(&w, m(2, 3), m(2, 3), m(3, 4), nil, ActReLU) },
		"Dense: slices":     func() { Dense(&w, m(2, 4), m(2, 3), m(3, 4), a, ActReLU) },
		"Dense: activation": func() { Dense(&w, m(2, 4), m(2, 3), m(3, 4), nil, endOfActivations) },
		"DenseRows: 2 rows of 3 values, 12 weights and 4 biases into 7 values": func() {
			DenseRows(&w, make([]float32, 7), make([]float32, 6), make([]float32, 12), make([]float32, 4), 2, ActReLU)
		},
		"DenseRows: 2 rows of 3 values, 12 weights and 4 biases into 8 values": func() { // one more than 2 x 3
			DenseRows(&w, make([]float32, 8), make([]float32, 7), make([]float32, 12), make([]float32, 4), 2, ActReLU)
		},
		"DenseRows: activation": func() {
			DenseRows(&w, make([]float32, 1), make([]float32, 1), make([]float32, 1), make([]float32, 1), 1, endOfActivations)
		},
		"DenseBackward: dx":     func() { DenseBackward(&w, m(1, 3), m(3, 4), nil, m(2, 4), m(2, 3), m(2, 4), m(3, 4), ActTanh) },
		"DenseBackward: dy":     func() { DenseBackward(&w, m(2, 3), m(3, 4), nil, m(2, 3), m(2, 3), m(2, 4), m(3, 4), ActTanh) },
		"DenseBackward: y":      func() { DenseBackward(&w, m(2, 3), m(3, 4), nil, m(2, 4), m(2, 3), m(1, 4), m(3, 4), ActTanh) },
		"DenseBackward: dweigh": func() { DenseBackward(&w, m(2, 3), m(4, 4), nil, m(2, 4), m(2, 3), m(2, 4), m(3, 4), ActTanh) },
		"DenseBackward: slices": func() { DenseBackward(&w, m(2, 3), m(3, 4), a, m(2, 4), m(2, 3), m(2, 4), m(3, 4), ActTanh) },
	}
	for name, f := range cases {
		if got := panics(f); !strings.HasPrefix(got, "kernels: "+name) {
			t.Errorf("%s panics with %q", name, got)
		}
	}
}
