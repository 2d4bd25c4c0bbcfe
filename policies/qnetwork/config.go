package qnetwork

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a [Model]. It comes from the config of an algorithm, which sets its defaults and
// validates it with [Config.Faults].
type Config struct {
	// Algorithm, such as "dqn", is the first part of the names in errors and checkpoints. It also
	// chooses the stream of the noise's random numbers.
	Algorithm string
	Obs       envs.Space    // of at least one value
	Action    envs.Discrete // at least 2 actions
	Seed      uint64        // of the initial weights and of the noise
	Hidden    []int         // widths of the hidden layers
	// Init fills the weights of hidden layers, and nn.FanIn those of the last one. It does not count
	// if Noisy is set.
	Init nn.Init
	// Width is the number of columns of the network's output for each action, such as the atoms of a
	// distribution; 0 means 1. The columns of an action stand together.
	Width int
	// Head turns the network's output, batch x actions*Width, into distributions of the same shape and
	// into the values of actions, batch x actions. With nil, the output is both, and Width is 1.
	Head func(out nn.Value) (distributions, values nn.Value)
	// ExportHead is the part of Head that computes the values of actions, for files that act without the
	// policy. A policy with a Head and without an ExportHead cannot be exported.
	ExportHead func(g *graph.Graph, out graph.Value) (values graph.Value)

	Double  bool // the online network chooses the next action
	Dueling bool // value and advantage streams
	Noisy   bool // noisy weights explore, instead of random actions
	NStep   int  // rewards in a return
	// Epsilon is the probability of a random action by the env steps of the job. It must be nil if
	// Noisy is set.
	Epsilon policies.Schedule
	Gamma   float64 // discount of one step

	Adam        nn.AdamConfig
	MaxGradNorm float64 // of all gradients together; 0 or less: no clipping
	// TargetEvery is the number of updates between copies of the online network to the target
	// network. It must be 0 if Tau is set.
	TargetEvery int
	// Tau, if not 0, moves the target network by this fraction towards the online network after
	// every update instead.
	Tau float64
}

// Faults reports all that is wrong with the config of an algorithm.
func (c Config) Faults() []error {
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(c.Algorithm+" config: "+format, args...))
		}
	}
	check(c.Obs != nil && c.Obs.Dim() >= 1, "Obs is %v, want a space of at least one value", c.Obs)
	check(c.Action.N >= 2, "Action has %d actions, want at least 2", c.Action.N)
	check(!c.Noisy || c.Epsilon == nil, "Noisy and Epsilon are both set, want one of them")
	for i, w := range c.Hidden {
		check(w >= 1, "Hidden[%d] is %d, want at least 1", i, w)
	}
	check(c.NStep >= 1 && c.NStep <= 255, "NStep is %d, want 1 to 255", c.NStep)
	check(c.Gamma > 0 && c.Gamma <= 1, "Gamma is %v, want more than 0 and at most 1", c.Gamma)
	check(c.Adam.Rate > 0, "Adam.Rate is %v, want more than 0", c.Adam.Rate)
	check(c.Tau >= 0 && c.Tau <= 1, "Tau is %v, want 0 to 1", c.Tau)
	check(c.TargetEvery >= 0, "TargetEvery is %d, want at least 0", c.TargetEvery)
	check(c.Tau == 0 || c.TargetEvery == 0, "TargetEvery is %d and Tau is %v, want one of them", c.TargetEvery, c.Tau)
	return faults
}
