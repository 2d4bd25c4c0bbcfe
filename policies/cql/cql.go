// Package cql is conservative Q-learning: offline learning whose values of actions that are not in the data
// stay below those that are, so that the policy does not choose actions that only seem good because they were never tried.
//
//	c := cql.New(cql.Config{Obs: env.ObservationSpace(), Action: box, Seed: 7})                  // a Box
//	q := cql.NewDiscrete(cql.DiscreteConfig{Obs: env.ObservationSpace(), Action: actions})       // a Discrete
//	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{"data"}, Columns: c.Spec().Learns})
//	for d.Next(&batch) {
//		metrics, err := c.Learn(&batch)
//	}
//
// A. Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning" (2020). Both are the variant
// CQL(H) of its equation 4: to the loss of the critics comes
//
//	weight * mean(log sum over a of exp Q(s, a) - Q(s, action of the data))
//
// [CQL] is on soft actor-critic, with the sum estimated by sampled actions and their densities, as in the
// paper's appendix F, and the details of CORL's offline/cql.py, without its Lagrange multiplier, its
// orthogonal initial weights and its normalised observations. [Discrete] is on double DQN, with the details
// of d3rlpy's DiscreteCQL.
//
// Neither is safe for concurrent use. The same config, batches and processor give the same bits, also
// after Save and Restore. A value that is not finite is a *policies.UpdateError that names it.
package cql

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/dist"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// CQL is an actor, two critics with their targets, and alpha, for continuous actions. It implements
// policies.Policy.
type CQL struct {
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

	acting  nn.Tape   // of Act, and of what is constant in the critics' loss
	wanted  []float32 // targets of the critics
	sampled []float32 // batch x 3 Samples rows: the observation beside a sampled action
	density []float32 // of each of these actions, its logarithm
	metrics []policies.Metric
}

var _ policies.Exporter = (*CQL)(nil)

// New returns a CQL with fresh weights. It panics with all faults of the config; Config.Validate returns
// them.
func New(cfg Config) *CQL {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs, n := cfg.Obs.Dim(), cfg.Action.Dim()
	net := func(in, out int, seed uint64) *nn.Net {
		return nn.New(in, seed, nn.MLP(cfg.Hidden, nn.ReLU, out, nn.FanIn, nn.FanIn)...)
	}
	c := &CQL{cfg: cfg, actor: net(obs, 2*n, cfg.Seed), logAlpha: []float32{0}, source: rand.NewPCG(cfg.Seed, 0x63716c)}
	for i := range c.critics {
		seed := cfg.Seed + 1 + uint64(i)
		c.critics[i], c.targets[i] = net(obs+n, 1, seed), net(obs+n, 1, seed) // of one seed: equal
	}
	if cfg.Alpha > 0 {
		c.logAlpha[0] = float32(math.Log(cfg.Alpha))
	}
	c.rng = rand.New(c.source)
	c.pi = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Actor.New}, c.actor)
	c.q = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Critic.New}, c.critics[:]...)
	c.tune = cfg.Actor.New(1)
	c.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, n), Gamma: cfg.Gamma}
	return c
}

// The range of the logarithm of standard deviations, before tanh of the action, as in package sac.
const logStdLow, logStdHigh = -5, 2

// distribution returns the distribution of actions for an output of the actor.
func (c *CQL) distribution(out nn.Value) dist.SquashedGaussian {
	n := out.Cols() / 2
	const half = (logStdHigh - logStdLow) / 2.0
	logStd := out.Columns(n, 2*n).Tanh().AddNumber(1).Scale(half).AddNumber(logStdLow)
	return dist.NewSquashedGaussian(out.Columns(0, n), logStd, c.cfg.Action.Low, c.cfg.Action.High)
}

// Learn makes one update of the critics, the actor and alpha from a batch of transitions. It allocates
// nothing once it has seen a batch of that size.
func (c *CQL) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := b.Needs(c.spec.Learns...); err != nil {
		return nil, c.blame(err)
	}
	critic, err := c.learnCritics(b)
	if err != nil {
		return nil, c.blame(err)
	}
	actorLoss, entropy, err := c.learnActor(b)
	if err != nil {
		return nil, c.blame(err)
	}
	for i, target := range c.targets {
		target.Approach(c.critics[i], float32(c.cfg.Tau))
	}
	c.updates++
	c.metrics = append(c.metrics[:0],
		policies.Metric{Name: "train/critic_loss", Value: critic.loss}, policies.Metric{Name: "train/q_value", Value: critic.value},
		policies.Metric{Name: "train/conservative_loss", Value: critic.gap}, policies.Metric{Name: "train/actor_loss", Value: actorLoss},
		policies.Metric{Name: "train/ent_coef", Value: c.Alpha()}, policies.Metric{Name: "train/entropy", Value: entropy},
	)
	return c.metrics, nil
}

