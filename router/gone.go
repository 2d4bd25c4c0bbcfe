package router

import (
	"errors"
	"fmt"
	"time"
)

// goneWithin is how long the connection with a peer whose process has ended may still
// bring what the peer has sent. A socket ends by itself when that has been read; a
// connection through a server, or through the hub of a star, may stay open.
const goneWithin = time.Second

// Gone gives a peer up because its process is known to have ended: so nothing waits
// for Config.PeerTimeout. f.Incarnation is that of the process, and older ones are gone
// with it; a newer one stays. What the peer had sent before is still delivered, as far
// as it arrives within a second. The watchers hear of a peer that is Lost, with an
// error that has the reason. A peer that has left in order, or was lost before, is not
// lost again; but if f.Final is set, a loss is reported in any case, with an error that
// wraps a [FailedError], and a Start that waits for other nodes fails with that error. Gone
// does not block. See [SayFarewell] for the nodes that the caller cannot tell itself.
func (r *Router) Gone(f Farewell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && f.Node != r.cfg.Node {
		r.giveUp(f)
	}
}

// giveUp does what Gone says, by a goroutine. The mutex is held.
func (r *Router) giveUp(f Farewell) {
	f.Reason = cutReason(f.Reason)
	err := fmt.Errorf("%w: %s", ErrLost, f.Reason)
	if f.Final {
		err = &FailedError{f.Reason}
	}
	r.wg.Go(func() {
		unlock := r.lockPeer(f.Node) // a handshake that it had begun is over
		s := r.forget(f.Node, f.Incarnation, err)
		unlock()
		if s != nil {
			if l := s.current(); l != nil && !r.heardOut(l) {
				return
			}
			r.lose(s, err)
		}
		if f.Final {
			r.hasFailed(f, s == nil, err)
		}
	})
}

// heardOut waits until what a peer that is gone had sent has been read. It reports false
// if this router is closed meanwhile.
func (r *Router) heardOut(l *link) bool {
	late := time.NewTimer(goneWithin)
	defer late.Stop()
	select {
	case <-l.ended:
	case <-late.C:
	case <-r.ctx.Done():
		return false
	}
	return true
}

// forget returns the session with a node in this incarnation, or in an older one. If
// there is none, later connections of this incarnation are refused.
func (r *Router) forget(id int, incarnation uint64, err error) *session {
	r.mu.Lock()
	s := r.peers[id]
	was := r.was[id]
	if s == nil && was.incarnation < incarnation {
		was.incarnation, was.err = incarnation, err
		r.was[id] = was
	}
	r.mu.Unlock()
	if s == nil {
		r.changed.broadcast() // a barrier waits for it in vain
		return nil
	}
	if s.peer.Incarnation > incarnation {
		return nil
	}
	return s
}

// hasFailed reports a node that is not started again, unless it has left in order or a
// newer incarnation of it is known: as a loss, if there was no session whose loss is
// reported, and as the failure of a Start that waits.
func (r *Router) hasFailed(f Farewell, unmet bool, err error) {
	r.mu.Lock()
	was, s := r.was[f.Node], r.peers[f.Node]
	if s == nil && was.incarnation <= f.Incarnation && !errors.Is(was.err, errLeft) {
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
	r.tell()
}
