// Package sac is soft actor-critic for continuous and discrete actions: off-policy learning of a
// policy that is as random as it can be while it earns much.
//
//	s := sac.New(sac.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
//	err := s.Act(&act)            // samples actions
//	err = replay.Add(&batch)      // transitions: see package data
//	err = replay.Sample(&mini, 256)
//	metrics, err := s.Learn(&mini)
//
// T. Haarnoja et al., "Soft Actor-Critic: Off-Policy Maximum Entropy Deep Reinforcement Learning
// with a Stochastic Actor" (2018), and "Soft Actor-Critic Algorithms and Applications" (2019) for two
// critics and the learned alpha. The details are those of CleanRL's sac_continuous_action.py.
//
// P. Christodoulou, "Soft Actor-Critic for Discrete Action Settings" (2019): the critics say a value
// for each action, so that expectations over actions are sums. The details are those of CleanRL's
// sac_atari.py without its convolutions. Its losses are means over all actions too, which divides
// them by the number of actions.
//
// A SAC is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package sac

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// SAC is an actor, two critics with their targets, and alpha. It implements policies.Policy.
type SAC struct {
	cfg      Config
	box      envs.Box // of continuous actions
	discrete bool
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
	actorWas [2]float32 // loss and entropy of the actor's last update, which are shown until its next

	deviation *nn.StateDeviation // the last layer of the actor; nil without Config.DrawEvery

	workers *nn.Workers
	acting  nn.Tape   // of Act and of the targets
	wanted  []float32 // targets of the critics
	metrics []policies.Metric
}

var _ policies.Exporter = (*SAC)(nil)

// New returns a SAC with fresh weights. It panics with all faults of the config; Config.Validate
// returns them.
func New(cfg Config) *SAC {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	in, out, said, init := obs+n, 1, 2*n, nn.FanIn // of the critics; what the actor says; initial weights
	if d := cfg.discrete(); d > 0 {
		in, out, said, init = obs, d, d, nn.KaimingNormal
	}
	net := func(in, out int, seed uint64) *nn.Net {
		return nn.New(in, seed, nn.MLP(cfg.Hidden, nn.ReLU, out, init, init)...)
	}
	s := &SAC{cfg: cfg, logAlpha: []float32{0}, source: rand.NewPCG(cfg.Seed, 0x736163)}
	if cfg.DrawEvery > 0 {
		s.deviation = nn.NewStateDeviation(n, init, cfg.LogStd)
		layers := nn.MLP(cfg.Hidden, nn.ReLU, 1, init, nn.Zeros)
		s.actor = nn.New(obs, cfg.Seed, append(layers[:len(layers)-1], s.deviation)...)
	} else {
		s.actor = net(obs, said, cfg.Seed)
	}
	s.discrete = cfg.discrete() > 0
	s.box, _ = cfg.Action.(envs.Box)
	for i := range s.critics {
		seed := cfg.Seed + 1 + uint64(i)
		s.critics[i], s.targets[i] = net(in, out, seed), net(in, out, seed) // of one seed: equal
	}
	if cfg.Alpha > 0 {
		s.logAlpha[0] = float32(math.Log(cfg.Alpha))
	}
	s.rng = rand.New(s.source)
	s.workers = nn.NewWorkers(cfg.Threads)
	s.acting.Use(s.workers)
	s.pi = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Actor.New, Workers: s.workers}, s.actor)
	s.q = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Critic.New, Workers: s.workers}, s.critics[:]...)
	s.tune = cfg.Critic.New(1)
	s.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, n)}
	if s.deviation != nil {
		s.spec.NoiseSize = 1 + s.deviation.Size()
	}
	return s
}

// Spec describes the policy.
func (s *SAC) Spec() policies.Spec { return s.spec }

