// Package qnetwork has the parts that deep Q-learning algorithms share: an online and a target network, how they
// act, which next action a target is made of, and the state of them in a checkpoint. An algorithm embeds
// a [Model] and adds its targets and its loss:
//
//	type DQN struct {
//		*qnetwork.Model
//		targets []float32
//		...
//	}
//
//	if err := q.Begin(b); err != nil { ... }                    // checks the batch
//	next, discounts := q.Next(b).Data(), q.Discounts(b)         // Q'(s', a') and gamma^n (1 - terminated)
//	for i, r := range b.Floats(policies.Reward) {
//		q.targets[i] = r + discounts[i]*next[i]
//	}
//	metrics, err := q.Update(b, func(t *nn.Tape, value nn.Value) qnetwork.Loss {
//		difference := value.Sub(t.Column(q.targets))            // value is Q(s, a)
//		return qnetwork.Loss{Rows: difference.Square(), Values: value, Priorities: difference.Abs()}
//	})
//
// A network has [Config.Width] columns for each action: its value, or the parameters of the
// distribution of its return, which [Config.Head] turns into a value.
//
// The extensions are those that do not depend on the loss. Double: H. van Hasselt et al., "Deep
// Reinforcement Learning with Double Q-learning" (2016). Dueling: Z. Wang et al., "Dueling Network
// Architectures for Deep Reinforcement Learning" (2016), with both streams as one layer on hidden
// layers that they share. Noisy: M. Fortunato et al., "Noisy Networks for Exploration" (2018). Soft
// target updates: T. P. Lillicrap et al., "Continuous control with deep reinforcement learning"
// (2016). Priorities: T. Schaul et al., "Prioritized Experience Replay" (2016).
//
// A Model is not safe for concurrent use. The same config, batches and processor give the same bits,
// also after Save and Restore. A fault of a batch, and a value that is not finite, is a
// *policies.UpdateError; the weights stay as they were.
package qnetwork

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Model is a Q-network with its target network and optimiser. It implements policies.Model,
// policies.Saver, and Spec and Act of policies.Policy.
type Model struct {
	Online, Target *nn.Net

	cfg       Config
	trainer   *nn.Trainer
	updates   uint64
	spec      policies.Spec
	discount  [256]float32 // gamma to the power of the index
	source    *rand.PCG    // of the noise, if Noisy
	rng       *rand.Rand
	discounts []float32 // of one batch
	best      []float32 // actions of one batch
	numbers   []float32 // of actions
	chosen    []int     // of Act
	tape      nn.Tape   // of Act and of targets
	metrics   []policies.Metric
}

var _ interface {
	policies.Model
	policies.Saver
} = (*Model)(nil)

// New returns a model with fresh weights. The config must be valid.
func New(cfg Config) *Model {
	cfg.Width = max(cfg.Width, 1)
	if cfg.Head == nil {
		cfg.Head = func(out nn.Value) (distributions, values nn.Value) { return out, out }
		cfg.ExportHead = func(_ *graph.Graph, out graph.Value) graph.Value { return out }
	}
	var stream uint64
	for _, letter := range []byte(cfg.Algorithm) {
		stream = stream<<8 | uint64(letter)
	}
	m := &Model{cfg: cfg, Online: network(cfg), Target: network(cfg), source: rand.NewPCG(cfg.Seed, stream)} // of one seed: equal
	m.rng = rand.New(m.source)
	learns := policies.TransitionColumns(cfg.Obs.Dim(), 1)
	m.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: learns, NStep: cfg.NStep, Gamma: cfg.Gamma}
	m.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New, MaxGradNorm: max(cfg.MaxGradNorm, 0)}, m.Online)
	for i := range m.discount {
		m.discount[i] = float32(math.Pow(cfg.Gamma, float64(i)))
	}
	return m
}

// noise is the initial standard deviation of noisy weights, that of the paper.
const noise = 0.5

func network(cfg Config) *nn.Net {
	out := cfg.Action.N * cfg.Width
	if cfg.Dueling {
		out += cfg.Width
	}
	var layers []nn.Layer
	if cfg.Noisy {
		for _, w := range cfg.Hidden {
			layers = append(layers, nn.NoisyDense(w, noise), nn.ReLU())
		}
		layers = append(layers, nn.NoisyDense(out, noise))
	} else {
		layers = nn.MLP(cfg.Hidden, nn.ReLU, out, cfg.Init, nn.FanIn)
	}
	if cfg.Dueling {
		layers = append(layers, nn.DuelingGroups(cfg.Width))
	}
	return nn.New(cfg.Obs.Dim(), cfg.Seed, layers...)
}

// Spec describes the policy.
func (m *Model) Spec() policies.Spec { return m.spec }

// Version counts the updates behind the weights, those before a Load included.
func (m *Model) Version() uint64 { return m.updates }

// Rate returns the optimiser's learning rate.
func (m *Model) Rate() float64 { return m.cfg.Adam.Rate }

