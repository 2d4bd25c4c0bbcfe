package nn

import (
	"fmt"
	"math"
)

// RMSpropConfig has the parameters of an [RMSprop] under PyTorch's names. Papers differ in two
// points, which [RMSpropConfig.TensorFlow] chooses: where epsilon stands, and where the mean of
// the squares begins. The results of A2C (rate 7e-4, alpha 0.99, epsilon 1e-5) and IMPALA (rate
// 6e-4, alpha 0.99, epsilon 0.1) are those of TensorFlow's form; its large epsilon means another
// thing in PyTorch's.
type RMSpropConfig struct {
	Rate     float64 // the learning rate; 0 means 1e-2
	Alpha    float64 // decay of the mean of the squares; 0 means 0.99
	Epsilon  float64 // 0 means 1e-8
	Momentum float64 // 0 means none
	// TensorFlow divides by sqrt(v + Epsilon), with v beginning at 1, and takes the rate into the
	// momentum. Without it, the step divides by sqrt(v) + Epsilon, and v begins at 0.
	TensorFlow bool
}

// RMSprop is the optimiser of T. Tieleman and G. Hinton, "Lecture 6.5-rmsprop" (2012), in one of
// two forms. PyTorch's:
//
//	v = Alpha*v + (1-Alpha)*grad^2, from 0
//	b = Momentum*b + grad / (sqrt(v) + Epsilon)
//	weight -= Rate*b
//
// TensorFlow's, version 1:
//
//	v = Alpha*v + (1-Alpha)*grad^2, from 1
//	b = Momentum*b + Rate*grad / sqrt(v + Epsilon)
//	weight -= b
type RMSprop struct {
	cfg   RMSpropConfig
	v, b  []float32 // b is empty without a momentum
	steps uint64
}

// New returns RMSprop for size weights.
func (c RMSpropConfig) New(size int) Optimizer { return NewRMSprop(c, size) }

// NewRMSprop returns RMSprop for size weights.
func NewRMSprop(cfg RMSpropConfig, size int) *RMSprop {
	or := func(v *float64, def float64) {
		if *v == 0 {
			*v = def
		}
	}
	or(&cfg.Rate, 1e-2)
	or(&cfg.Alpha, 0.99)
	or(&cfg.Epsilon, 1e-8)
	r := &RMSprop{cfg: cfg, v: make([]float32, size)}
	if cfg.Momentum != 0 {
		r.b = make([]float32, size)
	}
	if cfg.TensorFlow {
		for i := range r.v {
			r.v[i] = 1
		}
	}
	return r
}

// SetRate changes the learning rate.
func (r *RMSprop) SetRate(rate float64) { r.cfg.Rate = rate }

// Step changes the weights once.
func (r *RMSprop) Step(weights, grad []float32) {
	checkStep("rmsprop", len(r.v), weights, grad)
	r.steps++
	decay, gain := float32(r.cfg.Alpha), float32(1-r.cfg.Alpha)
	inside, outside := float32(0), float32(r.cfg.Epsilon) // of the root
	inner, outer := float32(1), float32(r.cfg.Rate)       // the rate before and behind the momentum
	if r.cfg.TensorFlow {
		inside, outside = outside, inside
		inner, outer = outer, inner
	}
	momentum := float32(r.cfg.Momentum)
	for i, g := range grad {
		v := decay*r.v[i] + gain*g*g
		r.v[i] = v
		b := inner * g / (float32(math.Sqrt(float64(v+inside))) + outside)
		if r.b != nil {
			b += momentum * r.b[i]
			r.b[i] = b
		}
		weights[i] -= outer * b
	}
}

// State returns a copy of the mean of the squares, named "v", and with a momentum of that, named
// "b".
func (r *RMSprop) State() State {
	shape := []int{len(r.v)}
	s := State{Version: r.steps, Tensors: []Tensor{{Name: "v", Shape: shape, Data: append([]float32(nil), r.v...)}}}
	if r.b != nil {
		s.Tensors = append(s.Tensors, Tensor{Name: "b", Shape: shape, Data: append([]float32(nil), r.b...)})
	}
	return s
}

// Load reads from s the state that State returned.
func (r *RMSprop) Load(s State) error {
	shape := []int{len(r.v)}
	v, ok := s.Lookup("v")
	b, okB := s.Lookup("b")
	if !ok || !okB && r.b != nil {
		return fmt.Errorf("load rmsprop: tensor v or b is missing")
	}
	if err := v.checkWeights(shape); err != nil {
		return fmt.Errorf("load rmsprop: %w", err)
	}
	if r.b != nil {
		if err := b.checkWeights(shape); err != nil {
			return fmt.Errorf("load rmsprop: %w", err)
		}
	}
	copy(r.v, v.Data)
	copy(r.b, b.Data[:len(r.b)])
	r.steps = s.Version
	return nil
}
