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
// A PPO is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a
// *policies.UpdateError that names it; the weights stay as they were.
package ppo

import (
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/nn"
)

// PPO is an actor, a critic and their optimiser. It implements policies.Policy.
type PPO struct {
	cfg           Config
	actor, critic *nn.Net
	trainer       *nn.Trainer
	updates       uint64
	spec          policies.Spec
	sizes         []int // of the choices of multi-discrete actions

	acting      nn.Tape
	categorical dist.Categorical // these three are memory of distribution, which allocates nothing
	multi       dist.MultiCategorical
	gaussian    dist.Gaussian
	advantages  []float32
	metrics     []policies.Metric
}

var _ policies.Policy = (*PPO)(nil)

// New returns a PPO with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *PPO {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	p := &PPO{cfg: cfg}
	p.spec = specOf(cfg)
	hidden := nn.Orthogonal(math.Sqrt2)
	out, last := cfg.Action.Dim(), []nn.Layer(nil)
	switch a := cfg.Action.(type) {
	case envs.Discrete:
		out = a.N
	case envs.MultiDiscrete:
		p.sizes, out = a.N, 0
		for _, n := range a.N {
			out += n
		}
	default:
		last = append(last, nn.Learned(out, cfg.LogStd)) // standard deviations that do not depend on the observation
	}
	actor := append(nn.MLP(cfg.Hidden, nn.Tanh, out, hidden, nn.Orthogonal(0.01)), last...)
	p.actor = nn.New(cfg.Obs.Dim(), cfg.Seed, actor...)
	p.critic = nn.New(cfg.Obs.Dim(), cfg.Seed+1, nn.MLP(cfg.Hidden, nn.Tanh, 1, hidden, nn.Orthogonal(1))...)
	p.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New, MaxGradNorm: max(cfg.MaxGradNorm, 0)}, p.actor, p.critic)
	return p
}

func specOf(cfg Config) policies.Spec {
	float := func(name string, shape ...int) policies.Column {
		return policies.Column{Name: name, Kind: policies.Float32, Shape: shape}
	}
	return policies.Spec{
		Obs: cfg.Obs, Action: cfg.Action, Bootstrap: policies.Value,
		Extra: []policies.Column{float(policies.LogProb), float(policies.Value)},
		Learns: []policies.Column{
			float(policies.Obs, cfg.Obs.Dim()), float(policies.Action, cfg.Action.Dim()), float(policies.LogProb),
			float(policies.Value), float(policies.Advantage), float(policies.Return),
		},
	}
}

// Spec describes the policy.
func (p *PPO) Spec() policies.Spec { return p.spec }

