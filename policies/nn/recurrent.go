package nn

import (
	"fmt"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Recurrent is a layer that remembers: [LSTM], [GRU], or one of a program's own. A network that
// has one is applied by [Net.Unroll] and [Net.Step].
type Recurrent interface {
	Layer
	// StateSize is the number of columns of the state, known after Build.
	StateSize() int
	// Unroll computes the outputs y and the state next behind the last step; see [Net.Unroll].
	Unroll(t *Tape, x, state Value, reset []bool) (y, next Value)
}

// StateSize returns the number of columns of the network's state: those of its recurrent layers, one
// after the other. It is 0 without a recurrent layer.
func (n *Net) StateSize() int {
	size := 0
	for _, l := range n.layers {
		if r, ok := l.(Recurrent); ok {
			size += r.StateSize()
		}
	}
	return size
}

// Unroll computes the outputs of several steps of several sequences, to learn from them. Each
// row of state, sequences x [Net.StateSize], is the state before the first step of a sequence.
// The rows of x and y are the steps, sequence by sequence: with T steps, row s*T+t is step t of
// sequence s. Where reset is true for a row, a new episode begins there, and the state before
// it is zero instead; a nil reset is false everywhere. The result next is the state after the
// last step of each sequence. Gradients flow through time, up to the resets, and to the state.
//
// One step is an Unroll with as many rows as sequences. A network without recurrent layers has
// no state (sequences x 0) and computes as in Apply, so that a policy can be written for both.
func (n *Net) Unroll(t *Tape, x, state Value, reset []bool) (y, next Value) {
	size := n.StateSize()
	x.node().matrix().check(n.in)
	if got := state.Cols(); got != size {
		panic(fmt.Sprintf("nn: state of %d x %d, want %d columns", state.Rows(), got, size))
	}
	checkSequences(x.Rows(), state.Rows(), reset)
	next = state
	from := 0
	for _, l := range n.layers {
		r, ok := l.(Recurrent)
		if !ok {
			x = l.Apply(t, x)
			continue
		}
		own, to := state, from+r.StateSize()
		if r.StateSize() != size {
			own = state.Columns(from, to)
		}
		var after Value
		x, after = r.Unroll(t, x, own, reset)
		if from == 0 {
			next = after
		} else {
			next = next.Beside(after)
		}
		from = to
	}
	return x, next
}

func checkSequences(rows, sequences int, reset []bool) {
	if sequences == 0 && rows != 0 || sequences > 0 && (rows == 0 || rows%sequences != 0) {
		panic(fmt.Sprintf("nn: %d rows in %d sequences", rows, sequences))
	}
	if reset != nil && len(reset) != rows {
		panic(fmt.Sprintf("nn: %d resets of %d rows", len(reset), rows))
	}
}

// Step computes the outputs of one step, one row for each sequence, without a tape of the
// caller's: to act. It replaces state, rows x [Net.StateSize] values, by the state after the
// step. Where reset is true, an episode begins, and the state before the step counts as zero,
// whatever it holds; a nil reset is false everywhere. The result is overwritten by the next Step
// or Forward.
func (n *Net) Step(x Matrix, state []float32, reset []bool) Matrix {
	x.check(n.in)
	t := &n.eval
	t.Reset()
	y, next := n.Unroll(t, t.Const(x.Rows, x.Cols, x.Data), t.Const(x.Rows, n.StateSize(), state), reset)
	copy(state, next.Data())
	return y.node().matrix()
}

// recurrent is the common part of LSTM and GRU: the products, the order of the steps, and
// the resets. The first columns of the state are the output.
type recurrent struct {
	name   string
	rule   rule
	hidden int
	init   Init
	input  dense  // of x, for all steps at once
	weight *Param // of the output of the step before
	bias   *Param
}

// rule is one step of one sequence. x and h are the contributions of the input and of the
// output before to the gates, and saved is memory for the backward pass.
type rule interface {
	exporter

	// sizes are the columns of gates, state and saved for a hidden layer of that many units.
	sizes(hidden int) (gates, state, saved int)
	// forward writes the state after the step, given the one before.
	forward(next, saved, x, h, before []float32)
	// backward adds to the derivatives by x, writes those by h, and turns d, those by the state
	// after the step, into those by the state before (without what flows through h).
	backward(dx, dh, d, saved, before []float32)
}

func newRecurrent(name string, r rule, hidden int, init Init) Layer {
	if hidden <= 0 {
		panic(fmt.Sprintf("nn: %s of %d columns", name, hidden))
	}
	return &recurrent{name: name, rule: r, hidden: hidden, init: init}
}

func (r *recurrent) StateSize() int {
	_, size, _ := r.rule.sizes(r.hidden)
	return size
}

func (r *recurrent) Build(b *Builder, in int) int {
	gates, _, _ := r.rule.sizes(r.hidden)
	weights, biases := r.init, Init(Zeros)
	if weights == nil {
		weights = hiddenUniform(r.hidden)
		biases = weights
	}
	r.input = dense{out: gates}
	r.input.weight = b.Param(r.name, "weight_input", []int{in, gates}, weights)
	r.weight = b.Param(r.name, "weight_hidden", []int{r.hidden, gates}, weights)
	r.input.bias = b.Param(r.name, "bias_input", []int{gates}, biases)
	r.bias = b.Param(r.name, "bias_hidden", []int{gates}, biases)
	b.image = image{}
	return r.hidden
}

func (r *recurrent) Apply(*Tape, Value) Value {
	panic(fmt.Sprintf("nn: a network with %s needs its state: call Unroll or Step", r.name))
}

func (r *recurrent) Unroll(t *Tape, x, state Value, reset []bool) (y, next Value) {
	checkSequences(x.Rows(), state.Rows(), reset)
	_, size, saved := r.rule.sizes(r.hidden)
	x = r.input.Apply(t, x)
	states, n := t.result(r, x.Rows(), size, x, state) // after each step
	n.needs = n.needs || t.trains(r.weight.net)
	u := r.unrolled(t, n)
	n.aux = t.memory.take(n.rows * (1 + saved)) // a reset is 1 in the first part
	clear(n.aux[:n.rows])
	for i, yes := range reset {
		if yes {
			n.aux[i] = 1
		}
	}
	u.forward(t, n)
	steps := u.steps
	y = states
	if size != r.hidden {
		y = states.Columns(0, r.hidden)
	}
	next = states
	if steps != 1 {
		next = states.Reshape(state.Rows(), steps*size).Columns((steps-1)*size, steps*size)
	}
	return y, next
}

// unrolled is a pass over the steps of a batch.
type unrolled struct {
	*recurrent

	gates, size, saved int
	sequences, steps   int
	before, h          Matrix // of one step: states before it, and what they add to the gates
}

func (r *recurrent) unrolled(t *Tape, n *node) unrolled {
	u := unrolled{recurrent: r, sequences: t.nodes[n.b].rows}
	u.gates, u.size, u.saved = r.rule.sizes(r.hidden)
	u.steps = 1
	if u.sequences > 0 {
		u.steps = n.rows / u.sequences
	}
	u.before = Matrix{u.sequences, u.size, t.memory.take(u.sequences * u.size)}
	u.h = Matrix{u.sequences, u.gates, t.memory.take(u.sequences * u.gates)}
	return u
}

// at returns the row of a step of a sequence.
func (u *unrolled) at(sequence, step int) int { return sequence*u.steps + step }

// savedRow returns the memory of a row for the way back.
func (u *unrolled) savedRow(n *node, row int) []float32 {
	return n.aux[n.rows+row*u.saved:][:u.saved]
}

// gather writes the states before a step to dst: zero where an episode begins.
func (u *unrolled) gather(dst Matrix, t *Tape, n *node, step int) {
	states, first := n.matrix(), t.nodes[n.b].matrix()
	for s := range u.sequences {
		row := u.at(s, step)
		switch {
		case n.aux[row] != 0:
			clear(dst.Row(s))
		case step == 0:
			copy(dst.Row(s), first.Row(s))
		default:
			copy(dst.Row(s), states.Row(row-1))
		}
	}
}

// outputs returns the outputs in states, as an operand of products.
func (u *unrolled) outputs(states Matrix) kernels.Matrix {
	return kernels.Matrix{Rows: states.Rows, Cols: u.hidden, Stride: states.Cols, Data: states.Data}
}

func (u *unrolled) forward(t *Tape, n *node) {
	x, states := t.nodes[n.a].matrix(), n.matrix()
	for step := range u.steps {
		u.gather(u.before, t, n, step)
		kernels.Dense(&t.work, u.h.kernel(), u.outputs(u.before), u.weight.matrix().kernel(), u.bias.Value, kernels.ActIdentity)
		for s := range u.sequences {
			row := u.at(s, step)
			u.rule.forward(states.Row(row), u.savedRow(n, row), x.Row(row), u.h.Row(s), u.before.Row(s))
		}
	}
}

func (r *recurrent) backward(t *Tape, n *node) {
	u := r.unrolled(t, n)
	dx := Matrix{n.rows, u.gates, nil}
	if t.needs(n.a) {
		dx.Data = t.gradOf(n.a)
	} else {
		dx.Data = t.memory.take(n.rows * u.gates)
	}
	// One row for each step of each sequence, step by step, for one product at the end.
	before := Matrix{n.rows, u.size, t.memory.take(n.rows * u.size)}
	dh := Matrix{n.rows, u.gates, t.memory.take(n.rows * u.gates)}
	carry := u.backwardSteps(t, n, dx, dh, before)
	if t.trains(r.weight.net) {
		kernels.Gemm(&t.work, r.weight.as(r.weight.Grad).kernel(), 1, u.outputs(before), true, dh.kernel(), false)
		for i := range dh.Rows {
			for j, g := range dh.Row(i) {
				r.bias.Grad[j] += g
			}
		}
	}
	if t.needs(n.b) {
		for i, g := range t.gradOf(n.b) {
			t.nodes[n.b].grad[i] = g + carry.Data[i]
		}
	}
}

// backwardSteps goes back in time and returns the derivatives by the first states.
func (u *unrolled) backwardSteps(t *Tape, n *node, dx, dh, before Matrix) Matrix {
	dy := Matrix{n.rows, n.cols, n.grad}
	carry := Matrix{u.sequences, u.size, t.memory.take(u.sequences * u.size)}
	through := Matrix{u.sequences, u.hidden, t.memory.take(u.sequences * u.hidden)}
	clear(carry.Data)
	part := func(m Matrix, step int) Matrix { // of one step
		size := u.sequences * m.Cols
		return Matrix{u.sequences, m.Cols, m.Data[step*size : (step+1)*size]}
	}
	for step := u.steps - 1; step >= 0; step-- {
		before, dh := part(before, step), part(dh, step)
		u.gather(before, t, n, step)
		for s := range u.sequences {
			row, d := u.at(s, step), carry.Row(s)
			for j, g := range dy.Row(row) {
				d[j] += g
			}
			u.rule.backward(dx.Row(row), dh.Row(s), d, u.savedRow(n, row), before.Row(s))
		}
		kernels.Gemm(&t.work, through.kernel(), 0, dh.kernel(), false, u.weight.matrix().kernel(), true)
		for s := range u.sequences {
			d := carry.Row(s)
			if n.aux[u.at(s, step)] != 0 {
				clear(d)
				continue
			}
			for j, g := range through.Row(s) {
				d[j] += g
			}
		}
	}
	return carry
}
