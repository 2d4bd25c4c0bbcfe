// Package td3 is twin delayed deep deterministic policy gradient: off-policy learning of a
// deterministic policy for continuous actions.
//
//	p := td3.New(td3.Config{Obs: env.ObservationSpace(), Action: box, Seed: 7})
//	err := p.Act(&act)            // actions with noise, or without if act.Greedy
//	err = replay.Add(&batch)      // transitions: see package data
//	err = replay.Sample(&mini, 256)
//	metrics, err := p.Learn(&mini)
//
// S. Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods" (2018):
// package ddpg with the lesser of two critics as target, noise on the action of the target, and
// fewer updates of the actor than of the critics. The details are those of CleanRL's
// td3_continuous_action.py.
//
// A TD3 is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package td3

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// TD3 is an actor and two critics, with a target of each. It implements policies.Policy.
type TD3 struct {
	cfg                  Config
	actor, actorTarget   *nn.Net // mu(s), in the units of the box
	critic, criticTarget [2]*nn.Net
	mu, q                *nn.Trainer
	updates              uint64
	actorLoss            []float32 // one number: that of the actor's last update
	spec                 policies.Spec
	source               *rand.PCG
	rng                  *rand.Rand // of the noise in targets

	acting  nn.Tape   // of Act and of the targets
	wanted  []float32 // targets of the critics
	metrics []policies.Metric
}

var _ policies.Exporter = (*TD3)(nil)

// New returns a TD3 with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *TD3 {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	net := func(in, out int, seed uint64, last ...nn.Layer) *nn.Net {
		return nn.New(in, seed, append(nn.MLP(cfg.Hidden, nn.ReLU, out, nn.FanIn, nn.FanIn), last...)...)
	}
	actor := func() *nn.Net { return net(obs, n, cfg.Seed, nn.Tanh(), nn.Rescale(cfg.Action.Low, cfg.Action.High)) }
	p := &TD3{cfg: cfg, actor: actor(), actorTarget: actor(), actorLoss: []float32{0}, source: rand.NewPCG(cfg.Seed, 0x746433)}
	for i := range p.critic {
		seed := cfg.Seed + 1 + uint64(i)
		p.critic[i], p.criticTarget[i] = net(obs+n, 1, seed), net(obs+n, 1, seed) // of one seed: equal
	}
	p.rng = rand.New(p.source)
	p.mu = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Actor.New}, p.actor)
	p.q = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Critic.New}, p.critic[:]...)
	p.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, n)}
	if cfg.OrnsteinUhlenbeck {
		p.spec.NoiseSize = n
	}
	return p
}

// Spec describes the policy.
func (p *TD3) Spec() policies.Spec { return p.spec }

// Config returns the config with its defaults.
func (p *TD3) Config() Config { return p.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (p *TD3) Version() uint64 { return p.updates }

// SetAllReduce has several learners train the policy together: see [nn.Trainer].
func (p *TD3) SetAllReduce(f nn.AllReduce) {
	p.mu.SetAllReduce(f)
	p.q.SetAllReduce(f)
}

// Act takes the actor's action for each row, and adds noise to explore unless a.Greedy is set.
func (p *TD3) Act(a *policies.Act) error {
	rows, err := a.Check(&p.spec)
	if err != nil {
		return fmt.Errorf("td3: %w", err)
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
func (p *TD3) Export(g *graph.Graph, obs graph.Value) error {
	mean, err := p.actor.Export(g, "td3.actor/", obs)
	if err != nil {
		return err
	}
	policies.ExportBox(g, mean, p.cfg.Action, false)
	g.Output("mean", mean)
	return nil
}

// Learn makes one update of the critics from a batch of transitions, and with every ActorEvery-th of
// them one of the actor and the targets. The metric train/actor_loss is that of the actor's last
// update. Learn allocates nothing once it has seen a batch of that size.
func (p *TD3) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := b.Needs(p.spec.Learns...); err != nil {
		return nil, p.blame(err)
	}
	loss, value, err := p.learnCritics(b)
	if err != nil {
		return nil, p.blame(err)
	}
	if p.updates%uint64(p.cfg.ActorEvery) == 0 {
		if err := p.learnActor(b); err != nil {
			return nil, p.blame(err)
		}
		tau := float32(p.cfg.Tau)
		p.actorTarget.Approach(p.actor, tau)
		for i, target := range p.criticTarget {
			target.Approach(p.critic[i], tau)
		}
	}
	p.updates++
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/critic_loss", Value: loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/actor_loss", Value: float64(p.actorLoss[0])},
	)
	return p.metrics, nil
}

