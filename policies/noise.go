package policies

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
)

// GaussianNoise adds to each action value noise from a normal distribution, and clips the result to
// the box. The standard deviation std, and limit, which the magnitude of the noise does not exceed,
// are in units of half the interval of the value. A standard deviation of 0 draws nothing from rng
// and only clips; a limit of 0 is none. The box is as [Bounded] wants it.
//
// It is how deterministic policies explore, and with a limit it smooths the target of TD3.
// S. Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (2018),
// section 5.3 and algorithm 1.
func GaussianNoise(actions []float32, box envs.Box, std, limit float64, rng *rand.Rand) {
	if limit == 0 {
		limit = math.Inf(1)
	}
	n := box.Dim()
	for i := range actions {
		low, high := box.Low[i%n], box.High[i%n]
		if std != 0 {
			noise := min(max(std*rng.NormFloat64(), -limit), limit)
			actions[i] += float32(noise * (float64(high) - float64(low)) / 2)
		}
		actions[i] = min(max(actions[i], low), high)
	}
}

// Bounded reports the values of a box that do not lie between two finite bounds, the lower one first.
// A policy whose actions end in tanh needs such a box.
func Bounded(box envs.Box) error {
	if len(box.Low) != len(box.High) {
		return fmt.Errorf("%d lower and %d upper bounds", len(box.Low), len(box.High))
	}
	var faults []error
	for i, low := range box.Low {
		if span := float64(box.High[i]) - float64(low); !(span > 0) || math.IsInf(span, 0) {
			faults = append(faults, fmt.Errorf("the bounds %v and %v of value %d, want finite ones", low, box.High[i], i))
		}
	}
	return errors.Join(faults...)
}
