package qrdqn

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// Config describes a QRDQN. Obs and Action must be set; every other zero value has the default of
// sb3-contrib's QRDQN, which are the paper's for Atari games except for the network.
type Config struct {
	Obs    envs.Space    // of at least one value
	Action envs.Discrete // at least 2 actions
	Seed   uint64        // of the initial weights and of the noise
	Hidden []int         // widths of the hidden layers; nil means 64, 64

	Quantiles int // of the distribution of each action; 0 means 200
	// Kappa is the difference, in units of the discounted return, up to which Huber's function is a
	// square; 0 means 1.
	Kappa float64

	Double  bool // choose the next action by the online network (van Hasselt et al.)
	Dueling bool // value and advantage streams of each quantile (Wang et al.)
	// Noisy gives all layers noisy weights, which explore instead of random actions (Fortunato et al.).
	Noisy bool
	NStep int // rewards in a return; 0 means 1, at most 255

	// Epsilon is the probability of a random action by the env steps of the job; nil means from 1
	// to 0.01 over 250,000: 0.005 of the paper's 50,000,000. It must be nil if Noisy is set.
	Epsilon policies.Schedule

	Gamma float64 // discount of one step; 0 means 0.99; in (0, 1]
	// Adam is the optimiser; a rate of 0 means 5e-5, an epsilon of 0 means 0.01 / 32, where 32 is the
	// number of rows in a batch of theirs.
	Adam        nn.AdamConfig
	MaxGradNorm float64 // clips the norm of all gradients together; 0 or less does not clip
	// TargetEvery is the number of updates between copies of the online network to the target network;
	// 0 means 2,500: 10,000 env steps with one update for each 4 of them. It must be 0 if Tau is set.
	TargetEvery int
	// Tau, if not 0, moves the target network by this fraction towards the online network after every
	// update instead; in (0, 1].
	Tau float64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Hidden == nil {
		c.Hidden = []int{64, 64}
	}
	if c.Quantiles == 0 {
		c.Quantiles = 200
	}
	if c.Kappa == 0 {
		c.Kappa = 1
	}
	if c.Epsilon == nil && !c.Noisy {
		c.Epsilon = policies.Linear(1, 0.01, 250_000)
	}
	if c.NStep == 0 {
		c.NStep = 1
	}
	if c.Gamma == 0 {
		c.Gamma = 0.99
	}
	if c.Adam.Rate == 0 {
		c.Adam.Rate = 5e-5
	}
	if c.Adam.Epsilon == 0 {
		c.Adam.Epsilon = 0.01 / 32
	}
	if c.TargetEvery == 0 && c.Tau == 0 {
		c.TargetEvery = 2500
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := c.model().Faults()
	if c.Quantiles < 1 {
		faults = append(faults, fmt.Errorf("qrdqn config: Quantiles is %d, want at least 1", c.Quantiles))
	}
	if !(c.Kappa > 0) || c.Kappa-c.Kappa != 0 {
		faults = append(faults, fmt.Errorf("qrdqn config: Kappa is %v, want a finite number above 0", c.Kappa))
	}
	return errors.Join(faults...)
}

// model returns the config of the networks.
func (c Config) model() qnetwork.Config {
	return qnetwork.Config{
		Algorithm: "qrdqn", Obs: c.Obs, Action: c.Action, Seed: c.Seed, Hidden: c.Hidden, Init: nn.FanIn, Width: c.Quantiles,
		Double: c.Double, Dueling: c.Dueling, Noisy: c.Noisy, NStep: c.NStep, Epsilon: c.Epsilon, Gamma: c.Gamma,
		Adam: c.Adam, MaxGradNorm: c.MaxGradNorm, TargetEvery: c.TargetEvery, Tau: c.Tau,
	}
}
