package policytest

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// toy is a small policy that does all that the suite asks for: a network regresses the reward of
// the action, with its own noise; its recurrent state is added to the first value.
type toy struct {
	net     *nn.Net
	trainer *nn.Trainer
	updates uint64
	source  *rand.PCG
	rng     *rand.Rand
	acting  nn.Tape
	targets []float32
	metrics []policies.Metric
	space   policies.Spec
}

func newToy(seed uint64) *toy {
	p := &toy{net: nn.New(2, seed, nn.MLP([]int{4}, nn.Tanh, 3, nn.FanIn, nn.FanIn)...), source: rand.NewPCG(seed, 1)}
	p.trainer = nn.NewTrainer(nn.TrainerConfig{}, p.net)
	p.rng = rand.New(p.source)
	float := func(name string, shape ...int) policies.Column {
		return policies.Column{Name: name, Kind: policies.Float32, Shape: shape}
	}
	p.space = policies.Spec{
		Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 3}, StateSize: 1,
		Extra: []policies.Column{float(policies.Value)}, Bootstrap: policies.Value,
		Learns: []policies.Column{
			float(policies.Obs, 2), float(policies.Action, 1), float(policies.Reward), {Name: policies.Terminated, Kind: policies.Bool},
		},
	}
	return p
}

func (p *toy) Spec() policies.Spec { return p.space }

func (p *toy) SetAllReduce(f nn.AllReduce) { p.trainer.SetAllReduce(f) }

func (p *toy) Version() uint64 { return p.updates }

func (p *toy) Act(a *policies.Act) error {
	rows, err := a.Check(&p.space)
	if err != nil {
		return fmt.Errorf("toy: %w", err)
	}
	p.acting.Reset()
	values := p.net.Apply(&p.acting, p.acting.Const(rows, 2, a.Obs)).Data()
	for i := range rows {
		if a.Reset != nil && a.Reset[i] {
			a.State[i] = 0
		}
		a.State[i] = a.State[i]/2 + a.Obs[2*i]
		row := values[3*i : 3*i+3]
		row[0] += a.State[i]
		best := 0
		for k := range row {
			if row[k] > row[best] {
				best = k
			}
		}
		if a.Extra != nil {
			a.Extra[0][i] = row[best]
		}
		if !a.Greedy && a.Rand.IntN(2) == 0 {
			best = a.Rand.IntN(3)
		}
		a.Action[i] = float32(best)
	}
	return nil
}

func (p *toy) Export(g *graph.Graph, obs graph.Value) error {
	values, err := p.net.Export(g, "toy.net/", obs)
	if err != nil {
		return err
	}
	next := g.Input(graph.State, 1).Scale(0.5).Add(obs.Slice(0, 1))
	values = values.Slice(0, 1).Add(next).Concat(values.Slice(1, 3))
	policies.ExportChoice(g, values, envs.Discrete{N: 3})
	g.Output("q_values", values)
	g.Output(graph.NextState, next)
	return nil
}

func (p *toy) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := p.check(b); err != nil {
		return nil, p.blame(err)
	}
	p.targets = append(p.targets[:0], b.Floats(policies.Reward)...)
	for i := range p.targets {
		p.targets[i] += 0.1 * float32(p.rng.NormFloat64())
	}
	step, err := p.trainer.Step(func(t *nn.Tape) nn.Value { return p.loss(t, b) })
	if err != nil {
		return nil, p.blame(err)
	}
	p.updates++
	p.metrics = append(p.metrics[:0],
		policies.Metric{Name: "train/loss", Value: step.Loss}, policies.Metric{Name: "train/grad_norm", Value: step.GradNorm})
	return p.metrics, nil
}

func (p *toy) loss(t *nn.Tape, b *policies.Batch) nn.Value {
	values := p.net.Apply(t, t.Const(b.N, 2, b.Floats(policies.Obs)))
	return values.Pick(b.Floats(policies.Action)).Sub(t.Column(p.targets)).Square().Mean()
}

func (p *toy) check(b *policies.Batch) error {
	if err := b.Needs(p.space.Learns...); err != nil {
		return err
	}
	actions := b.Floats(policies.Action)
	for i := range actions {
		if !p.space.Action.Contains(actions[i : i+1]) {
			return fmt.Errorf("row %d has the action %v", i, actions[i])
		}
	}
	return nil
}

func (p *toy) blame(err error) error {
	return &policies.UpdateError{Algorithm: "toy", Update: p.updates, Err: err}
}

func (p *toy) nets() policies.Parts {
	return policies.Parts{policies.NetPart("toy.net", p.net, &p.updates)}
}

func (p *toy) parts() policies.Parts {
	return append(p.nets(), policies.OptimizerPart("toy.adam", p.trainer.Optimizers()[0]))
}

func (p *toy) Weights() nn.State { return p.nets().State(p.updates) }

func (p *toy) Load(s nn.State) error { return p.nets().Load(s) }

func (p *toy) Save(a *nn.Archive) error {
	random, err := p.source.MarshalBinary()
	a.SetText("toy/random", hex.EncodeToString(random))
	return errors.Join(err, p.parts().Save(a))
}

func (p *toy) Restore(a *nn.Archive) error {
	random, err := hex.DecodeString(a.Meta["toy/random"])
	if err == nil {
		err = p.source.UnmarshalBinary(random)
	}
	if err != nil {
		return fmt.Errorf("restore toy: random state: %w", err)
	}
	return p.parts().Restore(a)
}

// faulty is a toy with some of its methods replaced.
type faulty struct {
	*toy
	act     func(a *policies.Act) error
	learn   func(b *policies.Batch) ([]policies.Metric, error)
	load    func(s nn.State) error
	weights func() nn.State
	save    func(a *nn.Archive) error
	restore func(a *nn.Archive) error
	spec    func() policies.Spec
	version func() uint64
	export  func(g *graph.Graph, obs graph.Value) error
}

func (p *faulty) Export(g *graph.Graph, obs graph.Value) error {
	if p.export != nil {
		return p.export(g, obs)
	}
	return p.toy.Export(g, obs)
}

func (p *faulty) Act(a *policies.Act) error {
	if p.act != nil {
		return p.act(a)
	}
	return p.toy.Act(a)
}

func (p *faulty) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if p.learn != nil {
		return p.learn(b)
	}
	return p.toy.Learn(b)
}

func (p *faulty) Load(s nn.State) error {
	if p.load != nil {
		return p.load(s)
	}
	return p.toy.Load(s)
}

func (p *faulty) Weights() nn.State {
	if p.weights != nil {
		return p.weights()
	}
	return p.toy.Weights()
}

func (p *faulty) Save(a *nn.Archive) error {
	if p.save != nil {
		return p.save(a)
	}
	return p.toy.Save(a)
}

func (p *faulty) Restore(a *nn.Archive) error {
	if p.restore != nil {
		return p.restore(a)
	}
	return p.toy.Restore(a)
}

func (p *faulty) Spec() policies.Spec {
	if p.spec != nil {
		return p.spec()
	}
	return p.toy.Spec()
}

func (p *faulty) Version() uint64 {
	if p.version != nil {
		return p.version()
	}
	return p.toy.Version()
}
