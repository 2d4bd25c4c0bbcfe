// Package actorcritic has the parts that on-policy algorithms share: an actor and a critic, how they act, and
// the state of them in a checkpoint. An algorithm embeds a [Model] and adds its loss:
//
//	type A2C struct {
//		*actorcritic.Model
//		...
//	}
//
//	if err := p.Check(b, p.spec.Learns...); err != nil { ... }
//	step, err := p.Step(func(t *nn.Tape) nn.Value {
//		d, value := p.Evaluate(t, b)                        // distributions of actions, and values
//		logProb := d.LogProb(b.Floats(policies.Action))
//		...
//	})
//
// Without an LSTM, actor and critic are two networks with separate hidden layers. With one, they
// are single layers on the output of a recurrent network, the core, and the state of the core is a
// column of the data: each row has the state before its step. Learning begins with the state of a
// sequence's first row and makes it zero wherever an episode begins.
//
// [VTrace] computes targets and advantages of data that an older policy has collected, and [KLCoef]
// is the coefficient of a penalty that keeps a divergence near a target.
//
// The initial weights are orthogonal, with a gain of sqrt(2) for hidden layers, 1 for the LSTM and
// the values, and 0.01 for the actions: S. Huang et al., "The 37 Implementation Details of Proximal
// Policy Optimization" (2022), details 2 and of the LSTM 1.
//
// A Model is not safe for concurrent use. A fault of a batch, and a value that is not
// finite, is a *policies.UpdateError; the weights stay as they were.
package actorcritic

import (
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Model is an actor, a critic and their optimiser. It implements policies.Model, policies.Saver and
// the Act of policies.Policy.
type Model struct {
	Actor  *nn.Net // parameters of the distribution of actions
	Critic *nn.Net // values
	Core   *nn.Net // recurrent, below both; nil without an LSTM

	cfg     Config
	trainer *nn.Trainer
	updates uint64
	extra   []policies.Column
	acts    policies.Spec // the spec of Act
	sizes   []int         // of the choices of multi-discrete actions

	deviation *nn.StateDeviation // nil without Config.DrawEvery

	acting nn.Tape
	first  []float32 // states of the first rows
	resets []bool    // rows in which an episode begins
}

var _ interface {
	policies.Model
	policies.Saver
} = (*Model)(nil)

// New returns a model with fresh weights. The config must be valid.
func New(cfg Config) *Model {
	m := &Model{cfg: cfg}
	hidden, widths, in := m.init(math.Sqrt2), cfg.Hidden, cfg.Obs.Dim()
	if cfg.LSTM > 0 {
		var core []nn.Layer
		for _, w := range cfg.Hidden {
			core = append(core, nn.Dense(w, hidden), nn.Tanh())
		}
		m.Core = nn.New(in, cfg.Seed+2, append(core, nn.LSTM(cfg.LSTM, nn.Orthogonal(1)))...)
		widths, in = nil, cfg.LSTM
	}
	m.Actor = nn.New(in, cfg.Seed, m.actor(widths, hidden)...)
	m.Critic = nn.New(in, cfg.Seed+1, nn.MLP(widths, nn.Tanh, 1, hidden, m.init(1))...)
	m.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Optimizer, MaxGradNorm: max(cfg.MaxGradNorm, 0),
		Workers: nn.NewWorkers(cfg.Threads)}, m.nets()...)
	for _, name := range cfg.Extra {
		m.extra = append(m.extra, m.column(name))
	}
	m.acts = policies.Spec{Obs: cfg.Obs, Action: cfg.Action}
	if m.Core != nil {
		m.extra = append(m.extra, m.column(policies.State))
		m.acts.StateSize = m.Core.StateSize()
	}
	m.acts.Extra, m.acts.NoiseSize = m.extra, m.noiseSize()
	return m
}

// init fills layers, orthogonal ones with a gain.
func (m *Model) init(gain float64) nn.Init {
	if m.cfg.Init != nil {
		return m.cfg.Init
	}
	return nn.Orthogonal(gain)
}

