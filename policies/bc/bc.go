// Package bc is behaviour cloning: a policy learns by supervision to act as the data does.
//
//	b := bc.New(bc.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{"data"}, Columns: b.Spec().Learns})
//	for d.Next(&batch) {
//		metrics, err := b.Learn(&batch)
//	}
//
// It needs observations and actions, but no rewards, and does about as well as the data. D. A. Pomerleau,
// "ALVINN: An Autonomous Land Vehicle in a Neural Network" (1988). The details are those of d3rlpy's BC
// and DiscreteBC: the mean squared error of continuous actions, in units of half their interval, and the
// cross entropy of discrete ones.
//
// A BC is not safe for concurrent use. The same config, batches and processor give the same bits, also
// after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package bc

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// BC is a network whose outputs are actions, or the logits of discrete ones. It implements policies.Policy.
type BC struct {
	cfg     Config
	box     envs.Box      // of continuous actions
	numbers envs.Discrete // of discrete actions; N is 0 if actions are continuous
	actor   *nn.Net
	trainer *nn.Trainer
	updates uint64
	spec    policies.Spec

	acting  nn.Tape
	wanted  []float32 // actions of the batch: numbers from 0, or in units of half the interval
	metrics []policies.Metric
}

var _ policies.Exporter = (*BC)(nil)

// New returns a BC with fresh weights. It panics with all faults of the config; Config.Validate returns
// them.
func New(cfg Config) *BC {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	p := &BC{cfg: cfg}
	p.box, _ = cfg.Action.(envs.Box)
	p.numbers, _ = cfg.Action.(envs.Discrete)
	layers := nn.MLP(cfg.Hidden, nn.ReLU, max(n, p.numbers.N), nn.FanIn, nn.FanIn)
	if p.numbers.N == 0 {
		layers = append(layers, nn.Tanh())
	}
	p.actor = nn.New(obs, cfg.Seed, layers...)
	p.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New}, p.actor)
	learns := []policies.Column{
		{Name: policies.Obs, Kind: policies.Float32, Shape: []int{obs}},
		{Name: policies.Action, Kind: policies.Float32, Shape: []int{n}},
	}
	p.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: learns}
	return p
}

// Learn makes one update from a batch of observations and actions. It allocates nothing once it has seen
// a batch of that size.
func (p *BC) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.check(b); err != nil {
		return nil, p.blame(err)
	}
	p.want(b.Floats(policies.Action))
	right := 0.0
	step, err := p.trainer.Step(func(t *nn.Tape) nn.Value {
		said := p.actor.Apply(t, t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs)))
		if p.numbers.N == 0 {
			return said.Sub(t.Const(b.N, p.box.Dim(), p.wanted)).Square().Mean()
		}
		right = p.accuracy(said)
		loss := dist.NewCategorical(said, nil).LogProb(p.wanted).Mean().Neg()
		if p.cfg.Beta > 0 {
			loss = loss.Add(said.Square().Mean().Scale(float32(p.cfg.Beta)))
		}
		return loss
	})
	if err != nil {
		return nil, p.blame(err)
	}
	p.updates++
	p.metrics = append(p.metrics[:0], policies.Metric{Name: "train/loss", Value: step.Loss})
	if p.numbers.N > 0 {
		p.metrics = append(p.metrics, policies.Metric{Name: "train/accuracy", Value: right})
	}
	p.metrics = append(p.metrics, policies.Metric{Name: "train/grad_norm", Value: step.GradNorm},
		policies.Metric{Name: "train/learning_rate", Value: p.cfg.Adam.Rate})
	return p.metrics, nil
}

// want fills p.wanted.
func (p *BC) want(actions []float32) {
	p.wanted = append(p.wanted[:0], actions...)
	n := p.box.Dim()
	for i, a := range actions {
		if p.numbers.N > 0 {
			p.wanted[i] = a - float32(p.numbers.Start)
			continue
		}
		low, high := float64(p.box.Low[i%n]), float64(p.box.High[i%n])
		p.wanted[i] = float32((2*float64(a) - high - low) / (high - low))
	}
}

