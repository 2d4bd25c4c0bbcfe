package ddpg

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a DDPG. Obs and Action must be set; every other zero value has the default of
// CleanRL's ddpg_continuous_action.py.
type Config struct {
	Obs    envs.Space
	Action envs.Box // with finite bounds
	Seed   uint64   // of the initial weights
	Hidden []int    // widths of the hidden layers of actor and critic; nil means 256, 256

	Gamma float64 // discount of one step; 0 means 0.99
	Tau   float64 // fraction by which the targets follow at each update of the actor; 0 means 0.005
	// ActorEvery is the number of updates of the critic for each one of the actor and the targets;
	// 0 means 2, the paper has 1. The first update has one.
	ActorEvery int
	// ExplorationNoise is the standard deviation of the noise on actions, in units of half the
	// interval of each action value; 0 means 0.1, negative: none.
	ExplorationNoise float64
	// OrnsteinUhlenbeck has the noise be a process that returns to 0: see policies.OrnsteinUhlenbeckNoise. It is the
	// noise of the paper, with a deviation of 0.2.
	OrnsteinUhlenbeck bool

	Actor  nn.AdamConfig // a rate of 0 means 3e-4
	Critic nn.AdamConfig // a rate of 0 means 3e-4
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Hidden == nil {
		c.Hidden = []int{256, 256}
	}
	def(&c.Gamma, 0.99)
	def(&c.Tau, 0.005)
	def(&c.ExplorationNoise, 0.1)
	def(&c.Actor.Rate, 3e-4)
	def(&c.Critic.Rate, 3e-4)
	if c.ActorEvery == 0 {
		c.ActorEvery = 2
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("ddpg config: "+format, args...))
		}
	}
	check(c.Obs != nil && c.Obs.Dim() >= 1, "Obs is %v, want a space of at least one value", c.Obs)
	check(c.Action.Dim() >= 1, "Action is %v, want at least one value", c.Action)
	bounds := policies.Bounded(c.Action)
	check(bounds == nil, "Action has %v", bounds)
	for i, w := range c.Hidden {
		check(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.Tau > 0 && c.Tau <= 1, "Tau is %v, want more than 0 and at most 1", c.Tau)
	check(c.ActorEvery >= 1, "ActorEvery is %d, want at least 1", c.ActorEvery)
	check(c.ExplorationNoise-c.ExplorationNoise == 0, "ExplorationNoise is %v, want a finite number", c.ExplorationNoise)
	check(c.Actor.Rate > 0, "Actor.Rate is %v, want more than 0", c.Actor.Rate)
	check(c.Critic.Rate > 0, "Critic.Rate is %v, want more than 0", c.Critic.Rate)
	return errors.Join(faults...)
}
