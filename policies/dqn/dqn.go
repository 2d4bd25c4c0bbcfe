// Package dqn is deep Q-learning for discrete actions, with the extensions
// double, dueling, n-step returns, prioritised replay and noisy networks.
//
//	q := dqn.New(dqn.Config{Obs: env.ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: 7, Double: true})
//	err := q.Act(&act)                 // the actions of highest value, or random ones
//	metrics, err := q.Learn(&batch)    // one update, from transitions: see package data
//	w := q.Weights()                   // for another process: other.Load(w)
//
// Learn regresses Q(s, a) on r + gamma^n (1 - terminated) Q'(s', a'), where n
// is the transition's number of steps, Q' the target network, and a' the best
// action of Q' or, if Double, of Q. A truncated transition has a future as any
// other.
//
// Sources: V. Mnih et al., "Human-level control through deep reinforcement
// learning" (2015); H. van Hasselt et al., "Deep Reinforcement Learning with
// Double Q-learning" (2016); Z. Wang et al., "Dueling Network Architectures for
// Deep Reinforcement Learning" (2016); n-step returns and their combination:
// M. Hessel et al., "Rainbow" (2018); soft target updates: T. P. Lillicrap et
// al., "Continuous control with deep reinforcement learning" (2016).
//
// A DQN is not safe for concurrent use. The same config, batches and processor
// give the same bits, also after Save and Restore. A value that is not finite
// is a *policies.UpdateError that names it; the weights stay as they were.
package dqn

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// DQN is a Q-network with its target network and optimiser. It implements policies.Policy.
type DQN struct {
	cfg            Config
	online, target *nn.Net
	trainer        *nn.Trainer
	updates        uint64
	spec           policies.Spec
	discount       [256]float32 // gamma to the power of the index
	source         *rand.PCG    // of the noise, if Noisy
	rng            *rand.Rand

	targets []float32 // of one batch
	best    []int
	chosen  []int     // of Act
	numbers []float32 // of actions
	metrics []policies.Metric
}

var _ policies.Policy = (*DQN)(nil)

// New returns a DQN with fresh weights. It panics with all faults of the
// config; Config.Validate returns them.
func New(cfg Config) *DQN {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	obs := cfg.Obs.Dim()
	q := &DQN{cfg: cfg, online: network(cfg), target: network(cfg), source: rand.NewPCG(cfg.Seed, 0x64716e)} // of one seed: equal
	q.rng = rand.New(q.source)
	q.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(obs, 1), NStep: cfg.NStep, Gamma: cfg.Gamma}
	q.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New, MaxGradNorm: max(cfg.MaxGradNorm, 0)}, q.online)
	for i := range q.discount {
		q.discount[i] = float32(math.Pow(cfg.Gamma, float64(i)))
	}
	return q
}

// noise is the initial standard deviation of noisy weights, that of the paper.
const noise = 0.5

func network(cfg Config) *nn.Net {
	out := cfg.Action.N
	if cfg.Dueling {
		out++
	}
	layers := nn.MLP(cfg.Hidden, nn.ReLU, out, nn.Kaiming, nn.FanIn)
	if cfg.Noisy {
		layers = layers[:0]
		for _, w := range cfg.Hidden {
			layers = append(layers, nn.NoisyDense(w, noise), nn.ReLU())
		}
		layers = append(layers, nn.NoisyDense(out, noise))
	}
	if cfg.Dueling {
		layers = append(layers, nn.Dueling())
	}
	return nn.New(cfg.Obs.Dim(), cfg.Seed, layers...)
}

// Spec describes the policy.
func (q *DQN) Spec() policies.Spec { return q.spec }

// Config is the config with its defaults.
func (q *DQN) Config() Config { return q.cfg }

// Version counts the updates behind the weights, those before a Load included.
func (q *DQN) Version() uint64 { return q.updates }

// SetRate changes the optimiser's learning rate.
func (q *DQN) SetRate(rate float64) {
	q.cfg.Adam.Rate = rate
	q.trainer.SetRate(rate)
}

