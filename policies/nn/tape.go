package nn

import (
	"fmt"
	"slices"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Tape records the operations on its values, and computes gradients from the record by
// reverse-mode automatic differentiation.
//
//	var t nn.Tape
//	t.Train(net)                                     // gradients for the weights of net
//	q := net.Apply(&t, t.Const(64, 4, obs))          // 64 x actions
//	loss := q.Pick(actions).Sub(t.Column(targets)).Huber(1).Mean()
//	t.Backward(loss)                                 // adds to net.Grad()
//	t.Reset()                                        // gives the memory back, to be used again
//
// A value is a matrix: a batch has one row for each element. The record and all results lie in
// memory that belongs to the tape; Reset keeps it, so that recording the same operations
// again allocates nothing. [Trainer] makes these calls, and the optimiser's step.
//
// The zero value is ready for use. Wrong shapes panic. A tape is not safe for concurrent use.
//
// A. Griewank and A. Walther, "Evaluating Derivatives" (2008), chapter 3.
type Tape struct {
	nodes  []node
	memory arena
	work   kernels.Workspace
	train  []*Net // whose weights get gradients
}

// Value is a matrix on a tape: a result, or data from outside. The zero value is none.
type Value struct {
	t  *Tape
	id int32
}

// node is a value and how it came about.
type node struct {
	rows, cols int
	data       []float32
	grad       []float32 // nil: nothing has been added to it yet
	needs      bool      // a gradient is wanted, here or further back
	op         operation // nil: data from outside
	a, b       int32     // operands
	x, y       float32   // numbers of the operation
	aux        []float32 // data of the operation, not differentiated
}

// operation is how the gradient of a result reaches its operands.
type operation interface {
	// backward adds to the gradients of the operands, as far as they need it. The gradient of
	// the result is in n.grad.
	backward(t *Tape, n *node)
}

// Reset forgets all values. The next values use their memory again.
func (t *Tape) Reset() {
	t.nodes = t.nodes[:0]
	t.memory.reset()
}

// Train names the networks whose weights get gradients; Backward adds to those. The weights
// of other networks are constants, through which gradients still flow to their inputs.
func (t *Tape) Train(nets ...*Net) { t.train = append(t.train[:0], nets...) }

// trains reports whether the weights of net get gradients.
func (t *Tape) trains(net *Net) bool { return slices.Contains(t.train, net) }

// Const returns a matrix from outside, in row-major order. The data is not copied, and must stay as
// it is until Reset.
func (t *Tape) Const(rows, cols int, data []float32) Value {
	if len(data) != rows*cols {
		panic(fmt.Sprintf("nn: constant of %d x %d with %d values", rows, cols, len(data)))
	}
	v, n := t.next()
	n.rows, n.cols, n.data = rows, cols, data
	return v
}

// Column returns a constant with one column and a row for each number.
func (t *Tape) Column(data []float32) Value { return t.Const(len(data), 1, data) }

// Variable returns a constant for which Backward computes a gradient: see [Value.Grad].
func (t *Tape) Variable(rows, cols int, data []float32) Value {
	v := t.Const(rows, cols, data)
	t.nodes[v.id].needs = true
	return v
}

// Scalar returns a constant of one number.
func (t *Tape) Scalar(x float32) Value {
	data := t.memory.take(1)
	data[0] = x
	return t.push(node{rows: 1, cols: 1, data: data})
}

// Zeros returns a constant in the tape's memory. Its data may be written, by [Value.Data], before the
// first operation reads it.
func (t *Tape) Zeros(rows, cols int) Value {
	data := t.memory.take(rows * cols)
	clear(data)
	return t.push(node{rows: rows, cols: cols, data: data})
}

// Use lets workers take part in the large products on the tape, while they are started.
func (t *Tape) Use(w *Workers) { t.work.Workers = w }

func (t *Tape) push(n node) Value {
	t.nodes = append(t.nodes, n)
	return Value{t, int32(len(t.nodes) - 1)}
}

// result returns a new value of undefined data with operands a and b.
func (t *Tape) result(op operation, rows, cols int, a, b Value) (Value, *node) {
	needs := t.nodes[a.id].needs || t.nodes[b.id].needs
	v, n := t.next()
	n.rows, n.cols, n.data, n.needs, n.op, n.a, n.b = rows, cols, t.memory.take(rows*cols), needs, op, a.id, b.id
	return v, n
}

// next returns a new value without anything. Its node is filled in place: to copy one takes as long as a small layer.
func (t *Tape) next() (Value, *node) {
	id := len(t.nodes)
	if id == cap(t.nodes) {
		t.nodes = slices.Grow(t.nodes, 1)
	}
	t.nodes = t.nodes[:id+1]
	n := &t.nodes[id]
	*n = node{}
	return Value{t, int32(id)}, n
}

// Backward adds the derivatives of loss, one number, to the gradients of the weights of the
// networks that train, and of the variables. It may be called once for each loss; it adds to
// gradients of earlier calls.
func (t *Tape) Backward(loss Value) {
	n := loss.node()
	if n.rows != 1 || n.cols != 1 {
		panic(fmt.Sprintf("nn: backward from a value of %d x %d, want one number", n.rows, n.cols))
	}
	one := t.memory.take(1)
	one[0] = 1
	t.BackwardFrom(loss, one)
}

// BackwardFrom is Backward from a value of any shape, given the derivative of the loss by
// each of its elements in grad.
func (t *Tape) BackwardFrom(v Value, grad []float32) {
	if last := v.node(); len(grad) != len(last.data) {
		panic(fmt.Sprintf("nn: %d derivatives of a value of %d x %d", len(grad), last.rows, last.cols))
	}
	for i := range t.nodes[:v.id+1] {
		t.nodes[i].grad = nil
	}
	t.nodes[v.id].grad = grad
	for i := v.id; i >= 0; i-- {
		if n := &t.nodes[i]; n.needs && n.grad != nil && n.op != nil {
			n.op.backward(t, n)
		}
	}
}

// needs reports whether operand id needs a gradient.
func (t *Tape) needs(id int32) bool { return t.nodes[id].needs }

// gradOf returns the gradient of operand id, to be added to.
func (t *Tape) gradOf(id int32) []float32 {
	n := &t.nodes[id]
	if n.grad == nil {
		n.grad = t.memory.take(len(n.data))
		clear(n.grad)
	}
	return n.grad
}

// freshGrad is gradOf for an operation that can write the first gradient rather than add to
// zeros: fresh says that the content is undefined.
func (t *Tape) freshGrad(id int32) (grad []float32, fresh bool) {
	n := &t.nodes[id]
	if n.grad != nil {
		return n.grad, false
	}
	n.grad = t.memory.take(len(n.data))
	return n.grad, true
}

func (v Value) node() *node {
	if v.t == nil {
		panic("nn: value that is on no tape")
	}
	return &v.t.nodes[v.id]
}

// Tape returns the tape of the value.
func (v Value) Tape() *Tape {
	v.node() // panics for none
	return v.t
}

// Rows returns the number of rows.
func (v Value) Rows() int { return v.node().rows }

// Cols returns the number of columns.
func (v Value) Cols() int { return v.node().cols }

// Data returns the content in row-major order: a view, valid until the tape is reset.
func (v Value) Data() []float32 { return v.node().data }

// Number returns the content of a value that is one number.
func (v Value) Number() float32 {
	n := v.node()
	if len(n.data) != 1 {
		panic(fmt.Sprintf("nn: value of %d x %d is not one number", n.rows, n.cols))
	}
	return n.data[0]
}

// Grad returns the gradient after Backward: a view, or nil if the loss does not depend on the value.
func (v Value) Grad() []float32 { return v.node().grad }

// matrix returns the content as an operand of products.
func (n *node) matrix() Matrix { return Matrix{n.rows, n.cols, n.data} }

// arena hands out memory that is given back as a whole.
type arena struct {
	block []float32
	used  int
	total int // taken since the last reset, in other blocks too
}

// arenaLine is the granularity in values: each result begins at its own cache line.
const arenaLine = 16

func (a *arena) take(n int) []float32 {
	size := (n + arenaLine - 1) &^ (arenaLine - 1)
	a.total += size
	if a.used+size > len(a.block) {
		a.block, a.used = make([]float32, max(2*len(a.block), size, 1024)), 0
	}
	at := a.used
	a.used += size
	return a.block[at : at+n : at+n]
}

// reset makes one block of the size that was needed, so that the next time finds it.
func (a *arena) reset() {
	if a.total > len(a.block) {
		a.block = make([]float32, a.total)
	}
	a.used, a.total = 0, 0
}
