package router

import (
	"fmt"
	"time"
)

// goneWithin is the time that the connection with a peer whose process has ended may still
// bring what the peer has sent. A socket ends by itself when that has been read; a
// connection through a server, or through the hub of a star, may stay open.
const goneWithin = time.Second

// Gone gives a peer up because its process is known to have ended, so that nothing waits for
// Config.PeerTimeout. f.Incarnation is that of the process: older ones are given up with it, and a
// newer one stays. Messages that the peer had sent before are still delivered, as far as they arrive
// within a second. The watchers receive a change to Lost, with an error that has the reason. A peer
// that has left in order, or was lost before, is not lost again; but if f.Final is set, Gone reports a
// loss in any case, with an error that wraps a [FailedError], and a Start that waits for other nodes
// fails with that error. Gone does not block. See [SendFarewell] for the nodes that the caller cannot
// reach itself.
func (r *Router) Gone(f Farewell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && f.Node != r.cfg.Node {
		r.wg.Go(func() { _ = r.giveUp(report{Farewell: f}) })
	}
}

// report is a farewell, and its sender.
type report struct {
	Farewell
	hearsay  bool // it came from another node, and not from the launcher of this one
	from     int  // that node
	doubtful bool // the node has answered after an earlier one: it is passed on when this one has proved true
}

// giveUp gives a peer up as [Router.Gone] describes. A peer that answers a ping which was sent after
// another node's farewell had arrived is alive: giveUp then returns false.
func (r *Router) giveUp(f report) bool {
	f.Reason = cutReason(f.Reason)
	err := fmt.Errorf("%w: %s", ErrLost, f.Reason)
	if f.Final {
		err = &FailedError{f.Reason}
	}
	unlock := r.lockPeer(f.Node) // a handshake that it had begun is over
	s := r.forget(f, err)
	unlock()
	if s != nil {
		if l := s.current(); l != nil && !r.drained(l, f) {
			return false
		}
		if !f.hearsay {
			s.processEnded()
		}
		r.lose(s, err)
	}
	if !f.hearsay {
		r.mem.ended(f.Node, f.Incarnation)
	}
	if f.Final {
		r.hasFailed(f.Farewell, s == nil, err)
	}
	return true
}

// drained waits until what a peer that is gone had sent has been read. It reports false
// if the peer lives, or if this router is closed meanwhile.
func (r *Router) drained(l *link, f report) bool {
	var lives <-chan struct{}
	if f.hearsay {
		lives = l.s.ask()
	}
	late := time.NewTimer(goneWithin)
	defer late.Stop()
	select {
	case <-l.ended:
	case <-late.C:
	case <-lives:
		r.disbelieve(f)
		return false
	case <-r.ctx.Done():
		return false
	}
	return true
}

// ask sends a ping, and returns a channel that is closed when the peer has answered it.
func (s *session) ask() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alive == nil {
		s.alive = make(chan struct{})
	}
	s.askedAt = uint64(s.r.clock()) //nolint:gosec // positive
	s.pingDue = s.askedAt
	s.signal()
	return s.alive
}

// disbelieve records that a peer is alive although a farewell of it has arrived. For goneWithin this
// node ignores further farewells of it, as others pass this one on. After that it passes none on
// before it has proved true.
func (r *Router) disbelieve(f report) {
	r.mu.Lock()
	r.farewells[f.Node] = knownFarewell{disbelieved: r.clock()}
	r.mu.Unlock()
	r.log.Warn("a node announced the end of another one, which answers",
		"from", fmt.Sprintf("node.%d", f.from), "peer", fmt.Sprintf("node.%d", f.Node), "reason", f.Reason)
}

// forget returns the session with a node in this incarnation, or in an older one. If
// there is none, later connections of this incarnation are refused; those of older ones
// too, unless the farewell is hearsay: a node that connects lives.
func (r *Router) forget(f report, err error) *session {
	r.mu.Lock()
	s := r.peers[f.Node]
	if r.bury(f, err) {
		r.remember(f.Node)
	}
	r.mu.Unlock()
	if s == nil {
		r.changed.broadcast() // a barrier waits for it without success
		return nil
	}
	if s.peer.Incarnation > f.Incarnation {
		return nil
	}
	return s
}

// hasFailed reports a node that is not started again, unless it has left in order or a
// newer incarnation of it is known: as a loss, if there was no session whose loss is
// reported, and as the failure of a Start that waits.
func (r *Router) hasFailed(f Farewell, unmet bool, err error) {
	r.mu.Lock()
	if r.overFor(f) {
		perr := &PeerError{Node: f.Node, Incarnation: f.Incarnation, Err: err}
		if unmet {
			r.changes = append(r.changes, Change{Kind: Lost, Peer: Peer{ID: f.Node, Incarnation: f.Incarnation}, Err: perr})
		}
		if !r.beenReady {
			r.failed(perr)
		}
	}
	r.mu.Unlock()
	r.changed.broadcast()
	r.notify()
}
