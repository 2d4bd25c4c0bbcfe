package actorcritic

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a [Model]. It comes from the config of an algorithm, which has validated it
// with [Faults] and set its defaults.
type Config struct {
	// Algorithm, such as "ppo", is the first part of the names in errors and checkpoints.
	Algorithm string
	Obs       envs.Space
	Action    envs.Space // Discrete, MultiDiscrete or Box
	Seed      uint64     // of the initial weights
	// Hidden has the widths of the hidden layers: of actor and critic each, or with LSTM of the
	// layers below it, which they share.
	Hidden []int
	// LSTM is the number of units of a recurrent layer that actor and critic share; 0: none.
	LSTM int
	// Length is the number of steps of the sequences in a batch. It counts with LSTM only.
	Length int
	LogStd float64 // logarithm of the first standard deviation of continuous actions
	// DrawEvery, if it is not 0, has continuous actions explore by the noise of nn.StateDeviation, with a
	// matrix that each environment draws anew after so many steps. LogStd is that of its noise then.
	DrawEvery int
	// Init fills all layers of actor and critic but an LSTM; nil: orthogonal ones, as the package comment has them.
	Init nn.Init
	// Extra has the names of the columns that Act adds, of policies.LogProb, policies.Value and
	// policies.ActionDist. With LSTM, policies.State comes behind them.
	Extra []string

	Optimizer     func(size int) nn.Optimizer
	OptimizerName string  // in checkpoints, such as "adam"
	MaxGradNorm   float64 // of all gradients together; 0 or less: no clipping
	Threads       int     // that compute a large product; 0 means 1
}

// Faults reports the faults of the spaces and the widths of hidden layers in the config of an
// algorithm.
func Faults(algorithm string, obs, action envs.Space, hidden []int) []error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(algorithm+" config: "+format, args...))
		}
	}
	check(obs != nil && obs.Dim() >= 1, "Obs is %v, want a space of at least one value", obs)
	switch a := action.(type) {
	case envs.Discrete:
		check(a.N >= 2 && a.Start == 0, "Action is %v, want at least 2 actions from 0", a)
	case envs.MultiDiscrete:
		for i, n := range a.N {
			check(n >= 2, "Action.N[%d] is %d, want at least 2", i, n)
		}
		check(len(a.N) > 0, "Action is %v, want at least one choice", a)
	case envs.Box:
		check(a.Dim() >= 1, "Action is %v, want at least one value", a)
	default:
		check(false, "Action is %v, want a Discrete, a MultiDiscrete or a Box", action)
	}
	for i, w := range hidden {
		check(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	return faults
}
