package dist

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn"
)

// SquashedGaussian is a [Gaussian] whose actions are bent by tanh into the bounds of a box: with
// u drawn from the Gaussian, the action is (high + low) / 2 + (high - low) / 2 * tanh(u).
//
// Its entropy has no formula: use the mean of -LogProb of samples. T. Haarnoja et al., "Soft
// Actor-Critic" (2018), appendix C.
type SquashedGaussian struct {
	inner        Gaussian // of u
	middle, half nn.Value // of the box, 1 x n
	low, high    []float32
	volume       float32 // log of the product of all halves
}

// NewSquashedGaussian returns the distribution with the given means and logarithms of standard
// deviations, before tanh; see [NewGaussian] for their shapes. low and high are the finite bounds
// of each number of an action; both nil means -1 and 1. They are not copied.
func NewSquashedGaussian(mean, logStd nn.Value, low, high []float32) SquashedGaussian {
	s := SquashedGaussian{inner: NewGaussian(mean, logStd), low: low, high: high}
	n := mean.Cols()
	if (low != nil || high != nil) && (len(low) != n || len(high) != n) {
		panic(fmt.Sprintf("dist: squashed gaussian of %d numbers with %d and %d bounds", n, len(low), len(high)))
	}
	s.middle, s.half = mean.Tape().Zeros(1, n), mean.Tape().Zeros(1, n)
	var volume float64
	for i := range n {
		lo, hi := -1.0, 1.0
		if low != nil {
			lo, hi = float64(low[i]), float64(high[i])
		}
		if !(lo < hi) || math.IsInf(hi-lo, 0) {
			panic(fmt.Sprintf("dist: squashed gaussian with bounds %v and %v of number %d", lo, hi, i))
		}
		s.middle.Data()[i], s.half.Data()[i] = float32((hi+lo)/2), float32((hi-lo)/2)
		volume += math.Log((hi - lo) / 2)
	}
	s.volume = float32(volume)
	return s
}

// ActionSize is n.
func (s SquashedGaussian) ActionSize() int { return s.inner.ActionSize() }

// LogProb returns the logarithm of the density at the action of each row. The action is a constant:
// gradients flow to mean and deviation. Near a bound the action does not determine u, since
// tanh rounds to 1 there: |u| counts as at most 8.7. RSample gives the exact density of a
// fresh sample.
func (s SquashedGaussian) LogProb(actions []float32) nn.Value {
	rows, n := s.inner.mean.Rows(), s.ActionSize()
	checkActions("squashed gaussian", len(actions), rows, n)
	u := s.inner.mean.Tape().Zeros(rows, n)
	middle, half := s.middle.Data(), s.half.Data()
	const edge = 1 - 1.0/(1<<24) // the last float32 before 1
	for i, a := range actions {
		y := (float64(a) - float64(middle[i%n])) / float64(half[i%n])
		u.Data()[i] = float32(math.Atanh(min(max(y, -edge), edge)))
	}
	return s.density(u)
}

// density returns the logarithm of the density at the actions of u: that of u, less the logarithm of
// the derivative of the action by u. log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)) holds
// for large u, where the left side is log(0).
func (s SquashedGaussian) density(u nn.Value) nn.Value {
	bend := u.Add(u.Scale(-2).Softplus()).Scale(2).RowSums()
	return s.inner.density(u).Add(bend).AddNumber(s.inner.perNumber(-2*math.Ln2) - s.volume)
}

// KL returns the divergence from q to s. Both have the same bounds; it is that of the Gaussians then,
// since a bijection changes no divergence.
func (s SquashedGaussian) KL(q SquashedGaussian) nn.Value { return s.inner.KL(q.inner) }

// Sample draws an action for each row.
func (s SquashedGaussian) Sample(dst []float32, rng *rand.Rand) {
	s.inner.Sample(dst, rng)
	s.Squash(dst)
}

// Mode writes the action of the Gaussian's mean, which is the median of the actions.
func (s SquashedGaussian) Mode(dst []float32) {
	s.inner.Mode(dst)
	s.Squash(dst)
}

// Inner returns the means of u, batch x n.
func (s SquashedGaussian) Inner() nn.Value { return s.inner.mean }

// Squash replaces values of u, batch x n, by their actions.
func (s SquashedGaussian) Squash(dst []float32) {
	middle, half := s.middle.Data(), s.half.Data()
	for i, u := range dst {
		j := i % len(half)
		dst[i] = middle[j] + half[j]*float32(math.Tanh(float64(u)))
		if s.low != nil { // the sum may round to a number beyond the bound
			dst[i] = min(max(dst[i], s.low[j]), s.high[j])
		}
	}
}

// RSample draws an action for each row on the tape, batch x n, with the logarithm of its density,
// so that gradients flow through both to mean and deviation. It takes the same numbers from rng
// as Sample. Rounding may bring an action beyond its bound by a unit in the last place.
func (s SquashedGaussian) RSample(rng *rand.Rand) (action, logProb nn.Value) {
	u := s.inner.RSample(rng)
	return u.Tanh().Mul(s.half).Add(s.middle), s.density(u)
}
