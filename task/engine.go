package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// engine is all of a task that does not depend on the type of its context.
type engine struct {
	node   Node
	id     int
	labels []string // of the node
	words  []string // labels and roles: what To matches
	roles  []string // nil: all
	known  []string // roles that the options speak of
	log    *slog.Logger
	bus    Bus
	cfg    *config
	d      *dispatcher

	loans sync.Pool // of *loan
	steps *atomic.Int64
	lag   atomic.Uint64 // bits of a float64

	subscriptions   atomic.Pointer[subscriptions]
	subscriptionsMu sync.Mutex // held to add a subscription

	state    atomic.Int32 // a life
	finished atomic.Bool
	closing  atomic.Bool // the end has begun: listeners are cut off at once
	drained  atomic.Bool // nothing more can be sent to other nodes
	busDown  atomic.Bool
	leaves   atomic.Bool // this node ends, and the others continue without it
	exits    atomic.Bool // a step or a hook has ended Run's goroutine

	base context.Context // of listeners; set by start

	mu         sync.Mutex
	outcome    Outcome
	waitAll    bool                    // under WaitForAll, with other nodes
	partly     bool                    // the outcome is a success of this node, and others are not done
	settle     context.CancelCauseFunc // ends the wait for them; nil outside of it
	err        error                   // of a Failure or Preempted outcome
	cancelRun  context.CancelCauseFunc // nil outside the step loop
	cancelBase context.CancelCauseFunc // nil before start
	graceTimer *time.Timer
	hooks      []hook
}

type hook func(context.Context, Outcome) error

// The lives of an engine.
const (
	fresh int32 = iota
	started
	closed
)

func newEngine(node Node, opts []Option) *engine {
	if node == nil {
		panic("task: New without a node")
	}
	e := &engine{
		node: node, id: node.ID(), labels: node.Labels(), log: node.Logger(), bus: node.Bus(),
		cfg: newConfig(opts), d: newDispatcher(),
	}
	e.subscriptions.Store(&subscriptions{})
	e.assignRoles(e.cfg)
	if e.bus != nil {
		if node.Codec() == nil {
			panic("task: node has a bus but no codec")
		}
		finishEvent.listen(e, e.receiveFinish, false, []ListenOption{Named("finish")})
		e.bus.Watch(e.peerChanged)
	}
	return e
}

func (e *engine) engine() *engine { return e }

// engineKey finds the engine in the contexts that it makes.
type engineKey struct{}

func engineOf(ctx context.Context) *engine {
	e, _ := ctx.Value(engineKey{}).(*engine)
	return e
}

// usable returns an error unless the task is between start and close.
func (e *engine) usable(call, event string) error {
	switch e.state.Load() {
	case fresh:
		return fmt.Errorf("%s %q: %w", call, event, ErrNotStarted)
	case closed:
		return fmt.Errorf("%s %q: %w", call, event, ErrClosed)
	}
	return nil
}

func (e *engine) sendable() error {
	if e.drained.Load() {
		return fmt.Errorf("to other nodes: %w", ErrClosed)
	}
	return nil
}

func (e *engine) peerIDs() []int {
	if e.bus == nil {
		return nil
	}
	var ids []int
	for _, p := range e.bus.Peers() {
		ids = append(ids, p.ID)
	}
	return ids
}

func (e *engine) peerChanged(c PeerChange) {
	if c.Err == nil {
		c.Err = fmt.Errorf("node.%d: no reason given", c.Peer.ID)
	}
	switch c.Event {
	case BusFailed:
		e.busDown.Store(true)
		e.fail(fmt.Errorf("bus: %w", c.Err))
	case PeerLost:
		// Once the job has succeeded it does not fail for a node that is gone: what that one had
		// not received is in the error of the bus's Close.
		if c.Fatal && !e.succeeded() {
			e.failFor(c.Err)
			return
		}
		e.log.Warn("node lost", "peer", c.Peer.ID, "err", c.Err)
	case PeerJoined, PeerLeft:
	}
}

