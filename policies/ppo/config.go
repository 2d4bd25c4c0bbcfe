package ppo

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
)

// ValueClip says how the loss of the values is limited.
type ValueClip uint8

// The kinds of value clip.
const (
	// ClipValue limits how far a value moves from that of the rollout, to +-Clip, and takes the
	// greater of both squared errors: CleanRL and OpenAI's baselines.
	ClipValue ValueClip = iota
	// ClipError limits the squared error to ValueClipParam: RLlib.
	ClipError
	// NoValueClip takes the squared error.
	NoValueClip
)

// Config describes a PPO. Obs and Action must be set; every other zero value has CleanRL's
// default for ppo.py, unless its comment says otherwise.
type Config struct {
	Obs    envs.Space
	Action envs.Space // Discrete, MultiDiscrete or Box, whose bounds actions may leave: see envs.ClipAction
	Seed   uint64     // of the initial weights
	Hidden []int      // widths of the hidden layers of actor and critic; nil means 64, 64

	Clip        float64 // epsilon of the clipped surrogate objective; 0 means 0.2
	EntropyCoef float64 // weight of the entropy; 0 means 0.01, negative: none
	ValueCoef   float64 // weight of the loss of the values; 0 means 0.5
	ValueClip   ValueClip
	// ValueClipParam is the greatest squared error that counts, with ClipError; 0 means 10,
	// RLlib's default.
	ValueClipParam float64
	// RawAdvantages leaves advantages as they are, rather than to make the mean of each minibatch
	// 0 and the standard deviation 1.
	RawAdvantages bool
	// Adam is the optimiser; zero values mean a rate of 2.5e-4 and an epsilon of 1e-5.
	Adam nn.AdamConfig
	// MaxGradNorm clips the norm of all gradients together; 0 means 0.5, negative: no clipping.
	MaxGradNorm float64
	// LogStd is the logarithm of the first standard deviation of continuous actions.
	LogStd float64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	def := func(v *float64, d float64) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Hidden == nil {
		c.Hidden = []int{64, 64}
	}
	def(&c.Clip, 0.2)
	def(&c.EntropyCoef, 0.01)
	def(&c.ValueCoef, 0.5)
	def(&c.ValueClipParam, 10)
	def(&c.Adam.Rate, 2.5e-4)
	def(&c.Adam.Epsilon, 1e-5)
	def(&c.MaxGradNorm, 0.5)
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("ppo config: "+format, args...))
		}
	}
	check(c.Obs != nil && c.Obs.Dim() >= 1, "Obs is %v, want a space of at least one value", c.Obs)
	switch a := c.Action.(type) {
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
		check(false, "Action is %v, want a Discrete, a MultiDiscrete or a Box", c.Action)
	}
	for i, w := range c.Hidden {
		check(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	check(c.Clip > 0 && c.Clip < 1, "Clip is %v, want more than 0 and less than 1", c.Clip)
	check(c.ValueCoef >= 0, "ValueCoef is %v, want at least 0", c.ValueCoef)
	check(c.ValueClip <= NoValueClip, "ValueClip is %d, want ClipValue, ClipError or NoValueClip", c.ValueClip)
	check(c.ValueClipParam > 0, "ValueClipParam is %v, want more than 0", c.ValueClipParam)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	return errors.Join(faults...)
}
