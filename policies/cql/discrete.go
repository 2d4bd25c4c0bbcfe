package cql

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Discrete is CQL(H) on double DQN, for discrete actions. It implements policies.Policy.
type Discrete struct {
	cfg            DiscreteConfig
	online, target *nn.Net
	trainer        *nn.Trainer
	updates        uint64
	spec           policies.Spec

	numbers []float32 // of actions, from 0
	next    []float32 // the value of each next observation
	wanted  []float32 // targets
	metrics []policies.Metric
}

var _ policies.Exporter = (*Discrete)(nil)

// NewDiscrete returns a Discrete with fresh weights. It panics with all faults of the config;
// DiscreteConfig.Validate returns them.
func NewDiscrete(cfg DiscreteConfig) *Discrete {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	net := func() *nn.Net {
		return nn.New(cfg.Obs.Dim(), cfg.Seed, nn.MLP(cfg.Hidden, nn.ReLU, cfg.Action.N, nn.Kaiming, nn.FanIn)...)
	}
	q := &Discrete{cfg: cfg, online: net(), target: net()} // of one seed: equal
	q.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New}, q.online)
	q.spec = policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(cfg.Obs.Dim(), 1), Gamma: cfg.Gamma}
	return q
}

// Learn makes one update from a batch of transitions. The loss is that of double DQN, with the Huber loss of
// differences, and the conservative term
//
//	weight * mean(log sum exp Q(s, .) - Q(s, a))
//
// It allocates nothing once it has seen a batch of that size.
func (q *Discrete) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := q.check(b); err != nil {
		return nil, q.blame(err)
	}
	q.bootstrap(b)
	var value, gap float64
	step, err := q.trainer.Step(func(t *nn.Tape) nn.Value {
		all := q.online.Apply(t, t.Const(b.N, q.cfg.Obs.Dim(), b.Floats(policies.Obs)))
		pred := all.Pick(q.actions(b))
		conservative := all.LogSumExp().Sub(pred).Mean()
		value, gap = float64(pred.Mean().Number()), float64(conservative.Number())
		loss := pred.Sub(t.Column(q.wanted)).Huber(1).Mean()
		return loss.Add(conservative.Scale(float32(max(q.cfg.ConservativeWeight, 0))))
	})
	if err != nil {
		return nil, q.blame(q.cause(err))
	}
	if q.updates++; q.updates%uint64(q.cfg.TargetEvery) == 0 {
		q.target.CopyFrom(q.online)
	}
	q.metrics = append(q.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/q_value", Value: value},
		policies.Metric{Name: "train/conservative_loss", Value: gap}, policies.Metric{Name: "train/grad_norm", Value: step.GradNorm},
		policies.Metric{Name: "train/learning_rate", Value: q.cfg.Adam.Rate},
	)
	return q.metrics, nil
}

// bootstrap computes the targets: the online network chooses the next action, and the target network
// gives its value.
func (q *Discrete) bootstrap(b *policies.Batch) {
	x := nn.Matrix{Rows: b.N, Cols: q.cfg.Obs.Dim(), Data: b.Floats(policies.NextObs)}
	chosen, said := q.online.Forward(x), q.target.Forward(x)
	q.next = q.next[:0]
	for i := range b.N {
		q.next = append(q.next, said.Row(i)[greatest(chosen.Row(i))])
	}
	q.wanted = b.Targets(q.wanted[:0], q.cfg.Gamma, q.next)
}

// greatest returns the number of the greatest value, of equal ones the first.
func greatest(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// actions returns the numbers of the batch's actions, from 0.
func (q *Discrete) actions(b *policies.Batch) []float32 {
	q.numbers = q.numbers[:0]
	for _, a := range b.Floats(policies.Action) {
		q.numbers = append(q.numbers, a-float32(q.cfg.Action.Start))
	}
	return q.numbers
}

// check finds faults of the batch.
func (q *Discrete) check(b *policies.Batch) error {
	if err := b.Needs(q.spec.Learns...); err != nil {
		return err
	}
	actions := b.Floats(policies.Action)
	for i := range actions {
		if a := actions[i : i+1]; !q.cfg.Action.Contains(a) {
			return fmt.Errorf("row %d has the action %v, which is not in %v", i, a, q.cfg.Action)
		}
	}
	return nil
}

// Act takes the action of highest value for each row; of equal values the first wins. It does not
// explore.
func (q *Discrete) Act(a *policies.Act) error {
	rows, err := a.Check(&q.spec)
	if err != nil {
		return fmt.Errorf("cql: %w", err)
	}
	values := q.online.Forward(nn.Matrix{Rows: rows, Cols: q.cfg.Obs.Dim(), Data: a.Obs})
	if err := (nn.Tensor{Name: "values", Data: values.Data}).CheckFinite(); err != nil {
		return q.cause(err)
	}
	for i := range a.Action {
		a.Action[i] = float32(q.cfg.Action.Start + greatest(values.Row(i)))
	}
	return nil
}

// Export implements policies.Exporter. The output "q_values" has the values of the actions.
func (q *Discrete) Export(g *graph.Graph, obs graph.Value) error {
	values, err := q.online.Export(g, "cql/", obs)
	if err != nil {
		return err
	}
	policies.ExportChoice(g, values, q.cfg.Action)
	g.Output("q_values", values)
	return nil
}

// cause returns the error of the first weight that is not finite, or err if all are.
func (q *Discrete) cause(err error) error {
	if e := q.online.CheckFinite(); e != nil {
		return e
	}
	if e, ok := errors.AsType[*nn.NonFiniteError](q.target.CheckFinite()); ok {
		e.Tensor = "target." + e.Tensor
		return e
	}
	return err
}

// blame names the update.
func (q *Discrete) blame(err error) error {
	return &policies.UpdateError{Algorithm: "cql", Update: q.updates, Err: err}
}

// Spec describes the policy.
func (q *Discrete) Spec() policies.Spec { return q.spec }

// Config returns the config with its defaults.
func (q *Discrete) Config() DiscreteConfig { return q.cfg }

// SetRate changes the optimiser's learning rate. A checkpoint does not hold it.
func (q *Discrete) SetRate(rate float64) {
	q.cfg.Adam.Rate = rate
	q.trainer.SetRate(rate)
}

// Version counts the updates behind the weights, those before a Load included.
func (q *Discrete) Version() uint64 { return q.updates }

// parts returns the content of a checkpoint.
func (q *Discrete) parts() policies.Parts {
	return policies.Parts{
		policies.NetPart("cql", q.online, &q.updates), policies.NetPart("cql.target", q.target, &q.updates),
		policies.OptimizerPart("cql.adam", q.trainer.Optimizers()[0]),
	}
}

// Weights returns a copy of the online network's weights.
func (q *Discrete) Weights() nn.State { return q.parts()[:1].State(q.updates) }

// Load takes weights over into the online network; the target network and the optimiser stay. Weights
// that do not fit or are not finite change nothing.
func (q *Discrete) Load(s nn.State) error { return q.parts()[:1].Load(s) }

// Save writes networks, optimiser and counter to a.
func (q *Discrete) Save(a *nn.Archive) error { return q.parts().Save(a) }

// Restore restores q to the state at Save. The networks must have the same shape; the rest of the config is
// q's own. An error may leave q half restored.
func (q *Discrete) Restore(a *nn.Archive) error { return q.parts().Restore(a) }
