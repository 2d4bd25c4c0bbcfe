package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
)

// Task runs a chain of middleware over a context of type C, and owns this node's
// events. Make one with [New].
type Task[C any] struct {
	en       *engine
	renewal  *renewal[C]
	ms       []Middleware[C]
	wrappers []Wrapper[C]
	ran      atomic.Bool
	steps    atomic.Int64
	max      int64 // total steps at which the run ends
	frame    *frame[C]
}

// New makes a task on a node. It does no I/O and starts nothing. Fields of C with
// the tag `task:"keep"` survive the renewal of the context. A node carries one task,
// alone and in a job: a second New on it panics. To train and then evaluate, do both in
// one task, by step or by role, or run two jobs.
func New[C any](node Node, opts ...Option) *Task[C] {
	if c, ok := node.(Claimer); ok && !c.Claim() {
		panic(fmt.Sprintf("task: New: node.%d carries one task, and has had it: "+
			"do all in one task, by step or by role, or run a second job", node.ID()))
	}
	t := &Task[C]{en: newEngine(node, opts), renewal: newRenewal[C]()}
	t.en.steps = &t.steps
	if o, ok := node.(Observer); ok {
		o.Observe(t.en.snapshot)
	}
	return t
}

func (t *Task[C]) engine() *engine { return t.en }

// Use appends middleware to the chain.
func (t *Task[C]) Use(m ...Middleware[C]) {
	t.assembling("Use")
	for _, m := range m {
		if m == nil {
			panic("task: Use of a nil middleware")
		}
	}
	t.ms = append(t.ms, m...)
}

// UseFor appends what build returns if this node has the role. Where it lacks
// it, build is not called and the chain has nothing of it.
func (t *Task[C]) UseFor(role string, build func() Middleware[C]) {
	t.assembling("UseFor")
	if t.Has(role) {
		t.Use(build())
	}
}

// Wrap puts w around every middleware of the chain, those used before and after
// it. The one added last is outermost. A group counts as one middleware.
func (t *Task[C]) Wrap(w Wrapper[C]) {
	t.assembling("Wrap")
	if w == nil {
		panic("task: Wrap with a nil wrapper")
	}
	t.wrappers = append(t.wrappers, w)
}

func (t *Task[C]) assembling(call string) {
	if t.ran.Load() {
		panic("task: " + call + " after Run")
	}
}

// Has reports whether this node has the role. It has all while it was given none.
func (t *Task[C]) Has(role string) bool { return t.en.has(role) }

// Roles returns the roles that this node was given; nil means all.
func (t *Task[C]) Roles() []string { return slices.Clone(t.en.roles) }

// Match reports whether any of the patterns matches any label of this node: a star
// stands for any characters, a question mark for one.
func (t *Task[C]) Match(patterns ...string) bool { return matchAny(patterns, t.en.labels) }

// Labels returns the labels of this node.
func (t *Task[C]) Labels() []string { return slices.Clone(t.en.labels) }

// NodeID returns the id of this node.
func (t *Task[C]) NodeID() int { return t.en.id }

// Logger returns the logger of this node.
func (t *Task[C]) Logger() *slog.Logger { return t.en.log }

// Keep makes fields of the context survive its renewal, from now on for good. It
// may be called by a middleware. A field that C does not have panics.
func (t *Task[C]) Keep(fields ...string) {
	for _, f := range fields {
		t.renewal.keep(f)
	}
}

// Defaults sets the context before the first step and after each renewal.
func (t *Task[C]) Defaults(c C) {
	t.assembling("Defaults")
	*t.renewal.proto = c
	*t.renewal.c = c
}

// Context returns the context: one pointer for the life of the task. Outside a
// step, and after Run, it is the caller's alone.
func (t *Task[C]) Context() *C { return t.renewal.c }

// Steps returns the number of steps that have been completed.
func (t *Task[C]) Steps() int { return int(t.steps.Load()) }

// ReportLag records the age of the data that this node works with, in versions behind the
// newest: the live table shows it. It has no other effect.
func (t *Task[C]) ReportLag(versions float64) { t.en.lag.Store(math.Float64bits(versions)) }

// Finish ends the run with success, after the present step, on all nodes of the job. The first finish
// counts, and is logged.
func (t *Task[C]) Finish(reason string) {
	if t.en.succeed(reason) {
		t.en.log.Info("finished", "reason", reason)
	}
}

// Fail ends the run with err, which must not be nil; the context of the present
// step ends at once. The other nodes end with a [*RemoteError].
func (t *Task[C]) Fail(err error) {
	if err == nil {
		panic("task: Fail with a nil error")
	}
	t.en.fail(err)
}

// Preempt ends the job as preempted; the context of the present step ends at
// once. Run returns a [*PreemptError], here and on the other nodes. A node that is
// to end alone has its run's context cancelled, see [PreemptError].
func (t *Task[C]) Preempt(reason string) {
	t.en.preempt(&PreemptError{Node: t.en.id, Reason: reason})
}

// Finished reports whether the run is to end: it is true from Finish, Fail or
// Preempt on, and in the last step of MaxSteps before the first backward half.
func (t *Task[C]) Finished() bool { return t.en.finished.Load() }

// Outcome returns how the task ended, or that it is running.
func (t *Task[C]) Outcome() Outcome {
	o, _ := t.en.result()
	return o
}

