package nn

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Layer is one stage of a network: [Dense], [ReLU], [Tanh], [LayerNorm], [Embedding], [Conv2D], [NoisyDense],
// [Dueling], [DuelingGroups], [Learned], [Rescale], [LSTM], [GRU], or one of a program's own. A layer belongs to one network.
type Layer interface {
	// Build declares the layer's weights, given the number of columns that come in. It
	// returns the number of columns that go out.
	Build(b *Builder, in int) (out int)
	// Apply computes the output of x on its tape. The weights that Build declared are constants
	// there, unless they come in by [Builder.Weight].
	Apply(t *Tape, x Value) Value
}

// Builder collects the weights of a network while [New] builds its layers.
type Builder struct {
	net   *Net
	index int // of the layer
	inits []func()
	rng   *rand.Rand
	image image // the form of a row that comes in, if it is known
}

// Param declares a weight with the name "layer<name>" where <layer> is the layer's kind and place,
// such as "dense0.weight". Its memory is allocated when New returns, filled by init, or with
// zeros if init is nil.
func (b *Builder) Param(kind, name string, shape []int, init Init) *Param {
	p := &Param{Name: fmt.Sprintf("%s%d.%s", kind, b.index, name), Shape: shape, net: b.net}
	b.net.params = append(b.net.params, p)
	b.inits = append(b.inits, func() {
		if init != nil {
			init(p.matrix(), nil, b.rng)
		}
	})
	return p
}

// affine declares a weight and a bias for each of its columns, both filled by init.
func (b *Builder) affine(kind string, shape []int, init Init) (weight, bias *Param) {
	weight, bias = b.Param(kind, "weight", shape, nil), b.Param(kind, "bias", shape[len(shape)-1:], nil)
	b.inits = append(b.inits, func() { init(weight.matrix(), bias.Value, b.rng) })
	return weight, bias
}

// Param is a named part of a network's weights.
type Param struct {
	Name  string
	Shape []int
	Value []float32 // a view into Net.Weights
	Grad  []float32 // a view into Net.Grad

	net *Net
}

// matrix returns the weight as rows x columns; a vector is one row.
func (p *Param) matrix() Matrix { return p.as(p.Value) }

func (p *Param) as(data []float32) Matrix {
	cols := p.Shape[len(p.Shape)-1]
	return Matrix{product(p.Shape) / max(cols, 1), cols, data}
}

// On returns the weight as a value on the tape: its last dimension is that of the columns. If its
// network trains there, Backward adds to the weight's gradient.
func (p *Param) On(t *Tape) Value {
	m := p.matrix()
	return t.push(node{rows: m.Rows, cols: m.Cols, data: p.Value, op: p, needs: t.trains(p.net)})
}

func (p *Param) backward(_ *Tape, n *node) {
	for i, g := range n.grad {
		p.Grad[i] += g
	}
}

// Init fills the weight of a layer, in x out, and its bias with their initial values. Before the call both
// are zero. bias has out values, or none if the layer has no bias.
type Init func(w Matrix, bias []float32, rng *rand.Rand)

// Kaiming draws uniformly from +-sqrt(6/in): the variance 2/in that keeps the
// scale of activations through rectifiers. K. He et al., "Delving Deep into
// Rectifiers" (2015).
func Kaiming(w Matrix, _ []float32, rng *rand.Rand) {
	uniform(w.Data, math.Sqrt(6/float64(w.Rows)), rng)
}

// Glorot draws uniformly from +-sqrt(6/(in+out)). X. Glorot and Y. Bengio,
// "Understanding the difficulty of training deep feedforward neural networks"
// (2010).
func Glorot(w Matrix, _ []float32, rng *rand.Rand) {
	uniform(w.Data, math.Sqrt(6/float64(w.Rows+w.Cols)), rng)
}

// FanIn draws weight and bias uniformly from +-1/sqrt(in), the default of PyTorch's Linear and Conv2d.
func FanIn(w Matrix, bias []float32, rng *rand.Rand) {
	bound := 1 / math.Sqrt(float64(w.Rows))
	uniform(w.Data, bound, rng)
	uniform(bias, bound, rng)
}

// Zeros leaves weight and bias at zero.
func Zeros(Matrix, []float32, *rand.Rand) {}

