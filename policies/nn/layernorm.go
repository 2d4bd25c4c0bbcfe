package nn

import "math"

// layerNormEpsilon is the number that PyTorch's LayerNorm adds to the variance.
const layerNormEpsilon = 1e-5

// LayerNorm returns the layer that brings each row to mean 0 and variance 1, and then multiplies
// each column by a learned weight and adds a learned bias: (x - mean) / sqrt(variance + 1e-5) *
// weight + bias, with the variance over all columns (divided by their number). The weights begin
// at 1 and the biases at 0. J. L. Ba, J. R. Kiros and G. E. Hinton, "Layer Normalization" (2016).
func LayerNorm() Layer { return &layerNorm{} }

type layerNorm struct{ weight, bias *Param }

func (l *layerNorm) Build(b *Builder, in int) int {
	l.weight = b.Param("layernorm", "weight", []int{in}, Fill(1))
	l.bias = b.Param("layernorm", "bias", []int{in}, nil)
	return in
}

func (l *layerNorm) Apply(t *Tape, x Value) Value {
	in := x.node()
	in.matrix().check(len(l.weight.Value))
	out, n := t.result(l, in.rows, in.cols, x, x)
	n.needs = n.needs || t.trains(l.weight.net)
	n.aux = t.memory.take(2 * n.rows) // mean and 1/deviation of each row
	m, y := x.node().matrix(), n.matrix()
	for i := range m.Rows {
		mean, inverse := moments(m.Row(i))
		n.aux[2*i], n.aux[2*i+1] = mean, inverse
		dst := y.Row(i)
		for j, v := range m.Row(i) {
			dst[j] = (v-mean)*inverse*l.weight.Value[j] + l.bias.Value[j]
		}
	}
	return out
}

// moments returns the mean of a row and the inverse of its standard deviation.
func moments(row []float32) (mean, inverse float32) {
	m := sumOf(row) / float64(len(row))
	var squares float64
	for _, v := range row {
		d := float64(v) - m
		squares += d * d
	}
	return float32(m), float32(1 / math.Sqrt(squares/float64(len(row))+layerNormEpsilon))
}

func (l *layerNorm) backward(t *Tape, n *node) {
	x := t.nodes[n.a].matrix()
	dy := Matrix{n.rows, n.cols, n.grad}
	if t.trains(l.weight.net) {
		for i := range x.Rows {
			mean, inverse, g := n.aux[2*i], n.aux[2*i+1], dy.Row(i)
			for j, v := range x.Row(i) {
				l.weight.Grad[j] += g[j] * (v - mean) * inverse
				l.bias.Grad[j] += g[j]
			}
		}
	}
	if !t.needs(n.a) {
		return
	}
	dx := Matrix{n.rows, n.cols, t.gradOf(n.a)}
	for i := range x.Rows {
		l.backwardRow(dx.Row(i), dy.Row(i), x.Row(i), n.aux[2*i], n.aux[2*i+1])
	}
}

// backwardRow adds the derivative by a row of the input. Mean and deviation depend on all of the
// row: what the gradient has of a constant and of the row itself changes neither, and goes away.
func (l *layerNorm) backwardRow(dx, dy, x []float32, mean, inverse float32) {
	var constant, along float64
	for j, v := range x {
		g := float64(dy[j] * l.weight.Value[j])
		constant += g
		along += g * float64((v-mean)*inverse)
	}
	a, b := float32(constant/float64(len(x))), float32(along/float64(len(x)))
	for j, v := range x {
		dx[j] += inverse * (dy[j]*l.weight.Value[j] - a - b*(v-mean)*inverse)
	}
}
