package actorcritic

import (
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/nn"
)

// Distribution is the distribution of the actions that a [Model] chooses from: categorical for
// envs.Discrete, multi-categorical for envs.MultiDiscrete, and Gaussian for envs.Box. It lies on a
// tape, and ends with the tape's Reset.
type Distribution struct {
	params      nn.Value
	space       envs.Space
	categorical dist.Categorical
	multi       dist.MultiCategorical
	gaussian    dist.Gaussian
}

// newDistribution returns the distribution with the given parameters: the logits of discrete
// actions, or the means and the logarithms of the standard deviations of continuous ones. sizes are
// those of the choices of multi-discrete actions.
func newDistribution(params nn.Value, space envs.Space, sizes []int) Distribution {
	d := Distribution{params: params, space: space}
	switch space.(type) {
	case envs.Discrete:
		d.categorical = dist.NewCategorical(params, nil)
	case envs.MultiDiscrete:
		d.multi = dist.NewMultiCategorical(params, sizes, nil)
	default:
		n := space.Dim()
		d.gaussian = dist.NewGaussian(params.Columns(0, n), params.Columns(n, 2*n))
	}
	return d
}

// LogProb returns the logarithm of the probability, or of its density, of an action in each row: one
// column. The actions must stay as they are until the tape's Reset.
func (d *Distribution) LogProb(actions []float32) nn.Value {
	switch d.space.(type) {
	case envs.Discrete:
		return d.categorical.LogProb(actions)
	case envs.MultiDiscrete:
		return d.multi.LogProb(actions)
	}
	return d.gaussian.LogProb(actions)
}

// Entropy returns the entropy of each row in nats: one column.
func (d *Distribution) Entropy() nn.Value {
	switch d.space.(type) {
	case envs.Discrete:
		return d.categorical.Entropy()
	case envs.MultiDiscrete:
		return d.multi.Entropy()
	}
	return d.gaussian.Entropy()
}

// KL returns the Kullback-Leibler divergence from q to d of each row, in nats: the mean under d of
// log d - log q. q must be of the same action space.
func (d *Distribution) KL(q *Distribution) nn.Value {
	switch d.space.(type) {
	case envs.Discrete:
		return d.categorical.KL(q.categorical)
	case envs.MultiDiscrete:
		return d.multi.KL(q.multi)
	}
	return d.gaussian.KL(q.gaussian)
}

// Std is the mean standard deviation of continuous actions, and NaN for discrete ones.
func (d *Distribution) Std() float64 {
	switch d.space.(type) {
	case envs.Discrete, envs.MultiDiscrete:
		return math.NaN()
	}
	return d.gaussian.Std()
}

// sample writes an action for each row to dst.
func (d *Distribution) sample(dst []float32, rng *rand.Rand) {
	switch d.space.(type) {
	case envs.Discrete:
		d.categorical.Sample(dst, rng)
	case envs.MultiDiscrete:
		d.multi.Sample(dst, rng)
	default:
		d.gaussian.Sample(dst, rng)
	}
}

// mode writes the most likely action of each row to dst.
func (d *Distribution) mode(dst []float32) {
	switch d.space.(type) {
	case envs.Discrete:
		d.categorical.Mode(dst)
	case envs.MultiDiscrete:
		d.multi.Mode(dst)
	default:
		d.gaussian.Mode(dst)
	}
}