// accuracy returns the part of the rows whose action has the highest logit.
func (p *BC) accuracy(logits nn.Value) float64 {
	n, right, all := p.numbers.N, 0, logits.Data()
	for i, want := range p.wanted {
		row := all[i*n : (i+1)*n]
		best := 0
		for k, v := range row {
			if v > row[best] {
				best = k
			}
		}
		if best == int(want) {
			right++
		}
	}
	return float64(right) / float64(len(p.wanted))
}

// check finds faults of the batch.
func (p *BC) check(b *policies.Batch) error {
	if err := b.Needs(p.spec.Learns...); err != nil || p.numbers.N == 0 {
		return err
	}
	actions := b.Floats(policies.Action)
	for i := range actions {
		if a := actions[i : i+1]; !p.numbers.Contains(a) {
			return fmt.Errorf("row %d has the action %v, which is not in %v", i, a, p.numbers)
		}
	}
	return nil
}

// Act takes the network's action for each row. A discrete one is drawn with its probability or, if
// a.Greedy is set, the most probable.
func (p *BC) Act(a *policies.Act) error {
	rows, err := a.Check(&p.spec)
	if err != nil {
		return fmt.Errorf("bc: %w", err)
	}
	t := &p.acting
	t.Reset()
	said := p.actor.Apply(t, t.Const(rows, p.cfg.Obs.Dim(), a.Obs))
	if err := (nn.Tensor{Name: "the actor's output", Data: said.Data()}).CheckFinite(); err != nil {
		return errors.Join(p.actor.CheckFinite(), err)
	}
	if p.numbers.N > 0 {
		d := dist.NewCategorical(said, nil)
		if a.Greedy {
			d.Mode(a.Action)
		} else {
			d.Sample(a.Action, a.Rand)
		}
		for i := range a.Action {
			a.Action[i] += float32(p.numbers.Start)
		}
		return nil
	}
	n := p.box.Dim()
	for i, v := range said.Data() {
		low, high := float64(p.box.Low[i%n]), float64(p.box.High[i%n])
		a.Action[i] = min(max(float32((high+low)/2+(high-low)/2*float64(v)), p.box.Low[i%n]), p.box.High[i%n])
	}
	return nil
}

// Export implements policies.Exporter: the output "logits" has the logits of discrete actions, and "mean"
// continuous ones in units of half their interval.
func (p *BC) Export(g *graph.Graph, obs graph.Value) error {
	out, err := p.actor.Export(g, "bc.actor/", obs)
	if err != nil {
		return err
	}
	if p.numbers.N > 0 {
		policies.ExportChoice(g, out, p.numbers)
		g.Output("logits", out)
		return nil
	}
	policies.ExportBox(g, out, p.box, true)
	g.Output("mean", out)
	return nil
}

// blame names the update.
func (p *BC) blame(err error) error {
	return &policies.UpdateError{Algorithm: "bc", Update: p.updates, Err: err}
}

// Spec describes the policy.
func (p *BC) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *BC) Config() Config { return p.cfg }

// SetRate changes the optimiser's learning rate. A checkpoint does not hold it.
func (p *BC) SetRate(rate float64) {
	p.cfg.Adam.Rate = rate
	p.trainer.SetRate(rate)
}

// Version counts the updates behind the weights, those before a Load included.
func (p *BC) Version() uint64 { return p.updates }

// parts returns the content of a checkpoint.
func (p *BC) parts() policies.Parts {
	return policies.Parts{policies.NetPart("bc.actor", p.actor, &p.updates), policies.OptimizerPart("bc.adam", p.trainer.Optimizers()[0])}
}

// Weights returns a copy of the network's weights.
func (p *BC) Weights() nn.State { return p.parts()[:1].State(p.updates) }

// Load takes weights over; the optimiser stays. Weights that do not fit or are not finite change nothing.
func (p *BC) Load(s nn.State) error { return p.parts()[:1].Load(s) }

// Save writes network, optimiser and counter to a.
func (p *BC) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save. The network must have the same shape; the rest of the config is
// p's own. An error may leave p half restored.
func (p *BC) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
