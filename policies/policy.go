package policies

import (
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn"
)

// Greedy chooses discrete actions.
type Greedy interface {
	// ObsDim is the number of values in an observation.
	ObsDim() int
	// Actions is the number of actions, numbered from 0.
	Actions() int
	// Greedy writes the action that the policy thinks best for each
	// observation: obs is len(dst) x ObsDim. An observation or a value that is
	// not finite is an error, a *nn.NonFiniteError.
	Greedy(dst []int, obs []float32) error
}

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

// Learner improves from batches of transitions.
type Learner interface {
	Model
	// Update makes one step of learning. When a value is not finite, the
	// error names tensor and update, and the weights stay as they were.
	Update(b *Batch) (Metrics, error)
}

// Saver writes all of its state to an archive and reads it back, so that what
// follows is the same to the bit.
type Saver interface {
	Save(a *nn.Archive) error
	Restore(a *nn.Archive) error
}

// Metrics is what one update tells about itself.
type Metrics struct {
	Loss     float64
	GradNorm float64 // before clipping
	Value    float64 // mean predicted value of the batch's actions
	Rate     float64 // learning rate
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

// Constant is the same value always.
func Constant(v float64) Schedule { return func(int) float64 { return v } }

// Linear goes from first to last in a straight line over so many counts and
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
