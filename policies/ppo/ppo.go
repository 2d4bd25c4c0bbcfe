// Package ppo is proximal policy optimisation, for discrete, multi-discrete and continuous actions.
//
//	p := ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	err := p.Act(&act)                    // samples actions, with log-probabilities and values
//	err = rollout.Add(&batch)             // advantages: see package data
//	for rollout.Next(&mini) {
//		metrics, err = p.Learn(&mini)     // one minibatch
//	}
//
// J. Schulman et al., "Proximal Policy Optimization Algorithms" (2017); the details of the
// implementation are those of CleanRL's ppo.py: S. Huang et al., "The 37 Implementation Details of
// Proximal Policy Optimization" (2022).
//
// With Config.LSTM the policy remembers: Spec.StateSize is the size of its state, which Act changes,
// and the minibatches are whole sequences (data.RolloutConfig.Sequences). The details are those of
// CleanRL's ppo_atari_lstm.py.
//
// A PPO is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a
// *policies.UpdateError that names it; the weights stay as they were.
package ppo

import (
	"math"
	"slices"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// PPO is an actor, a critic and their optimiser. It implements policies.Policy.
type PPO struct {
	*actorcritic.Model

	cfg           Config
	actor, critic *nn.Net // those of Model
	spec          policies.Spec
	rollout       rollout
	advantages    []float32
	metrics       []policies.Metric
}

var _ policies.Exporter = (*PPO)(nil)

// New returns a PPO with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *PPO {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	extra := []string{policies.LogProb, policies.Value}
	if cfg.KLCoef > 0 {
		extra = append(extra, policies.ActionDist)
	}
	m := actorcritic.New(actorcritic.Config{
		Algorithm: "ppo", Obs: cfg.Obs, Action: cfg.Action, Seed: cfg.Seed, Hidden: cfg.Hidden, LSTM: cfg.LSTM, Length: cfg.Length,
		LogStd: cfg.LogStd, DrawEvery: cfg.DrawEvery, Init: cfg.Init, Extra: extra,
		Optimizer: cfg.Adam.New, OptimizerName: "adam", MaxGradNorm: cfg.MaxGradNorm, Threads: cfg.Threads,
	})
	p := &PPO{Model: m, cfg: cfg, actor: m.Actor, critic: m.Critic}
	p.rollout.coef = actorcritic.KLCoef{Value: cfg.KLCoef, Target: cfg.KLTarget}
	learns := slices.Concat(extra, []string{policies.Advantage, policies.Return})
	if cfg.watchesKL() {
		learns = append(learns, policies.Version)
	}
	p.spec = m.NewSpec(learns...)
	p.spec.Bootstrap = policies.Value
	return p
}

// Spec describes the policy.
func (p *PPO) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *PPO) Config() Config { return p.cfg }

// SetRate changes the optimiser's learning rate.
func (p *PPO) SetRate(rate float64) {
	p.cfg.Adam.Rate = rate
	p.Model.SetRate(rate)
}

// SetClip changes the epsilon of the clipped objective, and of the values with ClipValue.
func (p *PPO) SetClip(epsilon float64) { p.cfg.Clip = epsilon }