// SetAllReduce has several learners train the policy together: see [nn.Trainer].
func (q *DQN) SetAllReduce(f nn.AllReduce) { q.trainer.SetAllReduce(f) }

// Values computes the action values of each observation, a matrix of
// observations x actions that the next call on q overwrites.
func (q *DQN) Values(obs []float32) nn.Matrix {
	d := q.cfg.Obs.Dim()
	return q.online.Forward(nn.Matrix{Rows: len(obs) / d, Cols: d, Data: obs})
}

// Act chooses the action of highest value for each row; of equal values the first wins. Unless
// a.Greedy is set, it replaces each by a random one with the probability that Config.Epsilon has for
// a.EnvSteps or, if Noisy, draws new noise for the weights.
func (q *DQN) Act(a *policies.Act) error {
	rows, err := a.Check(&q.spec)
	if err != nil {
		return fmt.Errorf("dqn: %w", err)
	}
	if q.cfg.Noisy {
		q.online.ClearNoise()
		if !a.Greedy {
			q.online.RedrawNoise(a.Rand)
		}
	}
	if cap(q.chosen) < rows {
		q.chosen = make([]int, rows)
	}
	q.chosen = q.chosen[:rows]
	if err := q.greedy(q.chosen, a.Obs); err != nil {
		return err
	}
	if !a.Greedy && !q.cfg.Noisy {
		epsilon := q.cfg.Epsilon(a.EnvSteps)
		policies.EpsGreedy(q.chosen, epsilon, q.cfg.Action.N, a.Rand)
		a.Metrics = append(a.Metrics, policies.Metric{Name: "rollout/exploration_rate", Value: epsilon})
	}
	for i, k := range q.chosen {
		a.Action[i] = float32(q.cfg.Action.Start + k)
	}
	return nil
}

// greedy writes the number of the action of highest value for each observation.
func (q *DQN) greedy(dst []int, obs []float32) error {
	values := q.Values(obs)
	if err := finite("values", values.Data); err != nil {
		return q.cause(err)
	}
	argmax(dst, values)
	return nil
}

// argmax writes the column of the highest value of each row.
func argmax(dst []int, m nn.Matrix) {
	for i := range dst {
		row := m.Row(i)
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		dst[i] = best
	}
}

func finite(name string, v []float32) error { return nn.Tensor{Name: name, Data: v}.CheckFinite() }

// cause returns the error of the first weight that is not finite, or err if
// all are.
func (q *DQN) cause(err error) error {
	if e := q.online.CheckFinite(); e != nil {
		return e
	}
	if e, ok := errors.AsType[*nn.NonFiniteError](q.target.CheckFinite()); ok {
		e.Tensor = "target." + e.Tensor
		return e
	}
	return err
}

// Learn makes one update from a batch of transitions. If it has the column policies.Weight, that is
// how much each row counts; if it has policies.TDError, Learn writes the absolute difference to
// the target there. It allocates nothing once it has seen a batch of that size.
func (q *DQN) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := q.check(b); err != nil {
		return nil, q.blame(err)
	}
	if q.cfg.Noisy {
		q.online.RedrawNoise(q.rng)
		q.target.RedrawNoise(q.rng)
	}
	q.resize(b.N)
	q.bootstrap(b)
	var value float64
	step, err := q.trainer.Step(func(t *nn.Tape) nn.Value {
		pred := q.online.Apply(t, t.Const(b.N, q.cfg.Obs.Dim(), b.Floats(policies.Obs))).Pick(q.actions(b))
		value = float64(pred.Mean().Number())
		difference := pred.Sub(t.Column(q.targets))
		if out := b.Floats(policies.TDError); out != nil {
			copy(out, difference.Abs().Data())
		}
		loss := difference.Huber(1)
		if q.cfg.Loss == MSE {
			loss = difference.Square()
		}
		if weights := b.Floats(policies.Weight); weights != nil {
			loss = loss.Mul(t.Column(weights))
		}
		return loss.Mean()
	}, &value)
	if err != nil {
		return nil, q.blame(q.cause(err))
	}
	q.updates++
	switch {
	case q.cfg.Tau > 0:
		q.target.Approach(q.online, float32(q.cfg.Tau))
	case q.updates%uint64(q.cfg.TargetEvery) == 0:
		q.target.CopyFrom(q.online)
	}
	q.metrics = append(q.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: q.cfg.Adam.Rate},
	)
	return q.metrics, nil
}

