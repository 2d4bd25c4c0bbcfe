package nn

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Sum returns the sum of all elements.
func (v Value) Sum() Value {
	out, n := v.t.result(total{}, 1, 1, v, v)
	n.x = 1
	n.data[0] = float32(sumOf(v.node().data))
	return out
}

// Mean returns the mean of all elements.
func (v Value) Mean() Value {
	out, n := v.t.result(total{}, 1, 1, v, v)
	src := v.node().data
	n.x = 1 / float32(len(src))
	n.data[0] = float32(sumOf(src) / float64(len(src)))
	return out
}

// RowSums returns the sum of each row: one column.
func (v Value) RowSums() Value {
	a := v.node()
	out, n := v.t.result(rowSums{}, a.rows, 1, v, v)
	m := v.node().matrix()
	for i := range n.data {
		n.data[i] = float32(sumOf(m.Row(i)))
	}
	return out
}

// ColumnMeans returns the mean of each column: one row.
func (v Value) ColumnMeans() Value {
	a := v.node()
	out, n := v.t.result(columnMeans{}, 1, a.cols, v, v)
	m := v.node().matrix()
	clear(n.data)
	for i := range m.Rows {
		for j, x := range m.Row(i) {
			n.data[j] += x
		}
	}
	for j := range n.data {
		n.data[j] /= float32(m.Rows)
	}
	return out
}

// LogSumExp returns log(sum(exp(x))) of each row: one column. It subtracts the greatest
// element first, so that no power overflows.
func (v Value) LogSumExp() Value {
	a := v.node()
	out, n := v.t.result(logSumExp{}, a.rows, 1, v, v)
	m := v.node().matrix()
	for i := range n.data {
		top, log := logSumExpOf(m.Row(i))
		n.data[i] = top + log
	}
	return out
}

// LogSoftmax is x - log(sum(exp(x))) in each row. Rows of fewer than 16 columns, such as those of
// discrete actions, are computed in float64.
func (v Value) LogSoftmax() Value {
	a := v.node()
	out, n := v.t.result(logSoftmax{}, a.rows, a.cols, v, v)
	kernels.LogSoftmax(n.matrix().kernel(), v.node().matrix().kernel())
	return out
}

// wide is the number of columns from which on the gradient of LogSoftmax uses kernels, row by row.
const wide = 16

// Softmax is exp(x) / sum(exp(x)) in each row.
func (v Value) Softmax() Value { return v.LogSoftmax().Exp() }

func sumOf(v []float32) (sum float64) {
	for _, x := range v {
		sum += float64(x)
	}
	return sum
}

// logSumExpOf returns two numbers whose sum is log(sum(exp(x))): the greatest element, or 0 if
// that is infinite, and the rest. Their sum has fewer digits than they have.
func logSumExpOf(row []float32) (top, log float32) {
	top = float32(math.Inf(-1))
	for _, x := range row {
		top = max(top, x)
	}
	if math.IsInf(float64(top), 0) {
		return 0, top
	}
	var sum float64
	for _, x := range row {
		sum += math.Exp(float64(x - top))
	}
	return top, float32(math.Log(sum))
}

type total struct{}

func (total) backward(t *Tape, n *node) {
	d, g := t.gradOf(n.a), n.grad[0]*n.x
	for i := range d {
		d[i] += g
	}
}

type rowSums struct{}

func (rowSums) backward(t *Tape, n *node) {
	d, cols := t.gradOf(n.a), t.nodes[n.a].cols
	for i, g := range n.grad {
		for j := range d[i*cols : (i+1)*cols] {
			d[i*cols+j] += g
		}
	}
}

type columnMeans struct{}

func (columnMeans) backward(t *Tape, n *node) {
	d, rows := t.gradOf(n.a), t.nodes[n.a].rows
	for i := range rows {
		for j, g := range n.grad {
			d[i*n.cols+j] += g / float32(rows)
		}
	}
}

type logSumExp struct{}

func (logSumExp) backward(t *Tape, n *node) {
	d, m := t.gradOf(n.a), t.nodes[n.a].matrix()
	for i, g := range n.grad {
		for j, x := range m.Row(i) {
			d[i*m.Cols+j] += g * float32(math.Exp(float64(x-n.data[i])))
		}
	}
}

type logSoftmax struct{}

func (logSoftmax) backward(t *Tape, n *node) {
	d := t.gradOf(n.a)
	probabilities := t.memory.take(len(n.data))
	kernels.Exp(probabilities, n.data)
	for i := range n.rows {
		lo, hi := i*n.cols, (i+1)*n.cols
		grad, dst := n.grad[lo:hi], d[lo:hi]
		sum := float32(sumOf(grad))
		if n.cols >= wide {
			kernels.Add(dst, dst, grad)
			kernels.Axpy(dst, probabilities[lo:hi], -sum)
			continue
		}
		for j, p := range probabilities[lo:hi] {
			dst[j] += grad[j] - sum*p
		}
	}
}

// Pick takes from each row the element whose column is in index, which holds whole numbers:
// one column. An index outside of the row panics.
func (v Value) Pick(index []float32) Value { return v.PickGroup(index, 1) }

