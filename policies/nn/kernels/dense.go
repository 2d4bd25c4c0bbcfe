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
	best.dense(w, y, x, weight, bias, act)
}

func (l level) dense(w *Workspace, y, x, weight Matrix, bias []float32, act Activation) {
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
	p.c, p.bias, p.mode = y, bias, mode
	p.a.set(&x, false)
	p.b.set(&weight, false)
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
		p.c, p.mode = dx, 0
		p.a.set(&dy, false)
		p.b.set(&weight, true)
		l.product(w, &p)
	}
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
