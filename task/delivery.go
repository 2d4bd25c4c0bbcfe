package task

import (
	"context"
	"errors"
	"runtime/debug"
)

// delivery is the context of a listener's call. One serves all calls that a
// runner makes for one event, so that a delivery allocates nothing.
type delivery struct {
	context.Context
	r       *runner
	from    int
	version uint64
}

type deliveryKey struct{}

func (dv *delivery) Value(key any) any {
	if _, ok := key.(deliveryKey); ok {
		return dv
	}
	return dv.Context.Value(key)
}

func deliveryOf(ctx context.Context) *delivery {
	dv, _ := ctx.Value(deliveryKey{}).(*delivery)
	return dv
}

// runnerOf returns the runner that calls the listener which ctx belongs to, or
// nil outside listeners and for a listener of another task.
func runnerOf(ctx context.Context, d *dispatcher) *runner {
	if dv := deliveryOf(ctx); dv != nil && dv.r.d == d {
		return dv.r
	}
	return nil
}

// Sender returns the id of the node that emitted the event being delivered, or -1 if
// ctx is not that of a listener's call. It is valid during the call only.
func Sender(ctx context.Context) int {
	if dv := deliveryOf(ctx); dv != nil {
		return dv.from
	}
	return -1
}

// Version returns the number of the event being delivered among those of its sender
// and name, from 1, or 0 if ctx is not that of a listener's call. It is valid
// during the call only. On every node the numbers of one sender's events of one name rise
// in the order in which they are received, also where several goroutines of the sender emit at
// once.
func Version(ctx context.Context) uint64 {
	if dv := deliveryOf(ctx); dv != nil {
		return dv.version
	}
	return 0
}

// recovered reports a panic of the listener that r was calling. Without a value
// the listener ended its goroutine, as runtime.Goexit does: then r continues in another.
func (r *runner) recovered(v any) {
	w := r.claim[r.at].box.work
	if v == nil {
		w.panicked(errExited("the listener"), nil)
		r.d.wg.Add(1) // before the wg.Done of this goroutine
		go r.resume()
		return
	}
	w.panicked(panicValue(v), debug.Stack())
}

// failed reports the error or panic of a listener. An isolated listener is dropped, and failed returns
// true; any other ends the task.
func (e *engine) failed(l *Listener, err error, stack []byte) (dropped bool) {
	if e.cutOff(err) {
		e.log.Debug("listener cut off at the end of the run", "event", l.event, "listener", l.name, "err", err)
		return false
	}
	le := &ListenerError{Event: l.event, Listener: l.name, Err: err, Stack: stack}
	if l.isolated || e.cfg.isolate {
		l.Off()
		e.log.Error("isolated listener dropped", "event", l.event, "listener", l.name, "err", le)
		return true
	}
	e.fail(le)
	return false
}

// cutOff reports whether a listener has returned err because the run ends. A node that is done and
// waits for the others cuts no listener off, but a wait for them may be without success.
func (e *engine) cutOff(err error) bool {
	if errors.Is(err, ErrClosed) && e.succeededAlone() {
		return true
	}
	return e.closing.Load() && (errors.Is(err, ErrFinished) || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled))
}