// SetRate changes the optimiser's learning rate.
func (m *Model) SetRate(rate float64) {
	m.cfg.Adam.Rate = rate
	m.trainer.SetRate(rate)
}

// SetAllReduce has several learners train the policy together: see [nn.Trainer].
func (m *Model) SetAllReduce(f nn.AllReduce) { m.trainer.SetAllReduce(f) }

// Values computes the action values of each observation by the online network, a matrix of
// observations x actions that the next call on m overwrites.
func (m *Model) Values(obs []float32) nn.Matrix {
	d := m.cfg.Obs.Dim()
	m.tape.Reset()
	_, values := m.cfg.Head(m.Online.Apply(&m.tape, m.tape.Const(len(obs)/d, d, obs)))
	return nn.Matrix{Rows: values.Rows(), Cols: values.Cols(), Data: values.Data()}
}

// Act chooses the action of highest value for each row; of equal values the first wins. Unless
// a.Greedy is set, it replaces each by a random one with the probability that Config.Epsilon has for
// a.EnvSteps or, if Noisy, draws new noise for the weights.
func (m *Model) Act(a *policies.Act) error {
	rows, err := a.Check(&m.spec)
	if err != nil {
		return fmt.Errorf("%s: %w", m.cfg.Algorithm, err)
	}
	if m.cfg.Noisy {
		m.Online.ClearNoise()
		if !a.Greedy {
			m.Online.RedrawNoise(a.Rand)
		}
	}
	values := m.Values(a.Obs)
	if err := finite("values", values.Data); err != nil {
		return m.cause(err)
	}
	m.chosen = sized(m.chosen, rows)
	argmax(m.chosen, values)
	if !a.Greedy && !m.cfg.Noisy {
		epsilon := m.cfg.Epsilon(a.EnvSteps)
		policies.EpsGreedy(m.chosen, epsilon, m.cfg.Action.N, a.Rand)
		a.Metrics = append(a.Metrics, policies.Metric{Name: "rollout/exploration_rate", Value: epsilon})
	}
	for i, k := range m.chosen {
		a.Action[i] = float32(m.cfg.Action.Start + k)
	}
	return nil
}

// Export implements policies.Exporter, without noise. The output "q_values" has the values of the actions.
func (m *Model) Export(g *graph.Graph, obs graph.Value) error {
	if m.cfg.ExportHead == nil {
		return fmt.Errorf("%s %w: its config has a Head without ExportHead", m.cfg.Algorithm, graph.ErrUnsupported)
	}
	out, err := m.Online.Export(g, "", obs)
	if err != nil {
		return err
	}
	values := m.cfg.ExportHead(g, out)
	policies.ExportChoice(g, values, m.cfg.Action)
	g.Output("q_values", values)
	return nil
}

// argmax writes the column of the highest value of each row.
func argmax[T int | float32](dst []T, m nn.Matrix) {
	for i := range dst {
		row := m.Row(i)
		best := 0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		dst[i] = T(best)
	}
}

// sized is v with n elements of undefined content.
func sized[T any](v []T, n int) []T {
	if cap(v) < n {
		return make([]T, n)
	}
	return v[:n]
}

func finite(name string, v []float32) error { return nn.Tensor{Name: name, Data: v}.CheckFinite() }

// cause returns the error of the first weight that is not finite, or err if
// all are.
func (m *Model) cause(err error) error {
	if e := m.Online.CheckFinite(); e != nil {
		return e
	}
	if e, ok := errors.AsType[*nn.NonFiniteError](m.Target.CheckFinite()); ok {
		e.Tensor = "target." + e.Tensor
		return e
	}
	return err
}

// Begin is the first call of an update: it refuses a batch of transitions that cannot be learned from
// and, if Noisy, draws new noise for both networks.
func (m *Model) Begin(b *policies.Batch) error {
	if err := m.check(b); err != nil {
		return m.blame(err)
	}
	if m.cfg.Noisy {
		m.Online.RedrawNoise(m.rng)
		m.Target.RedrawNoise(m.rng)
	}
	return nil
}

// check finds faults of the batch.
func (m *Model) check(b *policies.Batch) error {
	if err := b.Needs(m.spec.Learns...); err != nil {
		return err
	}
	actions := b.Floats(policies.Action)
	for i, steps := range b.Bytes(policies.Steps) {
		if !m.cfg.Action.Contains(actions[i : i+1]) {
			return fmt.Errorf("transition %d has action %v, which is not in %v", i, actions[i], m.cfg.Action)
		}
		if steps == 0 {
			return fmt.Errorf("transition %d of 0 steps", i)
		}
	}
	return finite(policies.Weight, b.Floats(policies.Weight))
}

