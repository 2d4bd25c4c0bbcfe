package nn

import (
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Net is a feed-forward network: its layers one after the other.
type Net struct {
	in, out     int
	layers      []Layer
	params      []*Param
	value, grad []float32
	eval        Tape // of Forward
}

// New joins layers into a network with in input columns. The seed fixes the
// initial weights. Layers given to New must not be used again.
func New(in int, seed uint64, layers ...Layer) *Net {
	if in <= 0 || len(layers) == 0 {
		panic(fmt.Sprintf("nn: network of %d columns and %d layers", in, len(layers)))
	}
	n := &Net{in: in, out: in, layers: layers}
	b := &Builder{net: n, rng: rand.New(rand.NewPCG(seed, 0x6e6e))} // the stream of initial weights
	for i, l := range layers {
		b.index = i
		n.out = l.Build(b, n.out)
		if n.out != b.image.size() {
			b.image = image{}
		}
	}
	fuse(layers)
	n.allocate()
	for _, init := range b.inits {
		init()
	}
	return n
}

// allocate gives the weights their memory: views into one slice, and so for the gradients.
func (n *Net) allocate() {
	size := 0
	for _, p := range n.params {
		size += product(p.Shape)
	}
	n.value, n.grad = make([]float32, size), make([]float32, size)
	at := 0
	for _, p := range n.params {
		end := at + product(p.Shape)
		p.Value, p.Grad = n.value[at:end:end], n.grad[at:end:end]
		at = end
	}
}

// MLP returns the layers of a perceptron: for each hidden width a dense layer
// and an activation (ReLU or Tanh), then a dense layer of out columns. Hidden
// layers are filled by hidden, the last by last.
func MLP(widths []int, activation func() Layer, out int, hidden, last Init) []Layer {
	var layers []Layer
	for _, w := range widths {
		layers = append(layers, Dense(w, hidden), activation())
	}
	return append(layers, Dense(out, last))
}

// In returns the number of input columns.
func (n *Net) In() int { return n.in }

// Out returns the number of output columns.
func (n *Net) Out() int { return n.out }

// Size returns the number of weights.
func (n *Net) Size() int { return len(n.value) }

// Params returns the named views of the weights and gradients.
func (n *Net) Params() []*Param { return n.params }

// Weights are all weights; writing to them changes the network.
func (n *Net) Weights() []float32 { return n.value }

// Grad returns the gradients of all weights, in the order of Weights.
func (n *Net) Grad() []float32 { return n.grad }

// ZeroGrad sets the gradients to zero.
func (n *Net) ZeroGrad() { clear(n.grad) }

// Apply computes the output of each row of x, on x's tape.
func (n *Net) Apply(t *Tape, x Value) Value {
	x.node().matrix().check(n.in)
	for _, l := range n.layers {
		x = l.Apply(t, x)
	}
	return x
}

// ApplyLast is Apply which also returns the input of the last layer: the features of each row.
func (n *Net) ApplyLast(t *Tape, x Value) (features, y Value) {
	x.node().matrix().check(n.in)
	last := len(n.layers) - 1
	for _, l := range n.layers[:last] {
		x = l.Apply(t, x)
	}
	return x, n.layers[last].Apply(t, x)
}

// Forward computes the output of each row of x without a tape of the caller's: to act, or for
// targets that are constants. The result is overwritten by the next Forward.
func (n *Net) Forward(x Matrix) Matrix {
	x.check(n.in)
	n.eval.Reset()
	return n.Apply(&n.eval, n.eval.Const(x.Rows, x.Cols, x.Data)).node().matrix()
}

// CopyFrom makes the weights equal to those of src, a network of the same
// layers.
func (n *Net) CopyFrom(src *Net) { copy(n.value, src.value[:len(n.value)]) }

// Approach moves the weights by the fraction rate towards those of src: the
// soft update of a target network, rate*src + (1-rate)*n.
func (n *Net) Approach(src *Net, rate float32) {
	kernels.Polyak(n.value, src.value[:len(n.value)], rate)
}

// State returns a copy of the weights by name.
func (n *Net) State(version uint64) State {
	s := State{Version: version, Tensors: make([]Tensor, len(n.params))}
	all := append([]float32(nil), n.value...)
	for i, p := range n.params {
		k := len(p.Value)
		s.Tensors[i] = Tensor{Name: p.Name, Shape: p.Shape, Data: all[:k:k]}
		all = all[k:]
	}
	return s
}

// Load takes the weights over from s. If a tensor is missing, of another shape
// or not finite, the error names it and the network is unchanged.
func (n *Net) Load(s State) error {
	src := make([][]float32, len(n.params))
	for i, p := range n.params {
		t, ok := s.Lookup(p.Name)
		if !ok {
			return fmt.Errorf("load weights: tensor %s is missing", p.Name)
		}
		if err := t.checkWeights(p.Shape); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		src[i] = t.Data
	}
	for i, p := range n.params {
		copy(p.Value, src[i])
	}
	return nil
}