// actions are the numbers of the batch's actions, from 0.
func (q *DQN) actions(b *policies.Batch) []float32 {
	actions := b.Floats(policies.Action)
	if q.cfg.Action.Start == 0 {
		return actions
	}
	q.numbers = q.numbers[:0]
	for _, a := range actions {
		q.numbers = append(q.numbers, a-float32(q.cfg.Action.Start))
	}
	return q.numbers
}

// check finds what in the batch cannot be learned from.
func (q *DQN) check(b *policies.Batch) error {
	if err := b.Needs(q.spec.Learns...); err != nil {
		return err
	}
	actions := b.Floats(policies.Action)
	for i, steps := range b.Bytes(policies.Steps) {
		if !q.cfg.Action.Contains(actions[i : i+1]) {
			return fmt.Errorf("transition %d has action %v, which is not in %v", i, actions[i], q.cfg.Action)
		}
		if steps == 0 {
			return fmt.Errorf("transition %d of 0 steps", i)
		}
	}
	return finite(policies.Weight, b.Floats(policies.Weight))
}

func (q *DQN) resize(n int) {
	if cap(q.targets) < n {
		q.targets, q.best = make([]float32, n), make([]int, n)
	}
	q.targets, q.best = q.targets[:n], q.best[:n]
}

// bootstrap fills q.targets.
func (q *DQN) bootstrap(b *policies.Batch) {
	obs := b.Floats(policies.NextObs)
	next := q.target.Forward(nn.Matrix{Rows: b.N, Cols: q.cfg.Obs.Dim(), Data: obs})
	if q.cfg.Double {
		argmax(q.best, q.Values(obs))
	} else {
		argmax(q.best, next)
	}
	terminated, steps := b.Bytes(policies.Terminated), b.Bytes(policies.Steps)
	for i, r := range b.Floats(policies.Reward) {
		q.targets[i] = r
		if terminated[i] == 0 {
			q.targets[i] += q.discount[steps[i]] * next.Row(i)[q.best[i]]
		}
	}
}

// blame names the update.
func (q *DQN) blame(err error) error {
	return &policies.UpdateError{Algorithm: "dqn", Update: q.updates, Err: err}
}

// parts are what a checkpoint holds.
func (q *DQN) parts() policies.Parts {
	return policies.Parts{
		policies.NetPart("dqn", q.online, &q.updates), policies.NetPart("dqn.target", q.target, &q.updates),
		policies.OptimizerPart("dqn.adam", q.trainer.Optimizers()[0]), policies.RandomPart("dqn.random", q.source),
	}
}

// Weights returns a copy of the online network's weights.
func (q *DQN) Weights() nn.State { return q.online.State(q.updates) }

// Load takes weights over into the online network; the target network and the
// optimiser stay. Weights that do not fit or are not finite change nothing.
func (q *DQN) Load(s nn.State) error {
	if err := q.online.Load(s); err != nil {
		return err
	}
	q.updates = s.Version
	return nil
}

// Save writes networks, optimiser, counter and the state of the noise to a.
func (q *DQN) Save(a *nn.Archive) error { return q.parts().Save(a) }

// Restore makes q what it was at Save. The networks must have the same shape;
// the rest of the config is q's own. An error may leave q half restored.
func (q *DQN) Restore(a *nn.Archive) error { return q.parts().Restore(a) }
