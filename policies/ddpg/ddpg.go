// Package ddpg is deep deterministic policy gradient: off-policy learning of a deterministic policy
// for continuous actions.
//
//	p := ddpg.New(ddpg.Config{Obs: env.ObservationSpace(), Action: box, Seed: 7})
//	err := p.Act(&act)            // actions with noise, or without if act.Greedy
//	err = replay.Add(&batch)      // transitions: see package data
//	err = replay.Sample(&mini, 256)
//	metrics, err := p.Learn(&mini)
//
// T. Lillicrap et al., "Continuous control with deep reinforcement learning" (2015). The details are
// those of CleanRL's ddpg_continuous_action.py: the noise of exploration is normal and independent
// from step to step, and the actor and the targets change with every second update of the critic.
//
// A DDPG is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package ddpg

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// DDPG is an actor and a critic, with a target of each. It implements policies.Policy.
type DDPG struct {
	cfg                  Config
	actor, actorTarget   *nn.Net // mu(s), in the units of the box
	critic, criticTarget *nn.Net
	mu, q                *nn.Trainer
	updates              uint64
	actorLoss            []float32 // one number: that of the actor's last update
	spec                 policies.Spec

	acting  nn.Tape   // of Act and of the targets
	wanted  []float32 // targets of the critic
	metrics []policies.Metric
}

var _ policies.Exporter = (*DDPG)(nil)

// New returns a DDPG with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *DDPG {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	net := func(in, out int, seed uint64, last ...nn.Layer) *nn.Net {
		return nn.New(in, seed, append(nn.MLP(cfg.Hidden, nn.ReLU, out, nn.FanIn, nn.FanIn), last...)...)
	}
	actor := func() *nn.Net { return net(obs, n, cfg.Seed, nn.Tanh(), nn.Rescale(cfg.Action.Low, cfg.Action.High)) }
	critic := func() *nn.Net { return net(obs+n, 1, cfg.Seed+1) }
	p := &DDPG{cfg: cfg, actor: actor(), actorTarget: actor(), critic: critic(), criticTarget: critic(), actorLoss: []float32{0}}
	p.mu = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Actor.New}, p.actor)
	p.q = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Critic.New}, p.critic)
	p.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, n)}
	if cfg.OrnsteinUhlenbeck {
		p.spec.NoiseSize = n
	}
	return p
}

// Spec describes the policy.
func (p *DDPG) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *DDPG) Config() Config { return p.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (p *DDPG) Version() uint64 { return p.updates }

// SetAllReduce has several learners train the policy together: see [nn.Trainer].
func (p *DDPG) SetAllReduce(f nn.AllReduce) {
	p.mu.SetAllReduce(f)
	p.q.SetAllReduce(f)
}

// Act takes the actor's action for each row, and adds noise to explore unless a.Greedy is set.
func (p *DDPG) Act(a *policies.Act) error {
	rows, err := a.Check(&p.spec)
	if err != nil {
		return fmt.Errorf("ddpg: %w", err)
	}
	p.acting.Reset()
	copy(a.Action, p.actor.Apply(&p.acting, p.acting.Const(rows, p.cfg.Obs.Dim(), a.Obs)).Data())
	noise := max(p.cfg.ExplorationNoise, 0)
	if a.Greedy {
		noise = 0
	}
	if p.cfg.OrnsteinUhlenbeck && !a.Greedy {
		policies.OrnsteinUhlenbeckNoise(a.Action, a.Noise, a.Reset, p.cfg.Action, noise, a.Rand)
	} else {
		policies.GaussianNoise(a.Action, p.cfg.Action, noise, 0, a.Rand)
	}
	if err := (nn.Tensor{Name: policies.Action, Data: a.Action}).CheckFinite(); err != nil {
		return errors.Join(p.actor.CheckFinite(), err)
	}
	return nil
}

// Export implements policies.Exporter. The output "mean" is the actor's output, before it is clipped to the box.
func (p *DDPG) Export(g *graph.Graph, obs graph.Value) error {
	mean, err := p.actor.Export(g, "ddpg.actor/", obs)
	if err != nil {
		return err
	}
	policies.ExportBox(g, mean, p.cfg.Action, false)
	g.Output("mean", mean)
	return nil
}

// Learn makes one update of the critic from a batch of transitions, and with every ActorEvery-th of
// them one of the actor and the targets. The metric train/actor_loss is that of the actor's last
// update. Learn allocates nothing once it has seen a batch of that size.
func (p *DDPG) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := b.Needs(p.spec.Learns...); err != nil {
		return nil, p.blame(err)
	}
	loss, value, err := p.learnCritic(b)
	if err != nil {
		return nil, p.blame(err)
	}
	if p.updates%uint64(p.cfg.ActorEvery) == 0 {
		if err := p.learnActor(b); err != nil {
			return nil, p.blame(err)
		}
		p.actorTarget.Approach(p.actor, float32(p.cfg.Tau))
		p.criticTarget.Approach(p.critic, float32(p.cfg.Tau))
	}
	p.updates++
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/critic_loss", Value: loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/actor_loss", Value: float64(p.actorLoss[0])},
	)
	return p.metrics, nil
}

