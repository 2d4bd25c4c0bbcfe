package rl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// The roles of a node.
const (
	Learner   = "learner"   // updates the weights
	Evaluator = "evaluator" // measures them
	Collector = "collector" // acts in environments
)

// Roles returns the usual roles in a job of that many nodes: node 0 learns, node 1 evaluates, the
// rest collect. In a job of two nodes, node 1 evaluates and collects; a lone node has all roles. 0
// means that the number is unknown, but at least 3.
func Roles(nodes int) []task.Option {
	if nodes == 2 {
		return []task.Option{task.ByLabel("node.0", Learner), task.ByLabel("node.1", Evaluator, Collector)}
	}
	return []task.Option{task.ByID(Learner, Evaluator, Collector)}
}

// Online is the context of a task that learns from the data it collects. Counters count the whole
// job, as far as this node has received them.
type Online struct {
	EnvSteps int `task:"keep"` // steps of single environments
	Episodes int `task:"keep"` // episodes that ended
	Updates  int `task:"keep"` // changes of the weights
	// PolicyVersion is the version of the weights that this node acts with.
	PolicyVersion uint64 `task:"keep"`
	// Explored has the metrics of the exploration in the newest received step, such as
	// rollout/exploration_rate.
	Explored []policies.Metric `task:"keep"`
	// Eval is the newest evaluation; its EnvSteps is 0 before the first.
	Eval Evaluation `task:"keep"`
	// Best is the best evaluation so far with its weights, or nil.
	Best *Best `task:"keep"`

	// Collected is the data that this step learns from, or nil.
	Collected *Trajectory
	// Trained sums up the updates of this step.
	Trained Trained
	// Lag is by how many updates the weights that chose the actions of Collected were behind the
	// learner's, when the learner took the data.
	Lag Lag
	// Stopped reports that this step ends the run, and that the weights must stay as they were
	// evaluated.
	Stopped bool
}

// Trajectory is the data of one step of a collector, or of several steps joined. In lockstep every
// node but the learner sends one in each turn, with the fields from Run on.
type Trajectory struct {
	Seq      uint64 // number among those of its sender, from 1; in lockstep that of the turn
	Collects int    // the number of joined steps; 0: no data to learn from
	Batch    policies.Batch
	EnvSteps int // taken for it
	Episodes []envs.Episode
	// Infos are the numbers of Config.Infos of each of Episodes, one for each name, or NaN if the episode does not have
	// the number.
	Infos    []float64
	Explored []policies.Metric
	// Returns are the count, the mean and the variance of the discounted returns after each env step, for a
	// policies.RewardScaler; nil for another policy.
	Returns []float64

	Run     uint64     // of the learner that receives it
	Asks    bool       // the sender asks for its state; the other fields are empty
	State   string     // of the sender, after it
	Eval    Evaluation // the evaluator's newest
	Scores  []Scores   // of the evaluations in this turn
	Best    *Best      // the evaluator's, if it has changed
	Stopped bool       // as in Online
}

// Turn makes the other nodes take one step in lockstep with the learner.
type Turn struct {
	Run      uint64 // differs between starts of the learner
	Number   uint64 // of the turn in the run, from 0
	EnvSteps int
	Episodes int
	Updates  int
	Eval     Evaluation
	Weights  nn.State
	Nodes    []int    // nodes that begin this turn from States
	States   []string // of Nodes, before the turn; empty: there is none
	Best     *Best    // in the first turn, and with States
}

// collected adds tr to the data that this step learns from.
func (c *Online) collected(tr *Trajectory) {
	if c.Collected == nil {
		c.Collected = tr
		return
	}
	all := c.Collected
	all.Collects += tr.Collects
	all.Batch.AppendBatch(&tr.Batch)
	all.EnvSteps += tr.EnvSteps
	all.Episodes = append(all.Episodes, tr.Episodes...)
	all.Infos = append(all.Infos, tr.Infos...)
	all.Returns = append(all.Returns, tr.Returns...)
}

// Trained summarises the updates of one step.
type Trained struct {
	Updates int
	Metrics []policies.Metric // means over the updates, in the order of the policy
	Lag     Lag               // of the rows that were learned from
}

