package data

import (
	"fmt"
	"math"
)

// Unroll has the data for advantages and targets: sequences of Length steps, one after the
// other. Step t of sequence k is row k*Length+t of each slice.
type Unroll struct {
	Length  int
	Rewards []float32
	Values  []float32 // of the observation before each step
	// Bootstrap is the value of the observation after a step, where that is not the next row's: at
	// the last step of a sequence, and where an episode was truncated. After a terminated step
	// there is no future, and Bootstrap does not count.
	Bootstrap             []float32
	Terminated, Truncated []uint8
}

// check panics unless all slices have as many rows, which are whole sequences.
func (u *Unroll) check(dst ...[]float32) {
	n := len(u.Rewards)
	ok := u.Length > 0 && n%max(u.Length, 1) == 0
	ok = ok && len(u.Values) == n && len(u.Bootstrap) == n && len(u.Terminated) == n && len(u.Truncated) == n
	for _, d := range dst {
		ok = ok && len(d) == n
	}
	if !ok {
		panic(fmt.Sprintf("data: sequences of %d steps in %d rewards, %d values, %d bootstraps, %d and %d ends",
			u.Length, n, len(u.Values), len(u.Bootstrap), len(u.Terminated), len(u.Truncated)))
	}
}

// next returns the value after row i, and whether row i+1 continues from there.
func (u *Unroll) next(i int) (value float32, goesOn bool) {
	switch {
	case u.Terminated[i] != 0:
		return 0, false
	case u.Truncated[i] != 0 || (i+1)%u.Length == 0:
		return u.Bootstrap[i], false
	}
	return u.Values[i+1], true
}

// GAE writes the generalised advantage estimates of all steps, and the targets of their values: the
// sum of both. J. Schulman et al., "High-Dimensional Continuous Control Using Generalized
// Advantage Estimation" (2016), equation 16; the sum ends where an episode or a sequence does.
func GAE(advantages, targets []float32, u *Unroll, gamma, lambda float64) {
	u.check(advantages, targets)
	g, decay := float32(gamma), float32(gamma*lambda)
	for i := len(advantages) - 1; i >= 0; i-- {
		value, goesOn := u.next(i)
		a := u.Rewards[i] + g*value - u.Values[i]
		if goesOn {
			a += decay * advantages[i+1]
		}
		advantages[i], targets[i] = a, a+u.Values[i]
	}
}

// VTraceConfig has the limits of importance weights.
type VTraceConfig struct {
	Gamma float64
	// MaxRho limits the weights of temporal differences; 0 means 1. MaxC limits those by which
	// differences reach back in time; 0 means 1.
	MaxRho, MaxC float64
}

// VTrace writes the targets of the values, and the advantages of the policy gradient, of steps whose
// actions were chosen by an older policy. ratios are the probabilities of the actions under the
// present policy over those under the older one. L. Espeholt et al., "IMPALA: Scalable Distributed
// Deep-RL with Importance Weighted Actor-Learner Architectures" (2018), equation 1 and section 4.2.
func VTrace(targets, advantages []float32, u *Unroll, ratios []float32, cfg VTraceConfig) {
	u.check(targets, advantages, ratios)
	limit := func(v float64) float32 {
		if v == 0 {
			return 1
		}
		return float32(v)
	}
	maxRho, maxC, g := limit(cfg.MaxRho), limit(cfg.MaxC), float32(cfg.Gamma)
	for i := len(targets) - 1; i >= 0; i-- {
		rho, c := min(ratios[i], maxRho), min(ratios[i], maxC)
		value, goesOn := u.next(i)
		target := value // of the next observation
		difference := float32(0)
		if goesOn {
			target = targets[i+1]
			difference = target - value
		}
		targets[i] = u.Values[i] + rho*(u.Rewards[i]+g*value-u.Values[i]) + g*c*difference
		advantages[i] = rho * (u.Rewards[i] + g*target - u.Values[i])
	}
}

// Standardize makes the mean of v 0 and its standard deviation, that of the population, 1. A
// deviation of less than 1e-8 counts as that.
func Standardize(v []float32) {
	mean, variance := Moments(v)
	StandardizeBy(v, mean, variance)
}

// Moments returns the mean of v and its variance, that of the population; 0 for no values.
func Moments(v []float32) (mean, variance float64) {
	if len(v) == 0 {
		return 0, 0
	}
	var sum, squares float64
	for _, x := range v {
		sum += float64(x)
	}
	mean = sum / float64(len(v))
	for _, x := range v {
		squares += (float64(x) - mean) * (float64(x) - mean)
	}
	return mean, squares / float64(len(v))
}

// Explained measures how well values predict returns: the means of the returns, of their squares, of the errors and of
// the squared errors. The means of several learners with as many rows each are those of all rows.
type Explained struct{ Return, ReturnSquare, Error, ErrorSquare float64 }

// Explain returns the means for the values that were predicted for returns. The slices have the same length.
func Explain(values, returns []float32) (e Explained) {
	for i, r := range returns {
		r, d := float64(r), float64(r)-float64(values[i])
		e.Return, e.ReturnSquare, e.Error, e.ErrorSquare = e.Return+r, e.ReturnSquare+r*r, e.Error+d, e.ErrorSquare+d*d
	}
	n := float64(len(returns))
	e.Return, e.ReturnSquare, e.Error, e.ErrorSquare = e.Return/n, e.ReturnSquare/n, e.Error/n, e.ErrorSquare/n
	return e
}

// Variance is 1 - Var[return - value] / Var[return]: the share of the variance of the returns that the values explain. It is
// 1 for perfect predictions, 0 for those that are no better than a constant, and less for worse ones; NaN where all
// returns are the same.
func (e *Explained) Variance() float64 {
	variance := e.ReturnSquare - e.Return*e.Return
	if !(variance > 1e-12*e.ReturnSquare) { // but for rounding
		return math.NaN()
	}
	return 1 - max(0, e.ErrorSquare-e.Error*e.Error)/variance
}

// StandardizeBy is [Standardize] with the mean and the variance of more values than v, of which v is a
// part.
func StandardizeBy(v []float32, mean, variance float64) {
	scale := 1 / max(math.Sqrt(variance), 1e-8)
	for i, x := range v {
		v[i] = float32((float64(x) - mean) * scale)
	}
}
