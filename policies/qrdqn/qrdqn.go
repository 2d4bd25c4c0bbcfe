// Package qrdqn is deep Q-learning by quantile regression, for discrete actions: it learns quantiles of
// the distribution of the return of each action, and takes the action of the highest mean.
//
//	q := qrdqn.New(qrdqn.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7})
//	err := q.Act(&act)                 // the actions of highest value, or random ones
//	metrics, err := q.Learn(&batch)    // one update, from transitions: see package data
//	w := q.Weights()                   // for another process: other.Load(w)
//
// W. Dabney, M. Rowland, M. G. Bellemare and R. Munos, "Distributional Reinforcement Learning with
// Quantile Regression" (2018), algorithm 1. Unlike package c51, it needs no bounds of the return. The
// defaults are those of sb3-contrib's QRDQN. The sources of the options double, dueling and noisy are
// in package qnetwork.
//
// A QRDQN is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it; the
// weights stay as they were.
package qrdqn

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// QRDQN is a network that gives quantiles of the return for each action, with its target network and
// optimiser. It implements policies.Policy.
type QRDQN struct {
	*qnetwork.Model

	cfg     Config
	targets []float32 // of one batch, rows x quantiles
}

var _ policies.Exporter = (*QRDQN)(nil)

// New returns a QRDQN with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *QRDQN {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	q := &QRDQN{cfg: cfg}
	model := cfg.model()
	model.Head, model.ExportHead = q.head, q.exportHead
	q.Model = qnetwork.New(model)
	return q
}

// Config returns the config with its defaults, and with the rate of the last SetRate.
func (q *QRDQN) Config() Config {
	cfg := q.cfg
	cfg.Adam.Rate = q.Rate()
	return cfg
}

// head turns the quantiles theta of all actions into their values, Q = sum(theta) / N.
func (q *QRDQN) head(theta nn.Value) (quantiles, values nn.Value) {
	rows, actions := theta.Rows(), q.cfg.Action.N
	return theta, q.mean(theta.Reshape(rows*actions, q.cfg.Quantiles)).Reshape(rows, actions)
}

// exportHead is head as operations of a graph.
func (q *QRDQN) exportHead(_ *graph.Graph, theta graph.Value) graph.Value {
	return theta.Reshape(q.cfg.Action.N, q.cfg.Quantiles).Mean(1).Reshape(q.cfg.Action.N)
}

// mean returns the mean of each distribution.
func (q *QRDQN) mean(theta nn.Value) nn.Value {
	return theta.RowSums().Scale(1 / float32(q.cfg.Quantiles))
}

// Learn makes one update from a batch of transitions: it minimises the quantile Huber loss of the
// quantiles theta of each row's action, given those of its target. If the batch has the column
// policies.Weight, that is how much each row counts; if it has policies.TDError, Learn writes the
// absolute difference of the means there. It allocates nothing once it has seen a batch of that size.
func (q *QRDQN) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := q.Begin(b); err != nil {
		return nil, err
	}
	q.bootstrap(b)
	return q.Update(b, func(t *nn.Tape, theta nn.Value) qnetwork.Loss {
		targets := t.Const(b.N, q.cfg.Quantiles, q.targets)
		loss := qnetwork.Loss{Rows: theta.QuantileHuber(targets, float32(q.cfg.Kappa)), Values: q.mean(theta)}
		if b.Floats(policies.TDError) != nil {
			loss.Priorities = loss.Values.Sub(q.mean(targets)).Abs()
		}
		return loss
	})
}

// bootstrap computes the quantiles of the targets: r + gamma^n (1 - terminated) theta', with the
// quantiles theta' of a'.
func (q *QRDQN) bootstrap(b *policies.Batch) {
	next, discounts := q.Next(b).Data(), q.Discounts(b)
	n := q.cfg.Quantiles
	q.targets = q.targets[:0]
	for i, r := range b.Floats(policies.Reward) {
		for _, theta := range next[i*n : (i+1)*n] {
			q.targets = append(q.targets, r+discounts[i]*theta)
		}
	}
}
