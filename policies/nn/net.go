package nn

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Net is a feed-forward network: its layers one after the other.
type Net struct {
	in, out     int
	layers      []Layer
	params      []Param
	value, grad []float32
	work        workspace
	rows        int // of the last forward
}

// New joins layers into a network with in input columns. The seed fixes the
// initial weights. Layers given to New must not be used again.
func New(in int, seed uint64, layers ...Layer) *Net {
	if in <= 0 || len(layers) == 0 {
		panic(fmt.Sprintf("nn: network of %d columns and %d layers", in, len(layers)))
	}
	n := &Net{in: in, out: in, layers: layers}
	counts := make([]int, len(layers))
	size := 0
	for i, l := range layers {
		var params []Param
		n.out, params = l.attach(i, n.out)
		counts[i] = len(params)
		for _, p := range params {
			size += product(p.Shape)
		}
		n.params = append(n.params, params...)
	}
	n.value, n.grad = make([]float32, size), make([]float32, size)
	at := 0
	for i := range n.params {
		p := &n.params[i]
		end := at + product(p.Shape)
		p.Value, p.Grad = n.value[at:end:end], n.grad[at:end:end]
		at = end
	}
	rng := rand.New(rand.NewPCG(seed, 0x6e6e)) // the stream of initial weights
	at = 0
	for i, l := range layers {
		l.bind(n.params[at:at+counts[i]], rng)
		at += counts[i]
	}
	return n
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

// In is the number of input columns.
func (n *Net) In() int { return n.in }

// Out is the number of output columns.
func (n *Net) Out() int { return n.out }

// Size is the number of weights.
func (n *Net) Size() int { return len(n.value) }

// Params are the named views of the weights and gradients.
func (n *Net) Params() []Param { return n.params }

// Weights are all weights; writing to them changes the network.
func (n *Net) Weights() []float32 { return n.value }

// Grad are the gradients of all weights, in the order of Weights.
func (n *Net) Grad() []float32 { return n.grad }

// ZeroGrad sets the gradients to zero.
func (n *Net) ZeroGrad() { clear(n.grad) }

// Forward computes the output of each row of x. x must stay unchanged until
// Backward; the result is overwritten by the next Forward.
func (n *Net) Forward(x Matrix) Matrix {
	x.check("input", n.in)
	n.rows = x.Rows
	for _, l := range n.layers {
		x = l.forward(&n.work, x)
	}
	return x
}

// Backward adds to the gradients those of the last Forward, given the
// derivative of the loss by its output.
func (n *Net) Backward(dy Matrix) {
	dy.check("output gradient", n.out)
	if dy.Rows != n.rows {
		panic(fmt.Sprintf("nn: backward of %d rows after forward of %d", dy.Rows, n.rows))
	}
	for i, l := range slices.Backward(n.layers) {
		dy = l.backward(&n.work, dy, i > 0)
	}
}

// CopyFrom makes the weights equal to those of src, a network of the same
// layers.
func (n *Net) CopyFrom(src *Net) { copy(n.value, src.value[:len(n.value)]) }

// Approach moves the weights by the fraction rate towards those of src: the
// soft update of a target network, rate*src + (1-rate)*n.
func (n *Net) Approach(src *Net, rate float32) {
	from := src.value[:len(n.value)]
	for i, v := range n.value {
		n.value[i] = v + rate*(from[i]-v)
	}
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
		if err := t.checkShape(p.Shape); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		if err := t.CheckFinite(); err != nil {
			return fmt.Errorf("load weights: %w", err)
		}
		src[i] = t.Data
	}
	for i, p := range n.params {
		copy(p.Value, src[i])
	}
	return nil
}
