package router

import (
	"fmt"
	"time"
)

// goneWithin is how long the connection with a peer whose process has ended may still
// bring what the peer has sent. A socket ends by itself when that has been read; a
// connection through a server, or through the hub of a star, may stay open.
const goneWithin = time.Second

// Gone gives a peer up because its process is known to have ended: so nothing waits
// for Config.PeerTimeout. incarnation is that of the process, and older ones are gone
// with it; a newer one stays. What the peer had sent before is still delivered, as far
// as it arrives within a second. The watchers hear of a peer that is Lost, with an
// error that has the reason. A peer that has left in order, or was lost before, is not
// lost again. Gone does not block.
func (r *Router) Gone(id int, incarnation uint64, reason string) {
	err := fmt.Errorf("%w: %s", ErrLost, reason)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || id == r.cfg.Node {
		return
	}
	r.wg.Go(func() {
		unlock := r.lockPeer(id) // a handshake that it had begun is over
		s := r.forget(id, incarnation, err)
		unlock()
		if s == nil {
			return
		}
		if l := s.current(); l != nil {
			late := time.NewTimer(goneWithin)
			defer late.Stop()
			select {
			case <-l.ended:
			case <-late.C:
			case <-r.ctx.Done():
				return
			}
		}
		r.lose(s, err)
	})
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