// PickGroup is [Value.Pick] for groups of width columns: it takes from each row the group whose
// number is in index. The columns must be a multiple of width.
func (v Value) PickGroup(index []float32, width int) Value {
	a := v.node()
	if len(index) != a.rows {
		panic(fmt.Sprintf("nn: pick of %d elements from %d rows", len(index), a.rows))
	}
	if width < 1 || a.cols%width != 0 {
		panic(fmt.Sprintf("nn: pick of groups of %d from %d columns", width, a.cols))
	}
	out, n := v.t.result(pick{}, a.rows, width, v, v)
	n.aux = index
	m := v.node().matrix()
	for i, j := range index {
		k := int(j)
		if j != float32(k) || uint(k) >= uint(m.Cols/width) {
			panic(fmt.Sprintf("nn: pick of column %v of %d", j, m.Cols/width))
		}
		copy(n.data[i*width:(i+1)*width], m.Row(i)[k*width:])
	}
	return out
}

type pick struct{}

func (pick) backward(t *Tape, n *node) {
	d, cols := t.gradOf(n.a), t.nodes[n.a].cols
	for i, j := range n.aux {
		dst := d[i*cols+int(j)*n.cols:][:n.cols]
		for k, g := range n.grad[i*n.cols : (i+1)*n.cols] {
			dst[k] += g
		}
	}
}

// Columns returns the columns from..to-1.
func (v Value) Columns(from, to int) Value {
	a := v.node()
	if from < 0 || to < from || to > a.cols {
		panic(fmt.Sprintf("nn: columns %d to %d of %d", from, to, a.cols))
	}
	out, n := v.t.result(columns{}, a.rows, to-from, v, v)
	n.x = float32(from)
	m := v.node().matrix()
	for i := range m.Rows {
		copy(n.data[i*n.cols:(i+1)*n.cols], m.Row(i)[from:])
	}
	return out
}

type columns struct{}

func (columns) backward(t *Tape, n *node) {
	d, cols, from := t.gradOf(n.a), t.nodes[n.a].cols, int(n.x)
	for i := range n.rows {
		dst := d[i*cols+from:][:n.cols]
		for j, g := range n.grad[i*n.cols : (i+1)*n.cols] {
			dst[j] += g
		}
	}
}

// Beside returns the columns of v and then those of w, which has as many rows.
func (v Value) Beside(w Value) Value {
	a, b := v.node(), w.node()
	if a.rows != b.rows || v.t != w.t {
		panic(fmt.Sprintf("nn: values of %d and %d rows beside each other", a.rows, b.rows))
	}
	out, n := v.t.result(beside{}, a.rows, a.cols+b.cols, v, w)
	a, b = v.node(), w.node()
	for i := range n.rows {
		row := n.data[i*n.cols : (i+1)*n.cols]
		copy(row, a.data[i*a.cols:(i+1)*a.cols])
		copy(row[a.cols:], b.data[i*b.cols:(i+1)*b.cols])
	}
	return out
}

type beside struct{}

func (beside) backward(t *Tape, n *node) {
	from := 0
	for _, id := range [2]int32{n.a, n.b} {
		cols := t.nodes[id].cols
		if t.needs(id) {
			d := t.gradOf(id)
			for i := range n.rows {
				for j, g := range n.grad[i*n.cols+from:][:cols] {
					d[i*cols+j] += g
				}
			}
		}
		from += cols
	}
}

// Reshape returns the same elements in row-major order as a matrix of another shape.
func (v Value) Reshape(rows, cols int) Value {
	a := v.node()
	if rows*cols != len(a.data) {
		panic(fmt.Sprintf("nn: value of %d x %d as %d x %d", a.rows, a.cols, rows, cols))
	}
	return v.t.push(node{rows: rows, cols: cols, data: a.data, op: reshape{}, a: v.id, b: v.id, needs: a.needs})
}

type reshape struct{}

func (reshape) backward(t *Tape, n *node) {
	d := t.gradOf(n.a)
	for i, g := range n.grad {
		d[i] += g
	}
}

// MatMul returns the matrix product v w.
func (v Value) MatMul(w Value) Value {
	a, b := v.node(), w.node()
	if a.cols != b.rows || v.t != w.t {
		panic(fmt.Sprintf("nn: product of %d x %d and %d x %d", a.rows, a.cols, b.rows, b.cols))
	}
	out, n := v.t.result(matMul{}, a.rows, b.cols, v, w)
	kernels.Gemm(&v.t.work, n.matrix().kernel(), 0, v.node().matrix().kernel(), false, w.node().matrix().kernel(), false)
	return out
}

type matMul struct{}

func (matMul) backward(t *Tape, n *node) {
	a, b := t.nodes[n.a].matrix().kernel(), t.nodes[n.b].matrix().kernel()
	dy := Matrix{n.rows, n.cols, n.grad}.kernel()
	if t.needs(n.a) {
		kernels.Gemm(&t.work, Matrix{a.Rows, a.Cols, t.gradOf(n.a)}.kernel(), 1, dy, false, b, true)
	}
	if t.needs(n.b) {
		kernels.Gemm(&t.work, Matrix{b.Rows, b.Cols, t.gradOf(n.b)}.kernel(), 1, a, true, dy, false)
	}
}
