package graph

import (
	"fmt"
	"slices"
)

// Dense is x weight + bias: x of shape [in], weight [in, out], bias [out].
func (v Value) Dense(weight, bias Value) Value {
	w := weight.Shape()
	v.want(Dense, len(v.Shape()) == 1 && len(w) == 2 && w[0] == v.Shape()[0] && slices.Equal(bias.Shape(), w[1:]), weight, bias)
	return v.add(Node{Op: Dense, Shape: w[1:]}, weight, bias)
}

// MatMul multiplies the last dimension of x, [..., in], by weight, [in, out].
func (v Value) MatMul(weight Value) Value {
	x, w := v.Shape(), weight.Shape()
	v.want(MatMul, len(x) > 0 && len(w) == 2 && w[0] == x[len(x)-1], weight)
	return v.add(Node{Op: MatMul, Shape: append(slices.Clone(x[:len(x)-1]), w[1])}, weight)
}

// Conv returns a convolution of images, [height, width, in], with weight, [kernel, kernel, in, out], and bias,
// [out], whose window moves by stride and stays inside of the image.
func (v Value) Conv(weight, bias Value, stride int) Value {
	x, w := v.Shape(), weight.Shape()
	v.want(Conv, len(x) == 3 && len(w) == 4 && w[0] == w[1] && w[2] == x[2] && w[0] <= min(x[0], x[1]) &&
		slices.Equal(bias.Shape(), w[3:]) && stride > 0, weight, bias)
	return v.add(Node{Op: Conv, Ints: []int{stride}, Shape: []int{(x[0]-w[0])/stride + 1, (x[1]-w[0])/stride + 1, w[3]}}, weight, bias)
}

// LayerNorm brings each row, [n], to mean 0 and variance 1, multiplies by weight and adds bias, [n] both:
// (x - mean) / sqrt(variance + epsilon) * weight + bias.
func (v Value) LayerNorm(weight, bias Value, epsilon float32) Value {
	x := v.Shape()
	v.want(LayerNorm, len(x) == 1 && slices.Equal(weight.Shape(), x) && slices.Equal(bias.Shape(), x), weight, bias)
	return v.add(Node{Op: LayerNorm, Shape: x, Floats: []float32{epsilon}}, weight, bias)
}

// Lookup takes the row of table, [count, width], whose number is x, [1]: a whole number from 0 to count-1.
func (v Value) Lookup(table Value) Value {
	v.want(Lookup, slices.Equal(v.Shape(), []int{1}) && len(table.Shape()) == 2, table)
	return v.add(Node{Op: Lookup, Shape: table.Shape()[1:]}, table)
}

// ReLU is max(x, 0).
func (v Value) ReLU() Value { return v.same(ReLU) }

// Tanh returns the hyperbolic tangent.
func (v Value) Tanh() Value { return v.same(Tanh) }

// Sigmoid is 1 / (1 + exp(-x)).
func (v Value) Sigmoid() Value { return v.same(Sigmoid) }

// Softmax is exp(x) over the sum of exp along the last dimension.
func (v Value) Softmax() Value {
	v.want(Softmax, len(v.Shape()) > 0)
	return v.same(Softmax)
}

// Add is x + y.
func (v Value) Add(y Value) Value { return v.binary(Add, y) }

// Sub is x - y.
func (v Value) Sub(y Value) Value { return v.binary(Sub, y) }

// Mul is x * y.
func (v Value) Mul(y Value) Value { return v.binary(Mul, y) }

// Min returns the lesser of x and y.
func (v Value) Min(y Value) Value { return v.binary(Min, y) }

// Max returns the greater of x and y.
func (v Value) Max(y Value) Value { return v.binary(Max, y) }

// Scale multiplies by a number.
func (v Value) Scale(x float32) Value { return v.same(Scale, x) }

// Shift adds a number.
func (v Value) Shift(x float32) Value { return v.same(Shift, x) }

// Clip is x between low and high, and the nearer of them outside.
func (v Value) Clip(low, high float32) Value { return v.same(Clip, low, high) }

// Mean returns the mean over a dimension of a row, counted from 0, which becomes 1.
func (v Value) Mean(dimension int) Value {
	v.want(Mean, dimension >= 0 && dimension < len(v.Shape()))
	shape := slices.Clone(v.Shape())
	shape[dimension] = 1
	return v.add(Node{Op: Mean, Shape: shape, Ints: []int{dimension}})
}

