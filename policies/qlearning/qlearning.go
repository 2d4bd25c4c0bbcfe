// Package qlearning is Q-learning with a table of values, for discrete observations and actions. It
// is the smallest [policies.Policy], to read first.
//
//	q := qlearning.New(qlearning.Config{Obs: envs.Discrete{N: 48}, Action: envs.Discrete{N: 4}})
//	err := q.Act(&act)               // epsilon-greedy
//	batch.Append(transition)         // policies.TransitionColumns(1, 1)
//	metrics, err := q.Learn(&batch)
//
// C. J. C. H. Watkins, "Learning from Delayed Rewards" (1989); R. S. Sutton and A. G. Barto,
// "Reinforcement Learning: An Introduction" (2018), section 6.5.
//
// A QLearning is not safe for concurrent use. It has no random numbers except those of Act: the same
// config and batches give the same bits, also after Save and Restore. A value that is not finite is a
// *policies.UpdateError that names it.
package qlearning

import (
	"fmt"
	"math"
	"slices"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// QLearning is a table of action values. It implements policies.Policy.
type QLearning struct {
	cfg     Config
	table   []float32 // a row for each observation, a value for each action
	updates uint64
	spec    policies.Spec
	metrics []policies.Metric
}

var _ policies.Exporter = (*QLearning)(nil)

// New returns a QLearning whose values are Config.Initial. It panics with all faults of the config;
// Config.Validate returns them.
func New(cfg Config) *QLearning {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg = cfg.EnsureDefaults()
	return &QLearning{
		cfg: cfg, table: slices.Repeat([]float32{float32(cfg.Initial)}, cfg.Obs.N*cfg.Action.N),
		spec: policies.Spec{Obs: cfg.Obs, Action: cfg.Action, Learns: policies.TransitionColumns(1, 1)},
	}
}

// Learn makes one update: for each row of the batch, one after the other,
//
//	Q(s, a) <- Q(s, a) + rate (r + gamma^n max Q(s', .) - Q(s, a))
//
// where a terminated s' is worth nothing. A batch of one row is Watkins's algorithm. It allocates
// nothing. When a value would not be finite, the rows before keep their change.
func (q *QLearning) Learn(b *policies.Batch) ([]policies.Metric, error) {
	if err := q.check(b); err != nil {
		return nil, q.blame(err)
	}
	obs, next, action := b.Floats(policies.Obs), b.Floats(policies.NextObs), b.Floats(policies.Action)
	terminated, steps := b.Bytes(policies.Terminated), b.Bytes(policies.Steps)
	var loss, value float64
	for i, r := range b.Floats(policies.Reward) {
		target := float64(r)
		if terminated[i] == 0 {
			target += math.Pow(q.cfg.Gamma, float64(steps[i])) * float64(slices.Max(q.row(next[i])))
		}
		at := &q.row(obs[i])[int(action[i])-q.cfg.Action.Start]
		difference := target - float64(*at)
		better := float32(float64(*at) + q.cfg.Rate*difference)
		if better-better != 0 {
			return nil, q.blame(&nn.NonFiniteError{Tensor: "values", Index: i, Value: better})
		}
		*at = better
		loss += difference * difference
		value += float64(better)
	}
	q.updates++
	n := float64(b.N)
	q.metrics = append(q.metrics[:0],
		policies.Metric{Name: "train/loss", Value: loss / n}, policies.Metric{Name: "train/q_value", Value: value / n},
		policies.Metric{Name: "train/learning_rate", Value: q.cfg.Rate},
	)
	return q.metrics, nil
}

// row returns the values of the actions for an observation.
func (q *QLearning) row(obs float32) []float32 {
	at := (int(obs) - q.cfg.Obs.Start) * q.cfg.Action.N
	return q.table[at : at+q.cfg.Action.N]
}

// Act takes, for each row, the action of highest value; unless a.Greedy is set, with the probability
// epsilon one at random. Of equal values the first wins if a.Greedy is set, and else one at random,
// so that the first episodes do not depend on how actions are numbered.
func (q *QLearning) Act(a *policies.Act) error {
	if _, err := a.Check(&q.spec); err != nil {
		return fmt.Errorf("qlearning: %w", err)
	}
	epsilon := 0.0
	if !a.Greedy {
		epsilon = q.cfg.Epsilon(a.EnvSteps)
		a.Metrics = append(a.Metrics, policies.Metric{Name: "rollout/exploration_rate", Value: epsilon})
	}
	for i := range a.Obs {
		if !q.cfg.Obs.Contains(a.Obs[i : i+1]) {
			return fmt.Errorf("qlearning: observation %v of row %d is not in %v", a.Obs[i], i, q.cfg.Obs)
		}
		row := q.row(a.Obs[i])
		best, ties := 0, 1
		for k := 1; k < len(row); k++ {
			switch {
			case row[k] > row[best]:
				best, ties = k, 1
			case row[k] == row[best] && !a.Greedy:
				if ties++; a.Rand.IntN(ties) == 0 {
					best = k
				}
			}
		}
		if !a.Greedy && a.Rand.Float64() < epsilon {
			best = a.Rand.IntN(len(row))
		}
		a.Action[i] = float32(q.cfg.Action.Start + best)
	}
	return nil
}

// Export implements policies.Exporter: the row of the table for an observation is the output "q_values".
func (q *QLearning) Export(g *graph.Graph, obs graph.Value) error {
	if q.cfg.Obs.Start != 0 {
		obs = obs.Shift(float32(-q.cfg.Obs.Start))
	}
	values := obs.Lookup(g.Constant("qlearning/values", q.table, q.cfg.Obs.N, q.cfg.Action.N))
	policies.ExportChoice(g, values, q.cfg.Action)
	g.Output("q_values", values)
	return nil
}

// check finds faults of the batch.
func (q *QLearning) check(b *policies.Batch) error {
	if err := b.Needs(q.spec.Learns...); err != nil {
		return err
	}
	obs, next, action := b.Floats(policies.Obs), b.Floats(policies.NextObs), b.Floats(policies.Action)
	for i, n := range b.Bytes(policies.Steps) {
		at := func(v []float32) []float32 { return v[i : i+1] }
		if !q.cfg.Obs.Contains(at(obs)) || !q.cfg.Obs.Contains(at(next)) || !q.cfg.Action.Contains(at(action)) || n == 0 {
			return fmt.Errorf("row %d has the observations %v and %v, the action %v and %d steps, want %v, %v and at least 1 step",
				i, obs[i], next[i], action[i], n, q.cfg.Obs, q.cfg.Action)
		}
	}
	return nil
}

// blame names the update.
func (q *QLearning) blame(err error) error {
	return &policies.UpdateError{Algorithm: "qlearning", Update: q.updates, Err: err}
}

// Spec describes the policy.
func (q *QLearning) Spec() policies.Spec { return q.spec }

// Config returns the config with its defaults.
func (q *QLearning) Config() Config { return q.cfg }

// SetRate changes the step size. A checkpoint does not hold it.
func (q *QLearning) SetRate(rate float64) { q.cfg.Rate = rate }

// Values returns the values of the actions for an observation, a view that Learn changes. It panics if the
// observation is not in the space.
func (q *QLearning) Values(obs int) []float32 { return q.row(float32(obs)) }

// Version counts the updates behind the values, those before a Load included.
func (q *QLearning) Version() uint64 { return q.updates }

func (q *QLearning) parts() policies.Parts {
	return policies.Parts{policies.ValuesPart("qlearning", q.table, &q.updates)}
}

// Weights returns a copy of the table.
func (q *QLearning) Weights() nn.State { return q.parts().State(q.updates) }

// Load takes a table over. One that does not fit or is not finite changes nothing.
func (q *QLearning) Load(s nn.State) error { return q.parts().Load(s) }

// Save writes table and counter to a.
func (q *QLearning) Save(a *nn.Archive) error { return q.parts().Save(a) }

// Restore restores q to the state at Save. Its spaces must have the same size; the rest of the config is
// q's own.
func (q *QLearning) Restore(a *nn.Archive) error { return q.parts().Restore(a) }
