package rl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// Ahead is the number of trajectories by which a collector may be ahead of the learner.
const Ahead = 4

// patience is the time after which a wait is logged.
const patience = 10 * time.Second

// ExchangeConfig describes how nodes work together. The zero value lets each node continue at its own
// pace.
type ExchangeConfig struct {
	// Synchronous, if not 0, is the number of nodes in the job, which then work in lockstep: in each step
	// the learner takes one trajectory of every other node, in the order of their ids, and the next step
	// of those nodes uses the weights and counters of that step. The same seeds then give the same
	// numbers, also after interruptions, see [Config]. The cost is that all nodes wait for the slowest,
	// and that each trajectory carries the state of its node. The learners, as many as Learners is,
	// neither collect nor evaluate.
	Synchronous int
	// Learners is the number of nodes with the role learner; more than 1 learn together: see "Several
	// learners" in the package's documentation. Exchange then panics if the policy is not a
	// policies.Parallel. All learners must have the same middleware. 0 means 1; a lone node ignores it.
	Learners int
	// EveryUpdates is the number of updates between two publications of the
	// weights and counters; 0 means 10. In lockstep they are published after each step.
	EveryUpdates int
}

// Exchange carries counters, transitions and weights between nodes: those of a collector to the
// learner, the learner's progress and weights and the evaluator's results to all. It must be the first
// middleware of a task. On a lone node it only records the policy's version. If several nodes learn,
// "the learner" below is the first one of them, except where it takes trajectories.
//
// The learner publishes its counters and weights before it waits for any message, then every EveryUpdates
// updates, and at its end; a collector receives the counters more often. A step of a learner that does not
// collect begins by waiting for a trajectory. A step of a collector that does not learn begins by waiting for a
// learner, and until that learner has taken all but the last [Ahead] trajectories; the collector then installs
// the newest weights. A node that only evaluates waits for new weights. Collectors send new trajectories to a
// restarted learner.
//
// Weights that are not finite end the run and are not published. The lag that a node reports is
// that of the weights which it acts with or evaluates, in updates behind the newest received
// weights.
func (r *Run) Exchange(cfg ExchangeConfig) task.Middleware[Online] {
	step := r.alone
	if cfg.Learners > 1 && !alone(r.t) && r.t.Has(Learner) {
		r.group = newGroup(r, cfg.Learners)
	}
	switch {
	case alone(r.t):
	case cfg.Synchronous > 0 && r.group != nil:
		lead := newLeader(r, cfg)
		step = func(ctx context.Context, c *Online, next task.Next) error {
			if r.leads() {
				return lead.step(ctx, c, next)
			}
			return r.group.follow(ctx, c, next)
		}
	case cfg.Synchronous > 0 && r.t.Has(Learner):
		step = newLeader(r, cfg).step
	case cfg.Synchronous > 0:
		step = newFollower(r).step
	default:
		step = newPaced(r, cfg).step
	}
	return func(ctx context.Context, c *Online, next task.Next) error {
		if !r.began {
			if err := errors.Join(r.checkOffline(), r.onlyLearner()); err != nil {
				return err
			}
			takeUp := func() error { return r.takeUp(c) }
			if r.group != nil {
				takeUp = func() error { return r.group.enter(ctx, c) }
			}
			if err := takeUp(); err != nil {
				return err
			}
			r.began = true
			r.first, r.known = r.clock(c), c.Eval
			r.markDue(c)
			if reason := r.over(c); r.resumed && reason != "" && !r.evaluationDue() {
				c.Stopped, r.done, r.nothing = true, true, reason
				r.t.Finish(reason)
				return next(ctx)
			}
			r.goOn(c)
		}
		r.step++
		return step(ctx, c, next)
	}
}

// onlyLearner returns an error if another node learns too, though the config allows only one
// learner.
func (r *Run) onlyLearner() error {
	if r.group != nil || !r.t.Has(Learner) {
		return nil
	}
	for _, p := range r.t.Peers() {
		if slices.Contains(p.Labels, Learner) {
			return fmt.Errorf("node %d and node %d both have the role learner: give one of them another role, or set ExchangeConfig.Learners",
				r.t.NodeID(), p.ID)
		}
	}
	return nil
}

