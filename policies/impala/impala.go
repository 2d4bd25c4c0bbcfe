// Package impala is the importance weighted actor-learner architecture: an actor-critic that learns from
// sequences which older versions of itself have collected, for discrete, multi-discrete and
// continuous actions.
//
//	p := impala.New(impala.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	err := old.Act(&act)          // of an older version: actions with their log-probabilities
//	metrics, err := p.Learn(&b)   // whole sequences of Config.Length steps
//
// Rows of a batch are the steps of sequences: step t of sequence k is row k*Length+t. V-trace corrects
// for the difference between the policy that has collected a sequence, whose log-probabilities are the
// column log_prob, and the present one. A sequence may continue over the end of an episode.
//
// L. Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
// Architectures" (2018), section 4.
//
// An IMPALA is not safe for concurrent use. The same config, batches and processor give the same
// bits, also after Save and Restore. A value that is not finite is a *policies.UpdateError that names
// it; the weights stay as they were.
package impala

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// IMPALA is an actor, a critic and their optimiser. It implements policies.Policy.
type IMPALA struct {
	*actorcritic.Model

	cfg     Config
	spec    policies.Spec
	vtrace  actorcritic.VTrace
	metrics []policies.Metric
}

var _ policies.Exporter = (*IMPALA)(nil)

// New returns an IMPALA with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *IMPALA {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	optimizer, name := cfg.Adam.New, "adam"
	if cfg.RMSprop.Rate != 0 {
		optimizer, name = cfg.RMSprop.New, "rmsprop"
	}
	p := &IMPALA{cfg: cfg, Model: actorcritic.New(actorcritic.Config{
		Algorithm: "impala", Obs: cfg.Obs, Action: cfg.Action, Seed: cfg.Seed, Hidden: cfg.Hidden, LogStd: cfg.LogStd,
		Extra: []string{policies.LogProb}, Optimizer: optimizer, OptimizerName: name, MaxGradNorm: cfg.MaxGradNorm,
	})}
	p.vtrace.Length, p.vtrace.VTraceConfig = cfg.Length, data.VTraceConfig{Gamma: cfg.Gamma, MaxRho: cfg.MaxRho, MaxC: cfg.MaxC}
	p.spec = p.NewSpec(append(p.vtrace.Columns(), policies.LogProb)...)
	return p
}

// Spec describes the policy.
func (p *IMPALA) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *IMPALA) Config() Config { return p.cfg }

// SetRate changes the optimiser's learning rate.
func (p *IMPALA) SetRate(rate float64) {
	*p.rate() = rate
	p.Model.SetRate(rate)
}

// rate returns the learning rate of the optimiser in use.
func (p *IMPALA) rate() *float64 {
	if p.cfg.RMSprop.Rate != 0 {
		return &p.cfg.RMSprop.Rate
	}
	return &p.cfg.Adam.Rate
}

// Learn makes one update from a batch of sequences: it raises rho (r + gamma v' - V(s)) log pi(a|s) +
// EntropyCoef H(pi(.|s)) - ValueCoef (v - V(s))^2 / 2, where v and v' are the V-trace targets of an
// observation and the next one, and rho is the clipped ratio of the probabilities of the action. It
// allocates nothing once it has seen a batch of that size.
func (p *IMPALA) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.Check(b, p.spec.Learns...); err != nil {
		return nil, err
	}
	if err := p.vtrace.Check(b); err != nil {
		return nil, p.UpdateError(err)
	}
	var policyLoss, valueLoss, entropy, clipped float64
	var explained data.Explained
	step, err := p.Step(func(t *nn.Tape) nn.Value {
		d, value := p.Evaluate(t, b)
		logProb := d.LogProb(b.Floats(policies.Action))
		ratio := logProb.Detach().Sub(t.Column(b.Floats(policies.LogProb))).Exp()
		p.vtrace.Compute(p.Critic, b, value.Data(), ratio.Data())

		gain := p.reduce(logProb.Mul(t.Column(p.vtrace.Advantages)))
		squared := p.reduce(t.Column(p.vtrace.Targets).Sub(value).Square().Scale(0.5))
		ent := p.reduce(d.Entropy())

		policyLoss, valueLoss, entropy = -float64(gain.Number()), float64(squared.Number()), float64(ent.Number())
		clipped = p.clipped(ratio.Data())
		explained = data.Explain(value.Data(), p.vtrace.Targets)
		return squared.Scale(float32(p.cfg.ValueCoef)).Sub(gain).Sub(ent.Scale(float32(max(p.cfg.EntropyCoef, 0))))
	}, &policyLoss, &valueLoss, &entropy, &clipped,
		&explained.Return, &explained.ReturnSquare, &explained.Error, &explained.ErrorSquare)
	if err != nil {
		return nil, err
	}
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/policy_loss", Value: policyLoss},
		policies.Metric{Name: "train/value_loss", Value: valueLoss}, policies.Metric{Name: "train/entropy_loss", Value: -entropy},
		policies.Metric{Name: "train/clip_fraction", Value: clipped},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: *p.rate()})
	p.metrics = policies.AppendDefined(p.metrics, policies.Metric{Name: "train/explained_variance", Value: explained.Variance()})
	return p.metrics, nil
}

// reduce returns the mean over the steps of the batch, or with SumLoss their sum.
func (p *IMPALA) reduce(v nn.Value) nn.Value {
	if p.cfg.SumLoss {
		return v.Sum()
	}
	return v.Mean()
}

// clipped returns the share of the ratios that MaxRho clips.
func (p *IMPALA) clipped(ratios []float32) float64 {
	n := 0
	for _, r := range ratios {
		if float64(r) > p.cfg.MaxRho {
			n++
		}
	}
	return float64(n) / float64(len(ratios))
}
