package a2c

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes an A2C. Obs and Action must be set; every other zero value has the default of
// Stable-Baselines3's A2C.
type Config struct {
	Obs    envs.Space
	Action envs.Space // Discrete, MultiDiscrete or Box
	Seed   uint64     // of the initial weights
	Hidden []int      // widths of the hidden layers of actor and critic; nil means 64, 64

	EntropyCoef float64 // weight of the entropy; the paper has 0.01 for Atari
	ValueCoef   float64 // weight of the squared error of the values; 0 means 0.5
	// RMSprop is the optimiser; zero values mean a rate of 7e-4, an alpha of 0.99 and an epsilon of
	// 1e-5. With TensorFlow it is that of OpenAI's baselines, which Stable-Baselines3 has as
	// RMSpropTFLike.
	RMSprop nn.RMSpropConfig
	// MaxGradNorm clips the norm of all gradients together; 0 means 0.5, negative: no clipping.
	MaxGradNorm float64
	// LogStd is the logarithm of the first standard deviation of continuous actions.
	LogStd float64
	// DrawEvery, if it is not 0, has continuous actions explore with noise that depends on the state, by a matrix that each
	// environment draws anew after so many steps: see nn.StateDeviation. LogStd is then that of the matrix.
	DrawEvery int
	// Init fills the layers of actor and critic; nil: orthogonal ones, see package actorcritic. PyTorch's are nn.FanIn.
	Init nn.Init
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
	def(&c.ValueCoef, 0.5)
	def(&c.RMSprop.Rate, 7e-4)
	def(&c.RMSprop.Alpha, 0.99)
	def(&c.RMSprop.Epsilon, 1e-5)
	def(&c.MaxGradNorm, 0.5)
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := actorcritic.Faults("a2c", c.Obs, c.Action, c.Hidden)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("a2c config: "+format, args...))
		}
	}
	if _, ok := c.Action.(envs.Box); !ok {
		check(c.DrawEvery == 0, "DrawEvery is %d, want 0 with discrete actions", c.DrawEvery)
	}
	check(c.DrawEvery >= 0, "DrawEvery is %d, want at least 0", c.DrawEvery)
	check(c.EntropyCoef >= 0, "EntropyCoef is %v, want at least 0", c.EntropyCoef)
	check(c.ValueCoef >= 0, "ValueCoef is %v, want at least 0", c.ValueCoef)
	check(c.RMSprop.Rate > 0, "RMSprop.Rate is %v, want more than 0", c.RMSprop.Rate)
	check(c.RMSprop.Alpha > 0 && c.RMSprop.Alpha < 1, "RMSprop.Alpha is %v, want more than 0 and less than 1", c.RMSprop.Alpha)
	return errors.Join(faults...)
}
