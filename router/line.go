package router

import (
	"errors"
	"fmt"
	"slices"
)

// waiter is the place of one message, whose sender is blocked, in the line of a stream. The session's
// mutex guards it. The goroutine that makes room sends the first messages of the line; the senders
// themselves would do so in any order.
type waiter struct {
	pending // the sender's payload, which it keeps until the end of the wait
	o       *outStream
	sent    bool
	over    chan struct{} // closed when the message is sent, or the line has gone
}

// wait puts a message into the line.
func (o *outStream) wait(version uint64, payload Buffer) *waiter {
	w := &waiter{pending: pending{version, payload}, o: o, over: make(chan struct{})}
	o.line = append(o.line, w)
	o.s.waiting++
	return w
}

// admit sends what waits and has room now. Nothing follows the end that this node has
// announced: the senders see that by themselves.
func (o *outStream) admit() {
	n := 0
	for ; n < len(o.line) && o.s.finSeq == 0 && o.open(); n++ {
		w := o.line[n]
		o.put(w.version, w.payload)
		w.sent = true
		close(w.over)
	}
	o.line = slices.Delete(o.line, 0, n)
	o.s.waiting -= n
}

// dismiss ends all waits, as the peer does not listen any more or has gone.
func (o *outStream) dismiss() {
	for _, w := range o.line {
		close(w.over)
	}
	o.s.waiting -= len(o.line)
	o.line = nil
}

// end returns the outcome of the message. If it still waits, it leaves the line, and end returns why.
// The loss of the peer is an error.
func (w *waiter) end(why error) (sending, error) {
	o, s := w.o, w.o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(o.line, w); i >= 0 {
		o.line = slices.Delete(o.line, i, i+1)
		s.waiting--
		return noRoom, why
	}
	switch {
	case w.sent:
		return sent, nil
	case s.err != nil && !errors.Is(s.err, errLeft):
		return notSent, fmt.Errorf("event %q: %w", o.ch.spec.Name, s.err)
	}
	return notSent, nil
}
