package rl

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ditask/ditask/task"
)

// Ahead is how many trajectories a collector may be ahead of the learner.
const Ahead = 4

// patience is how long a wait is quiet; after that it is logged.
const patience = 10 * time.Second

// ExchangeContext carries counters and transitions between nodes: a collector's
// to the learner, the learner's progress and the evaluator's results to all. It
// must be the first middleware of a task.
//
// On a learner that does not collect, a step begins by waiting for a trajectory.
// On a collector that does not learn, it begins by waiting until the learner has
// taken all but the last few of what was sent. On a lone node it does nothing.
func ExchangeContext(t *task.Task[Online]) task.Middleware[Online] {
	t.Context().job = &job{t: t}
	t.Keep("job")
	x := &exchange{t: t, taken: map[int]uint64{}, run: rand.Uint64() | 1, changed: make(chan struct{}, 1)}
	if alone(t) {
		return task.Step(func(context.Context, *Online) error { return nil })
	}
	x.learns, x.collects = t.Has(Learner), t.Has(Collector)
	if x.learns {
		x.inbox = make(chan arrival) // what waits, waits at the sender
		x.over = make(chan struct{})
		t.OnFinish(func(context.Context, task.Outcome) error {
			close(x.over)
			x.hear(t.Context()) // such as the weights that ended the run
			return nil
		})
		Transitions.On(t, x.arrive)
		BestFound.On(t, x.best)
	} else {
		Progressed.On(t, x.progress)
	}
	if !t.Has(Evaluator) {
		Evaluated.On(t, x.evaluated)
	}
	return x.step
}

type arrival struct {
	from int
	tr   Trajectory
}

type exchange struct {
	t                *task.Task[Online]
	learns, collects bool
	inbox            chan arrival
	over             chan struct{} // closed when nothing more is learned
	run              uint64
	taken            map[int]uint64 // of each collector, the newest sequence number
	reported         Evaluation     // the newest that was sent
	praised          *Best          // the newest best that was sent
	changed          chan struct{}  // 1: something below has changed

	mu      sync.Mutex
	sent    uint64 // trajectories
	base    uint64 // of those, sent to an earlier run of the learner
	heard   Progress
	eval    *Evaluation
	newBest *Best
}

func (x *exchange) arrive(ctx context.Context, tr Trajectory) error {
	select {
	case x.inbox <- arrival{task.Sender(ctx), tr}:
		return nil
	case <-x.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (x *exchange) progress(_ context.Context, p Progress) error {
	x.mu.Lock()
	if x.heard.Run != 0 && x.heard.Run != p.Run {
		x.base = x.sent // the learner was restarted and will not take those
	}
	x.heard = p
	x.mu.Unlock()
	select {
	case x.changed <- struct{}{}:
	default:
	}
	return nil
}

func (x *exchange) evaluated(_ context.Context, e Evaluation) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.eval = &e
	return nil
}

func (x *exchange) best(_ context.Context, b Best) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newBest = &b
	return nil
}

func (x *exchange) step(ctx context.Context, c *Online, next task.Next) error {
	x.hear(c)
	if err := x.receive(ctx, c); err != nil {
		return err
	}
	if err := next(ctx); err != nil {
		return err
	}
	return x.send(ctx, c)
}

// hear takes over what has been heard since the last step.
func (x *exchange) hear(c *Online) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.learns {
		c.EnvSteps = max(c.EnvSteps, x.heard.EnvSteps)
		c.Episodes = max(c.Episodes, x.heard.Episodes)
		c.Updates = max(c.Updates, x.heard.Updates)
	}
	if x.eval != nil {
		c.Eval = *x.eval
	}
	if x.newBest != nil {
		c.Best = x.newBest
	}
}

// receive waits for what this node needs before it can do its step.
func (x *exchange) receive(ctx context.Context, c *Online) error {
	switch {
	case x.learns:
		select {
		case a := <-x.inbox:
			x.take(c, a)
			return nil
		default:
		}
		if x.collects {
			return nil // it has its own
		}
		return waitFor(ctx, x.t, "transitions of the collectors", x.inbox, func(a arrival) bool {
			x.take(c, a)
			return true
		})
	case x.collects:
		if x.room() {
			return nil
		}
		return waitFor(ctx, x.t, "the learner to take what was sent", x.changed, func(struct{}) bool { return x.room() })
	}
	return nil
}

// waitFor takes values of ch until done is true or ctx ends. A long wait is
// logged, at longer and longer intervals.
func waitFor[T any](ctx context.Context, t *task.Task[Online], what string, ch <-chan T, done func(T) bool) error {
	began, quiet := time.Now(), patience
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	for {
		select {
		case v := <-ch:
			if done(v) {
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

// take makes a trajectory what this step learns from.
func (x *exchange) take(c *Online, a arrival) {
	x.taken[a.from] = a.tr.Seq
	c.Collected = &a.tr
	c.EnvSteps += a.tr.EnvSteps
	c.Episodes += len(a.tr.Episodes)
	c.Epsilon = a.tr.Epsilon
}

// room says whether the learner has taken enough of what was sent. What it says
// of a number that was not sent is of an earlier run of this node.
func (x *exchange) room() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	taken := x.base
	if i := slices.Index(x.heard.Nodes, x.t.NodeID()); i >= 0 && x.heard.Taken[i] <= x.sent {
		taken = max(taken, x.heard.Taken[i])
	}
	return x.sent-taken < Ahead
}

// send tells the others what happened in this step.
func (x *exchange) send(ctx context.Context, c *Online) error {
	if x.collects && !x.learns && c.Collected != nil {
		x.mu.Lock()
		x.sent++
		c.Collected.Seq = x.sent
		x.mu.Unlock()
		err := Transitions.Emit(ctx, x.t, *c.Collected, task.OnlyRemote(), task.To(Learner))
		if err != nil {
			return err
		}
	}
	if x.learns {
		if err := emit(ctx, x.t, Progressed, x.report(c)); err != nil {
			return err
		}
	}
	if c.Eval != x.reported && x.t.Has(Evaluator) {
		x.reported = c.Eval
		if err := emit(ctx, x.t, Evaluated, c.Eval); err != nil {
			return err
		}
	}
	if c.Best != x.praised && x.t.Has(Evaluator) {
		x.praised = c.Best
		return emit(ctx, x.t, BestFound, *c.Best, Learner)
	}
	return nil
}

func (x *exchange) report(c *Online) Progress {
	p := Progress{Run: x.run, EnvSteps: c.EnvSteps, Episodes: c.Episodes, Updates: c.Updates}
	for node, seq := range x.taken {
		p.Nodes, p.Taken = append(p.Nodes, node), append(p.Taken, seq)
	}
	return p
}