// start connects, and returns when listeners receive events and every Latest value
// that the other nodes had has been received.
func (e *engine) start(ctx context.Context) error {
	if err := e.open(ctx); err != nil {
		return err
	}
	if e.bus == nil {
		return nil
	}
	if err := e.bus.Start(ctx, e.words); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	if err := e.d.await(ctx, e.latestReceived); err != nil {
		return fmt.Errorf("start: receive the newest values: %w", err)
	}
	return nil
}

// open makes the task usable: its listeners run from now on.
func (e *engine) open(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state.Load() {
	case started:
		return errStarted
	case closed:
		return fmt.Errorf("start: %w", ErrClosed)
	}
	e.base, e.cancelBase = context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), engineKey{}, e))
	if e.outcome.Kind == Failure {
		e.cancelBase(e.err)
	}
	e.d.start(e.base)
	e.state.Store(started)
	return nil
}

// latestReceived reports whether no Latest value waits to be delivered. d.mu is held.
func (e *engine) latestReceived() bool {
	for c, p := range e.subscriptions.Load().all {
		if c.policy == DeliverLatest && p.box().queued > 0 {
			return false
		}
	}
	return true
}

// logLate logs a message about what, if the function that it returns is not called for long.
func (e *engine) logLate(what string) (stop func()) {
	return newLate(func(waited time.Duration) {
		e.log.Warn(what, "node", e.id, "waited", waited, "peers", e.peerIDs(), "events", e.backlog())
	}).stop
}

// logBlocked logs that a listener holds the end of the run.
func (e *engine) logBlocked(b *mailbox, waited time.Duration) {
	event, listener := b.work.current()
	e.log.Warn("a listener blocks the end of the run: its context has ended",
		"event", event, "listener", listener, "node", e.id, "waited", waited)
}

// failDrain bounds how long a failed task waits for the others to learn of it.
const failDrain = 5 * time.Second

// end ends a started task, in this order:
//
//  1. the step loop has ended, and the outcome is decided;
//  2. the OnFinish hooks run (runHooks): they may emit, and see the outcome;
//  3. the outcome is sent to the other nodes, if it was decided here and is no
//     failure of a node that will be back; or, where they continue without this one,
//     they are asked for what they have for it, and that is received;
//  4. the bus is drained while listeners still run: what was emitted on either
//     side arrives. From here on a listener that blocks is cut off, so that it
//     holds no node's end: see [ListenerGrace];
//  5. the mailboxes are drained, unless the task failed; then listeners that wait
//     for what cannot come any more are cut off;
//  6. the bus is closed;
//  7. the runners are stopped.
//
// The error joins what went wrong on the way, after the outcome's own.
func (e *engine) end(ctx context.Context, tell bool) error {
	ctx = context.WithoutCancel(ctx)
	o, _ := e.result()
	e.closing.Store(true)
	most := e.cfg.drain
	if o.Kind == Preempted && e.bus != nil && e.bus.Grace() > 0 { // an error says more than being killed
		most = min(most, e.bus.Grace()/2)
	}
	limit := most
	if o.Kind == Failure {
		limit = min(limit, failDrain)
	}
	dctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("drain timeout of %v: %w", limit, context.DeadlineExceeded))
	defer cancel()
	e.d.watchEnd(min(e.cfg.listenerGrace, limit/2), limit/2, e.logBlocked)
	var errs []error
	if e.bus != nil && !e.busDown.Load() {
		errs = append(errs, e.drainBus(dctx, o, tell))
	}
	e.drained.Store(true)
	if o, _ = e.result(); o.Kind != Failure {
		errs = append(errs, e.drainBoxes(dctx))
	}
	e.state.Store(closed)
	if o, _ := e.result(); o.Kind != Failure { // after a failure it would be no news
		e.reportUnfed()
	}
	if e.bus != nil {
		leave := e.bus.Close
		if e.willBeBack() {
			leave = e.bus.Abandon
		}
		if err := leave(); err != nil {
			errs = append(errs, fmt.Errorf("close: %w", err))
		}
	}
	errs = append(errs, e.stopRunners(ctx, most))
	if rest := e.backlog(); rest != "" && o.Kind == Failure {
		e.log.Warn("events not delivered because the task failed", "node", e.id, "events", rest)
	}
	_, err := e.result()
	return errors.Join(append([]error{err}, errs...)...)
}

