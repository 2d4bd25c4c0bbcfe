package ppo

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/nn"
)

// ValueClip determines how the loss of the values is limited.
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
// default for ppo.py, unless its comment gives another source.
type Config struct {
	Obs    envs.Space
	Action envs.Space // Discrete, MultiDiscrete or Box, whose bounds actions may leave: see envs.ClipAction
	Seed   uint64     // of the initial weights
	// Hidden has the widths of the hidden layers: of actor and critic each, or with LSTM of the layers
	// below it, which they share; nil means 64, 64.
	Hidden []int
	// LSTM is the number of units of a recurrent layer that actor and critic share; 0: none. CleanRL's
	// ppo_atari_lstm.py has 128.
	LSTM int
	// Length is the number of steps of the sequences in a minibatch, with LSTM: that of the rollouts,
	// whose Sequences must be set. 0 means 128.
	Length int

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
	// KLCoef is the first coefficient of a penalty on the Kullback-Leibler divergence from the policy
	// to that of the rollout, beside the clip; 0: no penalty. RLlib's kl_coeff has the default 0.2.
	// After each rollout the coefficient adapts: times 1.5 if the divergence was, in the mean of all
	// updates, more than twice KLTarget, and half if it was less than half of it. The data must have
	// the columns action_dist and version.
	KLCoef   float64
	KLTarget float64 // nats; 0 means 0.01, the default of RLlib's kl_target
	// StopKL ends the learning from a rollout: after an update for which train/approx_kl was greater,
	// in nats, Learn changes nothing until the column version shows that the data is of another
	// rollout; 0: never. It is the target_kl of CleanRL, which looks at it after each epoch, and of
	// Stable-Baselines3, which stops at 1.5 times that, before the update.
	StopKL float64
	// Adam is the optimiser; zero values mean a rate of 2.5e-4 and an epsilon of 1e-5.
	Adam nn.AdamConfig
	// MaxGradNorm clips the norm of all gradients together; 0 means 0.5, negative: no clipping.
	MaxGradNorm float64
	// LogStd is the logarithm of the first standard deviation of continuous actions.
	LogStd float64
	// DrawEvery, if it is not 0, has continuous actions explore with noise that depends on the state, by a matrix that each
	// environment draws anew after so many steps: see nn.StateDeviation. LogStd is then that of the matrix.
	DrawEvery int
	// Init fills the layers of actor and critic; nil: orthogonal ones, see package actorcritic. PyTorch's are nn.FanIn.
	Init nn.Init
	// Threads is the number of goroutines that compute a large product of an update: those of
	// minibatches of thousands of rows are. Each keeps a processor busy while Learn runs. It does not
	// change a bit of the results. 0 means 1.
	Threads int
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
	def(&c.KLTarget, 0.01)
	def(&c.Adam.Rate, 2.5e-4)
	def(&c.Adam.Epsilon, 1e-5)
	def(&c.MaxGradNorm, 0.5)
	if c.Length == 0 {
		c.Length = 128
	}
	if c.Threads == 0 {
		c.Threads = 1
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := actorcritic.Faults("ppo", c.Obs, c.Action, c.Hidden)
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf("ppo config: "+format, args...))
		}
	}
	check(c.LSTM >= 0, "LSTM is %d, want at least 0", c.LSTM)
	check(c.Length >= 1, "Length is %d, want at least 1", c.Length)
	if _, ok := c.Action.(envs.Box); !ok {
		check(c.DrawEvery == 0, "DrawEvery is %d, want 0 with discrete actions", c.DrawEvery)
	}
	check(c.DrawEvery >= 0, "DrawEvery is %d, want at least 0", c.DrawEvery)
	check(c.Clip > 0 && c.Clip < 1, "Clip is %v, want more than 0 and less than 1", c.Clip)
	check(c.ValueCoef >= 0, "ValueCoef is %v, want at least 0", c.ValueCoef)
	check(c.ValueClip <= NoValueClip, "ValueClip is %d, want ClipValue, ClipError or NoValueClip", c.ValueClip)
	check(c.ValueClipParam > 0, "ValueClipParam is %v, want more than 0", c.ValueClipParam)
	check(c.KLCoef >= 0, "KLCoef is %v, want at least 0", c.KLCoef)
	check(c.KLTarget > 0, "KLTarget is %v, want more than 0", c.KLTarget)
	check(c.StopKL >= 0, "StopKL is %v, want at least 0", c.StopKL)
	check(c.Threads >= 1, "Threads is %d, want at least 1", c.Threads)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	return errors.Join(faults...)
}
