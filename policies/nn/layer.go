package nn

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Layer is one stage of a network. The layers of this package are made by
// [Dense], [ReLU], [Tanh] and [Dueling]; a layer belongs to one network.
type Layer interface {
	// attach gives the layer its place: the number of columns that come in.
	// It returns the number that goes out and the layer's parameters, whose
	// memory the network provides later through bind.
	attach(index, in int) (out int, params []Param)
	// bind hands over the memory of the parameters, in the order of attach,
	// and fills it with initial values.
	bind(params []Param, rng *rand.Rand)
	// forward computes the output of x, and remembers what backward needs.
	forward(w *workspace, x Matrix) Matrix
	// backward adds to the gradients of the parameters and returns the
	// gradient of x, or nothing if that is not needed.
	backward(w *workspace, dy Matrix, needed bool) Matrix
}

// Param is a named part of a network's weights.
type Param struct {
	Name  string
	Shape []int
	Value []float32 // a view into Net.Weights
	Grad  []float32 // a view into Net.Grad
}

// Init fills the weight of a dense layer, in x out, with its initial values.
type Init func(w Matrix, rng *rand.Rand)

// Kaiming draws uniformly from +-sqrt(6/in): the variance 2/in that keeps the
// scale of activations through rectifiers. K. He et al., "Delving Deep into
// Rectifiers" (2015).
func Kaiming(w Matrix, rng *rand.Rand) { uniform(w.Data, math.Sqrt(6/float64(w.Rows)), rng) }

// Glorot draws uniformly from +-sqrt(6/(in+out)). X. Glorot and Y. Bengio,
// "Understanding the difficulty of training deep feedforward neural networks"
// (2010).
func Glorot(w Matrix, rng *rand.Rand) { uniform(w.Data, math.Sqrt(6/float64(w.Rows+w.Cols)), rng) }

// FanIn draws uniformly from +-1/sqrt(in), the default of PyTorch's Linear.
func FanIn(w Matrix, rng *rand.Rand) { uniform(w.Data, 1/math.Sqrt(float64(w.Rows)), rng) }

// Zeros leaves the weight at zero.
func Zeros(w Matrix, _ *rand.Rand) { clear(w.Data) }

// Orthogonal returns an initialiser with orthonormal rows or columns,
// whichever are fewer, times gain. A. Saxe et al., "Exact solutions to the
// nonlinear dynamics of learning in deep linear neural networks" (2014).
func Orthogonal(gain float64) Init {
	return func(w Matrix, rng *rand.Rand) {
		n, dim := w.Rows, w.Cols
		at := func(i, j int) int { return i*w.Cols + j }
		if n > dim {
			n, dim = dim, n
			at = func(i, j int) int { return j*w.Cols + i }
		}
		vectors := make([][]float64, n)
		for i := range vectors {
			vectors[i] = orthonormal(vectors[:i], dim, rng)
			for j, v := range vectors[i] {
				w.Data[at(i, j)] = float32(gain * v)
			}
		}
	}
}

// orthonormal draws a random unit vector orthogonal to all of basis, by the
// Gram-Schmidt process done twice for accuracy.
func orthonormal(basis [][]float64, dim int, rng *rand.Rand) []float64 {
	v := make([]float64, dim)
	for i := range v {
		v[i] = rng.NormFloat64()
	}
	for range 2 {
		for _, b := range basis {
			var dot float64
			for i := range v {
				dot += v[i] * b[i]
			}
			for i := range v {
				v[i] -= dot * b[i]
			}
		}
		var sum float64
		for _, x := range v {
			sum += x * x
		}
		for i := range v {
			v[i] /= math.Sqrt(sum)
		}
	}
	return v
}

func uniform(dst []float32, bound float64, rng *rand.Rand) {
	for i := range dst {
		dst[i] = float32((2*rng.Float64() - 1) * bound)
	}
}

// Dense returns the layer y = x W + b with out columns, W of in x out filled
// by init and b zero.
func Dense(out int, init Init) Layer {
	if out <= 0 || init == nil {
		panic(fmt.Sprintf("nn: dense layer of %d columns", out))
	}
	return &dense{out: out, init: init}
}

type dense struct {
	in, out  int
	init     Init
	w, dw    Matrix
	b, db    []float32
	x, y, dx Matrix
}

func (d *dense) attach(index, in int) (int, []Param) {
	d.in = in
	return d.out, []Param{
		{Name: fmt.Sprintf("dense%d.weight", index), Shape: []int{in, d.out}},
		{Name: fmt.Sprintf("dense%d.bias", index), Shape: []int{d.out}},
	}
}