// Config returns the config with its defaults.
func (s *SAC) Config() Config { return s.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (s *SAC) Version() uint64 { return s.updates }

// SetAllReduce has several learners train the policy together: see [nn.Trainer].
func (s *SAC) SetAllReduce(f nn.AllReduce) {
	s.pi.SetAllReduce(f)
	s.q.SetAllReduce(f)
}

// Alpha returns the weight of the entropy now.
func (s *SAC) Alpha() float64 { return math.Exp(float64(s.logAlpha[0])) }

// The range of the logarithm of standard deviations, before tanh of the action.
const logStdLow, logStdHigh = -5, 2

// meanLimit bounds the means with noise that depends on the state, so that it can explore near the bounds of actions.
const meanLimit = 2

// gaussian returns the distribution of continuous actions for an output of the actor.
func (s *SAC) gaussian(out nn.Value) dist.SquashedGaussian {
	n := out.Cols() / 2
	if s.deviation != nil {
		return dist.NewSquashedGaussian(out.Columns(0, n).Clamp(-meanLimit, meanLimit), out.Columns(n, 2*n), s.box.Low, s.box.High)
	}
	const half = (logStdHigh - logStdLow) / 2.0
	logStd := out.Columns(n, 2*n).Tanh().AddNumber(1).Scale(half).AddNumber(logStdLow)
	return dist.NewSquashedGaussian(out.Columns(0, n), logStd, s.box.Low, s.box.High)
}

// value is V(s), the expectation of min Q(s, a) - alpha log pi(a|s), and the entropy, that of
// -log pi(a|s): by one sample of a continuous action, or over all discrete ones.
func (s *SAC) value(t *nn.Tape, critics [2]*nn.Net, obs nn.Value) (value, entropy nn.Value) {
	alpha, out := float32(s.Alpha()), s.actor.Apply(t, obs)
	if s.discrete {
		d := dist.NewCategorical(out, nil)
		q := critics[0].Apply(t, obs).Min(critics[1].Apply(t, obs))
		return d.LogProbs().Exp().Mul(q.Sub(d.LogProbs().Scale(alpha))).RowSums(), d.Entropy()
	}
	action, logProb := s.gaussian(out).RSample(s.rng)
	x := obs.Beside(action)
	q := critics[0].Apply(t, x).Min(critics[1].Apply(t, x))
	return q.Sub(logProb.Scale(alpha)), logProb.Neg()
}

// Act samples an action for each row. If a.Greedy is set, it takes that of the mean, or the most
// probable one.
func (s *SAC) Act(a *policies.Act) error {
	rows, err := a.Check(&s.spec)
	if err != nil {
		return fmt.Errorf("sac: %w", err)
	}
	s.acting.Reset()
	features, out := s.actor.ApplyLast(&s.acting, s.acting.Const(rows, s.cfg.Obs.Dim(), a.Obs))
	if err := (nn.Tensor{Name: "the actor's output", Data: out.Data()}).CheckFinite(); err != nil {
		return errors.Join(s.actor.CheckFinite(), err)
	}
	switch {
	case s.discrete:
		choose(dist.NewCategorical(out, nil), a)
	case s.deviation != nil && !a.Greedy:
		d := s.gaussian(out)
		copy(a.Action, d.Inner().Data())
		policies.StateNoise(a.Action, features.Data(), a.Noise, s.deviation, s.cfg.DrawEvery, a.Rand)
		d.Squash(a.Action)
	default:
		choose(s.gaussian(out), a)
	}
	return nil
}

// Export implements policies.Exporter: the output "logits" has the logits of discrete actions, and "mean" the
// mean of continuous ones, before tanh.
func (s *SAC) Export(g *graph.Graph, obs graph.Value) error {
	out, err := s.actor.Export(g, "sac.actor/", obs)
	if err != nil {
		return err
	}
	if space, ok := s.cfg.Action.(envs.Discrete); ok {
		policies.ExportChoice(g, out, space)
		g.Output("logits", out)
		return nil
	}
	mean := out.Slice(0, s.box.Dim())
	if s.deviation != nil {
		mean = mean.Max(g.Constant("mean.low", slices.Repeat([]float32{-meanLimit}, s.box.Dim()), s.box.Dim())).
			Min(g.Constant("mean.high", slices.Repeat([]float32{meanLimit}, s.box.Dim()), s.box.Dim()))
	}
	policies.ExportBox(g, mean.Tanh(), s.box, true)
	g.Output("mean", mean)
	return nil
}

// choose has a type parameter, since an interface would be an allocation.
func choose[D dist.Distribution](d D, a *policies.Act) {
	if a.Greedy {
		d.Mode(a.Action)
	} else {
		d.Sample(a.Action, a.Rand)
	}
}

// Learn makes one update of the critics from a batch of transitions, and after each ActorEvery of
// them as many of the actor and of alpha. The metrics train/actor_loss and train/entropy are those
// of the actor's last update, 0 before the first. Learn allocates nothing once it has seen a batch
// of that size.
func (s *SAC) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := s.check(b); err != nil {
		return nil, s.blame(err)
	}
	s.workers.Start()
	defer s.workers.Stop()
	loss, value, err := s.learnCritics(b)
	if err != nil {
		return nil, s.blame(err)
	}
	if (s.updates+1)%uint64(s.cfg.ActorEvery) == 0 {
		for range s.cfg.ActorEvery {
			if err := s.learnActor(b); err != nil {
				return nil, s.blame(err)
			}
		}
	}
	if (s.updates+1)%uint64(s.cfg.TargetEvery) == 0 {
		for i, target := range s.targets {
			target.Approach(s.critics[i], float32(s.cfg.Tau))
		}
	}
	s.updates++
	s.metrics = append(s.metrics[:0],
		policies.Metric{Name: "train/critic_loss", Value: loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/actor_loss", Value: float64(s.actorWas[0])}, policies.Metric{Name: "train/ent_coef", Value: s.Alpha()},
		policies.Metric{Name: "train/entropy", Value: float64(s.actorWas[1])},
	)
	return s.metrics, nil
}

// check finds faults of the batch.
func (s *SAC) check(b *policies.Batch) error {
	if err := b.Needs(s.spec.Learns...); err != nil || !s.discrete {
		return err
	}
	actions := b.Floats(policies.Action)
	for i := range actions {
		if a := actions[i : i+1]; !s.cfg.Action.Contains(a) {
			return fmt.Errorf("row %d has the action %v, which is not in %v", i, a, s.cfg.Action)
		}
	}
	return nil
}

// learnCritics regresses Q(s, a) on r + gamma^n (1 - terminated) V'(s'), with the value of the targets.
// value is the mean of the first critic's values of the batch.
func (s *SAC) learnCritics(b *policies.Batch) (loss, value float64, err error) {
	s.bootstrap(b)
	step, err := s.q.Step(func(t *nn.Tape) nn.Value {
		x, actions := t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.Obs)), b.Floats(policies.Action)
		if !s.discrete {
			x = x.Beside(t.Const(b.N, s.cfg.Action.Dim(), actions))
		}
		q1, q2 := s.critics[0].Apply(t, x), s.critics[1].Apply(t, x)
		if s.discrete {
			q1, q2 = q1.Pick(actions), q2.Pick(actions)
		}
		value = float64(q1.Mean().Number())
		target := t.Column(s.wanted)
		return q1.Sub(target).Square().Mean().Add(q2.Sub(target).Square().Mean())
	}, &value)
	return step.Loss, value, err
}

