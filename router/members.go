package router

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Member is what nodes tell each other of a third.
type Member struct {
	ID          int      `json:"id"`
	Incarnation uint64   `json:"incarnation,string"`
	Addrs       []string `json:"addrs,omitempty"`
}

// peerLock is held by one handshake with a node. It is no mutex, as testing/synctest
// does not see waits for one.
type peerLock struct {
	held  chan struct{} // 1: somebody has the lock
	users int           // have it or wait for it; locksMu guards it
}

// lockPeer lets one handshake for a session with the node go on at a time.
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
		m = &peerLock{held: make(chan struct{}, 1)} // holds who has the lock
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
	gone, wasHere := r.was[h.Node]
	r.mu.Unlock()
	switch {
	case s != nil && h.Incarnation == s.peer.Incarnation:
		return s, nil
	case s != nil && h.Incarnation < s.peer.Incarnation, h.Incarnation < gone.incarnation && !gone.hearsay:
		return nil, &refusal{RefuseStale, fmt.Sprintf("a newer node.%d has joined", h.Node)}
	case s != nil:
		r.lose(s, ErrReplaced)
	case wasHere && h.Incarnation == gone.incarnation && errors.Is(gone.err, errLeft):
		// A second call to it was under way when it left in order: no fault of the job.
		return nil, &refusal{RefuseClosed, fmt.Sprintf("node.%d has ended", h.Node)}
	case wasHere && h.Incarnation == gone.incarnation:
		return nil, &refusal{RefuseLost, fmt.Sprintf("node.%d has given up node.%d: %v", r.cfg.Node, h.Node, gone.err)}
	}
	return nil, nil
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
	s.hearsFarewells = slices.Contains(h.Features, featureFarewell)
	s.lastHeard.Store(r.clock())
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admissible(h); err != nil {
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
		s.sayDone()
	}
	if s.late = r.inDrain.Load(); s.late {
		s.control(frameFin, 0, 0, nil)
	}
	r.peers[peer.ID] = s
	r.met(s)
	return s, nil
}

// admissible reports why a node is not let in just now. The mutex is held.
func (r *Router) admissible(h hello) error {
	if r.closed {
		return ErrClosed
	}
	if most := r.mostPeers(); len(r.peers) >= most {
		return fmt.Errorf("node.%d has %d peers, and takes no more", r.cfg.Node, most)
	}
	if !r.joins.allows(r, h.Node) {
		return fmt.Errorf("node.%d joins too often", h.Node)
	}
	return nil
}

// met takes note that a node of which others may have told has come. The mutex is held.
func (r *Router) met(s *session) {
	peer := s.peer
	if r.known[peer.ID].incarnation <= peer.Incarnation {
		delete(r.known, peer.ID)
	}
	if m, ok := r.reached[peer.ID]; ok && m.incarnation < peer.Incarnation {
		m.incarnation = peer.Incarnation
		if len(s.addrs) > 0 {
			m.addr = s.addrs[0]
		}
		r.reached[peer.ID] = m
	}
}

// introduce tells the newcomer of the others and the others of the newcomer. The
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

