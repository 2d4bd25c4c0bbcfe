// Package sac is soft actor-critic for continuous actions: off-policy learning of a policy that is
// as random as it can be while it earns much.
//
//	s := sac.New(sac.Config{Obs: env.ObservationSpace(), Action: box, Seed: 7})
//	err := s.Act(&act)            // samples actions
//	err = replay.Add(&batch)      // transitions: see package data
//	err = replay.Sample(&mini, 256)
//	metrics, err := s.Learn(&mini)
//
// T. Haarnoja et al., "Soft Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning
// with a Stochastic Actor" (2018), and "Soft Actor-Critic Algorithms and Applications" (2019) for two
// critics and the learned alpha. The details are those of CleanRL's sac_continuous_action.py.
//
// A SAC is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package sac

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/nn"
)

// SAC is an actor, two critics with their targets, and alpha. It implements policies.Policy.
type SAC struct {
	cfg      Config
	actor    *nn.Net
	critics  [2]*nn.Net
	targets  [2]*nn.Net
	logAlpha []float32 // one number
	pi, q    *nn.Trainer
	slope    [1]float32   // derivative by logAlpha
	tune     nn.Optimizer // of logAlpha
	updates  uint64
	spec     policies.Spec
	source   *rand.PCG
	rng      *rand.Rand

	acting  nn.Tape   // of Act and of the targets
	wanted  []float32 // targets of the critics
	metrics []policies.Metric
}

var _ policies.Policy = (*SAC)(nil)

// New returns a SAC with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *SAC {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	net := func(in, out int, seed uint64) *nn.Net {
		return nn.New(in, seed, nn.MLP(cfg.Hidden, nn.ReLU, out, nn.FanIn, nn.FanIn)...)
	}
	s := &SAC{cfg: cfg, actor: net(obs, 2*n, cfg.Seed), logAlpha: []float32{0}, source: rand.NewPCG(cfg.Seed, 0x736163)}
	for i := range s.critics {
		seed := cfg.Seed + 1 + uint64(i)
		s.critics[i], s.targets[i] = net(obs+n, 1, seed), net(obs+n, 1, seed) // of one seed: equal
	}
	if cfg.Alpha > 0 {
		s.logAlpha[0] = float32(math.Log(cfg.Alpha))
	}
	s.rng = rand.New(s.source)
	s.pi = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Actor.New}, s.actor)
	s.q = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Critic.New}, s.critics[:]...)
	s.tune = cfg.Critic.New(1)
	s.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, n)}
	return s
}

// Spec describes the policy.
func (s *SAC) Spec() policies.Spec { return s.spec }

// Config is the config with its defaults.
func (s *SAC) Config() Config { return s.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (s *SAC) Version() uint64 { return s.updates }

// Alpha is the weight of the entropy now.
func (s *SAC) Alpha() float64 { return math.Exp(float64(s.logAlpha[0])) }

// The range of the logarithm of standard deviations, before tanh of the action.
const logStdLow, logStdHigh = -5, 2

// policy is the distribution of actions.
func (s *SAC) policy(t *nn.Tape, obs nn.Value) dist.SquashedGaussian {
	n := s.cfg.Action.Dim()
	out := s.actor.Apply(t, obs)
	const half = (logStdHigh - logStdLow) / 2.0
	logStd := out.Columns(n, 2*n).Tanh().AddNumber(1).Scale(half).AddNumber(logStdLow)
	return dist.NewSquashedGaussian(out.Columns(0, n), logStd, s.cfg.Action.Low, s.cfg.Action.High)
}

// least is the lesser of what two critics say.
func least(t *nn.Tape, critics [2]*nn.Net, obs, action nn.Value) nn.Value {
	x := obs.Beside(action)
	return critics[0].Apply(t, x).Min(critics[1].Apply(t, x))
}

// Act samples an action for each row, or takes that of the mean if a.Greedy is set.
func (s *SAC) Act(a *policies.Act) error {
	rows, err := a.Check(&s.spec)
	if err != nil {
		return fmt.Errorf("sac: %w", err)
	}
	s.acting.Reset()
	d := s.policy(&s.acting, s.acting.Const(rows, s.cfg.Obs.Dim(), a.Obs))
	if a.Greedy {
		d.Mode(a.Action)
	} else {
		d.Sample(a.Action, a.Rand)
	}
	if err := (nn.Tensor{Name: policies.Action, Data: a.Action}).CheckFinite(); err != nil {
		return errors.Join(s.actor.CheckFinite(), err)
	}
	return nil
}

// Learn makes one update of the critics from a batch of transitions, and after each ActorEvery of
// them as many of the actor and of alpha. It allocates nothing once it has seen a batch of that size.
func (s *SAC) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := b.Needs(s.spec.Learns...); err != nil {
		return nil, s.blame(err)
	}
	s.metrics = s.metrics[:0]
	if err := s.learnCritics(b); err != nil {
		return nil, s.blame(err)
	}
	if (s.updates+1)%uint64(s.cfg.ActorEvery) == 0 {
		for range s.cfg.ActorEvery {
			if err := s.learnActor(b); err != nil {
				return nil, s.blame(err)
			}
		}
	}
	for i, target := range s.targets {
		target.Approach(s.critics[i], float32(s.cfg.Tau))
	}
	s.updates++
	return s.metrics, nil
}

