// Package rainbow is deep Q-learning with six extensions, as settings of package c51 and of a replay
// buffer. It adds no algorithm: it combines
//
//   - the categorical distribution of returns: package c51;
//   - double Q-learning, dueling networks and noisy networks instead of random actions: c51.Config's
//     Double, Dueling and Noisy;
//   - n-step returns: c51.Config's NStep, which a collector reads in the Spec of the policy;
//   - prioritised replay, with the divergence from the target as priority: the column policies.TDError
//     that c51 writes, and data.Prioritised.
//
// For example, where a run makes 100,000 updates:
//
//	p := rainbow.New(rainbow.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7, Low: 0, High: 100})
//	replay := rainbow.Replay(data.UniformConfig{Capacity: 50_000, Seed: 7}, 100_000)
//	t.Use(r.Exchange(...), r.Collect(env, ...), r.Learn(replay, ...))   // see package middleware/rl
//
// M. Hessel et al., "Rainbow: Combining Improvements in Deep Reinforcement Learning" (2018). The
// defaults are those of its table of hyperparameters, for Atari games. Two things differ: the streams of the
// dueling network share all hidden layers, and the online network chooses next actions with the noise of
// its predictions.
//
// The policy is a *c51.C51, and errors and checkpoints have that name. Its rules for concurrency and
// errors apply.
package rainbow

import (
	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// Config configures a Rainbow. Obs and Action must be set; every other zero value has the
// paper's default.
type Config struct {
	Obs    envs.Space
	Action envs.Discrete
	Seed   uint64 // of the initial weights and of the noise
	// Hidden are the widths of the hidden layers; nil means 512, the paper's behind its convolutions.
	Hidden []int

	Atoms     int           // returns that the distributions are made of; 0 means 51
	Low, High float64       // the least and the greatest of them; both 0 mean -10 and 10
	NStep     int           // rewards in a return; 0 means 3
	Gamma     float64       // discount of one step; 0 means 0.99
	Adam      nn.AdamConfig // a rate of 0 means 6.25e-5, an epsilon of 0 means 1.5e-4
	// TargetEvery is the number of updates between copies of the online network to the target network;
	// 0 means 2,000: the paper's 32,000 frames, at 4 frames for each action and 4 actions for each
	// update.
	TargetEvery int
}

// C51 returns the config of the policy.
func (c Config) C51() c51.Config {
	if c.Hidden == nil {
		c.Hidden = []int{512}
	}
	if c.Low == 0 && c.High == 0 {
		c.Low, c.High = -10, 10
	}
	def(&c.Atoms, 51)
	def(&c.NStep, 3)
	def(&c.Gamma, 0.99)
	def(&c.Adam.Rate, 6.25e-5)
	def(&c.Adam.Epsilon, 1.5e-4)
	def(&c.TargetEvery, 2000)
	return c51.Config{
		Obs: c.Obs, Action: c.Action, Seed: c.Seed, Hidden: c.Hidden, Atoms: c.Atoms, Low: c.Low, High: c.High,
		Double: true, Dueling: true, Noisy: true, NStep: c.NStep, Gamma: c.Gamma, Adam: c.Adam, TargetEvery: c.TargetEvery,
	}
}

// def replaces a zero value.
func def[T int | float64](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// New returns a Rainbow with fresh weights. It panics with all faults of the config, as c51.New does.
func New(cfg Config) *c51.C51 { return c51.New(cfg.C51()) }

// Replay returns the source of a run of that many updates: a prioritised buffer with an exponent of 0.5,
// whose correction for priorities rises in a straight line from 0.4 to 1, and batches of 32 for each 4
// rows, the first one when there are 20,000 rows (the paper's 80,000 frames), or as many as the
// capacity if that is less. It panics as data.NewReplay does.
func Replay(buffer data.UniformConfig, updates int) *data.Replay {
	b := data.NewPrioritised(data.PrioritisedConfig{UniformConfig: buffer, Alpha: 0.5})
	return data.NewReplay(b, data.ReplayConfig{
		Batch: 32, Every: 4, StartAt: min(20_000, b.Capacity()), Beta: policies.Linear(0.4, 1, updates),
	})
}
