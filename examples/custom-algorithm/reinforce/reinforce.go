// Package reinforce is the policy gradient algorithm REINFORCE with a baseline, for discrete actions. It
// is written outside of ditask, with nothing but its public packages.
//
//	p := reinforce.New(reinforce.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7})
//	rollout := data.NewRollout(data.RolloutConfig{Length: 64, Lambda: 1, Epochs: 1, Minibatches: 1})
//
// R. J. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
// learning" (1992); R. S. Sutton and A. G. Barto, "Reinforcement Learning: An Introduction" (2018),
// section 13.4. Returns of episodes that are cut by the end of a rollout continue with the baseline.
package reinforce

import (
	"fmt"
	"math"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a REINFORCE. Obs and Action must be set.
type Config struct {
	Obs    envs.Space
	Action envs.Discrete // from 0
	Seed   uint64        // of the initial weights
	Hidden []int         // widths of the hidden layers of policy and baseline; nil means 64
	Rate   float64       // learning rate of Adam; 0 means 5e-3
}

// Reinforce is a policy, a baseline and their optimiser. It implements policies.Exporter.
type Reinforce struct {
	action   envs.Discrete
	spec     policies.Spec
	actor    *nn.Net // observation -> logits of the actions
	baseline *nn.Net // observation -> value
	trainer  *nn.Trainer
	updates  uint64
	acting   nn.Tape
	metrics  []policies.Metric
}

var _ policies.Exporter = (*Reinforce)(nil)

// New returns a REINFORCE with fresh weights.
func New(cfg Config) *Reinforce {
	if cfg.Hidden == nil {
		cfg.Hidden = []int{64}
	}
	if cfg.Rate == 0 {
		cfg.Rate = 5e-3
	}
	hidden := nn.Orthogonal(math.Sqrt2)
	p := &Reinforce{
		action:   cfg.Action,
		actor:    nn.New(cfg.Obs.Dim(), cfg.Seed, nn.MLP(cfg.Hidden, nn.Tanh, cfg.Action.N, hidden, nn.Orthogonal(0.01))...),
		baseline: nn.New(cfg.Obs.Dim(), cfg.Seed+1, nn.MLP(cfg.Hidden, nn.Tanh, 1, hidden, nn.Orthogonal(1))...),
	}
	p.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: nn.AdamConfig{Rate: cfg.Rate}.New}, p.actor, p.baseline)
	value := policies.Column{Name: policies.Value, Kind: policies.Float32}
	p.spec = policies.Spec{
		Obs: cfg.Obs, Action: cfg.Action,
		Extra: []policies.Column{value}, Bootstrap: policies.Value, // what Act adds, for the returns of cut episodes
		Learns: []policies.Column{
			{Name: policies.Obs, Kind: policies.Float32, Shape: []int{cfg.Obs.Dim()}},
			{Name: policies.Action, Kind: policies.Float32, Shape: []int{1}},
			{Name: policies.Advantage, Kind: policies.Float32}, {Name: policies.Return, Kind: policies.Float32},
		},
	}
	return p
}

// Spec describes the policy.
func (p *Reinforce) Spec() policies.Spec { return p.spec }

// Act samples an action for each row, or takes the most likely one.
func (p *Reinforce) Act(a *policies.Act) error {
	rows, err := a.Check(&p.spec)
	if err != nil {
		return fmt.Errorf("reinforce: %w", err)
	}
	t := &p.acting
	t.Reset()
	x := t.Const(rows, p.spec.Obs.Dim(), a.Obs)
	logits := p.actor.Apply(t, x)
	if err := (nn.Tensor{Name: "logits", Data: logits.Data()}).CheckFinite(); err != nil {
		return fmt.Errorf("reinforce: %w", err)
	}
	if d := dist.NewCategorical(logits, nil); a.Greedy {
		d.Mode(a.Action)
	} else {
		d.Sample(a.Action, a.Rand)
	}
	if a.Extra != nil {
		copy(a.Extra[0], p.baseline.Apply(t, x).Data())
	}
	return nil
}

// Export describes the choice of the most likely action, for files that act without the policy.
func (p *Reinforce) Export(g *graph.Graph, obs graph.Value) error {
	logits, err := p.actor.Export(g, "reinforce.actor/", obs)
	if err != nil {
		return fmt.Errorf("reinforce: %w", err)
	}
	policies.ExportChoice(g, logits, p.action)
	g.Output("logits", logits)
	return nil
}

// Learn makes one update from a batch with advantages G - b(s) and returns G: it raises the mean of
// (G - b(s)) log pi(a|s) - (G - b(s))^2 / 2.
func (p *Reinforce) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.check(b); err != nil {
		return nil, p.blame(err)
	}
	var policyLoss, valueLoss float64
	step, err := p.trainer.Step(func(t *nn.Tape) nn.Value {
		x := t.Const(b.N, p.spec.Obs.Dim(), b.Floats(policies.Obs))
		logProb := dist.NewCategorical(p.actor.Apply(t, x), nil).LogProb(b.Floats(policies.Action))

		gain := logProb.Mul(t.Column(b.Floats(policies.Advantage))).Mean()
		squared := t.Column(b.Floats(policies.Return)).Sub(p.baseline.Apply(t, x)).Square().Mean()

		policyLoss, valueLoss = -float64(gain.Number()), float64(squared.Number())
		return squared.Scale(0.5).Sub(gain)
	})
	if err != nil {
		return nil, p.blame(err)
	}
	p.updates++
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss},
		policies.Metric{Name: "train/policy_loss", Value: policyLoss}, policies.Metric{Name: "train/value_loss", Value: valueLoss},
	)
	return p.metrics, nil
}

// check finds faults of a batch.
func (p *Reinforce) check(b *policies.Batch) error {
	if err := b.Needs(p.spec.Learns...); err != nil {
		return err
	}
	for i, a := range b.Floats(policies.Action) {
		if !p.action.Contains([]float32{a}) {
			return fmt.Errorf("row %d has action %v, which is not in %v", i, a, p.action)
		}
	}
	return nil
}

func (p *Reinforce) blame(err error) error {
	return &policies.UpdateError{Algorithm: "reinforce", Update: p.updates, Err: err}
}

// weights returns the parts that acting needs.
func (p *Reinforce) weights() policies.Parts {
	return policies.Parts{
		policies.NetPart("reinforce.actor", p.actor, &p.updates), policies.NetPart("reinforce.baseline", p.baseline, &p.updates),
	}
}

// parts returns the content of a checkpoint.
func (p *Reinforce) parts() policies.Parts {
	optimizers := p.trainer.Optimizers() // one for each network
	return append(p.weights(), policies.OptimizerPart("reinforce.actor.adam", optimizers[0]),
		policies.OptimizerPart("reinforce.baseline.adam", optimizers[1]))
}

// Version counts the updates behind the weights.
func (p *Reinforce) Version() uint64 { return p.updates }

// Weights returns a copy of the weights.
func (p *Reinforce) Weights() nn.State { return p.weights().State(p.updates) }

// Load takes weights over. Those that do not fit or are not finite change nothing.
func (p *Reinforce) Load(s nn.State) error { return p.weights().Load(s) }

// Save writes weights, optimiser and counter to a.
func (p *Reinforce) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save.
func (p *Reinforce) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
