package policies

import (
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn"
)

// Model has weights that can be taken and given.
type Model interface {
	// Version counts the updates behind the weights.
	Version() uint64
	// Weights returns a copy of the weights that the policy acts with.
	Weights() nn.State
	// Load takes weights over. Weights that are not finite or do not fit are
	// an error and change nothing.
	Load(s nn.State) error
}

// Saver writes all of its state to an archive and reads it back, so that later
// results are the same bit for bit.
type Saver interface {
	Save(a *nn.Archive) error
	Restore(a *nn.Archive) error
}

// EpsGreedy replaces each action, with probability epsilon, by one of the n
// actions drawn at random. R. S. Sutton and A. G. Barto, "Reinforcement
// Learning: An Introduction" (2018), section 2.2.
func EpsGreedy(actions []int, epsilon float64, n int, rng *rand.Rand) {
	for i := range actions {
		if rng.Float64() < epsilon {
			actions[i] = rng.IntN(n)
		}
	}
}

// Schedule gives a value for a count of env steps or updates.
type Schedule func(count int) float64

// Constant returns a schedule with the value v at every count.
func Constant(v float64) Schedule { return func(int) float64 { return v } }

// Linear goes from first to last in a straight line over that many counts and
// stays there.
func Linear(first, last float64, over int) Schedule {
	return func(count int) float64 {
		if count >= over {
			return last
		}
		return first + (last-first)*float64(max(count, 0))/float64(over)
	}
}

// Exponential goes from first towards last; after each scale counts, 1/e of
// the way is left: last + (first-last)*exp(-count/scale).
func Exponential(first, last float64, scale int) Schedule {
	return func(count int) float64 {
		return last + (first-last)*math.Exp(-float64(max(count, 0))/float64(scale))
	}
}
