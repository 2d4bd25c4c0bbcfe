package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Member describes a node to other nodes.
type Member struct {
	ID          int      `json:"id"`
	Incarnation uint64   `json:"incarnation,string"`
	Addrs       []string `json:"addrs,omitempty"`
}

// peerLock is held by one handshake with a node. It is no mutex, as testing/synctest
// does not see waits for one.
type peerLock struct {
	held  chan struct{} // 1: the lock is held
	users int           // have it or wait for it; locksMu guards it
}

// lockPeer lets one handshake for a session with the node continue at a time.
func (r *Router) lockPeer(id int) (unlock func()) {
	m := r.usePeerLock(id)
	m.held <- struct{}{}
	return func() { r.unlockPeer(id, m) }
}

func (r *Router) tryLockPeer(id int) (unlock func(), ok bool) {
	m := r.usePeerLock(id)
	select {
	case m.held <- struct{}{}:
		return func() { r.unlockPeer(id, m) }, true
	default:
		r.leavePeerLock(id, m)
		return nil, false
	}
}

func (r *Router) unlockPeer(id int, m *peerLock) {
	<-m.held
	r.leavePeerLock(id, m)
}

func (r *Router) usePeerLock(id int) *peerLock {
	r.locksMu.Lock()
	defer r.locksMu.Unlock()
	m := r.locks[id]
	if m == nil {
		m = &peerLock{held: make(chan struct{}, 1)} // held by the owner of the lock
		r.locks[id] = m
	}
	m.users++
	return m
}

func (r *Router) leavePeerLock(id int, m *peerLock) {
	r.locksMu.Lock()
	defer r.locksMu.Unlock()
	if m.users--; m.users == 0 {
		delete(r.locks, id)
	}
}

// find returns the session with the node that says h, or nil if there is none
// yet. An older incarnation of the node is lost with this.
func (r *Router) find(h hello) (*session, *refusal) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, &refusal{RefuseClosed, fmt.Sprintf("node.%d is closing", r.cfg.Node)}
	}
	s := r.peers[h.Node]
	same, replaces, no := r.classify(h.Node, h.Incarnation)
	r.mu.Unlock()
	if replaces {
		r.lose(s, ErrReplaced)
	}
	if !same {
		s = nil
	}
	return s, no
}

// admit makes the node that says h a peer.
func (r *Router) admit(h hello) (*session, error) {
	if h.Version != r.cfg.Version {
		r.log.Warn("versions differ", "node", r.cfg.Node, "version", r.cfg.Version, "peer", h.Node, "peerVersion", h.Version)
	}
	peer := Peer{ID: h.Node, Incarnation: h.Incarnation, Labels: h.Labels}
	s := newSession(r, peer, h.Addrs)
	s.headers = slices.Contains(h.Features, featureHeader)
	s.leaves = slices.Contains(h.Features, featureLeave)
	s.knowsDone = slices.Contains(h.Features, featureDone)
	s.answers = slices.Contains(h.Features, featureListening)
	s.takesFarewells = slices.Contains(h.Features, featureFarewell)
	s.lastReceived.Store(r.clock())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if err := r.admits(h.Node, r.clock()); err != nil {
		return nil, err
	}
	for _, c := range r.channels {
		s.declare(c)
	}
	for name, round := range r.rounds {
		s.controlJSON(frameBarrier, 0, barrierMsg{name, round})
	}
	if r.cfg.Topology != Alone {
		r.introduce(s)
	}
	runs := uint8(0)
	if r.beenReady {
		runs = flagOn
	}
	s.control(frameReady, runs, 0, nil)
	if r.leaving {
		s.askLeave()
	}
	if r.done {
		s.sendDone()
	}
	if s.late = r.inDrain.Load(); s.late {
		s.control(frameFin, 0, 0, nil)
	}
	r.peers[peer.ID] = s
	r.mem.ended(peer.ID, max(peer.Incarnation, 1)-1)
	r.met(&s.member)
	return s, nil
}

// introduce announces the others to the newcomer and the newcomer to the others. The
// mutex is held.
func (r *Router) introduce(s *session) {
	var all []Member
	for _, o := range r.peers {
		all = append(all, Member{o.peer.ID, o.peer.Incarnation, o.addrs})
		o.controlJSON(frameMembers, 0, []Member{{s.peer.ID, s.peer.Incarnation, s.addrs}})
	}
	for part := range slices.Chunk(all, 100) {
		s.controlJSON(frameMembers, 0, part)
	}
}

