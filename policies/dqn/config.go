package dqn

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// Loss is how a difference to the target counts.
type Loss uint8

// The losses.
const (
	Huber Loss = iota // clipped differences, as in Mnih et al. (2015)
	MSE
)

// Config describes a DQN. Obs and Actions must be set; every other zero value
// has a default. Sources are listed in the package's documentation.
type Config struct {
	Obs    envs.Space    // of at least one value
	Action envs.Discrete // at least 2 actions
	Seed   uint64        // of the initial weights and of the noise
	Hidden []int         // widths of the hidden layers; nil means 128, 128
	// Init fills the weights of hidden layers, unless they are noisy; nil means nn.Kaiming. Those of PyTorch,
	// and so of CleanRL and Stable-Baselines3, are nn.FanIn.
	Init nn.Init

	Double  bool // choose the next action by the online network (van Hasselt et al.)
	Dueling bool // value and advantage streams (Wang et al.)
	// Noisy gives all layers noisy weights, which explore instead of random actions (Fortunato et al.).
	Noisy bool
	NStep int // rewards in a return; 0 means 1, at most 255

	// Epsilon is the probability of a random action by the env steps of the job; nil means from 1
	// to 0.05 over 250,000, as in CleanRL's dqn.py. It must be nil if Noisy is set.
	Epsilon policies.Schedule

	Gamma float64 // discount of one step; 0 means 0.99; in (0, 1]
	Loss  Loss    // 0 means Huber
	// Adam is the optimiser; its zero value has the paper's settings.
	Adam nn.AdamConfig
	// MaxGradNorm clips the norm of all gradients together; 0 means 10, a
	// negative value does not clip.
	MaxGradNorm float64
	// TargetEvery is the number of updates between copies of the online
	// network to the target network; 0 means 500. It must be 0 if Tau is set.
	TargetEvery int
	// Tau, if not 0, moves the target network by this fraction towards the
	// online network after every update instead; in (0, 1].
	Tau float64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Init == nil {
		c.Init = nn.Kaiming
	}
	if c.Hidden == nil {
		c.Hidden = []int{128, 128}
	}
	if c.Epsilon == nil && !c.Noisy {
		c.Epsilon = policies.Linear(1, 0.05, 250_000)
	}
	if c.NStep == 0 {
		c.NStep = 1
	}
	if c.Gamma == 0 {
		c.Gamma = 0.99
	}
	if c.Adam.Rate == 0 {
		c.Adam.Rate = 1e-3
	}
	if c.MaxGradNorm == 0 {
		c.MaxGradNorm = 10
	}
	if c.TargetEvery == 0 && c.Tau == 0 {
		c.TargetEvery = 500
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := c.model().Faults()
	if c.Loss > MSE {
		faults = append(faults, fmt.Errorf("dqn config: Loss is %d, want Huber or MSE", c.Loss))
	}
	return errors.Join(faults...)
}

// model returns the config of the networks.
func (c Config) model() qnetwork.Config {
	return qnetwork.Config{
		Algorithm: "dqn", Obs: c.Obs, Action: c.Action, Seed: c.Seed, Hidden: c.Hidden, Init: c.Init,
		Double: c.Double, Dueling: c.Dueling, Noisy: c.Noisy, NStep: c.NStep, Epsilon: c.Epsilon, Gamma: c.Gamma,
		Adam: c.Adam, MaxGradNorm: c.MaxGradNorm, TargetEvery: c.TargetEvery, Tau: c.Tau,
	}
}