// criticStep has the metrics of an update of the critics.
type criticStep struct {
	loss  float64
	value float64 // mean of the first critic over the batch
	gap   float64 // the conservative term of both critics, before its weight
}

// learnCritics regresses Q(s, a) on r + gamma^n (1 - terminated) min Q'(s', a'), without the entropy of
// a', and keeps the values of other actions below.
func (c *CQL) learnCritics(b *policies.Batch) (out criticStep, err error) {
	c.bootstrap(b)
	step, err := c.q.Step(func(t *nn.Tape) nn.Value {
		x := t.Const(b.N, c.cfg.Obs.Dim(), b.Floats(policies.Obs)).Beside(t.Const(b.N, c.cfg.Action.Dim(), b.Floats(policies.Action)))
		others := t.Const(len(c.density), x.Cols(), c.sampled)
		density, target := t.Const(b.N, len(c.density)/b.N, c.density), t.Column(c.wanted)
		bellman, conservative := t.Scalar(0), t.Scalar(0)
		for i, critic := range c.critics {
			q := critic.Apply(t, x)
			if i == 0 {
				out.value = float64(q.Mean().Number())
			}
			bellman = bellman.Add(q.Sub(target).Square().Mean())
			all := critic.Apply(t, others).Reshape(density.Rows(), density.Cols()).Sub(density).LogSumExp()
			conservative = conservative.Add(all.Sub(q).Mean())
		}
		out.gap = float64(conservative.Number())
		return bellman.Add(conservative.Scale(float32(max(c.cfg.ConservativeWeight, 0))))
	})
	out.loss = step.Loss
	return out, err
}

// bootstrap computes the constants of the critics' loss: the targets, and the sampled actions with their
// densities. A third of each observation's actions is uniform, a third is drawn for it, and a third for the
// observation after it.
func (c *CQL) bootstrap(b *policies.Batch) {
	t, d, n := &c.acting, c.cfg.Obs.Dim(), c.cfg.Samples
	t.Reset()
	nextObs := t.Const(b.N, d, b.Floats(policies.NextObs))
	here := c.distribution(c.actor.Apply(t, t.Const(b.N, d, b.Floats(policies.Obs))))
	there := c.distribution(c.actor.Apply(t, nextObs))
	action, _ := there.RSample(c.rng)
	x := nextObs.Beside(action)
	next := c.targets[0].Apply(t, x).Min(c.targets[1].Apply(t, x))
	c.wanted = b.Targets(c.wanted[:0], c.cfg.Gamma, next.Data())

	rows := 3 * n * b.N
	c.sampled, c.density = resize(c.sampled, rows*(d+c.cfg.Action.Dim())), resize(c.density, rows)
	for k := range n {
		c.sampleUniform(b, k)
		action, density := here.RSample(c.rng)
		c.put(b, n+k, action.Data(), density.Data())
		action, density = there.RSample(c.rng)
		c.put(b, 2*n+k, action.Data(), density.Data())
	}
}

func resize(v []float32, n int) []float32 {
	if cap(v) < n {
		return make([]float32, n)
	}
	return v[:n]
}

// sampleUniform makes action k of each observation one of the box.
func (c *CQL) sampleUniform(b *policies.Batch, k int) {
	rows, n := c.acting.Zeros(b.N, c.cfg.Action.Dim()).Data(), c.cfg.Action.Dim()
	density := c.acting.Zeros(b.N, 1).Data()
	volume := 0.0
	for j, low := range c.cfg.Action.Low {
		volume += math.Log(float64(c.cfg.Action.High[j]) - float64(low))
	}
	for i := range rows {
		low, high := c.cfg.Action.Low[i%n], c.cfg.Action.High[i%n]
		rows[i] = low + (high-low)*c.rng.Float32()
		density[i/n] = float32(-volume)
	}
	c.put(b, k, rows, density)
}

// put sets action k of each observation.
func (c *CQL) put(b *policies.Batch, k int, actions, density []float32) {
	d, n, obs := c.cfg.Obs.Dim(), c.cfg.Action.Dim(), b.Floats(policies.Obs)
	for i := range b.N {
		at := i*3*c.cfg.Samples + k
		row := c.sampled[at*(d+n) : (at+1)*(d+n)]
		copy(row, obs[i*d:(i+1)*d])
		copy(row[d:], actions[i*n:(i+1)*n])
		c.density[at] = density[i]
	}
}

