// Package a2c is advantage actor-critic, for discrete, multi-discrete and continuous actions: one
// update from all that was collected with the same weights.
//
//	p := a2c.New(a2c.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	rollout := data.NewRollout(data.RolloutConfig{Length: 5, Lambda: 1, Epochs: 1, Minibatches: 1})
//	err := p.Act(&act)                    // samples actions, with their values
//	err = rollout.Add(&batch)             // n-step advantages: see package data
//	for rollout.Next(&mini) {             // once
//		metrics, err = p.Learn(&mini)
//	}
//
// V. Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning" (2016), algorithm S3, with the
// environments in lockstep rather than asynchronous. The defaults are those of Stable-Baselines3's A2C,
// which collects 5 steps of each environment with a Lambda of 1 for an update.
//
// An A2C is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it;
// the weights stay as they were.
package a2c

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// A2C is an actor, a critic and their optimiser. It implements policies.Policy.
type A2C struct {
	*actorcritic.Model

	cfg     Config
	spec    policies.Spec
	metrics []policies.Metric
}

var _ policies.Exporter = (*A2C)(nil)

// New returns an A2C with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *A2C {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	p := &A2C{cfg: cfg, Model: actorcritic.New(actorcritic.Config{
		Algorithm: "a2c", Obs: cfg.Obs, Action: cfg.Action, Seed: cfg.Seed, Hidden: cfg.Hidden, LogStd: cfg.LogStd,
		DrawEvery: cfg.DrawEvery, Init: cfg.Init,
		Extra: []string{policies.Value}, Optimizer: cfg.RMSprop.New, OptimizerName: "rmsprop", MaxGradNorm: cfg.MaxGradNorm,
	})}
	p.spec = p.NewSpec(policies.Advantage, policies.Return)
	p.spec.Bootstrap = policies.Value
	return p
}

// Spec describes the policy.
func (p *A2C) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *A2C) Config() Config { return p.cfg }

// SetRate changes the optimiser's learning rate.
func (p *A2C) SetRate(rate float64) {
	p.cfg.RMSprop.Rate = rate
	p.Model.SetRate(rate)
}

// Learn makes one update from a batch: it raises the mean of A log pi(a|s) + EntropyCoef H(pi(.|s)) -
// ValueCoef (R - V(s))^2, with the advantage A and the return R. It allocates nothing once it has
// seen a batch of that size.
func (p *A2C) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.Check(b, p.spec.Learns...); err != nil {
		return nil, err
	}
	var policyLoss, valueLoss, entropy, std float64
	var explained data.Explained
	step, err := p.Step(func(t *nn.Tape) nn.Value {
		d, value := p.Evaluate(t, b)
		advantage, target := t.Column(b.Floats(policies.Advantage)), t.Column(b.Floats(policies.Return))

		gain := d.LogProb(b.Floats(policies.Action)).Mul(advantage).Mean()
		squared := target.Sub(value).Square().Mean()
		ent := d.Entropy().Mean()

		policyLoss, valueLoss, entropy = -float64(gain.Number()), float64(squared.Number()), float64(ent.Number())
		std = d.Std()
		explained = data.Explain(value.Data(), b.Floats(policies.Return))
		return squared.Scale(float32(p.cfg.ValueCoef)).Sub(gain).Sub(ent.Scale(float32(p.cfg.EntropyCoef)))
	}, &policyLoss, &valueLoss, &entropy, &std,
		&explained.Return, &explained.ReturnSquare, &explained.Error, &explained.ErrorSquare)
	if err != nil {
		return nil, err
	}
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/policy_loss", Value: policyLoss},
		policies.Metric{Name: "train/value_loss", Value: valueLoss}, policies.Metric{Name: "train/entropy_loss", Value: -entropy},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: p.cfg.RMSprop.Rate})
	p.metrics = policies.AppendDefined(p.metrics, policies.Metric{Name: "train/std", Value: std},
		policies.Metric{Name: "train/explained_variance", Value: explained.Variance()})
	return p.metrics, nil
}
