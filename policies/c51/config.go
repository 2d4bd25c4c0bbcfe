package c51

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// Config describes a C51. Obs and Action must be set; every other zero value has the default of
// CleanRL's c51.py.
type Config struct {
	Obs    envs.Space    // of at least one value
	Action envs.Discrete // at least 2 actions
	Seed   uint64        // of the initial weights and of the noise
	Hidden []int         // widths of the hidden layers; nil means 120, 84

	// Atoms is the number of returns that the distributions are made of; 0 means 101. The paper's, and
	// the name, is 51.
	Atoms int
	// Low and High are the least and the greatest of the atoms, in units of the discounted return; both
	// 0 mean -100 and 100. Returns beyond them count as these.
	Low, High float64

	Double  bool // choose the next action by the online network (van Hasselt et al.)
	Dueling bool // value and advantage streams of each atom (Wang et al.)
	// Noisy gives all layers noisy weights, which explore instead of random actions (Fortunato et al.).
	Noisy bool
	NStep int // rewards in a return; 0 means 1, at most 255

	// Epsilon is the probability of a random action by the env steps of the job; nil means from 1
	// to 0.05 over 250,000. It must be nil if Noisy is set.
	Epsilon policies.Schedule

	Gamma float64 // discount of one step; 0 means 0.99; in (0, 1]
	// Adam is the optimiser; a rate of 0 means 2.5e-4, an epsilon of 0 means 0.01 / 128, where 128 is
	// the number of rows in a batch of CleanRL's.
	Adam        nn.AdamConfig
	MaxGradNorm float64 // clips the norm of all gradients together; 0 or less does not clip
	// TargetEvery is the number of updates between copies of the online network to the target network;
	// 0 means 50: 500 env steps with one update for each 10 of them. It must be 0 if Tau is set.
	TargetEvery int
	// Tau, if not 0, moves the target network by this fraction towards the online network after every
	// update instead; in (0, 1].
	Tau float64
}

// EnsureDefaults returns the config with its zero values replaced.
func (c Config) EnsureDefaults() Config {
	if c.Hidden == nil {
		c.Hidden = []int{120, 84}
	}
	if c.Atoms == 0 {
		c.Atoms = 101
	}
	if c.Low == 0 && c.High == 0 {
		c.Low, c.High = -100, 100
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
		c.Adam.Rate = 2.5e-4
	}
	if c.Adam.Epsilon == 0 {
		c.Adam.Epsilon = 0.01 / 128
	}
	if c.TargetEvery == 0 && c.Tau == 0 {
		c.TargetEvery = 50
	}
	return c
}

// Validate reports every fault of the config at once.
func (c Config) Validate() error {
	c = c.EnsureDefaults()
	faults := c.model().Faults()
	if c.Atoms < 2 {
		faults = append(faults, fmt.Errorf("c51 config: Atoms is %d, want at least 2", c.Atoms))
	}
	if width := c.High - c.Low; !(width > 0) || width-width != 0 {
		faults = append(faults, fmt.Errorf("c51 config: Low is %v and High is %v, want finite numbers, the lower one first", c.Low, c.High))
	}
	return errors.Join(faults...)
}

// model returns the config of the networks.
func (c Config) model() qnetwork.Config {
	return qnetwork.Config{
		Algorithm: "c51", Obs: c.Obs, Action: c.Action, Seed: c.Seed, Hidden: c.Hidden, Init: nn.FanIn, Width: c.Atoms,
		Double: c.Double, Dueling: c.Dueling, Noisy: c.Noisy, NStep: c.NStep, Epsilon: c.Epsilon, Gamma: c.Gamma,
		Adam: c.Adam, MaxGradNorm: c.MaxGradNorm, TargetEvery: c.TargetEvery, Tau: c.Tau,
	}
}
