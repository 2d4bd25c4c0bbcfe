// Package dist has the probability distributions of actions, over the values of a tape
// ([github.com/ditask/ditask/policies/nn.Tape]), so that losses can be written with them.
//
//	logits := actor.Apply(t, x)                        // 64 x actions
//	d := dist.NewCategorical(logits, nil)
//	ratio := d.LogProb(actions).Sub(t.Column(oldLogProbs)).Exp()
//	entropy := d.Entropy().Mean()
//
//	d.Sample(dst, rng)                                 // to act
//	d.Mode(dst)                                        // to act greedily
//
//	action, logProb := dist.NewSquashedGaussian(mean, logStd, low, high).RSample(rng) // SAC
//
// A distribution has one row for each element of the batch, and so have the columns that LogProb,
// Entropy and KL return, in nats. Actions are numbers in row-major order, batch x [Distribution]'s
// ActionSize: whole numbers from 0 for discrete actions.
//
// # Numbers
//
// Logits may have any size up to 1e38: no exponential overflows. Standard deviations are given
// by their natural logarithms, which should lie in about -20..20; limit a network's output with
// [github.com/ditask/ditask/policies/nn.Value.Clamp]. Nothing here checks for NaN: a trainer
// finds it in the loss.
//
// # Memory, concurrency and errors
//
// A distribution is a handful of values on the tape, and allocates nothing. It ends with the
// tape's Reset, and like the tape it is not safe for concurrent use. Actions given to LogProb
// must stay as they are until Reset. Wrong shapes, actions that do not exist and masks that
// allow nothing panic.
package dist

import (
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/policies/nn"
)

// Distribution has the methods that all distributions of this package share.
type Distribution interface {
	// ActionSize is the number of numbers in an action.
	ActionSize() int
	// LogProb is the logarithm of the probability, or of its density, of an action in each row:
	// one column.
	LogProb(actions []float32) nn.Value
	// Sample draws an action for each row, and writes it to dst.
	Sample(dst []float32, rng *rand.Rand)
	// Mode writes the action of a greedy policy to dst.
	Mode(dst []float32)
}

// checkActions panics unless there is an action for each row.
func checkActions(what string, got, rows, size int) {
	if got != rows*size {
		panic(fmt.Sprintf("dist: %s of %d rows got actions of %d numbers, want %d", what, rows, got, rows*size))
	}
}
