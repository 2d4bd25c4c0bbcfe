// Package presets has settings of algorithms for environments that others have published, with what
// they have reached.
//
//	for _, p := range presets.All() {
//		s := p.Setup(seed)
//		env := s.Envs(s.Num)
//		...
//	}
package presets

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
)

// Preset is an algorithm with the settings for one environment.
type Preset struct {
	Name      string // algorithm/environment/source, such as "ppo/CartPole-v1/cleanrl"
	Settings  string // where the settings are from
	Published string // what was reached with them there; "": nothing is published
	EnvSteps  int    // of a run
	// Greedy says that the published returns are of greedy episodes after training, rather than of
	// the last episodes while training.
	Greedy bool
	// Threshold is the mean return from which the task counts as solved, or that of a gate.
	Threshold float64
	// Unsolved says that the published runs do not reach the threshold, and that ours need not.
	Unsolved bool
	// OnPolicy says that data of other than the newest weights is of no use: nodes go in lockstep.
	OnPolicy bool
	Setup    func(seed uint64) Setup
}

// Setup is what a preset learns with.
type Setup struct {
	Policy  policies.Policy
	Envs    func(n int) envs.Vector
	Num     int // environments of a collector
	Collect rl.CollectConfig
	Source  data.Source
	Learn   rl.LearnConfig
}

// Algorithm is the first part of the name.
func (p *Preset) Algorithm() string { return p.part(0) }

// Env is the second part of the name.
func (p *Preset) Env() string { return p.part(1) }

func (p *Preset) part(i int) string { return strings.SplitN(p.Name, "/", 3)[i] }

// All are the presets, algorithm by algorithm.
func All() []Preset {
	return slices.Concat(dqns(), zooDQNs(), c51s(), ppos(), recurrent(), a2cs(), vtraces(), sacs(), deterministic(), tabular())
}

// Find returns the presets whose names begin with prefix, such as "ppo/CartPole-v1".
func Find(prefix string) ([]Preset, error) {
	all := All()
	found := slices.DeleteFunc(slices.Clone(all), func(p Preset) bool { return !strings.HasPrefix(p.Name, prefix) })
	if len(found) > 0 {
		return found, nil
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return nil, fmt.Errorf("no preset begins with %q: there are %s", prefix, strings.Join(names, ", "))
}

// vectors makes environments of a name of package envs.
func vectors(name string) func(n int) envs.Vector {
	spec, err := envs.Lookup(name)
	if err != nil {
		panic(err)
	}
	return func(n int) envs.Vector { return spec.Sync(n, envs.SameStep) }
}

// The thresholds of Gymnasium; Pendulum-v1 has none.
var thresholds = map[string]float64{
	"CartPole-v1": 475, "Acrobot-v1": -100, "MountainCar-v0": -110, "MountainCarContinuous-v0": 90,
}

// first is a vector of one environment, whose spaces are wanted.
func first(vector func(n int) envs.Vector) (obs, action envs.Space) {
	env := vector(1)
	return env.ObservationSpace(), env.ActionSpace()
}