// OnFinish adds a hook that is called once at the end of Run, however it came,
// unless the task could not be started. Hooks run in the order in which they were
// added, before the task is drained, so they may emit. Their ctx does not end
// with Run's, but after [HookTimeout]. An error of one makes the run fail.
func (t *Task[C]) OnFinish(fn func(ctx context.Context, o Outcome) error) {
	t.en.mu.Lock()
	defer t.en.mu.Unlock()
	t.en.hooks = append(t.en.hooks, fn)
}

// Off ends the listeners of all events whose name matches glob. It is no error if none does.
func (t *Task[C]) Off(glob string) {
	for c, p := range t.en.subscriptions.Load().all {
		if !c.internal && matchAny([]string{glob}, []string{c.name}) {
			p.off()
		}
	}
}

// Stats returns the statistics of each event on this task, by name.
func (t *Task[C]) Stats() []EventStats {
	all := t.en.stats()
	t.en.unsent(all)
	return all
}

// Start connects to the other nodes and returns when all are ready: from then on
// events can be emitted and waited for. Run calls it if it was not called.
func (t *Task[C]) Start(ctx context.Context) error {
	err := t.en.start(ctx)
	if err != nil && t.en.state.Load() == started && !errors.Is(err, errStarted) {
		return t.abort(ctx, err)
	}
	return err
}

// abort closes a task that could not be started.
func (t *Task[C]) abort(ctx context.Context, err error) error {
	t.en.busDown.Store(true) // nothing is left to notify
	if pe, ok := errors.AsType[*PreemptError](context.Cause(ctx)); ok {
		t.en.preempt(pe)
	} else {
		t.en.fail(err)
	}
	return t.en.end(ctx, false)
}

// Close ends a task that was started but is not run: events emitted before are delivered, up to the
// drain timeout. Otherwise it does nothing: Run closes by itself.
func (t *Task[C]) Close(ctx context.Context) error {
	if !t.ran.CompareAndSwap(false, true) {
		return nil
	}
	if t.en.state.CompareAndSwap(fresh, closed) {
		if t.en.bus != nil {
			return t.en.bus.Close()
		}
		return nil
	}
	if t.en.state.Load() == closed {
		return nil
	}
	return t.en.end(ctx, false)
}

// Run starts the task if it is not, and runs step after step until MaxSteps,
// Finish, an error, or the end of ctx; a chain without middleware returns at
// once. The first success of a node ends the job on all nodes, unless [WaitForAll] says
// otherwise. It then closes the task: see [Task.OnFinish] for what runs before. The
// error is nil after success, wraps [ErrPreempted] after a preemption, is a
// [*RemoteError] if another node failed, and wraps ctx's cause if that ended it.
func (t *Task[C]) Run(ctx context.Context, opts ...RunOption) error {
	if !t.ran.CompareAndSwap(false, true) {
		return errRan
	}
	cfg := runConfig{max: math.MaxInt}
	for _, o := range opts {
		o(&cfg)
	}
	t.max = int64(cfg.max)
	t.build()
	if cfg.all {
		t.en.waitForAll()
	}
	if t.en.state.Load() == fresh || t.en.state.Load() == closed {
		if err := t.Start(ctx); err != nil {
			return err
		}
	}
	tell := cfg.all || len(t.ms) > 0
	defer t.exit(ctx, tell)
	t.loop(ctx)
	return t.finish(ctx, tell)
}

// finish waits for the other nodes under [WaitForAll], runs the hooks and ends the task.
func (t *Task[C]) finish(ctx context.Context, tell bool) error {
	t.en.awaitAll(ctx)
	t.en.runHooks(context.WithoutCancel(ctx))
	return t.en.end(ctx, tell)
}

// exit finishes a Run whose goroutine a step or a hook has ended. The error has no
// caller that it could be returned to: the node takes it, or else the log.
func (t *Task[C]) exit(ctx context.Context, tell bool) {
	if !t.en.exits.Swap(false) {
		return
	}
	defer t.exit(ctx, tell) // one of the remaining hooks may do the same
	err := t.finish(ctx, tell)
	if x, ok := t.en.node.(Exiter); !ok || !x.RunExited(err) {
		t.en.log.Error("run does not return", "node", t.en.id, "err", err)
	}
}

func (t *Task[C]) build() {
	links := newLinks(t.ms)
	for _, w := range t.wrappers {
		for i := range links {
			if links[i].m = w(links[i].name, links[i].m); links[i].m == nil {
				panic("task: a wrapper returned nil for " + links[i].name)
			}
		}
	}
	t.frame = newFrame(links)
	t.frame.c = t.renewal.c
	t.frame.rest = t.turn
}

// turn is the innermost point of a step: all forwards have run, no backward has.
func (t *Task[C]) turn(context.Context) error {
	if t.steps.Load()+1 >= t.max {
		t.en.succeed("max steps")
	}
	return nil
}

// loop runs steps and settles the outcome.
func (t *Task[C]) loop(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, engineKey{}, t.en))
	defer cancel(nil)
	t.en.attach(cancel)
	defer t.en.detach()
	switch {
	case len(t.ms) == 0:
		t.en.succeed("no middleware")
	case t.max == 0:
		t.en.succeed("max steps")
	}
	var err error
	for err == nil && !t.en.finished.Load() && ctx.Err() == nil {
		err = t.step(ctx)
	}
	t.en.stopped(ctx, err)
}