// learnCritics regresses both Q(s, a) on r + gamma^n (1 - terminated) min Q'(s', a'). It returns the
// loss, and the mean value of the first critic.
func (p *TD3) learnCritics(b *policies.Batch) (loss, value float64, err error) {
	p.bootstrap(b)
	step, err := p.q.Step(func(t *nn.Tape) nn.Value {
		x := p.observed(t, b).Beside(t.Const(b.N, p.cfg.Action.Dim(), b.Floats(policies.Action)))
		target := t.Column(p.wanted)
		q1, q2 := p.critic[0].Apply(t, x), p.critic[1].Apply(t, x)
		value = float64(q1.Mean().Number())
		return q1.Sub(target).Square().Mean().Add(q2.Sub(target).Square().Mean())
	}, &value)
	return step.Loss, value, err
}

// bootstrap computes the targets of the critics: a' = mu'(s') + noise.
func (p *TD3) bootstrap(b *policies.Batch) {
	t := &p.acting
	t.Reset()
	obs := t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.NextObs))
	action := p.actorTarget.Apply(t, obs)
	policies.GaussianNoise(action.Data(), p.cfg.Action, max(p.cfg.PolicyNoise, 0), p.cfg.NoiseClip, p.rng)
	x := obs.Beside(action)
	next := p.criticTarget[0].Apply(t, x).Min(p.criticTarget[1].Apply(t, x))
	p.wanted = b.Targets(p.wanted[:0], p.cfg.Gamma, next.Data())
}

// learnActor raises the mean of Q(s, mu(s)), by the first critic.
func (p *TD3) learnActor(b *policies.Batch) error {
	step, err := p.mu.Step(func(t *nn.Tape) nn.Value {
		obs := p.observed(t, b)
		return p.critic[0].Apply(t, obs.Beside(p.actor.Apply(t, obs))).Mean().Neg()
	})
	if err == nil {
		p.actorLoss[0] = float32(step.Loss)
	}
	return err
}

// observed returns the observations of the batch.
func (p *TD3) observed(t *nn.Tape, b *policies.Batch) nn.Value {
	return t.Const(b.N, p.cfg.Obs.Dim(), b.Floats(policies.Obs))
}

// blame names the update.
func (p *TD3) blame(err error) error {
	return &policies.UpdateError{Algorithm: "td3", Update: p.updates, Err: err}
}

// parts returns the content of a checkpoint.
func (p *TD3) parts() policies.Parts {
	net, opt := policies.NetPart, policies.OptimizerPart
	return policies.Parts{
		net("td3.actor", p.actor, &p.updates), net("td3.critic1", p.critic[0], &p.updates), net("td3.critic2", p.critic[1], &p.updates),
		net("td3.target.actor", p.actorTarget, &p.updates), net("td3.target.critic1", p.criticTarget[0], &p.updates),
		net("td3.target.critic2", p.criticTarget[1], &p.updates), opt("td3.adam.actor", p.mu.Optimizers()[0]),
		opt("td3.adam.critic1", p.q.Optimizers()[0]), opt("td3.adam.critic2", p.q.Optimizers()[1]),
		policies.ValuesPart("td3.actor_loss", p.actorLoss, nil), policies.RandomPart("td3.random", p.source),
	}
}

// Weights returns a copy of the actor's weights: those that it acts with.
func (p *TD3) Weights() nn.State { return p.parts()[:1].State(p.updates) }

// Load takes the actor's weights over; critics, targets and optimisers stay. Weights that do not fit
// or are not finite change nothing.
func (p *TD3) Load(s nn.State) error { return p.parts()[:1].Load(s) }

// Save writes networks, optimisers and the state of the noise to a.
func (p *TD3) Save(a *nn.Archive) error { return p.parts().Save(a) }

// Restore restores p to the state at Save. The networks must have the same shape; the rest of the config
// is p's own. An error may leave p half restored.
func (p *TD3) Restore(a *nn.Archive) error { return p.parts().Restore(a) }
