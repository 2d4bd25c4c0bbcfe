package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Leave asks the peers to send this node no more messages, and returns when all that
// they had sent has been delivered. Then Drain and Close lose nothing on either side,
// and the others continue without this node: no barrier waits for it any more. It may
// still send until Drain. When ctx ends first, the error names the nodes that have not answered.
func (r *Router) Leave(ctx context.Context) error {
	if !r.started.Load() {
		return nil
	}
	r.note(func() {
		if !r.leaving {
			r.leaving = true
			for _, s := range r.peers {
				s.askLeave()
			}
		}
	})
	var waits []string
	err := r.await(ctx, func() (bool, error) {
		waits = waits[:0]
		for id, s := range r.peers {
			if s.leaves && !s.quiet && s.ready { // a peer that has never been ready has nothing to send
				waits = append(waits, fmt.Sprintf("node.%d", id))
			}
		}
		return len(waits) == 0, nil
	})
	if err == nil || errors.Is(err, ErrClosed) {
		return nil
	}
	slices.Sort(waits)
	return fmt.Errorf("leave: %s may still send: %w", strings.Join(waits, ", "), err)
}

// askLeave announces to the peer that this node leaves.
func (s *session) askLeave() {
	if s.leaves {
		s.control(frameLeave, 0, 0, nil)
	}
}

// peerLeaves finishes what is under way to the peer, and then announces the leave.
func (r *Router) peerLeaves(s *session) {
	r.log.Info("a node leaves", "peer", fmt.Sprintf("node.%d", s.peer.ID))
	r.note(func() {
		s.withdrawn = true
		r.setOff(s, true)
		for _, c := range r.channels {
			r.retarget(c)
		}
	})
	s.mu.Lock()
	s.leaveDue = true
	s.signal()
	s.mu.Unlock()
}

// Drain announces that this node will send nothing more, and returns when its peers
// have received all messages of this node. With waitPeers it also waits until they have
// announced the same; it does not wait for a peer that has never been ready, as that is no
// part of the job. Without waitPeers it does not wait for a peer that joins meanwhile:
// this node sends nothing to it, and a flood of joins must not hold up an end. When ctx
// ends first, the error names the messages that were not acknowledged, and the peers.
// A peer that is lost meanwhile is neither waited for nor an error: [Router.Losses] counts
// the messages that it has not acknowledged, as for a peer that was lost before.
func (r *Router) Drain(ctx context.Context, waitPeers bool) error {
	if !r.inDrain.Swap(true) {
		close(r.draining)
	}
	if !r.started.Load() {
		return nil
	}
	err := r.await(ctx, func() (bool, error) {
		all := true
		for _, s := range r.peers {
			if !s.late || waitPeers {
				all = s.drained() && (!waitPeers || s.fin || !s.ready) && all
			}
		}
		return all, nil
	})
	if err == nil || errors.Is(err, ErrClosed) {
		r.together.Store(waitPeers)
		return nil
	}
	return fmt.Errorf("drain: %w: %w", err, r.undrained(waitPeers))
}

// drained sends Fin once nothing else is left to send, and reports whether the
// peer has acknowledged that.
func (s *session) drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finSeq == 0 {
		if !s.messagesSent() {
			return false
		}
		s.log.frame(frameFin, 0, 0, nil)
		s.finSeq = s.log.sent
		s.signal()
	}
	return s.log.done >= s.finSeq
}

func (r *Router) undrained(waitPeers bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.peers {
		if s.late && !waitPeers {
			continue
		}
		s.mu.Lock()
		n := s.log.undelivered()
		for _, o := range s.outs {
			n += len(o.queue)
		}
		done := s.finSeq != 0 && s.log.done >= s.finSeq
		s.mu.Unlock()
		switch {
		case !done:
			errs = append(errs, &PeerError{s.peer.ID, s.peer.Incarnation, n, errors.New("has not acknowledged the end")})
		case waitPeers && !s.fin && s.ready:
			errs = append(errs, &PeerError{s.peer.ID, s.peer.Incarnation, 0, errors.New("has not finished")})
		}
	}
	return errors.Join(errs...)
}

// closeWithin is the time that Close waits for connections to take its leave;
// hubWithin is the time that the hub of a star stays for the leaves, which need it to
// finish among themselves; hubLonger the same where all are known to finish.
const (
	closeWithin = time.Second
	hubWithin   = 5 * time.Second
	hubLonger   = time.Minute
)

// Close leaves the peers and returns when everything has ended. The
// error joins what the peers of this moment have not acknowledged; see also
// [Router.Losses].
func (r *Router) Close() error {
	if r.cfg.Topology == Star && len(r.cfg.Attach) == 0 && r.inDrain.Load() {
		limit := hubWithin
		if r.together.Load() {
			limit = hubLonger
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		_ = r.await(ctx, func() (bool, error) { return r.noMembers(), nil })
		cancel()
	}
	return r.end(true)
}

// Abandon closes the router without a leave, as if the node had crashed: the peers wait for its next
// incarnation.
func (r *Router) Abandon() error { return r.end(false) }

func (r *Router) end(leave bool) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	if !r.inDrain.Swap(true) {
		close(r.draining)
	}
	var links []*link
	for _, s := range r.peers {
		if l := s.current(); l != nil && leave {
			l.sendBye("the node has ended")
			links = append(links, l)
		}
	}
	r.mu.Unlock()
	r.changed.broadcast()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for _, l := range links {
		select {
		case <-l.ended:
		case <-ctx.Done():
		}
	}
	r.cancel()
	r.mu.Lock()
	sessions := make([]*session, 0, len(r.peers))
	for _, s := range r.peers {
		sessions = append(sessions, s)
	}
	r.mu.Unlock()
	var errs []error
	for _, s := range sessions {
		perr, first := s.end(ErrClosed)
		if first && perr.Undelivered > 0 {
			errs = append(errs, perr)
		}
		if l := s.current(); l != nil {
			l.close()
		}
	}
	r.wg.Wait()
	r.closeMemory()
	r.reportAway()
	r.lines.leftOut(r.cfg.Logger)
	return errors.Join(errs...)
}

// Losses joins a *[PeerError] for each peer that had not acknowledged everything when it was lost or
// left, before Drain or during it, and one that wraps [ErrAway] for messages that were sent while a
// peer was lost: once that is back, or after Close. Beyond 1024 of them the last error has the sum of
// the others, for the node [Forgotten].
func (r *Router) Losses() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := errors.Join(r.lost...)
	if r.furtherLosses != nil {
		err = errors.Join(err, r.furtherLosses)
	}
	return err
}

// noMembers reports whether no peer is connected that has ever been ready and needs this node, the
// hub, to finish: a peer that came after everything was sent needs it only where all finish together.
// The mutex is held.
func (r *Router) noMembers() bool {
	for _, s := range r.peers {
		if s.ready && (!s.late || r.together.Load()) {
			return false
		}
	}
	return true
}
