package router

import (
	"fmt"
	"time"
)

// tick keeps time: it tests quiet links, cuts silent ones, and gives up peers
// that stay away.
func (r *Router) tick() {
	every := r.cfg.Heartbeat / 2
	t := time.NewTicker(every)
	defer t.Stop()
	last := r.clock()
	for {
		select {
		case <-t.C:
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		joins := r.joining(r.clock())
		sessions := make([]*session, 0, len(r.peers))
		for _, s := range r.peers {
			sessions = append(sessions, s)
			s.creditRest()
		}
		r.mu.Unlock()
		now := r.clock()
		slept := overslept(time.Duration(now-last), every)
		last = now
		for _, s := range sessions {
			if slept > 0 {
				s.lastReceived.Store(min(s.lastReceived.Load()+int64(slept), now))
			}
			r.check(s, joins)
		}
		r.remind(now)
		r.doubt(now)
	}
}

// remind logs the lost peers that are still away, or that no peer is present, at growing intervals.
func (r *Router) remind(now int64) {
	if r.inDrain.Load() {
		return
	}
	r.mu.Lock()
	alone, away := r.reminders(now)
	r.mu.Unlock()
	if alone > 0 {
		r.log.Warn("no other node of the job is connected", "expected", r.cfg.Expect-1, "for", alone.Round(time.Second))
	}
	for id, long := range away {
		r.log.Warn("still without a node that was lost", "peer", fmt.Sprintf("node.%d", id), "for", long.Round(time.Second))
	}
}

// joinPatience is the number of PeerTimeouts for which a peer may be silent while this node joins the
// job: nodes that start all at once on few processors have little time for each other.
const joinPatience = 4

// check tests a quiet link, cuts a silent one, and gives up a peer that stays away. A node
// that joins is patient.
func (r *Router) check(s *session, joins bool) {
	now := r.clock()
	silent := time.Duration(now - s.lastReceived.Load())
	s.mu.Lock()
	l := s.link
	if l != nil {
		s.quietFor++
		if s.quietFor > 1 || s.pingedAt == 0 || now-s.pingedAt > int64(2*r.cfg.Heartbeat) { // also to know how long the way takes
			s.pingDue = uint64(now) //nolint:gosec // positive
			s.pingedAt = now
		}
		if s.received.Load() != s.acked {
			s.ackDue = true
		}
		s.signal()
	}
	over := s.log.overdue()
	s.mu.Unlock()
	switch {
	case over != nil:
		r.lose(s, over)
	case joins && silent <= joinPatience*r.cfg.PeerTimeout:
	case silent > r.cfg.PeerTimeout:
		r.lose(s, fmt.Errorf("%w: silent for %v", ErrLost, silent.Round(time.Millisecond)))
	case l != nil && silent > r.cfg.LinkTimeout:
		l.cut(fmt.Errorf("nothing was received for %v, not even a heartbeat", silent.Round(time.Millisecond)))
	}
}

// creditRest reports to the peer the consumption since the last report, even if it is less than a
// quarter of the window, so that the peer's counts stay current. The router's mutex is held.
func (s *session) creditRest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.unreleased() {
		s.releaseDue = true
	}
	for _, in := range s.remote {
		if !in.due && s.err == nil && in.consumed[0].Load() != in.reported[0].Load() {
			in.due = true
			s.credits = append(s.credits, in)
		}
	}
}

// overslept is for how long this process did not run, between two ticks: it
// was stopped, and the silence of that time is not its peers'.
func overslept(between, every time.Duration) time.Duration {
	if between < 2*every {
		return 0
	}
	return between - every
}
