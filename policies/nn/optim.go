package nn

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/policies/nn/kernels"
)

// Optimizer changes weights along their gradients.
type Optimizer interface {
	// Step changes the weights once.
	Step(weights, grad []float32)
	// SetRate changes the learning rate.
	SetRate(rate float64)
	// State returns a copy of the optimiser's state. Version is the number of
	// steps.
	State() State
	// Load takes State's result over. A state that does not fit or is not finite is an error and
	// changes nothing.
	Load(s State) error
}

// AdamConfig has Adam's parameters under the paper's names. The zero value is
// the paper's suggestion. With a WeightDecay it is AdamW.
type AdamConfig struct {
	Rate    float64 // alpha, the learning rate; 0 means 1e-3
	Beta1   float64 // decay of the first moment; 0 means 0.9
	Beta2   float64 // decay of the second moment; 0 means 0.999
	Epsilon float64 // 0 means 1e-8
	// WeightDecay makes each step begin with weight *= 1 - Rate*WeightDecay, for all weights. It
	// does not enter the moments. PyTorch's AdamW has 0.01; 0 means none.
	WeightDecay float64
}

// Adam is the optimiser of D. P. Kingma and J. Ba, "Adam: A Method for
// Stochastic Optimization" (2015), algorithm 1, and AdamW: I. Loshchilov and F. Hutter,
// "Decoupled Weight Decay Regularization" (2019), algorithm 2, with the decay times the
// learning rate as in PyTorch.
type Adam struct {
	cfg   AdamConfig
	m, v  []float32
	steps uint64
}

// New returns Adam for size weights.
func (c AdamConfig) New(size int) Optimizer { return NewAdam(c, size) }

// NewAdam returns Adam for size weights.
func NewAdam(cfg AdamConfig, size int) *Adam {
	or := func(v *float64, def float64) {
		if *v == 0 {
			*v = def
		}
	}
	or(&cfg.Rate, 1e-3)
	or(&cfg.Beta1, 0.9)
	or(&cfg.Beta2, 0.999)
	or(&cfg.Epsilon, 1e-8)
	return &Adam{cfg: cfg, m: make([]float32, size), v: make([]float32, size)}
}

// SetRate changes the learning rate.
func (a *Adam) SetRate(rate float64) { a.cfg.Rate = rate }

// Step changes the weights once.
func (a *Adam) Step(weights, grad []float32) {
	checkStep("adam", len(a.m), weights, grad)
	a.steps++
	t := float64(a.steps)
	c := a.cfg
	// The bias corrections are folded into the rate and epsilon, as the paper
	// suggests at the end of its section 2.
	root := math.Sqrt(1 - math.Pow(c.Beta2, t))
	kernels.Adam(weights, grad, a.m, a.v, kernels.AdamStep{
		Decay1: float32(c.Beta1), Gain1: float32(1 - c.Beta1),
		Decay2: float32(c.Beta2), Gain2: float32(1 - c.Beta2),
		Rate: float32(c.Rate * root / (1 - math.Pow(c.Beta1, t))), Epsilon: float32(c.Epsilon * root),
		WeightDecay: float32(c.Rate * c.WeightDecay),
	})
}

// State returns a copy of the moments, named "m" and "v".
func (a *Adam) State() State {
	n := len(a.m)
	return State{Version: a.steps, Tensors: []Tensor{
		{Name: "m", Shape: []int{n}, Data: append([]float32(nil), a.m...)},
		{Name: "v", Shape: []int{n}, Data: append([]float32(nil), a.v...)},
	}}
}

// Load takes the moments over from s.
func (a *Adam) Load(s State) error {
	shape := []int{len(a.m)}
	m, okM := s.Lookup("m")
	v, okV := s.Lookup("v")
	if !okM || !okV {
		return fmt.Errorf("load adam: tensor m or v is missing")
	}
	for _, t := range []Tensor{m, v} {
		if err := t.checkWeights(shape); err != nil {
			return fmt.Errorf("load adam: %w", err)
		}
	}
	copy(a.m, m.Data)
	copy(a.v, v.Data)
	a.steps = s.Version
	return nil
}