// Learn makes one update from a minibatch, but none after a rollout has come to its end by
// Config.StopKL. It allocates nothing once it has seen a batch of that size.
func (p *PPO) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.Check(b, p.spec.Learns...); err != nil {
		return nil, err
	}
	before := p.rollout
	if err := p.follow(b); err != nil {
		return nil, err
	}
	if p.stopped() {
		return p.metrics, nil
	}
	p.advantages = append(p.advantages[:0], b.Floats(policies.Advantage)...)
	if !p.cfg.RawAdvantages {
		if err := p.standardize(p.advantages); err != nil {
			p.rollout = before
			return nil, err
		}
	}
	explained := data.Explain(b.Floats(policies.Value), b.Floats(policies.Return))
	var policyLoss, valueLoss, entropy, approxKL, clipped, kl, std float64
	step, err := p.Step(func(t *nn.Tape) nn.Value {
		d, values := p.Evaluate(t, b)
		logRatio := d.LogProb(b.Floats(policies.Action)).Sub(t.Column(b.Floats(policies.LogProb)))
		ratio, eps := logRatio.Exp(), float32(p.cfg.Clip)

		advantage := t.Column(p.advantages)
		surrogate := ratio.Mul(advantage).Min(ratio.Clamp(1-eps, 1+eps).Mul(advantage)).Mean()
		value := p.valueLoss(values, t.Column(b.Floats(policies.Value)), t.Column(b.Floats(policies.Return)))
		ent := d.Entropy().Mean()

		policyLoss, valueLoss, entropy = -float64(surrogate.Number()), float64(value.Number()), float64(ent.Number())
		approxKL, clipped = p.distance(ratio.Data(), logRatio.Data())
		std = d.Std()
		loss := value.Scale(float32(p.cfg.ValueCoef)).Sub(surrogate).Sub(ent.Scale(float32(max(p.cfg.EntropyCoef, 0))))
		if p.cfg.KLCoef > 0 {
			old := p.DistributionOf(t.Const(b.N, p.actor.Out(), b.Floats(policies.ActionDist)))
			divergence := old.KL(&d).Mean()
			kl = float64(divergence.Number())
			loss = loss.Add(divergence.Scale(float32(p.rollout.coef.Value)))
		}
		return loss
	}, &policyLoss, &valueLoss, &entropy, &approxKL, &clipped, &kl, &std,
		&explained.Return, &explained.ReturnSquare, &explained.Error, &explained.ErrorSquare)
	if err != nil {
		p.rollout = before
		return nil, err
	}
	p.rollout.add(approxKL, kl)
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/policy_gradient_loss", Value: policyLoss},
		policies.Metric{Name: "train/value_loss", Value: valueLoss}, policies.Metric{Name: "train/entropy_loss", Value: -entropy},
		policies.Metric{Name: "train/approx_kl", Value: approxKL}, policies.Metric{Name: "train/clip_fraction", Value: clipped},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: p.cfg.Adam.Rate},
		policies.Metric{Name: "train/clip_range", Value: p.cfg.Clip})
	p.metrics = policies.AppendDefined(p.metrics, policies.Metric{Name: "train/std", Value: std},
		policies.Metric{Name: "train/explained_variance", Value: explained.Variance()})
	if p.cfg.KLCoef > 0 {
		p.metrics = append(p.metrics,
			policies.Metric{Name: "train/kl", Value: kl}, policies.Metric{Name: "train/kl_coef", Value: p.rollout.coef.Value})
	}
	return p.metrics, nil
}

// standardize makes the mean of the advantages of all learners 0 and their standard deviation 1.
func (p *PPO) standardize(advantages []float32) error {
	mean, variance := data.Moments(advantages)
	square := mean * mean
	if err := p.Mean(&mean, &square, &variance); err != nil {
		return err
	}
	variance += max(0, square-float64(mean*mean)) // of the learners' means: 0 for one
	data.StandardizeBy(advantages, mean, variance)
	return nil
}

// valueLoss returns the loss of the values, a mean: half of the squared error, or with ClipError all of
// it, as in RLlib.
func (p *PPO) valueLoss(value, old, target nn.Value) nn.Value {
	squared := value.Sub(target).Square()
	eps := float32(p.cfg.Clip)
	switch p.cfg.ValueClip {
	case ClipError:
		return squared.Clamp(0, float32(p.cfg.ValueClipParam)).Mean()
	case ClipValue:
		near := old.Add(value.Sub(old).Clamp(-eps, eps)).Sub(target).Square()
		return squared.Max(near).Mean().Scale(0.5)
	}
	return squared.Mean().Scale(0.5)
}

// distance is how far the policy is from that of the rollout: an estimate of the Kullback-Leibler
// divergence that is never negative (J. Schulman, "Approximating KL Divergence", 2020), and the
// share of ratios outside of the clip.
func (p *PPO) distance(ratio, logRatio []float32) (kl, clipped float64) {
	for i, r := range ratio {
		kl += float64(r) - 1 - float64(logRatio[i])
		if math.Abs(float64(r)-1) > p.cfg.Clip {
			clipped++
		}
	}
	n := float64(len(ratio))
	return kl / n, clipped / n
}
