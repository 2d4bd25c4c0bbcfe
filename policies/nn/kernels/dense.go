package kernels

import "fmt"

// Activation is the function at the end of a dense layer.
type Activation uint8

// The activations of dense layers.
const (
	ActIdentity      Activation = iota // x
	ActReLU                            // max(0, x)
	ActTanh                            // the hyperbolic tangent
	endOfActivations                   // the number of activations
)

// Dense computes y = act(x weight + bias): x is batch x in, weight is in x out,
// bias has out values or is nil, and y is batch x out. y must not overlap the
// others. Dense panics if the dimensions do not match.
func Dense(w *Workspace, y, x, weight Matrix, bias []float32, act Activation) {
	best.dense(w, &y, &x, &weight, bias, act)
}

// DenseRows is Dense for matrices without gaps, given by their values and the number of rows of x and y. For the
// few rows that a policy acts on, it takes much less time, and computes the same bits. bias must not be nil.
func DenseRows(w *Workspace, y, x, weight, bias []float32, rows int, act Activation) {
	best.denseRows(w, y, x, weight, bias, rows, act)
}

func (l level) denseRows(w *Workspace, y, x, weight, bias []float32, rows int, act Activation) {
	in, out := 0, len(bias)
	if rows > 0 {
		in = len(x) / rows
	}
	if rows < 0 || len(x) != rows*in || len(y) != rows*out || rows > 0 && len(weight) != in*out {
		panic(fmt.Sprintf("kernels: DenseRows: %d rows of %d values, %d weights and %d biases into %d values",
			rows, in, len(weight), out, len(y)))
	}
	if l == plain || rows > packRows || len(x) == 0 || out == 0 || w.threads() > 1 {
		l.dense(w, &Matrix{rows, out, max(out, 1), y}, &Matrix{rows, in, max(in, 1), x}, &Matrix{in, out, max(out, 1), weight}, bias, act)
		return
	}
	act.check("DenseRows")
	mode := modeBias
	if act == ActReLU {
		mode |= modeReLU
	}
	l.few(y, x, weight, bias, rows, mode)
	if act == ActTanh {
		l.tanh(y, y)
	}
}

// few computes a product of a few rows. It calls the kernels as product does, which takes as long to find that
// nothing is to be packed or divided as they take for one row.
func (l level) few(y, x, weight, bias []float32, rows, mode int) {
	out, lanes := len(bias), l.lanes()
	var t tile
	t.rows, t.k, t.a, t.aCol = rows, len(x)/rows, &x[0], 1
	t.aRow, t.bRow, t.cRow = t.k, out, out
	for j := 0; j < out; j += t.cols {
		t.vecs = l.vectors(rows, out-j)
		t.cols = min(out-j, t.vecs*lanes)
		t.b, t.c, t.bias, t.mode = &weight[j], &y[j], &bias[j], mode
		if t.cols == t.vecs*lanes {
			t.mode |= modeFull
		}
		l.tile(&t)
	}
}

func (l level) dense(w *Workspace, y, x, weight *Matrix, bias []float32, act Activation) {
	weight.check("Dense", "weight")
	x.is("Dense", "x", x.Rows, weight.Rows)
	y.is("Dense", "y", x.Rows, weight.Cols)
	act.check("Dense")
	mode := 0
	if bias != nil {
		same("Dense", len(bias), weight.Cols)
		mode = modeBias
	}
	if act == ActReLU {
		mode |= modeReLU
	}
	var p product
	p.c, p.bias, p.mode = *y, bias, mode
	p.a.set(x, false)
	p.b.set(weight, false)
	l.product(w, &p)
	if act != ActTanh {
		return
	}
	if y.dense() {
		l.tanh(y.all(), y.all())
		return
	}
	for i := range y.Rows {
		l.tanh(y.Row(i), y.Row(i))
	}
}

func (a Activation) check(op string) {
	if a >= endOfActivations {
		panic(fmt.Sprintf("kernels: %s: activation %d", op, a))
	}
}

// DenseBackward computes the gradients of Dense from dy, the gradient with
// respect to y. It adds those with respect to the weights and the bias to
// dweight, unless it has no columns, and dbias, unless it is nil, and writes that with respect to x to
// dx, unless dx has no columns. It changes dy to the gradient before the
// activation, dy*act'(y). The matrices that are written must not overlap others.
// DenseBackward panics if the dimensions do not match.
func DenseBackward(w *Workspace, dx, dweight Matrix, dbias []float32, dy, x, y, weight Matrix, act Activation) {
	best.denseBackward(w, dx, dweight, dbias, dy, x, y, weight, act)
}