func (d *dense) bind(p []Param, rng *rand.Rand) {
	d.w, d.dw = Matrix{d.in, d.out, p[0].Value}, Matrix{d.in, d.out, p[0].Grad}
	d.b, d.db = p[1].Value, p[1].Grad
	d.init(d.w, rng)
}

func (d *dense) forward(w *workspace, x Matrix) Matrix {
	x.check("input", d.in)
	d.x = x
	d.y.resize(x.Rows, d.out)
	for i := range x.Rows {
		copy(d.y.Row(i), d.b)
	}
	w.mulAdd(d.y, x.view(), d.w.view())
	return d.y
}

func (d *dense) backward(w *workspace, dy Matrix, needed bool) Matrix {
	w.mulAdd(d.dw, d.x.view().transposed(), dy.view())
	for i := range dy.Rows {
		for j, v := range dy.Row(i) {
			d.db[j] += v
		}
	}
	if !needed {
		return Matrix{}
	}
	d.dx.resize(dy.Rows, d.in)
	clear(d.dx.Data)
	w.mulAdd(d.dx, dy.view(), d.w.view().transposed())
	return d.dx
}

// plain is what layers without parameters have in common.
type plain struct{ y, dx Matrix }

func (p *plain) attach(_, in int) (int, []Param) { return in, nil }
func (p *plain) bind([]Param, *rand.Rand)        {}

// ReLU returns the layer max(x, 0).
func ReLU() Layer { return &relu{} }

type relu struct{ plain }

func (r *relu) forward(_ *workspace, x Matrix) Matrix {
	r.y.resize(x.Rows, x.Cols)
	y := r.y.Data[:len(x.Data)]
	for i, v := range x.Data {
		y[i] = max(v, 0) // a NaN stays
	}
	return r.y
}

func (r *relu) backward(_ *workspace, dy Matrix, _ bool) Matrix {
	r.dx.resize(dy.Rows, dy.Cols)
	y, dx := r.y.Data[:len(dy.Data)], r.dx.Data[:len(dy.Data)]
	for i, v := range dy.Data {
		// All ones where y is positive: y is never -0 or negative, so its bits
		// are zero only where the gradient is.
		bits := math.Float32bits(y[i])
		mask := uint32(int32(bits|-bits) >> 31)
		dx[i] = math.Float32frombits(math.Float32bits(v) & mask)
	}
	return r.dx
}

// Tanh returns the layer tanh(x).
func Tanh() Layer { return &tanh{} }

type tanh struct{ plain }

func (t *tanh) forward(_ *workspace, x Matrix) Matrix {
	t.y.resize(x.Rows, x.Cols)
	for i, v := range x.Data {
		t.y.Data[i] = float32(math.Tanh(float64(v)))
	}
	return t.y
}

func (t *tanh) backward(_ *workspace, dy Matrix, _ bool) Matrix {
	t.dx.resize(dy.Rows, dy.Cols)
	for i, v := range dy.Data {
		y := t.y.Data[i]
		t.dx.Data[i] = v * (1 - y*y)
	}
	return t.dx
}

// Dueling returns the layer that joins a state value, column 0, and n
// advantages, columns 1..n, into n action values: Q = V + A - mean(A), equation
// 9 of Z. Wang et al., "Dueling Network Architectures for Deep Reinforcement
// Learning" (2016).
func Dueling() Layer { return &dueling{} }

type dueling struct{ plain }

func (d *dueling) attach(_, in int) (int, []Param) {
	if in < 2 {
		panic(fmt.Sprintf("nn: dueling layer of %d columns", in))
	}
	return in - 1, nil
}

func (d *dueling) forward(_ *workspace, x Matrix) Matrix {
	n := x.Cols - 1
	d.y.resize(x.Rows, n)
	for i := range x.Rows {
		row := x.Row(i)
		base := row[0] - mean(row[1:])
		for j, a := range row[1:] {
			d.y.Data[i*n+j] = base + a
		}
	}
	return d.y
}

func (d *dueling) backward(_ *workspace, dy Matrix, _ bool) Matrix {
	d.dx.resize(dy.Rows, dy.Cols+1)
	for i := range dy.Rows {
		row, dst := dy.Row(i), d.dx.Row(i)
		m := mean(row)
		dst[0] = m * float32(len(row))
		for j, g := range row {
			dst[1+j] = g - m
		}
	}
	return d.dx
}

func mean(v []float32) float32 {
	var sum float32
	for _, x := range v {
		sum += x
	}
	return sum / float32(len(v))
}