// noiseSize returns the number of values that the exploration keeps of each environment: the number of steps with its matrix
// of noise, and the matrix.
func (m *Model) noiseSize() int {
	if m.deviation == nil {
		return 0
	}
	return 1 + m.deviation.Size()
}

// actor returns the layers of the actor.
func (m *Model) actor(widths []int, hidden nn.Init) []nn.Layer {
	out, last := m.cfg.Action.Dim(), []nn.Layer(nil)
	switch a := m.cfg.Action.(type) {
	case envs.Discrete:
		out = a.N
	case envs.MultiDiscrete:
		m.sizes, out = a.N, 0
		for _, n := range a.N {
			out += n
		}
	default:
		if m.cfg.DrawEvery > 0 {
			m.deviation = nn.NewStateDeviation(out, m.init(0.01), m.cfg.LogStd)
			layers := nn.MLP(widths, nn.Tanh, 1, hidden, nn.Zeros)
			return append(layers[:len(layers)-1], m.deviation)
		}
		last = append(last, nn.Learned(out, m.cfg.LogStd)) // standard deviations that do not depend on the observation
	}
	return append(nn.MLP(widths, nn.Tanh, out, hidden, m.init(0.01)), last...)
}

// column returns the column of that name.
func (m *Model) column(name string) policies.Column {
	c := policies.Column{Name: name, Kind: policies.Float32}
	switch name {
	case policies.Obs, policies.NextObs:
		c.Shape = []int{m.cfg.Obs.Dim()}
	case policies.Action:
		c.Shape = []int{m.cfg.Action.Dim()}
	case policies.ActionDist:
		c.Shape = []int{m.Actor.Out()}
	case policies.State:
		c.Shape = []int{m.Core.StateSize()}
	case policies.Terminated, policies.Truncated:
		c.Kind = policies.Bool
	case policies.Version:
		c.Kind = policies.Uint64
	}
	return c
}

// NewSpec describes a policy that learns from obs, action and the named columns, and with an LSTM from
// state, terminated and truncated. Its Bootstrap is empty.
func (m *Model) NewSpec(learns ...string) policies.Spec {
	s := policies.Spec{Obs: m.cfg.Obs, Action: m.cfg.Action, Extra: m.extra, NoiseSize: m.noiseSize()}
	learns = append([]string{policies.Obs, policies.Action}, learns...)
	if m.Core != nil {
		s.StateSize = m.Core.StateSize()
		learns = append(learns, policies.State, policies.Terminated, policies.Truncated)
	}
	for _, name := range learns {
		s.Learns = append(s.Learns, m.column(name))
	}
	return s
}

// Version counts the updates behind the weights, those before a Load included.
func (m *Model) Version() uint64 { return m.updates }

// SetRate changes the learning rate of the optimiser.
func (m *Model) SetRate(rate float64) { m.trainer.SetRate(rate) }

// Evaluate computes the distribution of the actions and the values, one column, of a batch that
// [Model.Check] has passed.
func (m *Model) Evaluate(t *nn.Tape, b *policies.Batch) (Distribution, nn.Value) {
	x := t.Const(b.N, m.cfg.Obs.Dim(), b.Floats(policies.Obs))
	if m.Core != nil {
		x, _ = m.Core.Unroll(t, x, m.firstStates(t, b), m.begins(b))
	}
	return m.DistributionOf(m.Actor.Apply(t, x)), m.Critic.Apply(t, x)
}

// DistributionOf returns the distribution with parameters that came from the actor, or from the column
// policies.ActionDist.
func (m *Model) DistributionOf(params nn.Value) Distribution {
	return newDistribution(params, m.cfg.Action, m.sizes)
}

// firstStates returns the states before the first rows of the sequences.
func (m *Model) firstStates(t *nn.Tape, b *policies.Batch) nn.Value {
	size, all := m.Core.StateSize(), b.Floats(policies.State)
	m.first = m.first[:0]
	for row := 0; row < b.N; row += m.cfg.Length {
		m.first = append(m.first, all[row*size:(row+1)*size]...)
	}
	return t.Const(b.N/m.cfg.Length, size, m.first)
}