// learnCritic regresses Q(s, a) on r + gamma^n (1 - terminated) Q'(s', mu'(s')). It returns the loss
// and the mean value.
func (p *DDPG) learnCritic(b *policies.Batch) (loss, value float64, err error) {
	p.bootstrap(b)
	step, err := p.q.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs))
		action := t.Const(b.N, p.cfg.Action.Dim(), b.Floats(policies.Action))
		q := p.critic.Apply(t, obs.Beside(action))
		value = float64(q.Mean().Number())
		return q.Sub(t.Column(p.wanted)).Square().Mean()
	}, &value)
	return step.Loss, value, err
}

// bootstrap computes the targets of the critic.
func (p *DDPG) bootstrap(b *policies.Batch) {
	t := &p.acting
	t.Reset()
	obs := t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.NextObs))
	next := p.criticTarget.Apply(t, obs.Beside(p.actorTarget.Apply(t, obs)))
	p.wanted = b.Targets(p.wanted[:0], p.cfg.Gamma, next.Data())
}

// learnActor raises the mean of Q(s, mu(s)).
func (p *DDPG) learnActor(b *policies.Batch) error {
	step, err := p.mu.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs))
		return p.critic.Apply(t, obs.Beside(p.actor.Apply(t, obs))).Mean().Neg()
	})
	if err == nil {
		p.actorLoss[0] = float32(step.Loss)
	}
	return err
}

// blame names the update.
func (p *DDPG) blame(err error) error {
	return &policies.UpdateError{Algorithm: "ddpg", Update: p.updates, Err: err}
}

// parts returns the content of a checkpoint.
func (p *DDPG) parts() policies.Parts {
	net, opt := policies.NetPart, policies.OptimizerPart
	return policies.Parts{
		net("ddpg.actor", p.actor, &p.updates), net("ddpg.critic", p.critic, &p.updates),
		net("ddpg.target.actor", p.actorTarget, &p.updates), net("ddpg.target.critic", p.criticTarget, &p.updates),
		opt("ddpg.adam.actor", p.mu.Optimizers()[0]), opt("ddpg.adam.critic", p.q.Optimizers()[0]),
		policies.ValuesPart("ddpg.actor_loss", p.actorLoss, nil),
	}
}

// Weights returns a copy of the actor's weights: those that it acts with.
func (p *DDPG) Weights() nn.State { return p.parts()[:1].State(p.updates) }

// Load takes the actor's weights over; critic, targets and optimisers stay. Weights that do not fit
// or are not finite change nothing.
func (p *DDPG) Load(s nn.State) error { return p.parts()[:1].Load(s) }

// Save writes networks and optimisers to a.
func (p *DDPG) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save. The networks must have the same shape; the rest of the config
// is p's own. An error may leave p half restored.
func (p *DDPG) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
