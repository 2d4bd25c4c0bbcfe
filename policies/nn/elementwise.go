package nn

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Add is v + w. As in all operations on two values, one of them may have one row, one
// column, or both: it is repeated to the shape of the other one.
func (v Value) Add(w Value) Value { return v.binary(add, w) }

// Sub is v - w.
func (v Value) Sub(w Value) Value { return v.binary(sub, w) }

// Mul returns the product of the elements.
func (v Value) Mul(w Value) Value { return v.binary(mul, w) }

// Div returns the quotient of the elements.
func (v Value) Div(w Value) Value { return v.binary(div, w) }

// Min returns the lesser of the elements. Where they are equal, the gradient goes to v.
func (v Value) Min(w Value) Value { return v.binary(least, w) }

// Max returns the greater of the elements. Where they are equal, the gradient goes to v.
func (v Value) Max(w Value) Value { return v.binary(most, w) }

// AddNumber is v + x.
func (v Value) AddNumber(x float32) Value { return v.unary(shift, x, 0) }

// Scale is v * x.
func (v Value) Scale(x float32) Value { return v.unary(scale, x, 0) }

// Neg is -v.
func (v Value) Neg() Value { return v.unary(scale, -1, 0) }

// Square is v * v.
func (v Value) Square() Value { return v.unary(square, 0, 0) }

// Sqrt returns the square root. Its derivative at 0 is taken as 0.
func (v Value) Sqrt() Value { return v.unary(root, 0, 0) }

// Abs returns the absolute value. Its derivative at 0 is taken as 0.
func (v Value) Abs() Value { return v.unary(absolute, 0, 0) }

// Exp is e to the power of v.
func (v Value) Exp() Value { return v.unary(exponential, 0, 0) }

// Log returns the natural logarithm.
func (v Value) Log() Value { return v.unary(logarithm, 0, 0) }

// Tanh returns the hyperbolic tangent.
func (v Value) Tanh() Value { return v.unary(hyperbolic, 0, 0) }

// Sigmoid is 1 / (1 + exp(-v)).
func (v Value) Sigmoid() Value { return v.unary(logistic, 0, 0) }

// Softplus is log(1 + exp(v)), computed without overflow.
func (v Value) Softplus() Value { return v.unary(softplus, 0, 0) }

// ReLU is max(v, 0). Its derivative at 0 is 0.
func (v Value) ReLU() Value { return v.unary(rectifier, 0, 0) }

// Clamp limits the elements to [low, high]. Outside of it the derivative is 0; on its bounds it
// is 1, as in PyTorch.
func (v Value) Clamp(low, high float32) Value { return v.unary(clamp, low, high) }

// Huber is v*v/2 where |v| <= delta, and delta*(|v| - delta/2) elsewhere: a square whose
// derivative is clipped to +-delta. P. J. Huber, "Robust Estimation of a Location Parameter"
// (1964); with delta 1 it is PyTorch's smooth_l1_loss.
func (v Value) Huber(delta float32) Value { return v.unary(huber, delta, 0) }

// Detach is v as a constant: no gradient flows through it.
func (v Value) Detach() Value {
	n := v.node()
	return v.t.push(node{rows: n.rows, cols: n.cols, data: n.data})
}

// unaryOp is an operation on each element of one value.
type unaryOp uint8

const (
	shift unaryOp = iota
	scale
	square
	root
	absolute
	exponential
	logarithm
	hyperbolic
	logistic
	softplus
	rectifier
	clamp
	huber
)

func (v Value) unary(op unaryOp, x, y float32) Value {
	a := v.node()
	out, n := v.t.result(op, a.rows, a.cols, v, v)
	n.x, n.y = x, y
	a = v.node() // the record may have moved
	op.forward(n, a.data)
	return out
}

func (op unaryOp) forward(n *node, src []float32) {
	dst := n.data[:len(src)]
	x, y := n.x, n.y
	switch op {
	case shift:
		for i, v := range src {
			dst[i] = v + x
		}
	case scale:
		kernels.Scale(dst, src, x)
	case square:
		kernels.Mul(dst, src, src)
	case exponential:
		kernels.Exp(dst, src)
	case logarithm:
		kernels.Log(dst, src)
	case hyperbolic:
		kernels.Tanh(dst, src)
	case logistic:
		kernels.Sigmoid(dst, src)
	case softplus:
		kernels.Softplus(dst, src)
	case rectifier:
		kernels.ReLU(dst, src)
	case clamp:
		kernels.Clamp(dst, src, x, y)
	default:
		for i, v := range src {
			dst[i] = op.slow(v, x)
		}
	}
}

