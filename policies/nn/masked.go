package nn

import (
	"fmt"
	"math"
)

// Where is v where keep is true, one flag for each element, and x elsewhere; there the gradient
// is 0. The flags are copied.
func (v Value) Where(keep []bool, x float32) Value {
	a := v.node()
	if len(keep) != len(a.data) {
		panic(fmt.Sprintf("nn: a masked value of %d x %d with %d flags", a.rows, a.cols, len(keep)))
	}
	out, n := v.t.result(where{}, a.rows, a.cols, v, v)
	n.aux = v.t.memory.take(len(keep))
	src := v.node().data
	for i, yes := range keep {
		if yes {
			n.aux[i], n.data[i] = 1, src[i]
		} else {
			n.aux[i], n.data[i] = 0, x
		}
	}
	return out
}

type where struct{}

func (where) backward(t *Tape, n *node) {
	d := t.gradOf(n.a)
	for i, g := range n.grad {
		if n.aux[i] != 0 {
			d[i] += g
		}
	}
}

// LogSoftmaxGroups is [Value.LogSoftmax] in each group of columns by itself: the first has
// sizes[0] columns, the next sizes[1], and so on up to the last column.
func (v Value) LogSoftmaxGroups(sizes []int) Value {
	a := v.node()
	sum, least := 0, 1
	for _, size := range sizes {
		sum, least = sum+size, min(least, size)
	}
	if sum != a.cols || least < 1 {
		panic(fmt.Sprintf("nn: log-softmax of groups %v in %d columns", sizes, a.cols))
	}
	out, n := v.t.result(softmaxGroups{}, a.rows, a.cols, v, v)
	n.aux = v.t.memory.take(len(sizes))
	for i, size := range sizes {
		n.aux[i] = float32(size)
	}
	src := v.node().data
	for at := 0; at < len(src); {
		for _, size := range sizes {
			top, log := logSumExpOf(src[at : at+size])
			for i, x := range src[at : at+size] {
				n.data[at+i] = x - top - log
			}
			at += size
		}
	}
	return out
}

type softmaxGroups struct{}

func (softmaxGroups) backward(t *Tape, n *node) {
	d := t.gradOf(n.a)
	for at := 0; at < len(d); {
		for _, size := range n.aux {
			end := at + int(size)
			addLogSoftmaxGrad(d[at:end], n.grad[at:end], n.data[at:end])
			at = end
		}
	}
}

// addLogSoftmaxGrad adds to d the derivative by the input of a log-softmax, given those by its
// result y.
func addLogSoftmaxGrad(d, grad, y []float32) {
	sum := float32(sumOf(grad))
	for i, g := range grad {
		d[i] += g - sum*float32(math.Exp(float64(y[i])))
	}
}