// Next returns the target network's distribution of a' at each next observation: a row of Width columns. a'
// is the best action by the target network or, if Double, by the online network. The result is
// overwritten by the next call of Next, Values or Act.
func (m *Model) Next(b *policies.Batch) nn.Value {
	m.tape.Reset()
	obs := m.tape.Const(b.N, m.cfg.Obs.Dim(), b.Floats(policies.NextObs))
	distributions, values := m.cfg.Head(m.Target.Apply(&m.tape, obs))
	if m.cfg.Double {
		_, values = m.cfg.Head(m.Online.Apply(&m.tape, obs))
	}
	m.best = sized(m.best, b.N)
	argmax(m.best, nn.Matrix{Rows: values.Rows(), Cols: values.Cols(), Data: values.Data()})
	return distributions.PickGroup(m.best, m.cfg.Width)
}

// Discounts returns gamma^n (1 - terminated) of the rows: the factors of the values after n steps. A
// truncated transition has a future as any other. The next call overwrites them.
func (m *Model) Discounts(b *policies.Batch) []float32 {
	m.discounts = m.discounts[:0]
	terminated := b.Bytes(policies.Terminated)
	for i, steps := range b.Bytes(policies.Steps) {
		d := m.discount[steps]
		if terminated[i] != 0 {
			d = 0
		}
		m.discounts = append(m.discounts, d)
	}
	return m.discounts
}

// Loss has the results of a loss for the rows of a batch, one column each.
type Loss struct {
	Rows       nn.Value // the loss of each row
	Values     nn.Value // of the actions
	Priorities nn.Value // for the column policies.TDError; the zero value: none
}

// Update makes one update of the online network, and lets the target network follow. loss is given
// the network's output for the actions of the batch, Width columns. The mean of its rows, times the
// column policies.Weight if the batch has one, is minimised; the priorities are written to the column
// policies.TDError if the batch has one. The metrics are valid until the next call. Update allocates
// nothing once it has seen a batch of that size.
func (m *Model) Update(b *policies.Batch, loss func(t *nn.Tape, out nn.Value) Loss) ([]policies.Metric, error) {
	var value float64
	step, err := m.trainer.Step(func(t *nn.Tape) nn.Value {
		obs := t.Const(b.N, m.cfg.Obs.Dim(), b.Floats(policies.Obs))
		l := loss(t, m.Online.Apply(t, obs).PickGroup(m.actions(b), m.cfg.Width))
		value = float64(l.Values.Mean().Number())
		if out := b.Floats(policies.TDError); out != nil && l.Priorities != (nn.Value{}) {
			copy(out, l.Priorities.Data())
		}
		if weights := b.Floats(policies.Weight); weights != nil {
			l.Rows = l.Rows.Mul(t.Column(weights))
		}
		return l.Rows.Mean()
	}, &value)
	if err != nil {
		return nil, m.blame(m.cause(err))
	}
	m.updates++
	switch {
	case m.cfg.Tau > 0:
		m.Target.Approach(m.Online, float32(m.cfg.Tau))
	case m.updates%uint64(m.cfg.TargetEvery) == 0:
		m.Target.CopyFrom(m.Online)
	}
	m.metrics = append(m.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/grad_norm", Value: step.GradNorm}, policies.Metric{Name: "train/learning_rate", Value: m.cfg.Adam.Rate},
	)
	return m.metrics, nil
}

// actions returns the numbers of the batch's actions, from 0.
func (m *Model) actions(b *policies.Batch) []float32 {
	actions := b.Floats(policies.Action)
	if m.cfg.Action.Start == 0 {
		return actions
	}
	m.numbers = m.numbers[:0]
	for _, a := range actions {
		m.numbers = append(m.numbers, a-float32(m.cfg.Action.Start))
	}
	return m.numbers
}

// blame names the update.
func (m *Model) blame(err error) error {
	return &policies.UpdateError{Algorithm: m.cfg.Algorithm, Update: m.updates, Err: err}
}

// parts returns the content of a checkpoint.
func (m *Model) parts() policies.Parts {
	name := m.cfg.Algorithm
	return policies.Parts{
		policies.NetPart(name, m.Online, &m.updates), policies.NetPart(name+".target", m.Target, &m.updates),
		policies.OptimizerPart(name+".adam", m.trainer.Optimizers()[0]), policies.RandomPart(name+".random", m.source),
	}
}

// Weights returns a copy of the online network's weights.
func (m *Model) Weights() nn.State { return m.Online.State(m.updates) }

// Load takes weights over into the online network; the target network and the
// optimiser stay. Weights that do not fit or are not finite change nothing.
func (m *Model) Load(s nn.State) error {
	if err := m.Online.Load(s); err != nil {
		return err
	}
	m.updates = s.Version
	return nil
}

// Save writes networks, optimiser, counter and the state of the noise to a.
func (m *Model) Save(a *nn.Archive) error { return m.parts().Save(a) }

// Restore restores m to the state at Save. The networks must have the same shape;
// the rest of the config is m's own. An error may leave m half restored.
func (m *Model) Restore(a *nn.Archive) error { return m.parts().Restore(a) }
