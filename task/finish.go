package task

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Kind describes how a task ended.
type Kind uint8

// The kinds of an outcome.
const (
	Running   Kind = iota // it has not ended
	Success               // by MaxSteps or Finish, here or on another node
	Failure               // by an error, here or on another node
	Preempted             // it was asked to end, and may be continued later
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Running:
		return "running"
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Preempted:
		return "preempted"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Outcome is the end of a task, and its reason.
type Outcome struct {
	Kind   Kind
	Node   int    // id of the node that ended it
	Reason string // such as "max steps", or the text of an error
}

// finishEvent announces the end of the job to its other nodes.
var finishEvent = &Event[finishMessage]{core: eventCore{name: "ditask.finish", internal: true}}

// maxReason bounds in bytes the reason of another node: the text of an error, with the
// beginning of a stack.
const maxReason = 8 << 10

type finishMessage struct {
	Kind   uint8
	Node   int
	Reason string
}

// decide sets the outcome. The first one stays, except that a failure replaces a
// success or a preemption, and that anything of another node, and a preemption, replaces
// the success of this node while that waits for others. decide reports whether o is it.
func (e *engine) decide(o Outcome, err error, cut error, after time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	open := e.outcome.Kind == Running || e.partly && (o.Kind != Success || o.Node != e.id)
	if !open && (o.Kind != Failure || e.outcome.Kind == Failure) {
		return false
	}
	e.outcome, e.err = o, err
	e.partly = e.waitAll && o.Kind == Success && o.Node == e.id
	if e.settle != nil {
		e.settle(cut)
	}
	e.finished.Store(true)
	e.cut(cut, after)
	if o.Kind == Failure && e.cancelBase != nil {
		e.cancelBase(err)
	}
	return true
}

// cut ends the context of the step that runs.
// e.mu is held.
func (e *engine) cut(cause error, after time.Duration) {
	if e.cancelRun == nil {
		return
	}
	if after == 0 {
		e.cancelRun(cause)
		return
	}
	cancel := e.cancelRun
	e.graceTimer = time.AfterFunc(after, func() { cancel(cause) })
}

// attach sets the function that ends the run's context. Where the task has finished before, no step
// runs.
func (e *engine) attach(cancel context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelRun = cancel
}

// detach stops the effects of attach and cut.
func (e *engine) detach() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancelRun = nil
	if e.graceTimer != nil {
		e.graceTimer.Stop()
	}
}

func (e *engine) succeed(reason string) bool {
	return e.decide(Outcome{Kind: Success, Node: e.id, Reason: reason}, nil, ErrFinished, e.cfg.grace)
}

func (e *engine) fail(err error) {
	e.decide(Outcome{Kind: Failure, Node: e.id, Reason: err.Error()}, err, err, 0)
}

// failFor is fail for the loss of a peer. If that is the failure of a node of which all
// nodes know, they get no second message about it.
func (e *engine) failFor(err error) {
	if remote, ok := errors.AsType[*RemoteError](err); ok {
		e.decide(Outcome{Kind: Failure, Node: remote.Node, Reason: remote.Reason}, err, err, 0)
		return
	}
	e.fail(err)
}

// failAlso is fail, but adds err to the error of a failure that came before.
func (e *engine) failAlso(err error) {
	e.fail(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !errors.Is(err, e.err) && !errors.Is(e.err, err) {
		e.err = errors.Join(e.err, err)
	}
}

// preempt ends the job as preempted, and reports whether that is its outcome.
func (e *engine) preempt(err *PreemptError) bool {
	return e.decide(Outcome{Kind: Preempted, Node: e.id, Reason: err.Reason}, err, err, 0)
}

// waitForAll puts the run under [WaitForAll]. Listeners run before the run's start has
// returned, so this node may have finished already.
func (e *engine) waitForAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waitAll = e.bus != nil
	e.partly = e.waitAll && e.outcome.Kind == Success && e.outcome.Node == e.id
}

// awaitAll waits until the other nodes are done, if this one is done and must wait for them. It also
// ends when the outcome is replaced, and with ctx.
func (e *engine) awaitAll(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e.mu.Lock()
	wait := e.partly
	e.settle = cancel
	e.mu.Unlock()
	if !wait {
		return
	}
	err := e.bus.Done(ctx)
	if err == nil { // what the others emitted before may be answered: the drain allows no more emits
		actx, stop := context.WithTimeout(ctx, e.cfg.grace)
		_ = e.d.await(actx, e.d.quiet)
		stop()
	}
	e.mu.Lock()
	mine := e.partly
	e.settle = nil
	e.mu.Unlock()
	switch {
	case !mine || err == nil:
	case ctx.Err() != nil:
		e.interrupted(context.Cause(ctx))
	default:
		e.fail(fmt.Errorf("run: %w", err))
	}
	e.mu.Lock()
	e.partly = false
	e.mu.Unlock()
}

// succeeded reports whether the job has succeeded, and so does not fail any more for a
// node that is gone.
func (e *engine) succeeded() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outcome.Kind == Success && !e.partly
}

// succeededAlone reports whether this node is done and others are not, under [WaitForAll].
func (e *engine) succeededAlone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.partly
}

// receiveFinish ends this task on the announcement of another node.
func (e *engine) receiveFinish(_ context.Context, m finishMessage) error {
	m.Reason = printable.Block(m.Reason, maxReason)
	o := Outcome{Kind: Kind(m.Kind), Node: m.Node, Reason: m.Reason}
	switch o.Kind {
	case Success:
		e.decide(o, nil, ErrFinished, 0)
	case Preempted:
		err := &PreemptError{Node: m.Node, Reason: m.Reason}
		e.decide(o, err, err, 0)
	case Failure:
		err := &RemoteError{Node: m.Node, Reason: m.Reason}
		e.decide(o, err, err, 0)
	default:
		return fmt.Errorf("node %d finished with unknown kind %d", m.Node, m.Kind)
	}
	return nil
}

func (e *engine) result() (Outcome, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.outcome, e.err
}

// stopped settles the outcome when the step loop has ended.
func (e *engine) stopped(ctx context.Context, stepErr error) {
	if stepErr != nil && !isCut(ctx, stepErr) {
		e.failAlso(stepErr)
		return
	}
	if e.finished.Load() {
		return
	}
	e.interrupted(context.Cause(ctx))
}

// interrupted settles the outcome when the caller has ended the run.
func (e *engine) interrupted(cause error) {
	if pe, ok := errors.AsType[*PreemptError](cause); ok {
		e.leaves.Store(e.preempt(pe) && e.bus != nil && e.bus.Elastic())
		return
	}
	e.fail(fmt.Errorf("run: %w", cause))
}

// isCut reports whether a step's error comes from the end of the run's context, and
// so is none of its own.
func isCut(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()) || errors.Is(err, ErrFinished))
}
