package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Expectation is a wait for one message that began before the message could be
// emitted. Make one with [Event.Expect]; it is over when the message is here, or at
// Stop.
type Expectation[T any] struct {
	p       *subscription[T]
	l       *listener[T]
	got     chan struct{} // closed when v is set
	v       T
	stopped chan struct{} // closed by Stop
	once    sync.Once

	waiters []*runner // whose listeners are in Wait; guarded by dispatcher.mu
}

// errStopped is the cause of a wait that ended by Stop.
var errStopped = errors.New("the wait was stopped")

// Expect begins to wait for the next message of the event that arrives here and that
// every match accepts. Call it before what makes another node emit the message, then
// Wait:
//
//	answer := Pong.Expect(t)
//	defer answer.Stop()
//	if err := Ping.Emit(ctx, t, ball); err != nil {
//		return err
//	}
//	ball, err := answer.Wait(ctx)
//
// A node that receives an event which was emitted here after Expect knows that this node
// listens, so the answer that it emits arrives. A further node does not: if the
// node that was asked has a third one answer, use [Event.On], or Expect before Start.
//
// A match is called with the context of a listener, see [Sender], and must be quick.
// Like [Event.On], Expect panics for a payload type that cannot travel, and for a name
// that another Event has on this task.
func (e *Event[T]) Expect(h Host, match ...func(ctx context.Context, v T) bool) *Expectation[T] {
	p, err := e.subscription(h.engine())
	if err != nil {
		panic("task: expect: " + err.Error())
	}
	return p.expect(match)
}

func (p *subscription[T]) expect(match []func(context.Context, T) bool) *Expectation[T] {
	w := &Expectation[T]{p: p, got: make(chan struct{}), stopped: make(chan struct{})}
	w.l = &listener[T]{Listener: Listener{event: p.core.name, name: "wait", waiter: true}}
	w.l.fn = func(ctx context.Context, v T) error {
		for _, m := range match {
			if !m(ctx, v) {
				return nil
			}
		}
		if w.l.gone.CompareAndSwap(false, true) {
			w.v = v
			w.arrived()
			p.remove(w.l)
		}
		return nil
	}
	p.add(w.l)
	return w
}

// Wait waits for the message and returns its payload, at once if it is here already.
// It may be called again, and by several goroutines: all get the same one. When ctx
// or the task ends first, or Stop is called, it returns a [*WaitError]. After an end
// of ctx the message is still expected.
func (w *Expectation[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-w.got:
		return w.v, nil
	default:
	}
	var zero T
	en := w.p.en
	if err := en.usable("wait for", w.p.core.name); err != nil {
		return zero, err
	}
	r := w.enter(ctx)
	defer w.leave(r)
	say := newLate(func(waited time.Duration) {
		en.log.Warn("still waiting for an event", "event", w.p.core.name, "waited", waited, "from", senders(en.id, en.peerIDs()))
	})
	defer say.stop()
	var cause error
	select {
	case <-w.got:
	case <-w.stopped:
		cause = errStopped
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case <-en.base.Done():
		cause = context.Cause(en.base)
	}
	select {
	case <-w.got: // perhaps in this very moment
		return w.v, nil
	default:
		return zero, &WaitError{Event: w.p.core.name, Node: en.id, Peers: en.peerIDs(), Err: cause}
	}
}

// enter makes way for other listeners if ctx is that of a listener's call, which then
// counts as one that waits. It returns its runner, or nil.
func (w *Expectation[T]) enter(ctx context.Context) *runner {
	d := w.p.en.d
	r := runnerOf(ctx, d)
	if r == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-w.got:
		return nil
	default:
	}
	d.handOff(r)
	r.waiting++
	w.waiters = append(w.waiters, r)
	d.note()
	return r
}

// leave ends the effect of enter, unless the message has.
func (w *Expectation[T]) leave(r *runner) {
	if r == nil {
		return
	}
	d := w.p.en.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(w.waiters, r); i >= 0 {
		w.waiters = slices.Delete(w.waiters, i, i+1)
		r.endWait()
	}
}

// arrived lets all waits continue. From now on their listeners do not count as waiting, even if they
// have not continued yet: at the end of a run they are not cut off as those whose wait is without
// success.
func (w *Expectation[T]) arrived() {
	d := w.p.en.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range w.waiters {
		r.endWait()
	}
	w.waiters = nil
	close(w.got)
}

// endWait records that a wait of r's listener is over. d.mu is held.
func (r *runner) endWait() {
	r.waiting--
	r.moves.Add(1)
}

// Stop ends the wait: no message is taken after it. Wait still returns a message that has arrived.
// Stop may be called any number of times.
func (w *Expectation[T]) Stop() {
	w.once.Do(func() {
		w.l.Off()
		close(w.stopped)
	})
}

// WaitFor waits for the next message of the event that arrives here and returns
// its payload. When ctx or the task ends first, it returns a [*WaitError].
//
// Only messages count that are emitted once this call has begun and the other nodes
// know of it. To emit a question and then call WaitFor loses an answer that comes
// sooner: use [Event.Expect] before the emit.
func (e *Event[T]) WaitFor(ctx context.Context, h Host) (T, error) {
	var zero T
	en := h.engine()
	if err := en.usable("wait for", e.core.name); err != nil {
		return zero, err
	}
	p, err := e.subscription(en)
	if err != nil {
		return zero, fmt.Errorf("wait for: %w", err)
	}
	w := p.expect(nil)
	defer w.Stop()
	return w.Wait(ctx)
}
