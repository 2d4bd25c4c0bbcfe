package dist

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn"
)

// Gaussian is a normal distribution of n numbers that do not depend on each other.
type Gaussian struct {
	mean, logStd nn.Value
}

// NewGaussian returns the distribution with the given means, batch x n, and the natural
// logarithms of its standard deviations: batch x n, or 1 x n for deviations that do not depend
// on the row, such as [github.com/ditask/ditask/policies/nn.Param.On] gives.
func NewGaussian(mean, logStd nn.Value) Gaussian {
	if logStd.Cols() != mean.Cols() || logStd.Rows() != mean.Rows() && logStd.Rows() != 1 {
		panic(fmt.Sprintf("dist: gaussian with means of %d x %d and deviations of %d x %d",
			mean.Rows(), mean.Cols(), logStd.Rows(), logStd.Cols()))
	}
	return Gaussian{mean, logStd}
}

// ActionSize is n.
func (g Gaussian) ActionSize() int { return g.mean.Cols() }

// LogProb returns the logarithm of the density at the action of each row: the sum over the numbers of
// -((a - mean) / std)^2 / 2 - log std - log(2 pi) / 2.
func (g Gaussian) LogProb(actions []float32) nn.Value {
	checkActions("gaussian", len(actions), g.mean.Rows(), g.mean.Cols())
	return g.density(g.mean.Tape().Const(g.mean.Rows(), g.mean.Cols(), actions))
}

// density is LogProb of actions on the tape.
func (g Gaussian) density(actions nn.Value) nn.Value {
	z := actions.Sub(g.mean).Mul(g.logStd.Neg().Exp())
	return z.Square().Scale(-0.5).Sub(g.logStd).RowSums().AddNumber(g.perNumber(-0.5 * math.Log(2*math.Pi)))
}

// perNumber is x for each number of an action.
func (g Gaussian) perNumber(x float64) float32 { return float32(x * float64(g.mean.Cols())) }

// Entropy returns the sum over the numbers of log std + log(2 pi e) / 2, of each row.
func (g Gaussian) Entropy() nn.Value {
	rows := g.mean.Tape().Zeros(g.mean.Rows(), 1)
	return g.logStd.RowSums().AddNumber(g.perNumber(0.5 * math.Log(2*math.Pi*math.E))).Add(rows)
}

// KL returns the divergence from q to g: the sum over the numbers of log(sq/sp) + (sp^2 + (mp-mq)^2) /
// (2 sq^2) - 1/2 of each row, with means mp and deviations sp of g, and mq and sq of q.
func (g Gaussian) KL(q Gaussian) nn.Value {
	log := g.logStd.Sub(q.logStd)
	z := g.mean.Sub(q.mean).Mul(q.logStd.Neg().Exp())
	return z.Square().Add(log.Scale(2).Exp()).Scale(0.5).Sub(log).RowSums().AddNumber(g.perNumber(-0.5))
}

// Std is the mean of the standard deviations of all rows and numbers.
func (g Gaussian) Std() float64 {
	sum, log := 0.0, g.logStd.Data()
	for _, x := range log {
		sum += math.Exp(float64(x))
	}
	return sum / float64(len(log))
}

// Sample draws an action for each row. It takes one normal number from rng for each of its numbers.
func (g Gaussian) Sample(dst []float32, rng *rand.Rand) {
	g.Mode(dst)
	n, log := g.mean.Cols(), g.logStd.Data()
	for i := range dst {
		at := i
		if g.logStd.Rows() == 1 {
			at = i % n
		}
		dst[i] = float32(float64(dst[i]) + math.Exp(float64(log[at]))*rng.NormFloat64())
	}
}

// Mode writes the means.
func (g Gaussian) Mode(dst []float32) {
	checkActions("gaussian", len(dst), g.mean.Rows(), g.mean.Cols())
	copy(dst, g.mean.Data())
}

// RSample draws an action for each row on the tape, mean + std * noise, so that gradients flow
// to mean and deviation. It takes the same numbers from rng as Sample. D. P. Kingma and M. Welling,
// "Auto-Encoding Variational Bayes" (2014), section 2.4.
func (g Gaussian) RSample(rng *rand.Rand) nn.Value {
	noise := g.mean.Tape().Zeros(g.mean.Rows(), g.mean.Cols())
	for i := range noise.Data() {
		noise.Data()[i] = float32(rng.NormFloat64())
	}
	return g.mean.Add(g.logStd.Exp().Mul(noise))
}
