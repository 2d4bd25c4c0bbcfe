package envs

import "fmt"

// AutoresetMode determines when a vector resets an environment whose episode ended.
// The modes are Gymnasium's.
type AutoresetMode uint8

// The autoreset modes.
const (
	// NextStep resets at the next Step, which ignores that environment's
	// action and returns the first observation, reward 0 and no flags: it is
	// no transition. This is Gymnasium's default.
	NextStep AutoresetMode = iota
	// SameStep resets within the Step that ends the episode: Obs is the first
	// observation of the next episode, FinalObs the last one of the ended.
	SameStep
	// Disabled leaves it to the caller: ResetSome before the next Step.
	Disabled
)

// String returns Gymnasium's name of the mode.
func (m AutoresetMode) String() string {
	switch m {
	case NextStep:
		return "NextStep"
	case SameStep:
		return "SameStep"
	case Disabled:
		return "Disabled"
	}
	return fmt.Sprintf("AutoresetMode(%d)", uint8(m))
}

// Vector is Num environments of one kind that step together, over flat arrays.
// [Sync] and [Async] are vectors.
type Vector interface {
	// Name is that of the environments.
	Name() string
	// Num is the number of environments.
	Num() int
	// ObservationSpace is the space of one environment's observations.
	ObservationSpace() Space
	// ActionSpace is the space of one environment's actions.
	ActionSpace() Space
	// Autoreset is the vector's mode.
	Autoreset() AutoresetMode
	// Reset starts an episode in every environment and returns the
	// observations, Num x ObservationSpace().Dim(). With a seed, environment i
	// is given seed+i.
	Reset(seed ...uint64) (obs []float32, err error)
	// ResetSome starts an episode in the environments with mask[i] set and
	// returns all observations.
	ResetSome(mask []bool) (obs []float32, err error)
	// Step runs one time step. actions is Num x ActionSpace().Dim(). An action
	// that is not in the space is an [*Error] with the environment's index that
	// wraps [ErrAction]; no environment has stepped then. The action of an
	// environment that is reset in this step (NextStep) may be anything.
	Step(actions []float32) (*Result, error)
}

// Result is the outcome of one step of a vector. It is overwritten by the next
// call on the vector. Obs and FinalObs are Num x Dim, the others have Num.
type Result struct {
	Obs        []float32
	Rewards    []float64
	Terminated []bool
	Truncated  []bool
	// FinalObs has the last observation of each episode that ended in this
	// step, copied; the rows of other environments mean nothing. In NextStep
	// and Disabled mode it equals the row of Obs.
	FinalObs []float32
	// Reset reports that this step was the reset of that environment (NextStep
	// only): there is no transition.
	Reset []bool
	Infos []Info
}

func newResult(n, dim int) Result {
	return Result{
		Obs: make([]float32, n*dim), FinalObs: make([]float32, n*dim),
		Rewards: make([]float64, n), Terminated: make([]bool, n), Truncated: make([]bool, n),
		Reset: make([]bool, n), Infos: make([]Info, n),
	}
}

// rows returns the part of the result for environments from (inclusive) to to,
// over the same memory.
func (r *Result) rows(from, to, dim int) Result {
	return Result{
		Obs: r.Obs[from*dim : to*dim : to*dim], FinalObs: r.FinalObs[from*dim : to*dim : to*dim],
		Rewards: r.Rewards[from:to:to], Terminated: r.Terminated[from:to:to], Truncated: r.Truncated[from:to:to],
		Reset: r.Reset[from:to:to], Infos: r.Infos[from:to:to],
	}
}
