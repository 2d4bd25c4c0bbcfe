// Package appo is asynchronous proximal policy optimisation: the clipped surrogate objective of PPO on
// advantages by V-trace, for sequences which older versions of the policy have collected, and for
// discrete, multi-discrete and continuous actions.
//
//	p := appo.New(appo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	err := old.Act(&act)          // of an older version: actions with their log-probabilities
//	metrics, err := p.Learn(&b)   // whole sequences of Config.Length steps
//
// Three policies have a part in an update. The behaviour policy has collected the data: its
// log-probabilities are the column log_prob. The target policy is a copy of the present one that is some
// updates old: V-trace corrects from the behaviour policy to it, and the surrogate keeps the present
// policy near it. Rows of a batch are the steps of sequences: step t of sequence k is row k*Length+t.
//
// M. Luo et al., "IMPACT: Importance Weighted Asynchronous Architectures with Clipped Target Networks"
// (2020), as RLlib's APPO has it.
//
// An APPO is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it;
// the weights stay as they were.
package appo

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/actorcritic"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// APPO is an actor with its target, a critic and their optimiser. It implements policies.Policy.
type APPO struct {
	*actorcritic.Model

	cfg     Config
	spec    policies.Spec
	target  *nn.Net // actor of the target policy
	vtrace  actorcritic.VTrace
	coef    actorcritic.KLCoef
	kl      float64 // sum of the divergences since the target was updated
	metrics []policies.Metric
}

var _ policies.Exporter = (*APPO)(nil)

// New returns an APPO with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *APPO {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	model := func() *actorcritic.Model {
		return actorcritic.New(actorcritic.Config{
			Algorithm: "appo", Obs: cfg.Obs, Action: cfg.Action, Seed: cfg.Seed, Hidden: cfg.Hidden, LogStd: cfg.LogStd,
			Extra: []string{policies.LogProb}, Optimizer: cfg.Adam.New, OptimizerName: "adam", MaxGradNorm: cfg.MaxGradNorm,
		})
	}
	p := &APPO{cfg: cfg, Model: model(), target: model().Actor, coef: actorcritic.KLCoef{Value: cfg.KLCoef, Target: cfg.KLTarget}}
	p.vtrace.Length, p.vtrace.VTraceConfig = cfg.Length, data.VTraceConfig{Gamma: cfg.Gamma, MaxRho: cfg.MaxRho, MaxC: cfg.MaxC}
	p.spec = p.NewSpec(append(p.vtrace.Columns(), policies.LogProb)...)
	return p
}

// Spec describes the policy.
func (p *APPO) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *APPO) Config() Config { return p.cfg }

// SetRate changes the optimiser's learning rate.
func (p *APPO) SetRate(rate float64) {
	p.cfg.Adam.Rate = rate
	p.Model.SetRate(rate)
}

// maxCorrection bounds the ratio from the behaviour policy to the target policy: IMPACT's beta, in RLlib.
const maxCorrection = 2

// Learn makes one update from a batch of sequences, and after each TargetEvery updates one of the target
// and of the coefficient of the divergence. It allocates nothing once it has seen a batch of that
// size.
func (p *APPO) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.Check(b, p.spec.Learns...); err != nil {
		return nil, err
	}
	if err := p.vtrace.Check(b); err != nil {
		return nil, p.UpdateError(err)
	}
	var policyLoss, valueLoss, entropy, kl float64
	var explained data.Explained
	step, err := p.Step(func(t *nn.Tape) nn.Value {
		d, values := p.Evaluate(t, b)
		target := p.DistributionOf(p.target.Apply(t, t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs))))
		logProb, targetLogProb := d.LogProb(b.Floats(policies.Action)), target.LogProb(b.Floats(policies.Action))
		behaviourLogProb := t.Column(b.Floats(policies.LogProb))
		p.vtrace.Compute(p.Critic, b, values.Data(), targetLogProb.Sub(behaviourLogProb).Exp().Data())

		correction := behaviourLogProb.Sub(targetLogProb).Exp().Clamp(0, maxCorrection)
		ratio, eps := logProb.Sub(behaviourLogProb).Exp().Mul(correction), float32(p.cfg.Clip)
		advantage := t.Column(p.vtrace.Advantages)
		surrogate := ratio.Mul(advantage).Min(ratio.Clamp(1-eps, 1+eps).Mul(advantage)).Mean()
		value := t.Column(p.vtrace.Targets).Sub(values).Square().Mean().Scale(0.5)
		ent, divergence := d.Entropy().Mean(), target.KL(&d).Mean()

		policyLoss, valueLoss, entropy = -float64(surrogate.Number()), float64(value.Number()), float64(ent.Number())
		kl = float64(divergence.Number())
		explained = data.Explain(values.Data(), p.vtrace.Targets)
		loss := value.Scale(float32(p.cfg.ValueCoef)).Sub(surrogate).Sub(ent.Scale(float32(max(p.cfg.EntropyCoef, 0))))
		return loss.Add(divergence.Scale(float32(p.coef.Value)))
	}, &policyLoss, &valueLoss, &entropy, &kl,
		&explained.Return, &explained.ReturnSquare, &explained.Error, &explained.ErrorSquare)
	if err != nil {
		return nil, err
	}
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/policy_gradient_loss", Value: policyLoss},
		policies.Metric{Name: "train/value_loss", Value: valueLoss}, policies.Metric{Name: "train/entropy_loss", Value: -entropy},
		policies.Metric{Name: "train/kl", Value: kl}, policies.Metric{Name: "train/kl_coef", Value: p.coef.Value},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: p.cfg.Adam.Rate})
	p.metrics = policies.AppendDefined(p.metrics, policies.Metric{Name: "train/explained_variance", Value: explained.Variance()})
	p.follow(kl)
	return p.metrics, nil
}

// follow updates the target and adapts the coefficient when it is time for that.
func (p *APPO) follow(kl float64) {
	p.kl += kl
	if p.Version()%uint64(p.cfg.TargetEvery) != 0 {
		return
	}
	p.target.CopyFrom(p.Actor)
	p.coef.Adapt(p.kl / float64(p.cfg.TargetEvery))
	p.kl = 0
}

// parts are all that a checkpoint holds.
func (p *APPO) parts() policies.Parts {
	var version uint64 // that of the target counts nothing
	return append(p.Parts(), policies.NetPart("appo.target", p.target, &version), policies.NumbersPart("appo.kl", &p.kl, &p.coef.Value))
}

// Save writes networks, optimiser and counters to a.
func (p *APPO) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save. The networks must have the same shape; the rest of the config
// is p's own. An error may leave p half restored.
func (p *APPO) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