// Slice takes the elements from..to-1 of each row, [n]. A slice that is one operand of a [Value.Concat] is that operand.
func (v Value) Slice(from, to int) Value {
	x := v.Shape()
	v.want(Slice, len(x) == 1 && 0 <= from && from < to && to <= x[0])
	if n := v.node(); n.Op == Concat {
		at := 0
		for _, in := range n.In {
			end := at + v.g.Nodes[in].Size()
			if at == from && end == to {
				return Value{v.g, in}
			}
			at = end
		}
	}
	return v.add(Node{Op: Slice, Kind: v.node().Kind, Shape: []int{to - from}, Ints: []int{from, to}})
}

// Concat puts others behind the elements of each row: all have one dimension and one kind.
func (v Value) Concat(others ...Value) Value {
	size := 0
	for _, o := range append([]Value{v}, others...) {
		v.want(Concat, len(o.Shape()) == 1 && o.node().Kind == v.node().Kind && o.node().Op != Constant, others...)
		size += o.Shape()[0]
	}
	return v.add(Node{Op: Concat, Kind: v.node().Kind, Shape: []int{size}}, others...)
}

// Reshape arranges the elements of each row in another shape; none at all is a single number.
func (v Value) Reshape(shape ...int) Value {
	checkShape("Reshape", shape)
	v.want(Reshape, product(shape) == v.node().Size())
	if slices.Equal(shape, v.Shape()) {
		return v
	}
	return v.add(Node{Op: Reshape, Kind: v.node().Kind, Shape: shape})
}

// Repeat returns the constant v for each row of rows.
func (v Value) Repeat(rows Value) Value {
	v.g.mustOwn("Repeat", rows)
	if v.node().Op != Constant || rows.node().Op == Constant {
		panic("graph: Repeat of what is no constant, or by what has no rows")
	}
	return v.g.push(Node{Op: Repeat, Shape: v.Shape(), In: []int{v.id, rows.id}})
}

// ArgMax returns the index of the greatest element along the last dimension, which becomes 1, of equal ones the
// first. Its kind is Int64.
func (v Value) ArgMax() Value {
	x := v.Shape()
	v.want(ArgMax, len(x) > 0)
	return v.add(Node{Op: ArgMax, Kind: Int64, Shape: append(slices.Clone(x[:len(x)-1]), 1)})
}

// Offset adds a whole number to a value of kind Int64.
func (v Value) Offset(by int) Value {
	if v.node().Kind != Int64 {
		panic("graph: Offset of a value that is not Int64")
	}
	return v.g.push(Node{Op: Offset, Kind: Int64, In: []int{v.id}, Shape: v.Shape(), Ints: []int{by}})
}

// same adds an operation whose result has the shape of x.
func (v Value) same(op Op, floats ...float32) Value {
	v.want(op, true)
	return v.add(Node{Op: op, Shape: v.Shape(), Floats: floats})
}

// binary adds an operation of two values. The shape of y, without leading ones, must be the end of that of x.
func (v Value) binary(op Op, y Value) Value {
	x, tail := v.Shape(), y.Shape()
	for len(tail) > 0 && tail[0] == 1 {
		tail = tail[1:]
	}
	ranks := len(y.Shape()) == len(x) || len(y.Shape()) < len(x) && y.node().Op == Constant
	v.want(op, ranks && slices.Equal(x[len(x)-len(tail):], tail), y)
	return v.add(Node{Op: op, Shape: x}, y)
}

// add pushes an operation on v and others.
func (v Value) add(n Node, others ...Value) Value {
	n.In = append(n.In, v.id)
	for _, o := range others {
		n.In = append(n.In, o.id)
	}
	return v.g.push(n)
}

// want panics unless the operands fit: v has rows, all are of one graph, weights are constants, and only
// operations that move elements take types other than float32.
func (v Value) want(op Op, ok bool, others ...Value) {
	moves := op == Slice || op == Concat || op == Reshape
	weights := op == Dense || op == MatMul || op == Conv || op == LayerNorm || op == Lookup
	ok = ok && v.node().Op != Constant && (moves || v.node().Kind == Float32)
	text := fmt.Sprint(v.Shape())
	for _, o := range others {
		v.g.mustOwn(op.String(), o)
		ok = ok && (moves || o.node().Kind == Float32) && (!weights || o.node().Op == Constant)
		text += fmt.Sprint(", ", o.Shape())
	}
	if !ok {
		panic(fmt.Sprintf("graph: %v of %s", op, text))
	}
}
