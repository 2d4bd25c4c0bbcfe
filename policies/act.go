package policies

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
)

// Policy chooses actions and learns from batches. It names the columns that it needs and adds, so
// that collectors, transports and buffers are independent of the algorithm.
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

// Observer is implemented by policies that keep statistics of the collected data, such as the mean of
// the observations. The statistics are part of Weights.
type Observer interface {
	// Observe sums rows up, for Merge. The result is valid until the next call.
	Observe(b *Batch) (summary []float64, err error)
	// Merge adds a summary of Observe, from here or from another learner. A learner calls it
	// once for each row that was collected, after it has learned from the rows. Several learners merge
	// the same summaries in the same order.
	Merge(summary []float64) error
}

// RewardScaler is implemented by policies that learn from rewards divided by the standard deviation of discounted
// returns: the sums of an environment's rewards since the episode began, each discounted by the steps since then.
type RewardScaler interface {
	// ReturnDiscount is the discount of one step in these returns, or 0 if the policy learns from rewards as they are.
	ReturnDiscount() float64
	// MergeReturns takes returns into account, of which moments has the count, the mean and the variance: three numbers
	// for each collector. A learner calls it once for all that was collected, before it learns from it. Several learners
	// merge the same moments in the same order.
	MergeReturns(moments []float64) error
}

// Spec describes a policy.
type Spec struct {
	Obs, Action envs.Space
	Extra       []Column // that Act adds to each row, such as log-probabilities
	Learns      []Column // that Learn needs, in any order and among others
	// Bootstrap, if not empty, is the name of the extra column that a collector keeps of the
	// observation after a row at which an episode was truncated or a sequence ends: the value
	// of an observation that is not in the batch.
	Bootstrap string
	StateSize int // values of recurrent state of each environment; 0: none
	NoiseSize int // values that the exploration keeps of each environment from step to step; 0: none
	// NStep is the number of rewards that a collector joins in a transition, and Gamma their
	// discount; 0 means 1.
	NStep int
	Gamma float64
}

// LearnsFrom reports whether the policy needs a column of that name.
func (s *Spec) LearnsFrom(name string) bool {
	for i := range s.Learns {
		if s.Learns[i].Name == name {
			return true
		}
	}
	return false
}

// Act is one choice of actions, one for each row. The caller owns all memory, and keeps it
// from call to call.
type Act struct {
	Obs    []float32  // rows x Spec.Obs.Dim()
	Greedy bool       // the best action, rather than one to explore with
	Rand   *rand.Rand // of the exploration
	State  []float32  // rows x Spec.StateSize, changed in place
	Noise  []float32  // rows x Spec.NoiseSize, changed in place unless Greedy is set; zero before the first call
	Reset  []bool     // rows whose state is to be zero first; nil: none
	// EnvSteps are those of the whole job so far, which schedules of the exploration go by.
	EnvSteps int
	Action   []float32   // out: rows x Spec.Action.Dim()
	Extra    [][]float32 // out: a block for each column of Spec.Extra; nil: not wanted
	Metrics  []Metric    // out, appended: metrics of the exploration
}

// Check returns the number of rows, or how the caller's memory does not fit spec. An observation
// that is not finite is a *nn.NonFiniteError. Extra and Reset may be nil.
func (a *Act) Check(spec *Spec) (rows int, err error) {
	obs, action := spec.Obs.Dim(), spec.Action.Dim()
	rows = len(a.Obs) / obs
	switch {
	case rows == 0 || len(a.Obs) != rows*obs || len(a.Action) != rows*action:
		return 0, fmt.Errorf("%d observed and %d action values, want %d and %d for each row", len(a.Obs), len(a.Action), obs, action)
	case len(a.State) != rows*spec.StateSize && spec.StateSize > 0:
		return 0, fmt.Errorf("%d state values of %d rows, want %d for each", len(a.State), rows, spec.StateSize)
	case len(a.Noise) != rows*spec.NoiseSize && spec.NoiseSize > 0 && !a.Greedy:
		return 0, fmt.Errorf("%d noise values of %d rows, want %d for each", len(a.Noise), rows, spec.NoiseSize)
	case a.Reset != nil && len(a.Reset) != rows:
		return 0, fmt.Errorf("%d resets of %d rows", len(a.Reset), rows)
	case a.Extra != nil && len(a.Extra) != len(spec.Extra):
		return 0, fmt.Errorf("memory for %d extra columns, want %d", len(a.Extra), len(spec.Extra))
	}
	for i := range a.Extra {
		if c := &spec.Extra[i]; len(a.Extra[i]) != rows*c.Width() {
			return 0, fmt.Errorf("%d values of the extra column %v of %d rows", len(a.Extra[i]), *c, rows)
		}
	}
	return rows, nn.Tensor{Name: Obs, Data: a.Obs}.CheckFinite()
}

// Metric is a named number that an update tells about itself. Names are those of Stable-Baselines3,
// such as train/loss.
type Metric struct {
	Name  string
	Value float64
}

// AppendDefined appends the metrics whose value is not NaN to dst. It is for metrics that are not defined for every
// batch, such as a deviation of discrete actions; a NaN that shows a fault must not pass through it.
func AppendDefined(dst []Metric, metrics ...Metric) []Metric {
	for _, m := range metrics {
		if !math.IsNaN(m.Value) {
			dst = append(dst, m)
		}
	}
	return dst
}