// willBeBack announces that this node has failed and will be started again.
func (e *engine) willBeBack() bool {
	o, _ := e.result()
	return o.Kind == Failure && o.Node == e.id && e.bus.Recovers()
}

func (e *engine) drainBus(ctx context.Context, o Outcome, tell bool) error {
	defer e.logLate("still waiting for events to arrive at the end")()
	var errs []error
	together := tell && (o.Kind == Success || o.Kind == Preempted)
	switch {
	case !tell || o.Node != e.id || e.willBeBack():
	case e.waitAll && o.Kind == Success: // the others are done too
	case e.leaves.Load():
		together = false
		errs = append(errs, e.leave(ctx))
	default:
		m := finishMessage{Kind: uint8(o.Kind), Node: o.Node, Reason: o.Reason}
		errs = append(errs, finishEvent.Emit(ctx, e, m, OnlyRemote()))
	}
	if err := e.bus.Drain(ctx, together); err != nil {
		errs = append(errs, fmt.Errorf("drain: %w", err))
	}
	return errors.Join(errs...)
}

// leave receives all messages that the others have for this node, which they continue without.
func (e *engine) leave(ctx context.Context) error {
	if err := e.bus.Leave(ctx); err != nil {
		return err
	}
	if err := e.d.await(ctx, e.d.quiet); err != nil {
		return fmt.Errorf("leave: %w (%s)", err, e.backlog())
	}
	return nil
}

// drainBoxes waits until every message was delivered. Listeners that then still wait
// for events are cut off.
func (e *engine) drainBoxes(ctx context.Context) error {
	defer e.logLate("still waiting for listeners at the end")()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.base, func() { cancel(context.Cause(e.base)) })()
	err := e.d.await(ctx, e.d.quiet)
	if err == nil {
		e.cancelBase(ErrFinished)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.cfg.drain)
		defer cancel()
		err = e.d.await(ctx, e.d.empty)
	}
	if err == nil {
		return nil
	}
	if o, _ := e.result(); o.Kind == Failure {
		return nil // a listener failed meanwhile: that is the error
	}
	return fmt.Errorf("drain mailboxes: %w (%s)", err, e.backlog())
}

// stopRunners cuts off the listeners' context and waits for the runners.
func (e *engine) stopRunners(ctx context.Context, limit time.Duration) error {
	e.cancelBase(ErrFinished)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if e.d.stop(ctx) != nil {
		return fmt.Errorf("close: a listener did not return within %v of the end of its context (%s)", limit, e.backlog())
	}
	return nil
}

// runHooks runs the OnFinish hooks. An error of one makes the task fail.
func (e *engine) runHooks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, engineKey{}, e), e.cfg.hooks)
	defer cancel()
	var errs []error
	o, _ := e.result()
	for h := e.nextHook(); h != nil; h = e.nextHook() {
		if err := e.runHook(ctx, h, o); err != nil {
			errs = append(errs, fmt.Errorf("on finish: %w", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		e.failAlso(err)
	}
}

func (e *engine) nextHook() (h hook) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.hooks) > 0 {
		h, e.hooks = e.hooks[0], e.hooks[1:]
	}
	return h
}

func (e *engine) runHook(ctx context.Context, h hook, o Outcome) (err error) {
	returned := false
	defer catch(ctx, func() string { return funcName(h) }, &err, &returned, e.exited)
	err = h(ctx, o)
	returned = true
	return err
}

// exited fails the task whose Run cannot return any more.
func (e *engine) exited(err error) {
	e.fail(err)
	e.exits.Store(true)
}
