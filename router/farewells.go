package router

import (
	"errors"
	"time"
)

// The rules of membership for farewells, and for calls of nodes.

// farewellEffect is the effect of a farewell.
type farewellEffect uint8

const (
	noNews   farewellEffect = iota // nothing: it is known, or of no node
	ignored                        // nothing, as it is implausible or too frequent; the log says that
	begun                          // it is looked into
	followed                       // it is looked into after the one before
)

// noteFarewell records that the process of another node has ended, as node from says, and returns
// the report that is to be looked into. Unless that is doubtful, it is passed on at once.
func (m *membership) noteFarewell(f Farewell, from int, now int64, wall time.Time) (*report, farewellEffect) {
	if f.Node == m.job.Node || f.Node < 0 || f.Node > maxNode {
		return nil, noNews
	}
	last := m.farewells[f.Node]
	doubtful := last.disbelieved != 0
	if doubtful && now-last.disbelieved <= int64(goneWithin) || !doubtful && last.incarnation >= f.Incarnation {
		return nil, noNews
	}
	_, busy := m.hearsay[f.Node]
	if !m.plausible(f.Incarnation, wall) || !m.news.allows(m, f.Node, now) || !busy && len(m.hearsay) >= m.mostPeers() {
		return nil, ignored
	}
	m.farewells[f.Node] = knownFarewell{incarnation: f.Incarnation}
	news := &report{Farewell: f, hearsay: true, from: from, doubtful: doubtful}
	if busy {
		m.hearsay[f.Node] = news // newer than the one that waited
		return news, followed
	}
	m.hearsay[f.Node] = nil
	return news, begun
}

// next returns the farewell of a node that has come while another one was looked into, or nil.
func (m *membership) next(id int) *report {
	next := m.hearsay[id]
	if next == nil {
		delete(m.hearsay, id)
	} else {
		m.hearsay[id] = nil
	}
	return next
}

// bury records the end of a node that is not present: later connections of this
// incarnation are refused; those of older ones too, unless the farewell is hearsay: a node
// that connects lives. It reports whether something is kept of the node by that which was not
// before.
func (m *membership) bury(f report, err error) (kept bool) {
	was := m.was[f.Node]
	_, known := m.farewells[f.Node]
	if m.present.of(f.Node) != nil || was.incarnation >= f.Incarnation || !known && f.hearsay {
		return false
	}
	was.incarnation, was.hearsay, was.err = f.Incarnation, f.hearsay, err
	m.was[f.Node] = was
	if m.known[f.Node].incarnation <= f.Incarnation {
		delete(m.known, f.Node)
	}
	return !known
}

// overFor reports whether a node that is not started again is gone, has not left in order,
// and no newer incarnation of it is known.
func (m *membership) overFor(f Farewell) bool {
	was := m.was[f.Node]
	return m.present.of(f.Node) == nil && was.incarnation <= f.Incarnation && !errors.Is(was.err, errLeft)
}

// hubAddr is the address of the hub of a star.
func (m *membership) hubAddr() string {
	if len(m.job.Attach) > 0 {
		return m.job.Attach[0]
	}
	return ""
}

// isHub reports whether a node is the hub of the star in which this one is a leaf.
func (m *membership) isHub(id int) bool {
	hub, ok := m.attached[m.hubAddr()]
	return ok && hub == id
}

// goal returns the address to reach a node at and, in a star, the node that the hub is to
// connect with; and whether the node has left. It reports false when there is nothing more to
// call. again permits calls of nodes that have left.
func (m *membership) goal(id int, again bool) (addr string, relayTo int, hasLeft, ok bool) {
	c, was := m.reached[id], m.was[id]
	hasLeft = was.incarnation >= c.incarnation && errors.Is(was.err, errLeft)
	switch {
	case c.over, hasLeft && (!again || m.job.Topology != Mesh): // a leaf of a star comes back to the hub by itself
		return "", 0, hasLeft, false
	case m.job.Topology == Star:
		return m.hubAddr(), id, hasLeft, true
	}
	return c.addr, -1, hasLeft, true
}

// calledInVain is the number of called nodes that are not connected.
func (m *membership) calledInVain() int {
	n := len(m.reached)
	for id := range m.present.all() {
		if _, ok := m.reached[id]; ok {
			n--
		}
	}
	return n
}

// awaited returns the call of a peer that is gone, which lasts until it is back, and reports
// false if there is none to be made: its attach address is called anyway, or a newer
// incarnation of it.
func (m *membership) awaited(p *member) (call, bool) {
	id, incarnation := p.peer.ID, p.peer.Incarnation
	if m.job.Topology != Mesh || len(p.addrs) == 0 || m.reached[id].incarnation > incarnation {
		return call{}, false
	}
	for _, other := range m.attached {
		if other == id {
			return call{}, false
		}
	}
	return call{id, incarnation, p.addrs[0]}, true
}

// attach records the node that has answered at an attach address. It may be gone again by now: that address is called
// anyway, so other calls of the node end.
func (m *membership) attach(addr string, p Peer) {
	m.attached[addr] = p.ID
	delete(m.trouble, addr)
	if c, ok := m.reached[p.ID]; ok && c.incarnation <= p.Incarnation {
		c.over = true
		m.reached[p.ID] = c
	}
}

// reach records a node to be called, and reports whether the calls are to begin.
func (m *membership) reach(c call) (begins bool) {
	_, runs := m.reached[c.id]
	m.reached[c.id] = reaching{incarnation: c.incarnation, addr: c.addr}
	return !runs
}