// learn takes note of nodes that another one knows, and calls those with a lower
// id; the others call this node.
func (r *Router) learn(members []Member, from int) {
	if r.cfg.Topology == Alone {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range members {
		if r.closed || m.ID == r.cfg.Node || m.ID < 0 || m.ID > maxNode || r.known[m.ID].incarnation >= m.Incarnation ||
			r.was[m.ID].incarnation >= m.Incarnation {
			continue
		}
		if s := r.peers[m.ID]; s != nil && s.peer.Incarnation >= m.Incarnation {
			continue
		}
		if !r.plausible(m.Incarnation) {
			r.log.Warn("a node is not called, as it is said to come from the future",
				"peer", fmt.Sprintf("node.%d", m.ID), "by", fmt.Sprintf("node.%d", from))
			continue
		}
		if _, ok := r.known[m.ID]; !ok && len(r.known) >= r.mostPeers() {
			return
		}
		r.known[m.ID] = rumour{m.Incarnation, r.clock()}
		if m.ID > r.cfg.Node {
			continue
		}
		switch {
		case r.cfg.Topology == Mesh && len(m.Addrs) > 0 && len(m.Addrs[0]) <= maxAddr:
			r.reach(m.ID, m.Incarnation, m.Addrs[0])
		case r.cfg.Topology == Star && r.cfg.Node != 0 && m.ID != 0:
			r.reach(m.ID, m.Incarnation, "")
		}
	}
}

// rumour is what this node knows of one that it has not met, in this incarnation.
type rumour struct {
	incarnation uint64
	at          int64 // clock
}

// maxAddr bounds the address of a node that others tell of, in bytes.
const maxAddr = 1 << 10

// believedFor is how long a node that others tell of is called and waited for: twice the
// time in which it has to meet this node itself if it joins.
func (r *Router) believedFor() time.Duration { return 2 * r.cfg.JoinTimeout }

// waitsFor is how long a newcomer waits for a member that others have told of. An expected one
// that is dead is rarely told of, as its peers know of its death or lose it within PeerTimeout;
// but one that lives can take much longer than that to connect where the machines are busy, and
// what this node emits before is lost to it.
func (r *Router) waitsFor(id int) time.Duration {
	if id < r.cfg.Expect {
		return max(r.cfg.PeerTimeout, r.cfg.JoinTimeout/2)
	}
	return r.cfg.PeerTimeout
}

// doubt forgets the nodes that others have told of and that have not been met in time.
// Whoever tells of them again is believed again.
func (r *Router) doubt(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.beenReady && (len(r.known) > 0 || r.runningAt != 0) {
		r.changed.broadcast() // Start waits for a limited time, see runs and missingLocked
	}
	for id, m := range r.known {
		if now-m.at <= int64(r.believedFor()) {
			continue
		}
		delete(r.known, id)
		if c, ok := r.reached[id]; ok && c.incarnation == m.incarnation && r.peers[id] == nil {
			c.over = true
			r.reached[id] = c
		}
	}
}

// mostPeers is how many other nodes this one has as peers, and of how many others that it
// has not met it is told.
func (r *Router) mostPeers() int { return max(maxPeers, r.cfg.Expect) }

// maxAhead is how far an incarnation, which is the time of the node's start, may lie in the
// future: the clocks of hosts differ, and are set. Incarnations only grow, so that one
// from the far future would keep the node out for as long.
const maxAhead = 24 * time.Hour

// plausible reports whether an incarnation is not from the far future, by the clock here or
// by that on which this node's own incarnation was based.
func (r *Router) plausible(incarnation uint64) bool {
	now := max(uint64(max(time.Now().UnixNano(), 0)), r.cfg.Incarnation)
	return incarnation <= now || incarnation-now <= uint64(maxAhead)
}

// hubAddr is where the hub of a star is.
func (r *Router) hubAddr() string {
	if len(r.cfg.Attach) > 0 {
		return r.cfg.Attach[0]
	}
	return ""
}

// linkEnded takes note of a connection that has ended.
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

// depart removes a peer, wakes who waits for it, and reports what it has not
// acknowledged.
func (r *Router) depart(s *session, kind ChangeKind, reason error) {
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
	f := former{incarnation: s.peer.Incarnation, ready: s.ready, withdrawn: s.withdrawn, barriers: r.unfinished(s), addrs: s.addrs, err: reason}
	if kind == Lost {
		f.lostAt = r.clock()
		f.sayAt = f.lostAt + int64(sayAfter)
	}
	r.was[s.peer.ID] = f
	r.remember(s.peer.ID)
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
	r.tell()
}

// current is the session's link, or nil.
func (s *session) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// peerReady takes note that the peer is ready, and whether it had been so before it
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
		if before && !r.beenReady {
			s.running = true
			if r.runningAt == 0 {
				r.runningAt = max(r.clock(), 1)
			}
		}
		if !s.ready {
			s.ready = true
			r.changes = append(r.changes, Change{Kind: Joined, Peer: s.peer})
		}
	})
	r.tell()
}

// runs reports whether this newcomer believes that the job runs already: it then waits for
// the nodes that are there, and not for all that are expected. One peer alone can be wrong
// or lie, so the newcomer believes it when more than half of the other expected nodes agree;
// or, without a number of expected nodes, when each attach address has answered or failed
// once. Otherwise it looks for the others as long as a peer may be silent: those that live
// meet it in this time. The mutex is held.
func (r *Router) runs() bool {
	switch {
	case r.beenReady || r.running:
		return r.running
	case r.runningAt == 0:
		return false
	case r.clock()-r.runningAt >= int64(r.cfg.PeerTimeout):
		return true
	case r.cfg.Expect == 0 || r.cfg.Topology == Alone:
		for _, addr := range r.cfg.Attach {
			if _, ok := r.attached[addr]; !ok && r.trouble[addr] == "" {
				return false
			}
		}
		return true
	}
	others, agree := r.cfg.Expect, 0
	if r.cfg.Node < r.cfg.Expect {
		others--
	}
	for id, s := range r.peers {
		if s.running && (id < r.cfg.Expect || r.cfg.Node >= r.cfg.Expect) {
			agree++
		}
	}
	return 2*agree > others
}
