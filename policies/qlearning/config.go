package qlearning

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// Config describes a Q-learning. Obs and Action must be set; every other zero value has a default.
type Config struct {
	Obs    envs.Discrete // observations, each a row of the table
	Action envs.Discrete // at least 2

	// Rate is the step size alpha, the part of a difference to its target by which a value moves;
	// in (0, 1]; 0 means 0.5, as in example 6.5 of Sutton and Barto. Where rewards or transitions
	// are random, a smaller or falling one (SetRate) is needed.
	Rate float64
	// Gamma is the discount of one step; in (0, 1]; 0 means 0.99, as in the other packages.
	// Examples 6.5 and 6.6 have 1.
	Gamma float64
	// Epsilon is the probability with which Act takes an action at random, unless it is greedy, by
	// the env steps of the job; nil means 0.1 always, as in example 6.5.
	Epsilon policies.Schedule
	// Initial is the first value of every action; 0 as in example 6.5. A value above all returns
	// makes it try every action (section 2.6).
	Initial float64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Rate == 0 {
		c.Rate = 0.5
	}
	if c.Gamma == 0 {
		c.Gamma = 0.99
	}
	if c.Epsilon == nil {
		c.Epsilon = policies.Constant(0.1)
	}
	return c
}

// maxValues bounds the table.
const maxValues = 1 << 28

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("qlearning config: "+format, args...))
		}
	}
	check(c.Obs.N >= 1, "Obs is %v, want at least 1 observation", c.Obs)
	check(c.Action.N >= 2, "Action is %v, want at least 2 actions", c.Action)
	check(c.Action.N < 1 || c.Obs.N <= maxValues/c.Action.N, "Obs is %v and Action %v, want at most %d values", c.Obs, c.Action, maxValues)
	check(c.Rate > 0 && c.Rate <= 1, "Rate is %v, want more than 0 and at most 1", c.Rate)
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(float32(c.Initial)-float32(c.Initial) == 0, "Initial is %v, want a finite float32", c.Initial)
	return errors.Join(faults...)
}