// slow computes one element of the operations without a specialised loop.
func (op unaryOp) slow(v, x float32) float32 {
	f := float64(v)
	switch op {
	case root:
		return float32(math.Sqrt(f))
	case absolute:
		return float32(math.Abs(f))
	case huber:
		if a := float32(math.Abs(f)); a > x {
			return x * (a - x/2)
		}
		return v * v / 2
	}
	panic(fmt.Sprintf("nn: unary operation %d", op))
}

func (op unaryOp) backward(t *Tape, n *node) {
	src := t.nodes[n.a].data
	g, out := n.grad[:len(src)], n.data[:len(src)]
	d := t.gradOf(n.a)[:len(src)]
	x, y := n.x, n.y
	switch op {
	case shift:
		kernels.Add(d, d, g)
	case scale:
		kernels.Axpy(d, g, x)
	case square:
		for i, v := range g {
			d[i] += 2 * v * src[i]
		}
	case exponential:
		kernels.MulAdd(d, g, out)
	case logarithm:
		kernels.DivAdd(d, g, src)
	case hyperbolic:
		kernels.TanhBackward(d, g, out)
	case logistic:
		kernels.SigmoidBackward(d, g, out)
	case softplus:
		kernels.SoftplusBackward(d, g, src)
	case rectifier:
		kernels.ReLUBackward(d, g, out)
	case clamp:
		kernels.ClampBackward(d, g, src, x, y)
	case huber:
		for i, v := range src {
			d[i] += g[i] * min(max(v, -x), x)
		}
	default:
		for i, v := range g {
			d[i] += v * op.slope(src[i], out[i])
		}
	}
}

// slope returns the derivative at x, where the result is y.
func (op unaryOp) slope(x, y float32) float32 {
	switch op {
	case root:
		if y == 0 {
			return 0
		}
		return 0.5 / y
	case absolute:
		switch {
		case x > 0:
			return 1
		case x < 0:
			return -1
		}
		return 0
	}
	panic(fmt.Sprintf("nn: unary operation %d", op))
}

// binaryOp is an operation on the elements of two values.
type binaryOp uint8

const (
	add binaryOp = iota
	sub
	mul
	div
	least
	most
)

func (v Value) binary(op binaryOp, w Value) Value {
	a, b := v.node(), w.node()
	if v.t != w.t {
		panic("nn: values of two tapes")
	}
	fits := func(x, y int) bool { return x == y || x == 1 || y == 1 }
	if !fits(a.rows, b.rows) || !fits(a.cols, b.cols) {
		panic(fmt.Sprintf("nn: values of %d x %d and %d x %d do not fit", a.rows, a.cols, b.rows, b.cols))
	}
	out, n := v.t.result(op, max(a.rows, b.rows)*min(a.rows, b.rows, 1), max(a.cols, b.cols)*min(a.cols, b.cols, 1), v, w)
	a, b = v.node(), w.node() // the record may have moved
	if len(a.data) == len(n.data) && len(b.data) == len(n.data) {
		op.forward(n.data, a.data, b.data)
		return out
	}
	if (op == add || op == sub || op == mul) && a.cols == b.cols && a.cols > 1 { // one of them is a row
		for i := range n.rows {
			op.forward(n.rowOf(n.data, i), a.rowOf(a.data, i), b.rowOf(b.data, i))
		}
		return out
	}
	if op == mul && a.cols == 1 && b.cols > 1 { // a column, or a number
		for i := range n.rows {
			kernels.Scale(n.rowOf(n.data, i), b.rowOf(b.data, i), a.rowOf(a.data, i)[0])
		}
		return out
	}
	as, bs := a.strides(n), b.strides(n)
	for i := range n.rows {
		for j := range n.cols {
			n.data[i*n.cols+j] = op.of(a.data[i*as.row+j*as.col], b.data[i*bs.row+j*bs.col])
		}
	}
	return out
}

