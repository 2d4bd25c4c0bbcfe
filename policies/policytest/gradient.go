package policytest

import (
	"math"
	"slices"

	"github.com/ditask/ditask/policies/nn"
)

// Loss is a number that a policy minimises, as a function of weights.
type Loss struct {
	Name string
	// Nets are the networks whose weights are learned by the loss.
	Nets []*nn.Net
	// Eval computes the loss, and leaves its gradient in the networks: not clipped, and computed
	// with the same random numbers at each call. It may change weights, as Learn does: the check
	// sets them back.
	Eval func() (float64, error)
}

// The tolerance of the comparison, relative and absolute, and the distances at which the loss is
// evaluated. One of them must fit, because a kink of the loss (ReLU, clipping) may lie within the
// greater one.
const gradientTolerance = 5e-3

var gradientSteps = [...]float32{2e-3, 4e-4}

// gradient: the gradients of the losses equal central differences, weight by weight.
func (s *suite) gradient() {
	for _, loss := range s.Losses(numbers(0)) {
		s.compare(loss)
	}
}

func (s *suite) compare(loss Loss) {
	first := make([][]float32, len(loss.Nets))
	for i, n := range loss.Nets {
		first[i] = slices.Clone(n.Weights())
	}
	eval := func() (float64, bool) {
		v, err := loss.Eval()
		for i, n := range loss.Nets {
			copy(n.Weights(), first[i])
		}
		if err != nil {
			s.faultf("loss %s: %w", loss.Name, err)
		}
		return v, err == nil
	}
	value, ok := eval()
	if !ok {
		return
	}
	rounding := 4 * math.Abs(value) / (1 << 23) // of a loss that is a sum of float32
	grads := make([][]float32, len(loss.Nets))
	for i, n := range loss.Nets {
		grads[i] = slices.Clone(n.Grad())
	}
	for i, n := range loss.Nets {
		if !slices.ContainsFunc(grads[i], func(g float32) bool { return g != 0 }) {
			s.faultf("loss %s: all gradients of network %d are zero", loss.Name, i)
		}
		for k, g := range grads[i] {
			var slope [len(gradientSteps)]float64
			fits := false
			for j, h := range gradientSteps {
				n.Weights()[k] = first[i][k] + h
				up, ok := eval()
				if !ok {
					return
				}
				n.Weights()[k] = first[i][k] - h
				down, ok := eval()
				if !ok {
					return
				}
				slope[j] = (up - down) / (2 * float64(h))
				if fits = math.Abs(float64(g)-slope[j]) <= gradientTolerance*(1+math.Abs(slope[j]))+rounding/(2*float64(h)); fits {
					break
				}
			}
			if !fits {
				s.faultf("loss %s: the gradient of weight %d of network %d is %v, central differences give %v", loss.Name, k, i, g, slope)
			}
		}
	}
}
