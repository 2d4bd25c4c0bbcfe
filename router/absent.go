package router

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrAway is wrapped by a PeerError of [Router.Losses] for messages that were sent while the
// peer was lost and not yet back: no node received them.
var ErrAway = errors.New("away")

// absence counts the messages of one event for one peer that is gone, in one incarnation. A peer that
// was lost is expected back, and the messages sent meanwhile are losses; those for a peer that has
// left are only counted.
type absence struct {
	peer   Peer
	missed atomic.Uint64

	// The router's mutex guards these.
	left     bool   // in order, or is about to
	over     bool   // the peer is back
	reported uint64 // of missed: in a PeerError already
}

// audience is the set of receivers of an event. It is immutable.
type audience struct {
	out  []*outStream // of the peers that listen
	away []*absence   // of those that did and are gone
}

// only returns the part of the audience that match accepts; nil accepts all.
func (a *audience) only(match func(Peer) bool) *audience {
	if match == nil {
		return a
	}
	to := &audience{}
	for _, o := range a.out {
		if match(o.s.peer) {
			to.out = append(to.out, o)
		}
	}
	for _, b := range a.away {
		if match(b.peer) {
			to.away = append(to.away, b)
		}
	}
	return to
}

// absent records that a listening peer is gone, or leaves, and returns the count for its messages:
// that of a newer incarnation if that is gone too. The mutex is held.
func (c *channel) absent(s *session, left bool) *absence {
	id := s.peer.ID
	a := c.absences[id]
	switch {
	case a != nil && a.peer.Incarnation > s.peer.Incarnation:
		return a
	case a == nil || a.peer.Incarnation < s.peer.Incarnation:
		if a != nil {
			c.r.fold(c, a)
		}
		a = &absence{peer: s.peer}
		c.absences[id] = a
		c.r.remember(id)
	}
	a.left = left
	return a
}

// miss counts a message for a peer that has gone since the sender looked. It counts none for a peer
// that does not listen any more.
func (o *outStream) miss() {
	s, c := o.s, o.ch
	if c.spec.Delivery == Latest { // its newest value is there when it is back
		return
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.mu.Lock()
	gone, left := s.err != nil || s.withdrawn, s.withdrawn || errors.Is(s.err, errLeft)
	s.mu.Unlock()
	if gone {
		c.absent(s, left).missed.Add(1)
	}
}

// setOff records the events that a peer listened to when it went. The mutex is held.
func (r *Router) setOff(s *session, left bool) {
	for _, c := range r.channels {
		if in := s.remote[c.spec.Name]; in != nil && in.ch.Load() == c && in.listens && c.spec.Delivery != Latest {
			c.absent(s, left)
		}
	}
}

// isBack ends the absences of a node that has come back, and reports the messages that it has missed.
func (r *Router) isBack(id int, incarnation uint64) {
	var lost *PeerError
	var left uint64
	r.mu.Lock()
	for _, c := range r.channels {
		a := c.absences[id]
		if a == nil || a.over || a.peer.Incarnation == incarnation {
			continue
		}
		a.over = true
		r.retarget(c)
		if a.left {
			left += a.missed.Load()
		} else {
			lost = a.report(lost)
		}
	}
	if lost != nil {
		r.keepLoss(lost)
	}
	r.mu.Unlock()
	r.logMissed(id, lost, left)
}

// report adds the losses that are not reported yet to the error, which may be nil. The mutex is held.
func (a *absence) report(perr *PeerError) *PeerError {
	n := a.missed.Load() - a.reported
	if n == 0 {
		return perr
	}
	if perr == nil {
		perr = &PeerError{Node: a.peer.ID, Incarnation: a.peer.Incarnation, Err: ErrAway}
	}
	a.reported += n
	perr.Undelivered += int(n) //nolint:gosec // a count of messages
	return perr
}

// reportAway reports the messages that peers have missed which are still away.
func (r *Router) reportAway() {
	r.mu.Lock()
	lost, left := map[int]*PeerError{}, map[int]uint64{}
	for _, c := range r.channels {
		for id, a := range c.absences {
			if !a.left {
				lost[id] = a.report(lost[id])
			} else if !a.over {
				left[id] += a.missed.Load()
			}
		}
	}
	for _, perr := range lost {
		if perr != nil {
			r.keepLoss(perr)
		}
	}
	r.mu.Unlock()
	for id, perr := range lost {
		r.logMissed(id, perr, 0)
	}
	for id, n := range left {
		r.logMissed(id, nil, n)
	}
}

func (r *Router) logMissed(id int, lost *PeerError, left uint64) {
	peer := fmt.Sprintf("node.%d", id)
	if lost != nil {
		r.log.Warn("messages for a node were not sent, as it was lost", "peer", peer, "messages", lost.Undelivered)
	}
	if left > 0 {
		r.log.Info("messages for a node were not sent, as it had left", "peer", peer, "messages", left)
	}
}

// missing counts the messages that peers which are gone have missed. The router's mutex is held.
func (c *channel) missing(streams map[streamKey]StreamStats) {
	for id, a := range c.absences {
		c.addMissed(streams, id, a)
	}
}

func (c *channel) addMissed(streams map[streamKey]StreamStats, id int, a *absence) {
	n := a.missed.Load()
	k := streamKey{c.spec.Name, id}
	sum := streams[k]
	sum.Event, sum.Peer = k.event, k.peer
	if a.left {
		sum.Add(StreamStats{Sent: n, Away: n})
	} else {
		sum.Add(StreamStats{Sent: n, Lost: n})
	}
	streams[k] = sum
}

// fold keeps the count of an absence that another one follows. The mutex is held.
func (r *Router) fold(c *channel, a *absence) {
	c.addMissed(r.gone, a.peer.ID, a)
	if !a.left {
		if perr := a.report(nil); perr != nil {
			r.keepLoss(perr)
		}
	}
}