// learnActor raises the mean of min Q(s, a) - alpha log pi(a|s), and moves alpha so that the entropy comes to
// its target.
func (c *CQL) learnActor(b *policies.Batch) (loss, entropy float64, err error) {
	step, err := c.pi.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, c.cfg.Obs.Dim(), b.Floats(policies.Obs))
		action, logProb := c.distribution(c.actor.Apply(t, obs)).RSample(c.rng)
		x := obs.Beside(action)
		q := c.critics[0].Apply(t, x).Min(c.critics[1].Apply(t, x))
		entropy = -float64(logProb.Mean().Number())
		return logProb.Scale(float32(c.Alpha())).Sub(q).Mean()
	})
	if err != nil {
		return 0, 0, err
	}
	if c.cfg.Alpha == 0 { // the derivative of -log(alpha) (log pi + target)
		c.slope[0] = float32(entropy - c.cfg.TargetEntropy)
		c.tune.Step(c.logAlpha, c.slope[:])
	}
	return step.Loss, entropy, nil
}

// Act samples an action for each row. If a.Greedy is set, it takes that of the mean.
func (c *CQL) Act(a *policies.Act) error {
	rows, err := a.Check(&c.spec)
	if err != nil {
		return fmt.Errorf("cql: %w", err)
	}
	c.acting.Reset()
	out := c.actor.Apply(&c.acting, c.acting.Const(rows, c.cfg.Obs.Dim(), a.Obs))
	if err := (nn.Tensor{Name: "the actor's output", Data: out.Data()}).CheckFinite(); err != nil {
		return errors.Join(c.actor.CheckFinite(), err)
	}
	if d := c.distribution(out); a.Greedy {
		d.Mode(a.Action)
	} else {
		d.Sample(a.Action, a.Rand)
	}
	return nil
}

// Export implements policies.Exporter: the output "mean" is that of the actions, before tanh.
func (c *CQL) Export(g *graph.Graph, obs graph.Value) error {
	out, err := c.actor.Export(g, "cql.actor/", obs)
	if err != nil {
		return err
	}
	mean := out.Slice(0, c.cfg.Action.Dim())
	policies.ExportBox(g, mean.Tanh(), c.cfg.Action, true)
	g.Output("mean", mean)
	return nil
}

// blame names the update.
func (c *CQL) blame(err error) error {
	return &policies.UpdateError{Algorithm: "cql", Update: c.updates, Err: err}
}

// Spec describes the policy.
func (c *CQL) Spec() policies.Spec { return c.spec }

// Config returns the config with its defaults.
func (c *CQL) Config() Config { return c.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (c *CQL) Version() uint64 { return c.updates }

// Alpha returns the weight of the entropy now.
func (c *CQL) Alpha() float64 { return math.Exp(float64(c.logAlpha[0])) }

// parts returns the content of a checkpoint.
func (c *CQL) parts() policies.Parts {
	net, opt := policies.NetPart, policies.OptimizerPart
	return policies.Parts{
		net("cql.actor", c.actor, &c.updates), net("cql.critic1", c.critics[0], &c.updates), net("cql.critic2", c.critics[1], &c.updates),
		net("cql.target1", c.targets[0], &c.updates), net("cql.target2", c.targets[1], &c.updates),
		opt("cql.adam.actor", c.pi.Optimizers()[0]), opt("cql.adam.critic1", c.q.Optimizers()[0]),
		opt("cql.adam.critic2", c.q.Optimizers()[1]), opt("cql.adam.alpha", c.tune),
		policies.ValuesPart("cql.alpha", c.logAlpha, nil), policies.RandomPart("cql.random", c.source),
	}
}

// Weights returns a copy of the actor's weights: those that it acts with.
func (c *CQL) Weights() nn.State { return c.parts()[:1].State(c.updates) }

// Load takes the actor's weights over; critics and optimisers stay. Weights that do not fit or are not
// finite change nothing.
func (c *CQL) Load(s nn.State) error { return c.parts()[:1].Load(s) }

// Save writes networks, optimisers, alpha and the state of the noise to a.
func (c *CQL) Save(a *nn.Archive) error { return c.parts().Save(a) }

// Restore restores c to the state at Save. The networks must have the same shape; the rest of the config is
// c's own. An error may leave c half restored.
func (c *CQL) Restore(a *nn.Archive) error { return c.parts().Restore(a) }