// add counts n updates, with their mean metrics and lag.
func (s *Trained) add(n int, metrics []policies.Metric, lag Lag) {
	total := s.Updates + n
	share := float64(n) / float64(total)
	for _, m := range metrics {
		i := slices.IndexFunc(s.Metrics, func(o policies.Metric) bool { return o.Name == m.Name })
		if i < 0 { // the policy reports it only in some updates
			s.Metrics = append(s.Metrics, m)
			continue
		}
		s.Metrics[i].Value += (m.Value - s.Metrics[i].Value) * share
	}
	s.Lag.Mean += (lag.Mean - s.Lag.Mean) * share
	s.Lag.Max = max(s.Lag.Max, lag.Max)
	s.Updates = total
}

// Lag is a difference of policy versions over some transitions.
type Lag struct {
	Mean float64
	Max  uint64
}

// Progress is the progress of the learner.
type Progress struct {
	Run      uint64 // differs between starts of the learner
	EnvSteps int
	Episodes int
	Updates  int
	Nodes    []int    // collectors whose data was received
	Taken    []uint64 // the newest Trajectory.Seq taken from each of Nodes
	Learners []int    // to which trajectories go in turn; nil: to the only one
}

// Evaluation is the result of one evaluation.
type Evaluation struct {
	Version  uint64  `json:"version"`   // of the weights
	EnvSteps int     `json:"env_steps"` // of the job when it was made
	Episodes int     `json:"episodes"`
	Mean     float64 `json:"mean"` // undiscounted return
	Std      float64 `json:"std"`
	Length   float64 `json:"length"` // mean length
	// Infos are the means of Config.Infos, over the episodes that have them, by InfoName.
	Infos []policies.Metric `json:"infos,omitempty"`
}

// Equal reports whether two evaluations are the same in all numbers.
func (e *Evaluation) Equal(other *Evaluation) bool {
	return e.Version == other.Version && e.EnvSteps == other.EnvSteps && e.Episodes == other.Episodes && e.Mean == other.Mean &&
		e.Std == other.Std && e.Length == other.Length && slices.Equal(e.Infos, other.Infos)
}

// Best is an evaluation with the weights that it measured.
type Best struct {
	Evaluation
	Weights nn.State
	// Reached reports that the return reached EvalConfig.StopAt and was confirmed: the
	// run ends with these weights.
	Reached bool
}

// better reports whether b is to be kept instead of other, which is not nil.
func (b *Best) better(other *Best) bool {
	switch {
	case b == nil || other.Reached:
		return false
	case b.Reached:
		return true
	}
	return b.Mean > other.Mean
}

// The events between nodes.
var (
	Transitions = task.NewEvent[Trajectory]("rl.transitions")
	Weights     = task.NewEvent[nn.State]("rl.weights", task.Latest())
	Progressed  = task.NewEvent[Progress]("rl.progress", task.Latest())
	Evaluated   = task.NewEvent[Scores]("rl.evaluation")
	BestFound   = task.NewEvent[Best]("rl.best", task.Latest())
	Turns       = task.NewEvent[Turn]("rl.turn", task.Latest())
)

// alone reports that this node is the only one.
func alone(t *task.Task[Online]) bool { return t.Match("standalone") }

// emit sends v to the other nodes. It logs an error for a peer that was not reached instead of
// returning it: the loss of a peer does not affect the sender's work.
func emit[T any](ctx context.Context, t *task.Task[Online], e *task.Event[T], v T, to ...string) error {
	opts := []task.EmitOption{task.OnlyRemote()}
	if len(to) > 0 {
		opts = append(opts, task.To(to...))
	}
	err := e.Emit(ctx, t, v, opts...)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.Logger().Warn("a node was not reached", slog.String("event", e.Name()), slog.Any("err", err))
	return nil
}

// onNode adds the node to an error, and after it the stack of an environment that panicked.
func (r *Run) onNode(err error) error {
	if e, ok := errors.AsType[*envs.Error](err); ok && e.Stack != nil {
		return fmt.Errorf("node %d: %w\n%s", r.t.NodeID(), err, bytes.TrimSpace(e.Stack))
	}
	return fmt.Errorf("node %d: %w", r.t.NodeID(), err)
}