// alone is the exchange of a lone node.
func (r *Run) alone(ctx context.Context, c *Online, next task.Next) error {
	c.PolicyVersion = r.policy.Version()
	err := next(ctx)
	c.PolicyVersion = r.policy.Version()
	return err
}

// weights returns the policy's weights, which must be finite to be published.
func (r *Run) weights() (nn.State, error) {
	s := r.policy.Weights()
	if err := s.CheckFinite(); err != nil {
		return s, r.onNode(fmt.Errorf("publish weights of update %d: %w", s.Version, err))
	}
	return s, nil
}

// install makes the policy act with received weights.
func (r *Run) install(s nn.State) error {
	if err := r.policy.Load(s); err != nil {
		return r.onNode(fmt.Errorf("install weights of update %d: %w", s.Version, err))
	}
	return nil
}

// warnWithoutLearner logs that no connected node has the role learner.
func warnWithoutLearner(t *task.Task[Online]) {
	for _, p := range t.Peers() {
		if slices.Contains(p.Labels, Learner) {
			return
		}
	}
	t.Logger().Warn("no node of this job has the role learner: this node waits until one joins; "+
		"start node 0, or give a node the role", slog.Int("node", t.NodeID()), slog.String("roles", strings.Join(t.Roles(), ",")))
}

// arrival is a trajectory with its sender.
type arrival struct {
	from int
	tr   Trajectory
}

// inbox passes trajectories from the listener to the step. Further trajectories wait at the sender.
type inbox struct {
	ch   chan arrival
	over chan struct{} // closed when nothing more is learned
}

func newInbox(t *task.Task[Online]) inbox {
	in := inbox{make(chan arrival), make(chan struct{})}
	t.OnFinish(func(context.Context, task.Outcome) error {
		close(in.over)
		return nil
	})
	Transitions.On(t, in.arrive)
	return in
}

func (in inbox) arrive(ctx context.Context, tr Trajectory) error {
	select {
	case in.ch <- arrival{task.Sender(ctx), tr}:
		return nil
	case <-in.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take adds a trajectory to the data that this step learns from.
func (r *Run) take(c *Online, from int, tr *Trajectory) error {
	if err := r.count(c, from, tr); err != nil {
		return err
	}
	if tr.Collects > 0 {
		c.collected(tr)
	}
	return nil
}

// count adds the counts of a trajectory, and checks its data.
func (r *Run) count(c *Online, from int, tr *Trajectory) error {
	if tr.Eval.Episodes > 0 {
		c.Eval = tr.Eval
	}
	for _, s := range tr.Scores {
		r.heard(s)
	}
	if tr.Best != nil {
		c.Best = tr.Best
	}
	c.Stopped = c.Stopped || tr.Stopped
	if tr.Collects == 0 {
		return nil // the results of an evaluator
	}
	if err := tr.Batch.Check(r.columns...); err != nil {
		return r.onNode(fmt.Errorf("the data of node %d does not fit this policy: %w", from, err))
	}
	if err := r.checkInfos(from, tr.Episodes, tr.Infos); err != nil {
		return err
	}
	c.EnvSteps += tr.EnvSteps
	c.Episodes += len(tr.Episodes)
	c.Explored = tr.Explored
	return nil
}

// notify wakes a wait on a channel of capacity 1.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// waitFor takes values of ch until done is true or ctx ends. It logs a long wait, at growing
// intervals.
func waitFor[T any](ctx context.Context, t *task.Task[Online], what string, ch <-chan T, done func(T) bool) error {
	return waitForEither(ctx, t, what, ch, done, nil, nil)
}

// waitForEither is waitFor, and also ends when woken is true after a value came from wake.
func waitForEither[T any](
	ctx context.Context, t *task.Task[Online], what string, ch <-chan T, done func(T) bool, wake <-chan struct{}, woken func() bool,
) error {
	began, quiet := time.Now(), patience
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case v := <-ch:
			if done(v) {
				return nil
			}
		case <-wake:
			if woken() {
				return nil
			}
		case <-timer.C:
			t.Logger().Warn("waiting for "+what, slog.Duration("for", time.Since(began).Round(time.Second)))
			quiet *= 2
			timer.Reset(quiet)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