// begins reports the rows in which an episode begins within a sequence. The state of a sequence's
// first row is zero already if one begins there.
func (m *Model) begins(b *policies.Batch) []bool {
	terminated, truncated := b.Bytes(policies.Terminated), b.Bytes(policies.Truncated)
	m.resets = m.resets[:0]
	for row := range b.N {
		m.resets = append(m.resets, row%m.cfg.Length != 0 && terminated[row-1]|truncated[row-1] != 0)
	}
	return m.resets
}

// Act samples an action for each row, or takes the most likely one if a.Greedy is set. The columns
// that it adds are those of Spec; policies.State is the state before the step, after Reset.
func (m *Model) Act(a *policies.Act) error {
	rows, err := m.checkAct(a)
	if err != nil {
		return err
	}
	t := &m.acting
	t.Reset()
	x := t.Const(rows, m.cfg.Obs.Dim(), a.Obs)
	var next nn.Value
	if m.Core != nil {
		size := m.Core.StateSize()
		for i, begins := range a.Reset {
			if begins {
				clear(a.State[i*size : (i+1)*size])
			}
		}
		if err := (nn.Tensor{Name: policies.State, Data: a.State}).CheckFinite(); err != nil {
			return err
		}
		x, next = m.Core.Unroll(t, x, t.Const(rows, size, a.State), nil)
	}
	features, params := m.Actor.ApplyLast(t, x)
	if err := m.finite(policies.Action, params.Data()); err != nil {
		return err
	}
	d := m.DistributionOf(params)
	switch {
	case a.Greedy:
		d.mode(a.Action)
	case m.deviation != nil:
		d.mode(a.Action)
		policies.StateNoise(a.Action, features.Data(), a.Noise, m.deviation, m.cfg.DrawEvery, a.Rand)
	default:
		d.sample(a.Action, a.Rand)
	}
	if err := m.finite(policies.Action, a.Action); err != nil {
		return err
	}
	if a.Extra != nil {
		m.addExtra(a, &d, x)
	}
	if m.Core != nil {
		copy(a.State, next.Data())
	}
	return nil
}

// Export implements policies.Exporter: the output "logits" has the logits of discrete actions, and "mean" the
// mean of continuous ones, which have no bounds here.
func (m *Model) Export(g *graph.Graph, obs graph.Value) error {
	prefix, x := m.cfg.Algorithm+".", obs
	var next graph.Value
	var err error
	if m.Core != nil {
		if x, next, err = m.Core.ExportStep(g, prefix+"core/", x, g.Input(graph.State, m.Core.StateSize())); err != nil {
			return err
		}
	}
	params, err := m.Actor.Export(g, prefix+"actor/", x)
	if err != nil {
		return err
	}
	switch space := m.cfg.Action.(type) {
	case envs.Discrete:
		policies.ExportChoice(g, params, space)
		g.Output("logits", params)
	case envs.MultiDiscrete:
		policies.ExportChoices(g, params, space)
		g.Output("logits", params)
	default:
		mean := params.Slice(0, space.Dim())
		g.Output(graph.Action, mean)
		g.Output("mean", mean)
	}
	if m.Core != nil {
		g.Output(graph.NextState, next)
	}
	return nil
}

// checkAct reports faults of a, and returns the number of rows.
func (m *Model) checkAct(a *policies.Act) (rows int, err error) {
	rows, err = a.Check(&m.acts)
	if err == nil && !a.Greedy && a.Rand == nil {
		err = errors.New("no random numbers to sample actions with")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.cfg.Algorithm, err)
	}
	return rows, nil
}

// addExtra writes the extra columns; x is the input of actor and critic.
func (m *Model) addExtra(a *policies.Act, d *Distribution, x nn.Value) {
	for i := range m.extra {
		switch m.extra[i].Name {
		case policies.LogProb:
			copy(a.Extra[i], d.LogProb(a.Action).Data())
		case policies.Value:
			copy(a.Extra[i], m.Critic.Apply(&m.acting, x).Data())
		case policies.ActionDist:
			copy(a.Extra[i], d.params.Data())
		case policies.State:
			copy(a.Extra[i], a.State)
		}
	}
}

