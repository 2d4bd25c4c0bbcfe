package router

import (
	"errors"
	"fmt"
	"time"
)

// backoff is the wait between two calls of an address, from 5 ms to 1 s: an
// eighth of the time for which they have failed, so that the end of an outage is
// noticed soon in proportion to it.
type backoff struct{ since time.Time }

func (b *backoff) next() time.Duration {
	if b.since.IsZero() {
		b.since = time.Now()
	}
	return min(max(time.Since(b.since)/8, 5*time.Millisecond), time.Second)
}

// keepCalling sees to the connection with the node at an attach address, for as
// long as the router is open: a node that is restarted is found there again.
func (r *Router) keepCalling(addr string) {
	var wait backoff
	for r.ctx.Err() == nil {
		l, err := r.call(r.ctx, addr, -1)
		if l != nil {
			r.note(func() { r.attached[addr] = l.s.peer.ID; delete(r.trouble, addr) })
		}
		if !r.afterCall(l, err, addr, &wait) {
			return
		}
	}
}

// keepReaching sees to the connection with one incarnation of a node that
// another node told of.
func (r *Router) keepReaching(m Member, addr string, relayTo int) {
	var wait backoff
	for r.ctx.Err() == nil {
		r.mu.Lock()
		s := r.peers[m.ID]
		was := r.was[m.ID]
		over := was.incarnation > m.Incarnation || was.incarnation == m.Incarnation && errors.Is(was.err, errLeft) || s != nil && s.peer.Incarnation > m.Incarnation || r.known[m.ID] > m.Incarnation
		r.mu.Unlock()
		if over {
			return
		}
		l, err := r.call(r.ctx, addr, relayTo)
		if !r.afterCall(l, err, addr, &wait) {
			return
		}
	}
}

// afterCall waits for the end of the link that a call has made, or a little
// before the next call. It reports whether there is to be one.
func (r *Router) afterCall(l *link, err error, addr string, wait *backoff) bool {
	if l != nil && (err == nil || errors.Is(err, errConnected)) {
		*wait = backoff{}
		select {
		case <-l.ended:
		case <-r.ctx.Done():
			return false
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		return !r.closed && !errors.Is(l.s.err, errLeft)
	}
	if no, ok := errors.AsType[*RefusedError](err); ok {
		switch no.Code {
		case RefuseRelay, RefuseDuplicate, RefuseClosed:
		default:
			if r.outlives(addr, err) {
				break
			}
			r.fail(fmt.Errorf("join the job: %w", err))
			return false
		}
	}
	if r.ctx.Err() == nil && err != nil {
		r.note(func() { r.trouble[addr] = err.Error() })
	}
	return r.pause(wait.next())
}

// outlives reports whether a refusal is no reason to end: somebody who has not
// proved to be of this job answers at the address of a peer that this node has been
// connected with. It is logged once, and the peer has its time to come back.
func (r *Router) outlives(addr string, err error) bool {
	if _, ok := errors.AsType[*strangerError](err); !ok {
		return false
	}
	r.mu.Lock()
	ready, said := r.beenReady, r.trouble[addr] == err.Error()
	r.mu.Unlock()
	if ready && !said {
		r.log.Warn("a stranger answers at the address of a peer", "addr", addr, "err", err)
	}
	return ready
}
