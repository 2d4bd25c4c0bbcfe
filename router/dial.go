package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// backoff is the wait between two calls of an address, from 5 ms to 1 s, or to 5 s if the node there
// has left: an eighth of the time for which the calls have failed, so that a node notices the end of
// an outage soon in proportion to its length.
//
// Where a node calls many others without success, the waits are longer: all calls together are at most
// callsPerSecond, so that addresses which a peer has made up do not flood the hosts at these
// addresses.
type backoff struct {
	since time.Time
	left  bool
	calls int // nodes that are called without success at the moment, this one included; 0: one
	slow  int // calls that were not answered in time
}

// mostPatience bounds how much longer than HandshakeTimeout a handshake may last on a busy host.
const mostPatience = 8

// patience is the time that the next call may take. Where many nodes start at once on few
// processors, each of them answers late; if all gave up and called again, none would
// ever get through. So a node that joins the job gives an address four times as long after a
// call that was not answered in time.
func (r *Router) patience(b *backoff) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.joining(r.clock()) {
		return r.cfg.HandshakeTimeout
	}
	return r.cfg.HandshakeTimeout * time.Duration(min(1<<min(2*b.slow, 16), mostPatience))
}

// listensFor is the time that the listening side of a handshake waits for the other one, which may
// be more patient than this node.
func (r *Router) listensFor() time.Duration { return mostPatience * r.cfg.HandshakeTimeout }

// callsPerSecond bounds the calls of announced nodes that do not answer, after the
// first call of each.
const callsPerSecond = 200

func (b *backoff) next() time.Duration {
	if b.since.IsZero() {
		b.since = time.Now()
	}
	most := time.Second
	if b.left {
		most = 5 * time.Second
	}
	least := time.Duration(max(b.calls, 1)) * time.Second / callsPerSecond
	return max(min(max(time.Since(b.since)/8, 5*time.Millisecond), most), least)
}

// keepCalling maintains the connection with the node at an attach address, for as
// long as the router is open: a node that is restarted is found there again, and so is
// one that has left an elastic job and comes back.
func (r *Router) keepCalling(addr string) {
	var wait backoff
	for r.ctx.Err() == nil {
		l, err := r.call(r.ctx, addr, -1, r.patience(&wait))
		if l != nil {
			r.note(func() { r.attach(addr, l.s.peer) })
		}
		if !r.afterCall(l, err, addr, &wait) {
			return
		}
		wait.left = wait.left || r.hasLeft(addr)
		if wait.left && !r.callsAgain() {
			return
		}
	}
}

// reaching is a node that keepReaching calls.
type reaching struct {
	incarnation uint64 // the newest that is known
	addr        string // unused by a leaf of a star
	over        bool   // it is not called any more
}

// reach maintains the connection with a node that another one announced, by one goroutine
// for each node. The mutex is held.
func (r *Router) reach(c call) {
	if r.membership.reach(c) {
		r.wg.Go(func() { r.keepReaching(c.id) })
	}
}

// keepReaching calls the newest incarnation of the node that is known here.
func (r *Router) keepReaching(id int) {
	var wait backoff
	last := ""
	for {
		addr, relayTo, ok := r.whereIs(id, &wait)
		if addr != last && !slices.Contains(r.cfg.Attach, last) {
			r.note(func() { delete(r.trouble, last) })
		}
		if last = addr; !ok {
			return
		}
		l, err := r.call(r.ctx, addr, relayTo, r.patience(&wait))
		if l != nil && l.s.peer.ID != id { // the address has gone to another node: no end to wait for
			l, err = nil, fmt.Errorf("node.%d answers instead of node.%d", l.s.peer.ID, id)
		}
		r.afterCall(l, err, addr, &wait) // whereIs reports whether there is a next call
	}
}

// whereIs returns the address to reach a node at and, in a star, the node that the hub is to
// connect with. It reports false when there is nothing more to call.
func (r *Router) whereIs(id int, wait *backoff) (addr string, relayTo int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr, relayTo, wait.left, ok = r.goal(id, r.callsAgain())
	wait.calls = r.calledInVain()
	if r.closed || r.failure != nil || !ok {
		delete(r.reached, id)
		return "", 0, false
	}
	return addr, relayTo, true
}

// takeBack calls a peer that is gone until it is back, if its attach address is not called
// anyway. The mutex is held.
func (r *Router) takeBack(s *session) {
	if c, ok := r.awaited(&s.member); ok && r.callsAgain() {
		r.reach(c)
	}
}

// afterCall waits for the end of the link that a call has made, or a little
// before the next call. It reports whether there is to be one.
func (r *Router) afterCall(l *link, err error, addr string, wait *backoff) bool {
	if l != nil && (err == nil || errors.Is(err, errConnected)) {
		*wait = backoff{slow: wait.slow}
		select {
		case <-l.ended:
		case <-r.ctx.Done(): // it is closed
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		l.s.mu.Lock()
		defer l.s.mu.Unlock()
		if r.closed || !errors.Is(l.s.err, errLeft) {
			return !r.closed
		}
		wait.left = true
		return r.callsAgain()
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
	if errors.Is(err, errNoAnswer) {
		wait.slow++
	}
	if r.ctx.Err() == nil && err != nil {
		r.note(func() { r.trouble[addr] = printable.Error(err).Error() })
	}
	return r.pause(wait.next())
}

// hasLeft reports whether the node at an attach address has left and is not back, although
// its connection came of another call, such as its own.
func (r *Router) hasLeft(addr string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, was := range r.was {
		if r.peers[id] == nil && errors.Is(was.err, errLeft) && slices.Contains(was.addrs, addr) {
			return true
		}
	}
	return false
}

// callsAgain reports whether this node continues calling the addresses of nodes that have left.
func (r *Router) callsAgain() bool { return r.cfg.Elastic && !r.inDrain.Load() }

// outlives reports whether a refusal is no reason to end: a process that has not
// proved to be of this job answers at the address of a peer that this node has been
// connected with. It is logged once, and the peer has its time to come back.
func (r *Router) outlives(addr string, err error) bool {
	if _, ok := errors.AsType[*unauthenticatedError](err); !ok {
		return false
	}
	r.mu.Lock()
	ready, logged := r.beenReady, r.trouble[addr] == printable.Error(err).Error()
	r.mu.Unlock()
	if ready && !logged {
		r.log.Warn("an unauthenticated process answers at the address of a peer", "addr", addr, "err", err)
	}
	return ready
}
