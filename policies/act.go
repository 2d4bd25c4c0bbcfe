package policies

import (
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
)

// Policy chooses actions and learns from batches. It names the columns that it needs and adds, so
// that what collects, carries and keeps data needs to know no algorithm.
type Policy interface {
	Model
	Saver
	// Spec describes the policy. It does not change.
	Spec() Spec
	// Act chooses an action for each row of a.Obs.
	Act(a *Act) error
	// Learn makes one update from a batch with the columns that Spec().Learns lists. When a value
	// is not finite, the error names tensor and update, and no weight becomes so: networks that were changed before it in
	// the same update keep that change. The
	// metrics are in the order in which they are shown, and valid until the next call.
	Learn(b *Batch) ([]Metric, error)
}

// Spec describes a policy.
type Spec struct {
	Obs, Action envs.Space
	Extra       []Column // that Act adds to each row, such as log-probabilities
	Learns      []Column // that Learn needs, in any order and among others
	// Bootstrap, if not empty, is the name of the extra column that a collector keeps of the
	// observation behind a row where an episode was truncated or a sequence ends: the value
	// of what is not in the batch.
	Bootstrap string
	StateSize int // values of recurrent state of each environment; 0: none
}

// Act is one choice of actions, one for each row. The caller owns all memory, and keeps it
// from call to call.
type Act struct {
	Obs    []float32   // rows x Spec.Obs.Dim()
	Greedy bool        // the best action, rather than one to explore with
	Rand   *rand.Rand  // of the exploration
	State  []float32   // rows x Spec.StateSize, changed in place
	Reset  []bool      // rows whose state is to be zero first; nil: none
	Action []float32   // out: rows x Spec.Action.Dim()
	Extra  [][]float32 // out: a block for each column of Spec.Extra; nil: not wanted
}

// Check returns the number of rows. Lengths of observations and actions that do not fit s are an
// error, and so is an observation that is not finite, a *nn.NonFiniteError.
func (a *Act) Check(s *Spec) (rows int, err error) {
	obs, action := s.Obs.Dim(), s.Action.Dim()
	rows = len(a.Obs) / obs
	if len(a.Obs) != rows*obs || len(a.Action) != rows*action {
		return 0, fmt.Errorf("%d observed and %d action values, want %d and %d for each row", len(a.Obs), len(a.Action), obs, action)
	}
	return rows, nn.Tensor{Name: Obs, Data: a.Obs}.CheckFinite()
}

// Metric is a named number that an update tells about itself. Names are those of Stable-Baselines3,
// such as train/loss.
type Metric struct {
	Name  string
	Value float64
}
