// Package c51 is categorical deep Q-learning for discrete actions: it learns the distribution of the
// return of each action, as probabilities of fixed returns, and takes the action of the highest mean.
//
//	c := c51.New(c51.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7})
//	err := c.Act(&act)                 // the actions of highest value, or random ones
//	metrics, err := c.Learn(&batch)    // one update, from transitions: see package data
//	w := c.Weights()                   // for another process: other.Load(w)
//
// M. G. Bellemare, W. Dabney and R. Munos, "A Distributional Perspective on Reinforcement Learning"
// (2017), algorithm 1. The defaults are those of CleanRL's c51.py, whose logarithm of a probability
// does not go below that of 1e-5, which here it does.
//
// The options double, dueling, noisy networks and n-step returns, and priorities from package data, make
// it Rainbow: see package rainbow. Their sources are in package qnetwork.
//
// A C51 is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it; the
// weights stay as they were.
package c51

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qnetwork"
)

// C51 is a network that gives a distribution of returns for each action, with its target network and
// optimiser. It implements policies.Policy.
type C51 struct {
	*qnetwork.Model

	cfg       Config
	atoms     []float32 // z, the returns
	projected []float32 // distributions of one batch, rows x atoms
}

var _ policies.Exporter = (*C51)(nil)

// New returns a C51 with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *C51 {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	c := &C51{cfg: cfg}
	for i := range cfg.Atoms {
		c.atoms = append(c.atoms, float32(cfg.Low+(cfg.High-cfg.Low)*float64(i)/float64(cfg.Atoms-1)))
	}
	model := cfg.model()
	model.Head, model.ExportHead = c.head, c.exportHead
	c.Model = qnetwork.New(model)
	return c
}

// Config returns the config with its defaults, and with the rate of the last SetRate.
func (c *C51) Config() Config {
	cfg := c.cfg
	cfg.Adam.Rate = c.Rate()
	return cfg
}

// head turns logits into the probabilities p of the atoms of all actions, and into the values
// Q = sum(p z).
func (c *C51) head(logits nn.Value) (probs, values nn.Value) {
	rows, actions := logits.Rows(), c.cfg.Action.N
	p := logits.Reshape(rows*actions, c.cfg.Atoms).Softmax()
	return p.Reshape(rows, actions*c.cfg.Atoms), c.mean(p).Reshape(rows, actions)
}

// exportHead is head as operations of a graph.
func (c *C51) exportHead(g *graph.Graph, logits graph.Value) graph.Value {
	n := len(c.atoms)
	p := logits.Reshape(c.cfg.Action.N, n).Softmax()
	return p.MatMul(g.Constant("c51.atoms", c.atoms, n, 1)).Reshape(c.cfg.Action.N)
}

// mean returns the mean of each distribution.
func (c *C51) mean(p nn.Value) nn.Value { return p.MatMul(p.Tape().Column(c.atoms)) }

// Learn makes one update from a batch of transitions: it minimises the cross entropy -sum(m log p) of
// the distribution p of each row's action and m, the projected distribution of its target. If the
// batch has the column policies.Weight, that is how much each row counts; if it has policies.TDError,
// Learn writes the Kullback-Leibler divergence sum(m log(m/p)) there. It allocates nothing once it has
// seen a batch of that size.
func (c *C51) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := c.Begin(b); err != nil {
		return nil, err
	}
	c.bootstrap(b)
	return c.Update(b, func(t *nn.Tape, logits nn.Value) qnetwork.Loss {
		m, logP := t.Const(b.N, c.cfg.Atoms, c.projected), logits.LogSoftmax()
		loss := qnetwork.Loss{Rows: m.Mul(logP).RowSums().Neg(), Values: c.mean(logP.Exp())}
		if b.Floats(policies.TDError) != nil {
			const tiny = 1e-30 // makes 0 log 0 be 0
			loss.Priorities = m.Mul(m.AddNumber(tiny).Log().Sub(logP)).RowSums().ReLU()
		}
		return loss
	})
}

// bootstrap computes the distribution of the target of each row: that of r + gamma^n (1 - terminated) z,
// with the probabilities of z at a', projected onto the atoms.
func (c *C51) bootstrap(b *policies.Batch) {
	next, discounts := c.Next(b).Data(), c.Discounts(b)
	n := c.cfg.Atoms
	c.projected = append(c.projected[:0], next...) // for its size
	clear(c.projected)
	for i, r := range b.Floats(policies.Reward) {
		project(c.projected[i*n:(i+1)*n], next[i*n:(i+1)*n], c.cfg.Low, c.cfg.High, float64(r), float64(discounts[i]))
	}
}

// project adds to dst the distribution of r + discount * z, where z has the given probabilities: each
// atom's probability is shared between the two atoms of dst that are nearest to it, in proportion to
// how near they are.
func project(dst, probs []float32, low, high, r, discount float64) {
	last := len(dst) - 1
	width := (high - low) / float64(last)
	for j, p := range probs {
		z := min(max(r+discount*(low+width*float64(j)), low), high)
		place := min((z-low)/width, float64(last)) // b of the paper
		lower := min(int(place), last-1)           // l; u is the next one
		share := float32(place - float64(lower))
		dst[lower] += p * (1 - share)
		dst[lower+1] += p * share
	}
}