// learn records nodes that another one knows, and calls some of them.
func (r *Router) learn(members []Member, from int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.cfg.Topology == Alone {
		return
	}
	calls, ahead := r.membership.learn(members, r.clock(), time.Now())
	for _, id := range ahead {
		r.log.Warn("a node is not called: its announced start is in the future",
			"peer", fmt.Sprintf("node.%d", id), "by", fmt.Sprintf("node.%d", from))
	}
	for _, c := range calls {
		r.reach(c)
	}
}

// rumour describes a node that others have announced and that is not connected yet, in this incarnation.
type rumour struct {
	incarnation uint64
	at          int64 // clock
}

// maxAddr bounds in bytes the address of a node that others announce.
const maxAddr = 1 << 10

// doubt forgets nodes that have not been met in time, and lets a Start that waits look again.
func (r *Router) doubt(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.membership.doubt(now) {
		r.changed.broadcast()
	}
}

// maxAhead is the distance by which an incarnation, which is the time of the node's start, may lie in the
// future: the clocks of hosts differ, and are set. Incarnations only grow, so that one
// from the far future would keep the node out for as long.
const maxAhead = 24 * time.Hour

// linkEnded records a connection that has ended.
func (r *Router) linkEnded(s *session, err error) {
	err = printable.Error(err) // it may quote what came over the connection
	if errors.Is(err, errLeft) {
		r.depart(s, Left, err)
		return
	}
	if errors.Is(err, errBadFrame) { // it would send the same again
		r.depart(s, Lost, err)
		return
	}
	r.mu.Lock()
	s.mu.Lock()
	over := s.err != nil || r.closed
	s.mu.Unlock()
	r.mu.Unlock()
	if !over {
		r.log.Info("lost the connection, waiting for a new one", "peer", fmt.Sprintf("node.%d", s.peer.ID), "err", err)
	}
}

// lose gives a peer up.
func (r *Router) lose(s *session, reason error) { r.depart(s, Lost, reason) }

// depart removes a peer, wakes all that wait for it, and reports what it has not
// acknowledged.
func (r *Router) depart(s *session, kind ChangeKind, reason error) {
	if kind == Left || errors.Is(reason, ErrReplaced) {
		s.processEnded()
	}
	perr, first := s.end(reason)
	if !first {
		return
	}
	if l := s.current(); l != nil {
		l.close()
	}
	r.mu.Lock()
	if r.peers[s.peer.ID] == s {
		delete(r.peers, s.peer.ID)
	}
	forgotten := r.left(&s.member, kind, reason, r.unfinished(s), r.clock())
	r.forgetAll(forgotten)
	r.keepCounts(s, kind)
	r.setOff(s, kind == Left || s.withdrawn)
	r.takeBack(s)
	r.endPipes(s.peer.ID)
	if kind == Lost && r.isHub(s.peer.ID) {
		r.cutPipes()
	}
	for _, c := range r.channels {
		r.retarget(c)
	}
	r.changes = append(r.changes, Change{Kind: kind, Peer: s.peer, Err: perr})
	if perr.Undelivered > 0 {
		r.keepLoss(perr)
	}
	r.mu.Unlock()
	if kind == Left && perr.Undelivered > 0 { // a loss is for the watchers to report
		r.log.Warn("a node has left before it had all", "peer", fmt.Sprintf("node.%d", s.peer.ID), "unacknowledged", perr.Undelivered)
	}
	r.changed.broadcast()
	r.notify()
}

// current is the session's link, or nil.
func (s *session) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// peerReady records that the peer is ready, and whether it had been so before it
// met this node, and lets it know when it has our newest values.
func (r *Router) peerReady(s *session, before bool) {
	s.mu.Lock()
	s.seenDue = true
	s.signal()
	s.mu.Unlock()
	r.isBack(s.peer.ID, s.peer.Incarnation)
	r.note(func() {
		if before && !s.ready && !r.beenReady {
			r.offer(s)
		}
		if r.isReady(&s.member, before, r.clock()) {
			r.changes = append(r.changes, Change{Kind: Joined, Peer: s.peer})
		}
	})
	r.notify()
}
