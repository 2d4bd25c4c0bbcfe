// Package dqn is deep Q-learning for discrete actions, with the extensions
// double, dueling and n-step returns.
//
//	q := dqn.New(dqn.Config{Obs: 4, Actions: 2, Seed: 7, Double: true})
//	err := q.Greedy(actions, obs)      // the actions of highest value
//	m, err := q.Update(&batch)         // one step of learning
//	w := q.Weights()                   // for another process: other.Load(w)
//
// Update regresses Q(s, a) on r + gamma^n (1 - terminated) Q'(s', a'), where n
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
// is an [*Error] that names it; the weights stay as they were.
package dqn

import (
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// DQN is a Q-network with its target network and optimiser. It implements
// policies.Greedy, policies.Learner and policies.Saver.
type DQN struct {
	cfg            Config
	online, target *nn.Net
	trainer        *nn.Trainer
	updates        uint64
	discount       [256]float32 // gamma to the power of the index

	columns []policies.Column
	targets []float32 // of one batch
	best    []int
}

var (
	_ policies.Greedy  = (*DQN)(nil)
	_ policies.Learner = (*DQN)(nil)
	_ policies.Saver   = (*DQN)(nil)
)

// Error says which update found something wrong.
type Error struct {
	Update uint64 // updates made before
	Err    error  // a *nn.NonFiniteError, or what is wrong with the batch
}

// Error names the update and the cause.
func (e *Error) Error() string { return fmt.Sprintf("dqn update %d: %v", e.Update, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns a DQN with fresh weights. It panics with all faults of the
// config; Config.Validate returns them.
func New(cfg Config) *DQN {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	q := &DQN{cfg: cfg, online: network(cfg), target: network(cfg), columns: policies.TransitionColumns(cfg.Obs, 1)} // of one seed: equal
	q.trainer = nn.NewTrainer(nn.TrainerConfig{Optimizer: cfg.Adam.New, MaxGradNorm: max(cfg.MaxGradNorm, 0)}, q.online)
	for i := range q.discount {
		q.discount[i] = float32(math.Pow(cfg.Gamma, float64(i)))
	}
	return q
}

func network(cfg Config) *nn.Net {
	out := cfg.Actions
	if cfg.Dueling {
		out++
	}
	layers := nn.MLP(cfg.Hidden, nn.ReLU, out, nn.Kaiming, nn.FanIn)
	if cfg.Dueling {
		layers = append(layers, nn.Dueling())
	}
	return nn.New(cfg.Obs, cfg.Seed, layers...)
}

// Config is the config with its defaults.
func (q *DQN) Config() Config { return q.cfg }

// ObsDim is the number of values in an observation.
func (q *DQN) ObsDim() int { return q.cfg.Obs }

// Actions is the number of actions.
func (q *DQN) Actions() int { return q.cfg.Actions }

// Returns are the number of steps and the discount of the returns that Update
// expects.
func (q *DQN) Returns() (steps int, gamma float64) { return q.cfg.NStep, q.cfg.Gamma }

// Version counts the updates behind the weights, those before a Load included.
func (q *DQN) Version() uint64 { return q.updates }

// SetRate changes the optimiser's learning rate.
func (q *DQN) SetRate(rate float64) {
	q.cfg.Adam.Rate = rate
	q.trainer.SetRate(rate)
}

// Values computes the action values of each observation, a matrix of
// observations x Actions that the next call on q overwrites.
func (q *DQN) Values(obs []float32) nn.Matrix {
	return q.online.Forward(nn.Matrix{Rows: len(obs) / q.cfg.Obs, Cols: q.cfg.Obs, Data: obs})
}

// Greedy writes the action of highest value for each observation: obs is
// len(dst) x Obs. Of equal values the first wins. An observation or value that
// is not finite is an error.
func (q *DQN) Greedy(dst []int, obs []float32) error {
	if len(obs) != len(dst)*q.cfg.Obs {
		return fmt.Errorf("dqn: %d observed values for %d actions, want %d", len(obs), len(dst), len(dst)*q.cfg.Obs)
	}
	if err := finite("obs", obs); err != nil {
		return err
	}
	values := q.Values(obs)
	if err := finite("values", values.Data); err != nil {
		return q.blame(err)
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

// blame returns the error of the first weight that is not finite, or err if
// all are.
func (q *DQN) blame(err error) error {
	if e := q.online.CheckFinite(); e != nil {
		return e
	}
	if e, ok := errors.AsType[*nn.NonFiniteError](q.target.CheckFinite()); ok {
		e.Tensor = "target." + e.Tensor
		return e
	}
	return err
}

// Update makes one step of learning from b, whose actions have one value, the
// number of the action. It allocates nothing once it has seen a batch of that
// size.
func (q *DQN) Update(b *policies.Batch) (policies.Metrics, error) {
	m, err := q.update(b)
	if err != nil {
		return policies.Metrics{}, &Error{Update: q.updates, Err: err}
	}
	q.updates++
	switch {
	case q.cfg.Tau > 0:
		q.target.Approach(q.online, float32(q.cfg.Tau))
	case q.updates%uint64(q.cfg.TargetEvery) == 0:
		q.target.CopyFrom(q.online)
	}
	return m, nil
}

func (q *DQN) update(b *policies.Batch) (policies.Metrics, error) {
	if err := q.check(b); err != nil {
		return policies.Metrics{}, err
	}
	n := b.Len()
	q.resize(n)
	q.bootstrap(b)
	var value float64
	step, err := q.trainer.Step(func(t *nn.Tape) nn.Value {
		pred := q.online.Apply(t, t.Const(n, q.cfg.Obs, b.Floats(policies.Obs))).Pick(b.Floats(policies.Action))
		value = float64(pred.Mean().Number())
		difference := pred.Sub(t.Column(q.targets))
		if q.cfg.Loss == MSE {
			return difference.Square().Mean()
		}
		return difference.Huber(1).Mean()
	})
	if err != nil {
		return policies.Metrics{}, q.blame(err)
	}
	return policies.Metrics{Loss: step.Loss, GradNorm: step.GradNorm, Value: value, Rate: q.cfg.Adam.Rate}, nil
}

// check finds what in the batch cannot be learned from.
func (q *DQN) check(b *policies.Batch) error {
	if b.Len() == 0 {
		return fmt.Errorf("an empty batch")
	}
	if err := b.Check(q.columns...); err != nil {
		return err
	}
	for i, a := range b.Floats(policies.Action) {
		if a != float32(int(a)) || a < 0 || int(a) >= q.cfg.Actions {
			return fmt.Errorf("transition %d has action %v, want 0 to %d", i, a, q.cfg.Actions-1)
		}
	}
	for i, k := range b.Bytes(policies.Steps) {
		if k == 0 {
			return fmt.Errorf("transition %d of 0 steps", i)
		}
	}
	return b.CheckFinite()
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
	next := q.target.Forward(nn.Matrix{Rows: b.Len(), Cols: q.cfg.Obs, Data: obs})
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

// Save writes networks, optimiser and counter to a.
func (q *DQN) Save(a *nn.Archive) error {
	w := q.Weights()
	if err := w.CheckFinite(); err != nil {
		return fmt.Errorf("save dqn: %w", err)
	}
	a.Put("dqn", w)
	a.Put("dqn.target", q.target.State(q.updates))
	a.Put("dqn.adam", q.trainer.Optimizers()[0].State())
	return nil
}

// Restore makes q what it was at Save. The networks must have the same shape;
// the rest of the config is q's own. An error may leave q half restored.
func (q *DQN) Restore(a *nn.Archive) error {
	for _, part := range []struct {
		name string
		load func(nn.State) error
	}{{"dqn", q.Load}, {"dqn.target", q.target.Load}, {"dqn.adam", q.trainer.Optimizers()[0].Load}} {
		s, err := a.State(part.name)
		if err == nil {
			err = part.load(s)
		}
		if err != nil {
			return fmt.Errorf("restore %s: %w", part.name, err)
		}
	}
	return nil
}

// Seed is the config's seed.
func (q *DQN) Seed() uint64 { return q.cfg.Seed }