// rowOf returns a row of data of the node's shape. A node of one row repeats it.
func (n *node) rowOf(data []float32, i int) []float32 {
	if n.rows == 1 {
		return data
	}
	return data[i*n.cols : (i+1)*n.cols]
}

// strides are the steps in the data of an operand for a step in the result.
type strides struct{ row, col int }

func (n *node) strides(result *node) strides {
	s := strides{n.cols, 1}
	if n.rows != result.rows {
		s.row = 0
	}
	if n.cols != result.cols {
		s.col = 0
	}
	return s
}

func (op binaryOp) forward(dst, a, b []float32) {
	a, b = a[:len(dst)], b[:len(dst)]
	switch op {
	case add:
		kernels.Add(dst, a, b)
	case sub:
		kernels.Sub(dst, a, b)
	case mul:
		kernels.Mul(dst, a, b)
	case div:
		kernels.Div(dst, a, b)
	case least:
		kernels.Min(dst, a, b)
	case most:
		kernels.Max(dst, a, b)
	}
}

func (op binaryOp) of(a, b float32) float32 {
	switch op {
	case add:
		return a + b
	case sub:
		return a - b
	case mul:
		return a * b
	case div:
		return a / b
	case least:
		return min(a, b)
	case most:
		return max(a, b)
	}
	panic(fmt.Sprintf("nn: binary operation %d", op))
}

// slopes returns the derivatives by both operands.
func (op binaryOp) slopes(a, b float32) (da, db float32) {
	switch op {
	case add:
		return 1, 1
	case sub:
		return 1, -1
	case mul:
		return b, a
	case div:
		return 1 / b, -a / (b * b)
	case least:
		if a <= b {
			return 1, 0
		}
		return 0, 1
	case most:
		if a >= b {
			return 1, 0
		}
		return 0, 1
	}
	panic(fmt.Sprintf("nn: binary operation %d", op))
}

func (op binaryOp) backward(t *Tape, n *node) {
	a, b := &t.nodes[n.a], &t.nodes[n.b]
	if (op == add || op == sub || op == mul) && a.cols == b.cols && (a.rows == b.rows || a.cols > 1) {
		op.backwardRows(t, n)
		return
	}
	var none [1]float32
	da, db := none[:], none[:]
	as, bs := a.strides(n), b.strides(n)
	ga, gb := as, bs // of the gradients; an operand that needs none has one cell for them
	if a.needs {
		da = t.gradOf(n.a)
	} else {
		ga = strides{}
	}
	if b.needs {
		db = t.gradOf(n.b)
	} else {
		gb = strides{}
	}
	for i := range n.rows {
		for j, g := range n.grad[i*n.cols : (i+1)*n.cols] {
			x, y := op.slopes(a.data[i*as.row+j*as.col], b.data[i*bs.row+j*bs.col])
			da[i*ga.row+j*ga.col] += g * x
			db[i*gb.row+j*gb.col] += g * y
		}
	}
}

// backwardRows is backward for sums, differences and products of operands with as many columns. It adds
// the same numbers in the same order, without a choice for each of them. Operands of one shape are as
// one row.
func (op binaryOp) backwardRows(t *Tape, n *node) {
	a, b := &t.nodes[n.a], &t.nodes[n.b]
	width := n.cols
	if a.rows == b.rows {
		width = len(n.grad)
	}
	for at := 0; at < len(n.grad); at += width {
		g := n.grad[at : at+width]
		part := func(data []float32) []float32 { return data[at%len(data):][:width] }
		if a.needs {
			d := part(t.gradOf(n.a))
			if op == mul {
				addProduct(d, g, part(b.data))
			} else {
				kernels.Add(d, d, g)
			}
		}
		if !b.needs {
			continue
		}
		switch d := part(t.gradOf(n.b)); op {
		case mul:
			addProduct(d, g, part(a.data))
		case sub:
			kernels.Sub(d, d, g)
		default:
			kernels.Add(d, d, g)
		}
	}
}

// addProduct adds x * y to d, with both roundings.
func addProduct(d, x, y []float32) {
	x, y = x[:len(d)], y[:len(d)]
	for i, v := range x {
		d[i] += v * y[i]
	}
}
