package rl

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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

// ExchangeConfig describes how nodes work together. The zero value lets each go
// on at its own pace.
type ExchangeConfig struct {
	// Synchronous, if not 0, is the number of nodes in the job, which then go in
	// step: in each step the learner takes one trajectory of every collector, in
	// the order of their ids, and hears the evaluator; the next step of those
	// uses the weights and counters of that step. The same seeds then give the
	// same numbers, at the price that everybody waits for the slowest. The job
	// must have exactly one learner, which neither collects nor evaluates.
	Synchronous int
}

// ExchangeContext carries counters and transitions between nodes: a collector's
// to the learner, the learner's progress and the evaluator's results to all. It
// must be the first middleware of a task.
//
// On a learner that does not collect, a step begins by waiting for a trajectory.
// On a collector that does not learn, it begins by waiting for a learner, and until
// that has taken all but the last few of what was sent to it. A learner that is
// restarted is sent new ones. On a lone node it does nothing.
func ExchangeContext(t *task.Task[Online], cfg ...ExchangeConfig) task.Middleware[Online] {
	t.Context().job = &job{t: t}
	t.Keep("job")
	if alone(t) {
		return task.Step(func(context.Context, *Online) error { return nil })
	}
	x := &exchange{
		t: t, learns: t.Has(Learner), sends: t.Has(Collector), ahead: Ahead,
		taken: map[int]uint64{}, run: rand.Uint64() | 1, changed: make(chan struct{}, 1),
	}
	x.collects = x.sends
	if len(cfg) > 0 && cfg[0].Synchronous > 0 {
		x.peers, x.ahead, x.sends = cfg[0].Synchronous-1, 1, true
		t.Context().job.synchronous = true
	}
	x.listen()
	return func(ctx context.Context, c *Online, next task.Next) error { return x.step(ctx, c, next) }
}

func (x *exchange) listen() {
	t := x.t
	if x.learns {
		x.sends = false
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
	// In step, the learner is told with the trajectory, at a certain time.
	if inStep := x.learns && x.peers > 0; !inStep && !t.Has(Evaluator) {
		Evaluated.On(t, x.evaluated)
	}
}

type arrival struct {
	from int
	tr   Trajectory
}

type exchange struct {
	t                *task.Task[Online]
	learns, collects bool
	sends            bool   // trajectories to the learner
	ahead            uint64 // as in Ahead
	peers            int    // nodes that the learner goes in step with, or 0
	inbox            chan arrival
	over             chan struct{} // closed when nothing more is learned
	run              uint64
	began            bool           // the first step has
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
	if x.learns && !x.began {
		// The others send nothing before they have heard of this learner: what
		// they sent to one that has died counts no more.
		if err := emit(ctx, x.t, Progressed, x.report(c)); err != nil {
			return err
		}
	}
	x.began = true
	if err := x.receive(ctx, c); err != nil {
		return err
	}
	x.hear(c)
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
	case x.peers > 0 && x.learns:
		return x.gather(ctx, c)
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
	case x.sends:
		return x.awaitRoom(ctx)
	}
	return nil
}

func (x *exchange) awaitRoom(ctx context.Context) error {
	if x.room() {
		return nil
	}
	return waitFor(ctx, x.t, "the learner to take what was sent", x.changed, func(struct{}) bool { return x.room() })
}

// gather takes one trajectory of every other node, in the order of their ids.
func (x *exchange) gather(ctx context.Context, c *Online) error {
	got := make(map[int]arrival, x.peers)
	err := waitFor(ctx, x.t, "all nodes that go in step", x.inbox, func(a arrival) bool {
		got[a.from] = a
		return len(got) == x.peers
	})
	if err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(got)) {
		x.take(c, got[node])
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

// take makes a trajectory part of what this step learns from.
func (x *exchange) take(c *Online, a arrival) {
	x.taken[a.from] = a.tr.Seq
	if a.tr.Eval.Episodes > 0 {
		c.Eval = a.tr.Eval
	}
	c.Stopped = c.Stopped || a.tr.Stopped
	if a.tr.Collects == 0 {
		return // only a word of the evaluator
	}
	c.EnvSteps += a.tr.EnvSteps
	c.Episodes += len(a.tr.Episodes)
	c.Epsilon = a.tr.Epsilon
	c.collected(&a.tr)
}

// room says whether there is a learner and it has taken enough of what was sent.
// What it says of a number that was not sent is of an earlier run of this node.
func (x *exchange) room() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heard.Run == 0 {
		return false
	}
	taken := x.base
	if i := slices.Index(x.heard.Nodes, x.t.NodeID()); i >= 0 && x.heard.Taken[i] <= x.sent {
		taken = max(taken, x.heard.Taken[i])
	}
	return x.sent-taken < x.ahead
}

// send tells the others what happened in this step.
func (x *exchange) send(ctx context.Context, c *Online) error {
	if x.sends && (c.Collected != nil || x.peers > 0) {
		if err := x.deliver(ctx, c); err != nil {
			return err
		}
	}
	if x.learns && c.Stopped {
		x.t.Finish(fmt.Sprintf("the evaluator is content with a mean return of %.1f over %d episodes", c.Eval.Mean, c.Eval.Episodes))
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

// deliver sends what was collected to the learner.
func (x *exchange) deliver(ctx context.Context, c *Online) error {
	tr := c.Collected
	if tr == nil {
		tr = new(Trajectory)
	}
	x.mu.Lock()
	x.sent++
	tr.Seq = x.sent
	x.mu.Unlock()
	if x.peers > 0 && x.t.Has(Evaluator) {
		tr.Eval, tr.Stopped = c.Eval, c.Stopped
	}
	err := Transitions.Emit(ctx, x.t, *tr, task.OnlyRemote(), task.To(Learner))
	if err != nil || x.peers == 0 {
		return err
	}
	// In step, this step ends after the learner's, so that a node which ends
	// the run by its number of steps does not cut the learner's short.
	return x.awaitRoom(ctx)
}

func (x *exchange) report(c *Online) Progress {
	p := Progress{Run: x.run, EnvSteps: c.EnvSteps, Episodes: c.Episodes, Updates: c.Updates}
	for node, seq := range x.taken {
		p.Nodes, p.Taken = append(p.Nodes, node), append(p.Taken, seq)
	}
	return p
}
