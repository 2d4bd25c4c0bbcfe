package appo

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes an APPO. Obs and Action must be set; every other zero value has the default of
// RLlib's APPOConfig, unless its comment gives another source.
type Config struct {
	Obs    envs.Space
	Action envs.Space // Discrete, MultiDiscrete or Box
	Seed   uint64     // of the initial weights
	Hidden []int      // widths of the hidden layers of actor and critic; nil means 64, 64

	Length int     // steps of the sequences in a batch; 0 means 50
	Gamma  float64 // discount of one step; 0 means 0.99
	MaxRho float64 // greatest importance ratio of the temporal differences, see impala.Config; 0 means 1
	MaxC   float64 // greatest ratio by which differences reach back in time; 0 means 1
	Clip   float64 // epsilon of the clipped surrogate objective; 0 means 0.4

	// KLCoef is the first coefficient of a penalty on the Kullback-Leibler divergence from the policy to
	// its target; 0: no penalty. RLlib's kl_coeff is 1 where use_kl_loss is set. With each update of the
	// target the coefficient adapts: times 1.5 if the mean divergence since the one before was more than
	// twice KLTarget, and half if it was less than half of it.
	KLCoef   float64
	KLTarget float64 // nats; 0 means 0.01
	// TargetEvery is the number of updates between those of the target; 0 means 2. With 1, target and
	// policy are equal in each update, and nothing is clipped but the correction.
	TargetEvery int

	EntropyCoef float64       // weight of the entropy; 0 means 0.01, negative: none
	ValueCoef   float64       // weight of half of the squared error of the values; 0 means 0.5
	Adam        nn.AdamConfig // the optimiser; a rate of 0 means 5e-4
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
	if c.TargetEvery == 0 {
		c.TargetEvery = 2
	}
	def(&c.Gamma, 0.99)
	def(&c.MaxRho, 1)
	def(&c.MaxC, 1)
	def(&c.Clip, 0.4)
	def(&c.KLTarget, 0.01)
	def(&c.EntropyCoef, 0.01)
	def(&c.ValueCoef, 0.5)
	def(&c.Adam.Rate, 5e-4)
	def(&c.MaxGradNorm, 40)
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := actorcritic.Faults("appo", c.Obs, c.Action, c.Hidden)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("appo config: "+format, args...))
		}
	}
	check(c.Length >= 1, "Length is %d, want at least 1", c.Length)
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.MaxRho > 0, "MaxRho is %v, want more than 0", c.MaxRho)
	check(c.MaxC > 0 && c.MaxC <= c.MaxRho, "MaxC is %v, want more than 0 and at most MaxRho, which is %v", c.MaxC, c.MaxRho)
	check(c.Clip > 0 && c.Clip < 1, "Clip is %v, want more than 0 and less than 1", c.Clip)
	check(c.KLCoef >= 0, "KLCoef is %v, want at least 0", c.KLCoef)
	check(c.KLTarget > 0, "KLTarget is %v, want more than 0", c.KLTarget)
	check(c.TargetEvery >= 1, "TargetEvery is %d, want at least 1", c.TargetEvery)
	check(c.ValueCoef >= 0, "ValueCoef is %v, want at least 0", c.ValueCoef)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	return errors.Join(faults...)
}
