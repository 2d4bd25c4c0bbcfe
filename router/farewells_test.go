package router

import (
	"testing"
	"time"
)

// A farewell is received once for each incarnation, but not if it is of this node, of no node, or too
// frequent. A farewell of a node that has answered an earlier one is doubtful, and is not received for
// a second.
func TestRuleOfFarewells(t *testing.T) {
	wall := time.Unix(100, 0)
	m, _ := rules(Config{Node: 1, Expect: 4, Incarnation: 3})
	receive := func(id int, incarnation uint64, now float64, want farewellEffect, doubtful bool) {
		t.Helper()
		said, what := m.noteFarewell(Farewell{Node: id, Incarnation: incarnation}, 2, secs(now), wall)
		if what != want || (said != nil) != (want >= begun) || said != nil && (said.doubtful != doubtful || !said.hearsay || said.from != 2) {
			t.Errorf("of node.%d, incarnation %d: %v, %+v", id, incarnation, what, said)
		}
	}
	receive(1, 5, 0, noNews, false)
	receive(-1, 5, 0, noNews, false)
	receive(maxNode+1, 5, 0, noNews, false)
	receive(3, uint64(wall.Add(2*maxAhead).UnixNano()), 0, ignored, false)
	receive(3, 5, 0, begun, false)
	receive(3, 5, 0, noNews, false)
	receive(3, 6, 0, followed, false)
	receive(3, 7, 0, followed, false)
	if next := m.next(3); next == nil || next.Incarnation != 7 {
		t.Errorf("next %+v", next)
	}
	if next := m.next(3); next != nil || len(m.hearsay) != 0 {
		t.Errorf("next %+v of %v", next, m.hearsay)
	}
	m.farewells[3] = knownFarewell{disbelieved: secs(1)}
	receive(3, 7, 2, noNews, true)
	receive(3, 7, 2.1, begun, true)
	for i := range uint64(newsBurst) {
		receive(0, 10+i, 3, [2]farewellEffect{begun, followed}[min(i, 1)], false)
	}
	receive(0, 99, 3, ignored, false)
}

// A node that is not present is lost by the farewell of a newer incarnation; if another node passes it on,
// only if this node has received an announcement of it. A failed node is over, unless it has left
// in order, or has returned.
func TestRuleOfBurial(t *testing.T) {
	for name, c := range map[string]struct {
		present, known bool
		was            former
		hearsay        bool
		buried, kept   bool
		over           bool
	}{
		"by the launcher":          {buried: true, kept: true, over: true},
		"by hearsay":               {hearsay: true, over: true},
		"by hearsay that is known": {hearsay: true, known: true, buried: true, over: true},
		"known to the launcher":    {known: true, buried: true, over: true},
		"present":                  {present: true},
		"gone before":              {was: former{incarnation: 5, err: ErrLost}, over: true},
		"had left":                 {was: former{incarnation: 5, err: errLeft}},
		"an older one had left":    {was: former{incarnation: 4, err: errLeft}, buried: true, kept: true, over: true},
		"a newer one was there":    {was: former{incarnation: 6, err: ErrLost}},
	} {
		m, peers := rules(Config{Node: 1})
		m.known[3] = rumour{incarnation: 5}
		if c.present {
			peers.add(3)
		}
		if c.known {
			m.farewells[3] = knownFarewell{incarnation: 5}
		}
		if c.was.incarnation > 0 {
			m.was[3] = c.was
		}
		f := report{Farewell: Farewell{Node: 3, Incarnation: 5}, hearsay: c.hearsay}
		kept := m.bury(f, ErrLost)
		_, known := m.known[3]
		buried := m.was[3].incarnation == 5 && c.was.incarnation < 5
		if kept != c.kept || buried != c.buried || known == c.buried || m.overFor(f.Farewell) != c.over {
			t.Errorf("%s: kept %v, buried %v, known %v, over %v", name, kept, buried, known, m.overFor(f.Farewell))
		}
	}
}

// A peer that is gone in a mesh is called at its old address, unless the address is called anyway. A
// node that has left is called on request only; in a star, its hub is called.
func TestRuleOfCalls(t *testing.T) {
	m, peers := rules(Config{Node: 4, Attach: []string{"hub", "x"}})
	peers.add(1, 2, 3)
	peers[3].addrs = nil
	m.attached["x"], m.attached["hub"] = 2, 0
	for id, want := range map[int]bool{1: true, 2: false, 3: false} {
		if c, ok := m.awaited(peers[id]); ok != want || ok && c != (call{1, 5, "at1"}) {
			t.Errorf("node.%d: %+v, %v", id, c, ok)
		}
	}
	m.reach(call{1, 6, "new"})
	if _, ok := m.awaited(peers[1]); ok {
		t.Error("a newer incarnation is called already")
	}
	for name, c := range map[string]struct {
		was         former
		over, again bool
		star        bool
		addr        string
		relay       int
		left, ok    bool
	}{
		"never met":                  {addr: "new", relay: -1, ok: true},
		"lost":                       {was: former{incarnation: 6, err: ErrLost}, addr: "new", relay: -1, ok: true},
		"over":                       {over: true},
		"left":                       {was: former{incarnation: 6, err: errLeft}, left: true},
		"left, again":                {was: former{incarnation: 6, err: errLeft}, again: true, addr: "new", relay: -1, left: true, ok: true},
		"left in an older one":       {was: former{incarnation: 5, err: errLeft}, addr: "new", relay: -1, ok: true},
		"through the hub":            {star: true, addr: "hub", relay: 1, ok: true},
		"left, again, in a star":     {was: former{incarnation: 6, err: errLeft}, again: true, star: true, left: true},
		"lost, in a star, and again": {was: former{incarnation: 6, err: ErrLost}, again: true, star: true, addr: "hub", relay: 1, ok: true},
	} {
		m.was[1], m.reached[1], m.job.Topology = c.was, reaching{6, "new", c.over}, Mesh
		if c.star {
			m.job.Topology = Star
		}
		addr, relay, left, ok := m.goal(1, c.again)
		if addr != c.addr || ok && relay != c.relay || left != c.left || ok != c.ok {
			t.Errorf("%s: %q by %d, left %v, %v", name, addr, relay, left, ok)
		}
	}
	if !m.isHub(0) || m.isHub(2) {
		t.Error("node.0 has answered at the address of the hub")
	}
	m.reached = map[int]reaching{3: {5, "a", false}, 5: {6, "b", false}}
	m.trouble["x"] = "refused"
	m.attach("x", Peer{ID: 3, Incarnation: 5})
	m.attach("y", Peer{ID: 5, Incarnation: 5})
	_, troubled := m.trouble["x"]
	if m.attached["x"] != 3 || troubled {
		t.Errorf("attached to %v, trouble %v", m.attached, troubled)
	}
	if addr, _, _, again := m.goal(3, false); again {
		t.Errorf("the other call of a connected node continues, at %q", addr)
	}
	if addr, _, _, newer := m.goal(5, false); !newer {
		t.Errorf("the call of a newer incarnation ends, at %q", addr)
	}
	m.job.Attach = nil
	if m.hubAddr() != "" || m.isHub(0) {
		t.Error("a node that attaches to none has no hub")
	}
}