// SGDConfig describes an [SGD].
type SGDConfig struct {
	Rate     float64 // the learning rate; 0 means 1e-3
	Momentum float64 // 0 means none
	// Nesterov steps along the momentum after another step with the same gradient.
	// It needs a momentum.
	Nesterov bool
}

// New returns SGD for size weights.
func (c SGDConfig) New(size int) Optimizer {
	if c.Nesterov && c.Momentum == 0 {
		panic("nn: sgd with nesterov and without momentum")
	}
	if c.Rate == 0 {
		c.Rate = 1e-3
	}
	s := NewSGD(c.Rate, c.Momentum, size)
	s.nesterov = c.Nesterov
	return s
}

// SGD is stochastic gradient descent with momentum: b = Momentum*b + grad, weight -= Rate*b, or
// with Nesterov weight -= Rate*(grad + Momentum*b), as in PyTorch. H. Robbins and S. Monro,
// "A Stochastic Approximation Method" (1951); B. T. Polyak, "Some methods of speeding up the
// convergence of iteration methods" (1964); I. Sutskever et al., "On the importance of
// initialization and momentum in deep learning" (2013).
type SGD struct {
	rate, momentum float32
	nesterov       bool
	b              []float32
	steps          uint64
}

// NewSGD returns SGD for size weights. momentum may be 0.
func NewSGD(rate, momentum float64, size int) *SGD {
	return &SGD{rate: float32(rate), momentum: float32(momentum), b: make([]float32, size)}
}

// SetRate changes the learning rate.
func (s *SGD) SetRate(rate float64) { s.rate = float32(rate) }

// Step changes the weights once.
func (s *SGD) Step(weights, grad []float32) {
	checkStep("sgd", len(s.b), weights, grad)
	s.steps++
	if s.nesterov {
		for i, g := range grad {
			s.b[i] = s.momentum*s.b[i] + g
			weights[i] -= s.rate * (g + s.momentum*s.b[i])
		}
		return
	}
	for i, g := range grad {
		s.b[i] = s.momentum*s.b[i] + g
		weights[i] -= s.rate * s.b[i]
	}
}

// State returns a copy of the momentum, named "b".
func (s *SGD) State() State {
	return State{Version: s.steps, Tensors: []Tensor{
		{Name: "b", Shape: []int{len(s.b)}, Data: append([]float32(nil), s.b...)},
	}}
}

// Load takes the momentum over from st.
func (s *SGD) Load(st State) error {
	t, ok := st.Lookup("b")
	if !ok {
		return fmt.Errorf("load sgd: tensor b is missing")
	}
	if err := t.checkWeights([]int{len(s.b)}); err != nil {
		return fmt.Errorf("load sgd: %w", err)
	}
	copy(s.b, t.Data)
	s.steps = st.Version
	return nil
}

// checkStep panics unless there are size weights and gradients.
func checkStep(name string, size int, weights, grad []float32) {
	if len(weights) != size || len(grad) != size {
		panic(fmt.Sprintf("nn: %s of %d weights got %d and %d gradients", name, size, len(weights), len(grad)))
	}
}

// ClipNorm scales gradients so that the Euclidean norm of all together is at most limit, and
// returns the norm before. A norm that is not finite leaves them as they are. R. Pascanu
// et al., "On the difficulty of training recurrent neural networks" (2013).
func ClipNorm(limit float64, grads ...[]float32) float64 {
	var sum float64
	for _, g := range grads {
		sum += kernels.SumSquares(g)
	}
	norm := math.Sqrt(sum)
	if norm > limit && !math.IsInf(norm, 0) {
		factor := float32(limit / norm)
		for _, g := range grads {
			kernels.Scale(g, g, factor)
		}
	}
	return norm
}
