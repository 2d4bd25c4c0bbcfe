// Package dqn is deep Q-learning for discrete actions, with the extensions
// double, dueling, n-step returns, prioritised replay and noisy networks. Package
// qnetwork has the parts that it shares with package c51 and others.
//
//	q := dqn.New(dqn.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7, Double: true})
//	err := q.Act(&act)                 // the actions of highest value, or random ones
//	metrics, err := q.Learn(&batch)    // one update, from transitions: see package data
//	w := q.Weights()                   // for another process: other.Load(w)
//
// Learn regresses Q(s, a) on r + gamma^n (1 - terminated) Q'(s', a'), where n
// is the transition's number of steps, Q' the target network, and a' the best
// action of Q' or, if Double, of Q. A truncated transition has a future as any
// other.
//
// Sources: V. Mnih et al., "Human-level control through deep reinforcement
// learning" (2015); H. van Hasselt et al., "Deep Reinforcement Learning with
// Double Q-learning" (2016); Z. Wang et al., "Dueling Network Architectures for
// Deep Reinforcement Learning" (2016); n-step returns and their combination:
// M. Hessel et al., "Rainbow" (2018); soft target updates: T. P. Lillicrap et
// al., "Continuous control with deep reinforcement learning" (2016).
//
// A DQN is not safe for concurrent use. The same config, batches and processor
// give the same bits, also after Save and Restore. A value that is not finite
// is a *policies.UpdateError that names it; the weights stay as they were.
package dqn

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// DQN is a Q-network with its target network and optimiser. It implements policies.Policy.
type DQN struct {
	*qnetwork.Model

	cfg     Config
	targets []float32 // of one batch
}

var _ policies.Exporter = (*DQN)(nil)

// New returns a DQN with fresh weights. It panics with all faults of the
// config; Config.Validate returns them.
func New(cfg Config) *DQN {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	return &DQN{Model: qnetwork.New(cfg.model()), cfg: cfg}
}

// Config returns the config with its defaults, and with the rate of the last SetRate.
func (q *DQN) Config() Config {
	cfg := q.cfg
	cfg.Adam.Rate = q.Rate()
	return cfg
}

// Learn makes one update from a batch of transitions. If it has the column policies.Weight, that is
// how much each row counts; if it has policies.TDError, Learn writes the absolute difference to
// the target there. It allocates nothing once it has seen a batch of that size.
func (q *DQN) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := q.Begin(b); err != nil {
		return nil, err
	}
	q.bootstrap(b)
	return q.Update(b, func(t *nn.Tape, value nn.Value) qnetwork.Loss {
		difference := value.Sub(t.Column(q.targets))
		loss := difference.Huber(1)
		if q.cfg.Loss == MSE {
			loss = difference.Square()
		}
		return qnetwork.Loss{Rows: loss, Values: value, Priorities: difference.Abs()}
	})
}

// bootstrap computes the targets: r + gamma^n (1 - terminated) Q'(s', a').
func (q *DQN) bootstrap(b *policies.Batch) {
	next, discounts := q.Next(b).Data(), q.Discounts(b)
	q.targets = q.targets[:0]
	for i, r := range b.Floats(policies.Reward) {
		q.targets = append(q.targets, r+discounts[i]*next[i])
	}
}