// Orthogonal returns an initialiser with orthonormal rows or columns,
// whichever are fewer, times gain. A. Saxe et al., "Exact solutions to the
// nonlinear dynamics of learning in deep linear neural networks" (2014).
func Orthogonal(gain float64) Init {
	return func(w Matrix, _ []float32, rng *rand.Rand) {
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

// Dense returns the layer y = x W + b with out columns, W of in x out and b filled
// by init. An activation that follows it in a network is computed with it.
func Dense(out int, init Init) Layer {
	if out <= 0 || init == nil {
		panic(fmt.Sprintf("nn: dense layer of %d columns", out))
	}
	return &dense{out: out, init: init}
}

type dense struct {
	out    int
	init   Init
	act    kernels.Activation // that is computed with the layer
	weight *Param
	bias   *Param
}

func (d *dense) Build(b *Builder, in int) int {
	d.weight, d.bias = b.affine("dense", []int{in, d.out}, d.init)
	b.image = image{}
	return d.out
}

func (d *dense) fuse(a kernels.Activation) { d.act = a }

func (d *dense) Apply(t *Tape, x Value) Value {
	in := x.node()
	in.matrix().check(d.weight.Shape[0])
	rows, data := in.rows, in.data
	out, n := t.result(d, rows, d.out, x, x)
	n.needs = n.needs || t.trains(d.weight.net)
	kernels.DenseRows(&t.work, n.data, data, d.weight.Value, d.bias.Value, rows, d.act)
	return out
}

// backward changes the gradient of the result to that before the activation: nothing else reads
// it after this.
func (d *dense) backward(t *Tape, n *node) {
	x, w := t.nodes[n.a].matrix(), d.weight.matrix()
	var dx, dw kernels.Matrix
	var db, sum []float32
	if t.trains(d.weight.net) {
		dw, db = d.weight.as(d.weight.Grad).kernel(), d.bias.Grad
	}
	if t.needs(n.a) {
		grad, fresh := t.freshGrad(n.a)
		if !fresh { // the product is written, not added
			grad, sum = t.memory.take(len(grad)), grad
		}
		dx = Matrix{x.Rows, x.Cols, grad}.kernel()
	}
	kernels.DenseBackward(&t.work, dx, dw, db, Matrix{n.rows, n.cols, n.grad}.kernel(), x.kernel(), n.matrix().kernel(), w.kernel(), d.act)
	if sum != nil {
		kernels.Add(sum, sum, dx.Data)
	}
}

// ReLU returns the layer max(x, 0). Its derivative at 0 is 0.
func ReLU() Layer { return &elementwise{act: kernels.ActReLU} }

// Tanh returns the layer tanh(x).
func Tanh() Layer { return &elementwise{act: kernels.ActTanh} }

// elementwise is an activation as a layer. Behind a dense layer it is computed there.
type elementwise struct {
	act   kernels.Activation
	fused bool
}

func (e *elementwise) Build(_ *Builder, in int) int { return in }

func (e *elementwise) Apply(_ *Tape, x Value) Value {
	switch {
	case e.fused:
		return x
	case e.act == kernels.ActReLU:
		return x.ReLU()
	}
	return x.Tanh()
}

// fuse hands activations to the layers that they follow and that compute them in place.
func fuse(layers []Layer) {
	for i := 1; i < len(layers); i++ {
		l, ok := layers[i-1].(interface{ fuse(a kernels.Activation) })
		e, is := layers[i].(*elementwise)
		if ok && is {
			l.fuse(e.act)
			e.fused = true
		}
	}
}

// Dueling returns the layer that joins a state value, column 0, and n
// advantages, columns 1..n, into n action values: Q = V + A - mean(A), equation
// 9 of Z. Wang et al., "Dueling Network Architectures for Deep Reinforcement
// Learning" (2016).
func Dueling() Layer { return dueling{1} }

// DuelingGroups is [Dueling] for values of width columns each, such as the logits of a
// distribution: column k of an action is made of column k of the state value and of all
// advantages. M. Hessel et al., "Rainbow: Combining Improvements in Deep Reinforcement
// Learning" (2018).
func DuelingGroups(width int) Layer {
	if width < 1 {
		panic(fmt.Sprintf("nn: dueling layer of groups of %d columns", width))
	}
	return dueling{width}
}

type dueling struct{ width int }

func (l dueling) Build(_ *Builder, in int) int {
	if in < 2*l.width || in%l.width != 0 {
		panic(fmt.Sprintf("nn: dueling layer of %d columns", in))
	}
	return in - l.width
}

func (l dueling) Apply(t *Tape, x Value) Value {
	in := x.node()
	out, n := t.result(l, in.rows, in.cols-l.width, x, x)
	m := x.node().matrix()
	for i := range m.Rows {
		row, dst := m.Row(i), n.data[i*n.cols:(i+1)*n.cols]
		advantages := row[l.width:]
		for k := range l.width {
			base := row[k] - mean(advantages, k, l.width)
			for j := k; j < len(dst); j += l.width {
				dst[j] = base + advantages[j]
			}
		}
	}
	return out
}

func (l dueling) backward(t *Tape, n *node) {
	d := t.gradOf(n.a)
	w := l.width
	for i := range n.rows {
		row, dst := n.grad[i*n.cols:(i+1)*n.cols], d[i*(n.cols+w):(i+1)*(n.cols+w)]
		for k := range w {
			m := mean(row, k, w)
			dst[k] += m * float32(len(row)/w)
			for j := k; j < len(row); j += w {
				dst[w+j] += row[j] - m
			}
		}
	}
}

// mean returns the mean of every step-th value from first on. The values are a multiple of step.
func mean(v []float32, first, step int) float32 {
	var sum float32
	for i := first; i < len(v); i += step {
		sum += v[i]
	}
	return sum / float32(len(v)/step)
}