// Config is the config with its defaults.
func (p *PPO) Config() Config { return p.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (p *PPO) Version() uint64 { return p.updates }

// SetRate changes the optimiser's learning rate.
func (p *PPO) SetRate(rate float64) {
	p.cfg.Adam.Rate = rate
	p.trainer.SetRate(rate)
}

// distribution is what the loss needs of one.
type distribution interface {
	dist.Distribution
	Entropy() nn.Value
}

// distribution is that of the actions.
func (p *PPO) distribution(t *nn.Tape, obs nn.Value) distribution {
	out := p.actor.Apply(t, obs)
	switch p.cfg.Action.(type) {
	case envs.Discrete:
		p.categorical = dist.NewCategorical(out, nil)
		return &p.categorical
	case envs.MultiDiscrete:
		p.multi = dist.NewMultiCategorical(out, p.sizes, nil)
		return &p.multi
	}
	n := p.cfg.Action.Dim()
	p.gaussian = dist.NewGaussian(out.Columns(0, n), out.Columns(n, 2*n))
	return &p.gaussian
}

// Act samples an action for each row, or takes the most likely one if a.Greedy is set.
func (p *PPO) Act(a *policies.Act) error {
	rows, err := a.Check(&p.spec)
	if err != nil {
		return fmt.Errorf("ppo: %w", err)
	}
	t := &p.acting
	t.Reset()
	obs := t.Const(rows, p.cfg.Obs.Dim(), a.Obs)
	d := p.distribution(t, obs)
	if a.Greedy {
		d.Mode(a.Action)
	} else {
		d.Sample(a.Action, a.Rand)
	}
	if err := (nn.Tensor{Name: policies.Action, Data: a.Action}).CheckFinite(); err != nil {
		return errors.Join(p.actor.CheckFinite(), err)
	}
	if a.Extra != nil {
		copy(a.Extra[0], d.LogProb(a.Action).Data())
		copy(a.Extra[1], p.critic.Apply(t, obs).Data())
	}
	return nil
}

// Learn makes one update from a minibatch. It allocates nothing once it has seen a batch of that
// size.
func (p *PPO) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.check(b); err != nil {
		return nil, p.blame(err)
	}
	p.advantages = append(p.advantages[:0], b.Floats(policies.Advantage)...)
	if !p.cfg.RawAdvantages {
		data.Standardize(p.advantages)
	}
	var policyLoss, valueLoss, entropy, kl, clipped float64
	step, err := p.trainer.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs))
		d := p.distribution(t, obs)
		logRatio := d.LogProb(b.Floats(policies.Action)).Sub(t.Column(b.Floats(policies.LogProb)))
		ratio, eps := logRatio.Exp(), float32(p.cfg.Clip)

		advantage := t.Column(p.advantages)
		surrogate := ratio.Mul(advantage).Min(ratio.Clamp(1-eps, 1+eps).Mul(advantage)).Mean()
		value := p.valueLoss(p.critic.Apply(t, obs), t.Column(b.Floats(policies.Value)), t.Column(b.Floats(policies.Return)))
		ent := d.Entropy().Mean()

		policyLoss, valueLoss, entropy = -float64(surrogate.Number()), float64(value.Number()), float64(ent.Number())
		kl, clipped = p.distance(ratio.Data(), logRatio.Data())
		return value.Scale(float32(p.cfg.ValueCoef)).Sub(surrogate).Sub(ent.Scale(float32(max(p.cfg.EntropyCoef, 0))))
	})
	if err != nil {
		return nil, p.blame(err)
	}
	p.updates++
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/policy_gradient_loss", Value: policyLoss},
		policies.Metric{Name: "train/value_loss", Value: valueLoss}, policies.Metric{Name: "train/entropy_loss", Value: -entropy},
		policies.Metric{Name: "train/approx_kl", Value: kl}, policies.Metric{Name: "train/clip_fraction", Value: clipped},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: p.cfg.Adam.Rate},
	)
	return p.metrics, nil
}

// valueLoss is the loss of the values, a mean: half of the squared error, or with ClipError all of
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

// check finds what in the batch cannot be learned from.
func (p *PPO) check(b *policies.Batch) error {
	if err := b.Needs(p.spec.Learns...); err != nil {
		return err
	}
	width := p.cfg.Action.Dim()
	if _, ok := p.cfg.Action.(envs.Box); ok {
		return nil // a Gaussian has no bounds: they are those of the environment
	}
	actions := b.Floats(policies.Action)
	for i := range b.N {
		if a := actions[i*width : (i+1)*width]; !p.cfg.Action.Contains(a) {
			return fmt.Errorf("row %d has the action %v, which is not in %v", i, a, p.cfg.Action)
		}
	}
	return nil
}

// blame names the update.
func (p *PPO) blame(err error) error {
	return &policies.UpdateError{Algorithm: "ppo", Update: p.updates, Err: err}
}

// nets are the weights, and parts all that a checkpoint holds.
func (p *PPO) nets() policies.Parts {
	return policies.Parts{policies.NetPart("ppo.actor", p.actor, &p.updates), policies.NetPart("ppo.critic", p.critic, &p.updates)}
}

func (p *PPO) parts() policies.Parts {
	opts := p.trainer.Optimizers()
	return append(p.nets(), policies.OptimizerPart("ppo.adam.actor", opts[0]), policies.OptimizerPart("ppo.adam.critic", opts[1]))
}

// Weights returns a copy of the weights of actor and critic.
func (p *PPO) Weights() nn.State { return p.nets().State(p.updates) }

// Load takes weights over; the optimiser stays. Weights that do not fit or are not finite change
// nothing.
func (p *PPO) Load(s nn.State) error { return p.nets().Load(s) }

// Save writes networks, optimiser and counter to a.
func (p *PPO) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore makes p what it was at Save. The networks must have the same shape; the rest of the config
// is p's own. An error may leave p half restored.
func (p *PPO) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
