package sac

import (
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a SAC. Obs and Action must be set; every other zero value has the default of
// CleanRL's sac_continuous_action.py. Where a comment names a second default, that is for discrete
// actions, and of CleanRL's sac_atari.py.
type Config struct {
	Obs    envs.Space
	Action envs.Space // a Box with finite bounds, or a Discrete
	Seed   uint64     // of the initial weights and of the noise
	Hidden []int      // widths of the hidden layers of actor and critics; nil means 256, 256

	Gamma float64 // discount of one step; 0 means 0.99
	Tau   float64 // fraction by which the target critics follow when they do; 0 means 0.005, discrete 1
	// TargetEvery is the number of updates between those of the target critics; 0 means 1, discrete
	// 2000: 8000 env steps with one update for each 4 of them.
	TargetEvery int
	// Alpha is the weight of the entropy; 0 means that it is learned, so that the entropy comes to
	// TargetEntropy.
	Alpha float64
	// TargetEntropy is in nats; 0 means minus the number of action values, discrete 0.89 of the
	// entropy of equal probabilities.
	TargetEntropy float64
	// ActorEvery is the number of updates between those of the actor and alpha, of which as many
	// are then made at once; 0 means 2, discrete 1.
	ActorEvery int
	Actor      nn.AdamConfig // a rate of 0 means 3e-4; an epsilon of 0 means 1e-8, discrete 1e-4
	// Threads is the number of goroutines that compute a large product of an update; 0 means 1. Each
	// keeps a processor busy while Learn runs. It does not change a bit of the results.
	Threads int
	// DrawEvery, if it is not 0, has continuous actions explore with noise that depends on the state, by a matrix that each
	// environment draws anew after so many steps: see nn.StateDeviation. The means of actions are then clipped to +-2
	// before tanh, and standard deviations are not, as in Stable-Baselines3.
	DrawEvery int
	LogStd    float64       // logarithm of the first deviations of that matrix; 0 means -3
	Critic    nn.AdamConfig // also of alpha; a rate of 0 means 1e-3, discrete 3e-4; epsilon as Actor's
}

// discrete returns the number of discrete actions, or 0 if actions are continuous.
func (c Config) discrete() int {
	d, _ := c.Action.(envs.Discrete)
	return d.N
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Hidden == nil {
		c.Hidden = []int{256, 256}
	}
	def(&c.Threads, 1)
	def(&c.Gamma, 0.99)
	def(&c.Actor.Rate, 3e-4)
	if n := c.discrete(); n > 0 {
		def(&c.Tau, 1)
		def(&c.TargetEvery, 2000)
		def(&c.TargetEntropy, 0.89*math.Log(float64(n)))
		def(&c.ActorEvery, 1)
		def(&c.Critic.Rate, 3e-4)
		def(&c.Actor.Epsilon, 1e-4)
		def(&c.Critic.Epsilon, 1e-4)
		return c
	}
	def(&c.Tau, 0.005)
	def(&c.TargetEvery, 1)
	def(&c.LogStd, -3)
	if c.Action != nil {
		def(&c.TargetEntropy, -float64(c.Action.Dim()))
	}
	def(&c.ActorEvery, 2)
	def(&c.Critic.Rate, 1e-3)
	return c
}

// def replaces a zero value.
func def[T int | float64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("sac config: "+format, args...))
		}
	}
	check(c.Obs != nil && c.Obs.Dim() >= 1, "Obs is %v, want a space of at least one value", c.Obs)
	switch a := c.Action.(type) {
	case envs.Discrete:
		check(a.N >= 2 && a.Start == 0, "Action is %v, want at least 2 actions from 0", a)
	case envs.Box:
		check(a.Dim() >= 1, "Action is %v, want at least one value", a)
		bounds := policies.Bounded(a)
		check(bounds == nil, "Action has %v", bounds)
	default:
		check(false, "Action is %v, want a Box or a Discrete", c.Action)
	}
	for i, w := range c.Hidden {
		check(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.Tau > 0 && c.Tau <= 1, "Tau is %v, want more than 0 and at most 1", c.Tau)
	check(c.TargetEvery >= 1, "TargetEvery is %d, want at least 1", c.TargetEvery)
	check(c.Alpha >= 0, "Alpha is %v, want at least 0", c.Alpha)
	check(c.ActorEvery >= 1, "ActorEvery is %d, want at least 1", c.ActorEvery)
	check(c.DrawEvery >= 0, "DrawEvery is %d, want at least 0", c.DrawEvery)
	check(c.DrawEvery == 0 || c.discrete() == 0, "DrawEvery is %d, want 0 with discrete actions", c.DrawEvery)
	check(c.Threads >= 1, "Threads is %d, want at least 1", c.Threads)
	check(c.Actor.Rate > 0, "Actor.Rate is %v, want more than 0", c.Actor.Rate)
	check(c.Critic.Rate > 0, "Critic.Rate is %v, want more than 0", c.Critic.Rate)
	return errors.Join(faults...)
}
