package cql

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a CQL. Obs and Action must be set; every other zero value has the default of CORL's
// offline/cql.py, whose batches have 256 rows.
type Config struct {
	Obs    envs.Space
	Action envs.Box // with finite bounds
	Seed   uint64   // of the initial weights and of the noise
	Hidden []int    // widths of the hidden layers of actor and critics; nil means 256, 256, 256

	Gamma float64 // discount of one step; 0 means 0.99
	Tau   float64 // fraction by which the target critics follow at each update; 0 means 0.005
	// ConservativeWeight is the weight of the conservative term, alpha in the paper; 0 means 10, negative:
	// none. d3rlpy has 5.
	ConservativeWeight float64
	// Samples is the number of actions from each of three distributions, by which the sum over all
	// actions is estimated; 0 means 10.
	Samples int
	// Alpha is the weight of the entropy in the actor's loss; 0 means that it is learned, so that the
	// entropy comes to TargetEntropy.
	Alpha         float64
	TargetEntropy float64       // in nats; 0 means minus the number of action values
	Actor         nn.AdamConfig // also of Alpha; a rate of 0 means 3e-5. d3rlpy has 1e-4
	Critic        nn.AdamConfig // a rate of 0 means 3e-4
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Hidden == nil {
		c.Hidden = []int{256, 256, 256}
	}
	def(&c.Gamma, 0.99)
	def(&c.Tau, 0.005)
	def(&c.ConservativeWeight, 10)
	def(&c.Samples, 10)
	def(&c.TargetEntropy, -float64(c.Action.Dim()))
	def(&c.Actor.Rate, 3e-5)
	def(&c.Critic.Rate, 3e-4)
	return c
}

// def replaces a zero value.
func def[T int | float64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// faults collects the faults of a config.
type faults []error

func (f *faults) checkf(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("cql config: "+format, args...))
	}
}

// common checks the fields of both configs.
func (f *faults) common(obs envs.Space, hidden []int, gamma, weight float64) {
	f.checkf(obs != nil && obs.Dim() >= 1, "Obs is %v, want a space of at least one value", obs)
	for i, w := range hidden {
		f.checkf(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	f.checkf(gamma > 0 && gamma <= 1, "Gamma is %v, want more than 0 and at most 1", gamma)
	f.checkf(weight-weight == 0, "ConservativeWeight is %v, want a finite number", weight)
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var f faults
	f.common(c.Obs, c.Hidden, c.Gamma, c.ConservativeWeight)
	f.checkf(c.Action.Dim() >= 1, "Action is %v, want at least one value", c.Action)
	bounds := policies.Bounded(c.Action)
	f.checkf(bounds == nil, "Action has %v", bounds)
	f.checkf(c.Tau > 0 && c.Tau <= 1, "Tau is %v, want more than 0 and at most 1", c.Tau)
	f.checkf(c.Samples >= 1, "Samples is %d, want at least 1", c.Samples)
	f.checkf(c.Alpha >= 0, "Alpha is %v, want at least 0", c.Alpha)
	f.checkf(c.Actor.Rate > 0, "Actor.Rate is %v, want more than 0", c.Actor.Rate)
	f.checkf(c.Critic.Rate > 0, "Critic.Rate is %v, want more than 0", c.Critic.Rate)
	return errors.Join(f...)
}

// DiscreteConfig describes a Discrete. Obs and Action must be set; every other zero value has the default
// of d3rlpy's DiscreteCQL, whose batches have 32 rows. Those are for Atari games: for smaller problems,
// a greater rate and a smaller TargetEvery are usual.
type DiscreteConfig struct {
	Obs    envs.Space
	Action envs.Discrete // at least 2 actions
	Seed   uint64        // of the initial weights
	Hidden []int         // widths of the hidden layers; nil means 256, 256

	Gamma       float64 // discount of one step; 0 means 0.99
	TargetEvery int     // updates between copies of the network to its target; 0 means 8000
	// ConservativeWeight is the weight of the conservative term, alpha in the paper; 0 means 1, negative:
	// none, which is double DQN.
	ConservativeWeight float64
	Adam               nn.AdamConfig // a rate of 0 means 6.25e-5
}

// EnsureDefaults returns the config with its zero values replaced.
func (c DiscreteConfig) EnsureDefaults() DiscreteConfig {
	if c.Hidden == nil {
		c.Hidden = []int{256, 256}
	}
	def(&c.Gamma, 0.99)
	def(&c.TargetEvery, 8000)
	def(&c.ConservativeWeight, 1)
	def(&c.Adam.Rate, 6.25e-5)
	return c
}

// Validate reports every fault of the config at once.
func (c DiscreteConfig) Validate() error {
	c = c.EnsureDefaults()
	var f faults
	f.common(c.Obs, c.Hidden, c.Gamma, c.ConservativeWeight)
	f.checkf(c.Action.N >= 2, "Action has %d actions, want at least 2", c.Action.N)
	f.checkf(c.TargetEvery >= 1, "TargetEvery is %d, want at least 1", c.TargetEvery)
	f.checkf(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	return errors.Join(f...)
}