func (l level) denseBackward(w *Workspace, dx, dweight Matrix, dbias []float32, dy, x, y, weight Matrix, act Activation) {
	const op = "DenseBackward"
	weight.check(op, "weight")
	x.is(op, "x", x.Rows, weight.Rows)
	y.is(op, "y", x.Rows, weight.Cols)
	dy.is(op, "dy", x.Rows, weight.Cols)
	act.check(op)
	if dweight.Cols > 0 {
		dweight.is(op, "dweight", weight.Rows, weight.Cols)
	}
	if dx.Cols > 0 {
		dx.is(op, "dx", x.Rows, weight.Rows)
	}
	if dbias != nil {
		same(op, len(dbias), weight.Cols)
	}
	l.activationGrad(&dy, &y, act)
	if dbias != nil {
		l.addColumns(w, dbias, &dy)
	}
	var p product
	if dweight.Cols > 0 {
		p.c, p.mode = dweight, modeAdd
		p.a.set(&x, true)
		p.b.set(&dy, false)
		l.product(w, &p)
	}
	if dx.Cols > 0 {
		p.mode = 0
		p.b.set(&weight, true)
		l.inputGrad(w, &p, &dx, &dy)
	}
}

// sparseWork is the number of products of numbers that must be saved before rows are copied.
const sparseWork = 1 << 18

// inputGrad computes p, dx = dy b. Rows of zeros are left out if there are many: a loss such as the least of two
// critics sends the gradient of each row through one of them.
func (l level) inputGrad(w *Workspace, p *product, dx, dy *Matrix) {
	if p.a.set(dy, false); dy.Rows*dy.Cols*dx.Cols <= sparseWork || (dy.Rows-w.nonzero(dy))*dy.Cols*dx.Cols <= sparseWork {
		p.c = *dx
		l.product(w, p)
		return
	}
	n := len(w.rows)
	if need := n * (dy.Cols + dx.Cols); cap(w.sparse) < need {
		w.sparse = make([]float32, need)
	}
	a := Matrix{n, dy.Cols, dy.Cols, w.sparse[:n*dy.Cols]}
	p.c = Matrix{n, dx.Cols, dx.Cols, w.sparse[n*dy.Cols : n*(dy.Cols+dx.Cols)]}
	for i, row := range w.rows {
		copy(a.Row(i), dy.Row(row))
	}
	p.a.set(&a, false)
	l.product(w, p)
	for i := range dx.Rows {
		clear(dx.Row(i))
	}
	for i, row := range w.rows {
		copy(dx.Row(row), p.c.Row(i))
	}
}

// nonzero leaves the rows of m that are not all zero in w.rows, and returns their number.
func (w *Workspace) nonzero(m *Matrix) int {
	w.rows = w.rows[:0]
	for i := range m.Rows {
		for _, x := range m.Row(i) {
			if x != 0 {
				w.rows = append(w.rows, i)
				break
			}
		}
	}
	return len(w.rows)
}

// addColumns adds the sum of each column of m to dst: a product with a row of
// ones.
func (l level) addColumns(w *Workspace, dst []float32, m *Matrix) {
	if m.empty() {
		return
	}
	w.unit[0] = 1
	var p product
	p.c, p.mode = Matrix{1, len(dst), len(dst), dst}, modeAdd
	p.a = operand{data: w.unit[:], rows: 1, cols: m.Rows}
	p.b.set(m, false)
	l.product(w, &p)
}

// activationGrad multiplies dy by the derivative of act where it gave y.
func (l level) activationGrad(dy, y *Matrix, act Activation) {
	if act == ActIdentity {
		return
	}
	if dy.dense() && y.dense() {
		l.grad(dy.all(), y.all(), act)
		return
	}
	for i := range dy.Rows {
		l.grad(dy.Row(i), y.Row(i), act)
	}
}

func (l level) grad(dy, y []float32, act Activation) {
	if act == ActReLU {
		l.reluGrad(dy, y)
	} else {
		l.tanhGrad(dy, y)
	}
}