// bootstrap computes the targets of the critics.
func (s *SAC) bootstrap(b *policies.Batch) {
	t := &s.acting
	t.Reset()
	next, _ := s.value(t, s.targets, t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.NextObs)))
	s.wanted = b.Targets(s.wanted[:0], s.cfg.Gamma, next.Data())
}

// learnActor raises the mean of V(s), and moves alpha so that the entropy comes to its target.
func (s *SAC) learnActor(b *policies.Batch) error {
	var entropy float64
	step, err := s.pi.Step(func(t *nn.Tape) nn.Value {
		value, ent := s.value(t, s.critics, t.Const(b.N, s.cfg.Obs.Dim(), b.Floats(policies.Obs)))
		entropy = float64(ent.Mean().Number())
		return value.Mean().Neg()
	}, &entropy)
	if err != nil {
		return err
	}
	if s.cfg.Alpha == 0 { // the derivative of -log(alpha) (log pi + target), as in the authors' code
		s.slope[0] = float32(entropy - s.cfg.TargetEntropy)
		s.tune.Step(s.logAlpha, s.slope[:])
	}
	s.actorWas = [2]float32{float32(step.Loss), float32(entropy)}
	return nil
}

// blame names the update.
func (s *SAC) blame(err error) error {
	return &policies.UpdateError{Algorithm: "sac", Update: s.updates, Err: err}
}

// parts returns the content of a checkpoint.
func (s *SAC) parts() policies.Parts {
	net, opt := policies.NetPart, policies.OptimizerPart
	return policies.Parts{
		net("sac.actor", s.actor, &s.updates), net("sac.critic1", s.critics[0], &s.updates), net("sac.critic2", s.critics[1], &s.updates),
		net("sac.target1", s.targets[0], &s.updates), net("sac.target2", s.targets[1], &s.updates),
		opt("sac.adam.actor", s.pi.Optimizers()[0]), opt("sac.adam.critic1", s.q.Optimizers()[0]),
		opt("sac.adam.critic2", s.q.Optimizers()[1]), opt("sac.adam.alpha", s.tune),
		policies.ValuesPart("sac.alpha", s.logAlpha, nil), policies.ValuesPart("sac.metrics", s.actorWas[:], nil),
		policies.RandomPart("sac.random", s.source),
	}
}

// Weights returns a copy of the actor's weights: those that it acts with.
func (s *SAC) Weights() nn.State { return s.parts()[:1].State(s.updates) }

// Load takes the actor's weights over; critics and optimisers stay. Weights that do not fit or are
// not finite change nothing.
func (s *SAC) Load(st nn.State) error { return s.parts()[:1].Load(st) }

// Save writes networks, optimisers, alpha and the state of the noise to a.
func (s *SAC) Save(a *nn.Archive) error { return s.parts().Save(a) }

// Restore restores s to the state at Save. The networks must have the same shape; the rest of the config
// is s's own. An error may leave s half restored.
func (s *SAC) Restore(a *nn.Archive) error { return s.parts().Restore(a) }
