package impala

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes an IMPALA. Obs and Action must be set; every other zero value has the default of
// RLlib's IMPALAConfig, unless its comment gives another source. The settings of the code that the paper's
// authors have published (github.com/deepmind/scalable_agent) are
//
//	impala.Config{
//		Length: 100, EntropyCoef: 2.5e-4, SumLoss: true, MaxGradNorm: -1,
//		RMSprop: nn.RMSpropConfig{Rate: 4.8e-4, Alpha: 0.99, Epsilon: 0.1, TensorFlow: true},
//	}
type Config struct {
	Obs    envs.Space
	Action envs.Space // Discrete, MultiDiscrete or Box
	Seed   uint64     // of the initial weights
	Hidden []int      // widths of the hidden layers of actor and critic; nil means 64, 64

	Length int     // steps of the sequences in a batch; 0 means 50
	Gamma  float64 // discount of one step; 0 means 0.99
	// MaxRho clips the importance ratios of the temporal differences and of the policy gradient, and
	// with that decides towards which policy's values the critic learns; 0 means 1.
	MaxRho float64
	// MaxC clips the ratios by which differences reach back in time; 0 means 1, and it is at most
	// MaxRho.
	MaxC float64

	EntropyCoef float64 // weight of the entropy; 0 means 0.01, negative: none
	ValueCoef   float64 // weight of half of the squared error of the values; 0 means 0.5
	// SumLoss adds the losses of all steps of a batch up, as the paper does, rather than to take their
	// mean. Clipping and the epsilon of the optimiser depend on it.
	SumLoss bool
	Adam    nn.AdamConfig // the optimiser; a rate of 0 means 5e-4
	// RMSprop is the optimiser instead of Adam if its Rate is not 0.
	RMSprop nn.RMSpropConfig
	// MaxGradNorm clips the norm of all gradients together; 0 means 40, negative: no clipping.
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
	if c.Length == 0 {
		c.Length = 50
	}
	def(&c.Gamma, 0.99)
	def(&c.MaxRho, 1)
	def(&c.MaxC, 1)
	def(&c.EntropyCoef, 0.01)
	def(&c.ValueCoef, 0.5)
	def(&c.Adam.Rate, 5e-4)
	def(&c.MaxGradNorm, 40)
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := actorcritic.Faults("impala", c.Obs, c.Action, c.Hidden)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("impala config: "+format, args...))
		}
	}
	check(c.Length >= 1, "Length is %d, want at least 1", c.Length)
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.MaxRho > 0, "MaxRho is %v, want more than 0", c.MaxRho)
	check(c.MaxC > 0 && c.MaxC <= c.MaxRho, "MaxC is %v, want more than 0 and at most MaxRho, which is %v", c.MaxC, c.MaxRho)
	check(c.ValueCoef >= 0, "ValueCoef is %v, want at least 0", c.ValueCoef)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	check(c.RMSprop.Rate >= 0, "RMSprop.Rate is %v, want at least 0", c.RMSprop.Rate)
	return errors.Join(faults...)
}