// finite reports values that are not finite, and the first weight that is not.
func (m *Model) finite(name string, values []float32) error {
	err := nn.Tensor{Name: name, Data: values}.CheckFinite()
	if err == nil {
		return nil
	}
	for _, net := range m.nets() {
		if e := net.CheckFinite(); e != nil {
			return errors.Join(e, err)
		}
	}
	return err
}

// Check reports the faults of a batch: columns that it lacks or that are not
// finite, actions that do not exist, and with an LSTM, rows that are not whole sequences.
func (m *Model) Check(b *policies.Batch, columns ...policies.Column) error {
	if err := b.Needs(columns...); err != nil {
		return m.UpdateError(err)
	}
	if m.Core != nil && b.N%m.cfg.Length != 0 {
		return m.UpdateError(fmt.Errorf("a batch of %d rows, want whole sequences of %d steps", b.N, m.cfg.Length))
	}
	if _, ok := m.cfg.Action.(envs.Box); ok {
		return nil // a Gaussian has no bounds: they are those of the environment
	}
	width, actions := m.cfg.Action.Dim(), b.Floats(policies.Action)
	for i := range b.N {
		if a := actions[i*width : (i+1)*width]; !m.cfg.Action.Contains(a) {
			return m.UpdateError(fmt.Errorf("row %d has the action %v, which is not in %v", i, a, m.cfg.Action))
		}
	}
	return nil
}

// SetAllReduce has several learners train the model together: see [nn.Trainer].
func (m *Model) SetAllReduce(f nn.AllReduce) { m.trainer.SetAllReduce(f) }

// Mean replaces numbers by their means over all learners of the model.
func (m *Model) Mean(numbers ...*float64) error {
	if err := m.trainer.Mean(numbers...); err != nil {
		return m.UpdateError(err)
	}
	return nil
}

// Step makes one update that lowers the loss. The numbers that the loss sets become their means over
// all learners of the model.
func (m *Model) Step(loss func(t *nn.Tape) nn.Value, numbers ...*float64) (nn.TrainStep, error) {
	step, err := m.trainer.Step(loss, numbers...)
	if err != nil {
		return step, m.UpdateError(err)
	}
	m.updates++
	return step, nil
}

// UpdateError is err with the names of algorithm and update.
func (m *Model) UpdateError(err error) error {
	return &policies.UpdateError{Algorithm: m.cfg.Algorithm, Update: m.updates, Err: err}
}

// nets returns the networks, in the order in which they train.
func (m *Model) nets() []*nn.Net {
	if m.Core != nil {
		return []*nn.Net{m.Actor, m.Critic, m.Core}
	}
	return []*nn.Net{m.Actor, m.Critic}
}

// The names of the networks in checkpoints, in the order of nets.
var names = [...]string{"actor", "critic", "core"}

// weights returns the parts that acting needs.
func (m *Model) weights() policies.Parts {
	var parts policies.Parts
	for i, net := range m.nets() {
		parts = append(parts, policies.NetPart(m.cfg.Algorithm+"."+names[i], net, &m.updates))
	}
	return parts
}

// Parts are all that a checkpoint holds of the model.
func (m *Model) Parts() policies.Parts {
	parts := m.weights()
	for i, o := range m.trainer.Optimizers() {
		parts = append(parts, policies.OptimizerPart(m.cfg.Algorithm+"."+m.cfg.OptimizerName+"."+names[i], o))
	}
	return parts
}

// Weights returns a copy of the weights of actor and critic, and of the core.
func (m *Model) Weights() nn.State { return m.weights().State(m.updates) }

// Load takes weights over; the optimiser stays. Weights that do not fit or are not finite change
// nothing.
func (m *Model) Load(s nn.State) error { return m.weights().Load(s) }

// Save writes networks, optimiser and counter to a.
func (m *Model) Save(a *nn.Archive) error { return m.Parts().Save(a) }

// Restore restores the model to its state at Save. The networks must have the same shape; the rest of the
// config is the model's own. An error may leave it half restored.
func (m *Model) Restore(a *nn.Archive) error { return m.Parts().Restore(a) }
