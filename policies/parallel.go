package policies

import "github.com/ditask/ditask/policies/nn"

// Parallel is a policy that several learners can train together, each with its own batches: as
// one learner would with all of their rows. It passes the function on to its [nn.Trainer], and
// averages whatever else in an update depends on rows, such as the mean and the deviation with which
// advantages are standardised.
//
// All learners begin with the same state, and Learn makes the same calls of the function on all
// of them. The loss must be a mean over rows. Random numbers for each row of an update differ
// from those of one learner; the learners still stay equal.
type Parallel interface {
	Policy
	// SetAllReduce has the next updates average over the learners by f; nil ends that.
	SetAllReduce(f nn.AllReduce)
}