// learnCritics regresses Q(s, a) on r + gamma^n (1 - terminated) (min Q'(s', a') - alpha log pi(a'|s')).
func (s *SAC) learnCritics(b *policies.Batch) error {
	s.bootstrap(b)
	var value float64
	step, err := s.q.Step(func(t *nn.Tape) nn.Value {
		x := t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.Obs)).Beside(t.Const(b.N, s.cfg.Action.Dim(), b.Floats(policies.Action)))
		target := t.Column(s.wanted)
		q1, q2 := s.critics[0].Apply(t, x), s.critics[1].Apply(t, x)
		value = float64(q1.Mean().Number())
		return q1.Sub(target).Square().Mean().Add(q2.Sub(target).Square().Mean())
	})
	s.note("train/critic_loss", step.Loss)
	s.note("train/q_value", value)
	return err
}

// bootstrap computes the targets of the critics.
func (s *SAC) bootstrap(b *policies.Batch) {
	t := &s.acting
	t.Reset()
	obs := t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.NextObs))
	action, logProb := s.policy(t, obs).RSample(s.rng)
	next := least(t, s.targets, obs, action).Sub(logProb.Scale(float32(s.Alpha()))).Data()
	s.wanted = b.Targets(s.wanted[:0], s.cfg.Gamma, next)
}

// learnActor lowers the mean of alpha log pi(a|s) - min Q(s, a), and moves alpha so that the entropy
// comes to its target.
func (s *SAC) learnActor(b *policies.Batch) error {
	var entropy float64
	step, err := s.pi.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.Obs))
		action, logProb := s.policy(t, obs).RSample(s.rng)
		entropy = -float64(logProb.Mean().Number())
		return logProb.Scale(float32(s.Alpha())).Sub(least(t, s.critics, obs, action)).Mean()
	})
	if err != nil {
		return err
	}
	if s.cfg.Alpha == 0 { // the derivative of -log(alpha) (log pi + target), as in the authors' code
		s.slope[0] = float32(entropy - s.cfg.TargetEntropy)
		s.tune.Step(s.logAlpha, s.slope[:])
	}
	s.note("train/actor_loss", step.Loss)
	s.note("train/ent_coef", s.Alpha())
	s.note("train/entropy", entropy)
	return nil
}

// note sets a metric of this update.
func (s *SAC) note(name string, value float64) {
	for i := range s.metrics {
		if s.metrics[i].Name == name {
			s.metrics[i].Value = value
			return
		}
	}
	s.metrics = append(s.metrics, policies.Metric{Name: name, Value: value})
}

// blame names the update.
func (s *SAC) blame(err error) error {
	return &policies.UpdateError{Algorithm: "sac", Update: s.updates, Err: err}
}

// parts are what a checkpoint holds.
func (s *SAC) parts() policies.Parts {
	net, opt := policies.NetPart, policies.OptimizerPart
	return policies.Parts{
		net("sac.actor", s.actor, &s.updates), net("sac.critic1", s.critics[0], &s.updates), net("sac.critic2", s.critics[1], &s.updates),
		net("sac.target1", s.targets[0], &s.updates), net("sac.target2", s.targets[1], &s.updates),
		opt("sac.adam.actor", s.pi.Optimizers()[0]), opt("sac.adam.critic1", s.q.Optimizers()[0]),
		opt("sac.adam.critic2", s.q.Optimizers()[1]), opt("sac.adam.alpha", s.tune),
		policies.NumbersPart("sac.alpha", s.logAlpha), policies.RandomPart("sac.random", s.source),
	}
}

// Weights returns a copy of the actor's weights: those that it acts with.
func (s *SAC) Weights() nn.State { return s.parts()[:1].State(s.updates) }

// Load takes the actor's weights over; critics and optimisers stay. Weights that do not fit or are
// not finite change nothing.
func (s *SAC) Load(st nn.State) error { return s.parts()[:1].Load(st) }

// Save writes networks, optimisers, alpha and the state of the noise to a.
func (s *SAC) Save(a *nn.Archive) error { return s.parts().Save(a) }

// Restore makes s what it was at Save. The networks must have the same shape; the rest of the config
// is s's own. An error may leave s half restored.
func (s *SAC) Restore(a *nn.Archive) error { return s.parts().Restore(a) }
