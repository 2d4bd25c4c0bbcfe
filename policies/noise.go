package policies

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
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

// StateNoise adds to the actions of each row the noise of a layer in the state with the features of the row. noise is
// that of Act: of each row the number of steps with its matrix, and the matrix, which is drawn anew after every of them.
func StateNoise(actions, features, noise []float32, layer *nn.StateDeviation, every int, rng *rand.Rand) {
	size := layer.Size()
	rows := len(noise) / (1 + size)
	n, width := len(actions)/rows, len(features)/rows
	for i := range rows {
		count, matrix := &noise[i*(1+size)], noise[i*(1+size)+1:(i+1)*(1+size)]
		if *count == 0 {
			layer.Draw(matrix, rng)
		}
		if *count++; int(*count) >= every {
			*count = 0
		}
		layer.AddNoise(actions[i*n:(i+1)*n], features[i*width:(i+1)*width], matrix)
	}
}

// OrnsteinUhlenbeckNoise adds to each action value the noise of an Ornstein-Uhlenbeck process, and clips the result to
// the box. The process returns to 0 by the fraction 0.15 x dt in a time step and moves by std x sqrt(dt) times a
// normal number, with dt = 0.01, in units of half the interval of the value. noise has its values, which
// are set to 0 first in the rows of reset; nil: in none.
//
// T. Lillicrap et al., "Continuous Control with Deep Reinforcement Learning" (2016), section 7; dt is that of
// Stable-Baselines3.
func OrnsteinUhlenbeckNoise(actions, noise []float32, reset []bool, box envs.Box, std float64, rng *rand.Rand) {
	const theta, dt = 0.15, 0.01
	n := box.Dim()
	for i := range actions {
		if reset != nil && reset[i/n] {
			noise[i] = 0
		}
		noise[i] += float32(-theta*dt*float64(noise[i]) + std*math.Sqrt(dt)*rng.NormFloat64())
		low, high := box.Low[i%n], box.High[i%n]
		actions[i] = min(max(actions[i]+noise[i]*(high-low)/2, low), high)
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
