package bc

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a BC. Obs and Action must be set; every other zero value has the default of d3rlpy's
// BC, and for discrete actions of its DiscreteBC. Their batches have 100 rows.
type Config struct {
	Obs    envs.Space
	Action envs.Space // a Box with finite bounds, or a Discrete
	Seed   uint64     // of the initial weights
	Hidden []int      // widths of the hidden layers; nil means 256, 256

	// Beta is the weight of the mean square of the logits, which keeps the probabilities of discrete actions
	// from becoming extreme; 0 means 0.5, negative: none.
	Beta float64
	Adam nn.AdamConfig // a rate of 0 means 1e-3
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Hidden == nil {
		c.Hidden = []int{256, 256}
	}
	if c.Beta == 0 {
		c.Beta = 0.5
	}
	if c.Adam.Rate == 0 {
		c.Adam.Rate = 1e-3
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("bc config: "+format, args...))
		}
	}
	check(c.Obs != nil && c.Obs.Dim() >= 1, "Obs is %v, want a space of at least one value", c.Obs)
	switch a := c.Action.(type) {
	case envs.Discrete:
		check(a.N >= 2, "Action is %v, want at least 2 actions", a)
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
	check(c.Beta-c.Beta == 0, "Beta is %v, want a finite number", c.Beta)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	return errors.Join(faults...)
}
