package router

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Whether a node has entered a round, need not enter it, or will not, by what it announced or was.
func TestEntryOfAPeerInARound(t *testing.T) {
	const round = 3
	at := func(round uint64) map[string]uint64 { return map[string]uint64{"b": round, "other": 9} }
	for name, c := range map[string]struct {
		peer *session // nil: it is gone
		was  former
		want bool
		err  error
	}{
		"not yet":                 {&session{member: member{barriers: at(round - 1)}}, former{}, false, nil},
		"entered":                 {&session{member: member{barriers: at(round)}}, former{}, true, nil},
		"further":                 {&session{member: member{barriers: at(round + 1)}}, former{}, true, nil},
		"before it was restarted": {&session{}, former{barriers: at(round), err: ErrLost}, true, nil},
		"too early":               {&session{}, former{barriers: at(round - 1), err: ErrLost}, false, nil},
		"leaves":                  {&session{member: member{withdrawn: true}}, former{}, true, nil},
		"has left":                {nil, former{withdrawn: true, err: errWentAway}, true, nil},
		"is back":                 {&session{}, former{withdrawn: true, err: errWentAway}, false, nil},
		"gone":                    {nil, former{err: ErrLost}, false, ErrLost},
		"gone after it":           {nil, former{barriers: at(round), err: ErrLost}, true, nil},
		"done":                    {&session{member: member{done: true}}, former{}, false, errDone},
		"done after it":           {&session{member: member{done: true, barriers: at(round)}}, former{}, true, nil},
		"never met":               {nil, former{}, false, nil},
	} {
		r := openRouter(t, Config{})
		r.was[7] = c.was
		if c.peer != nil {
			r.peers[7] = c.peer
		}
		if got, err := r.entered(7, "b", round); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		clear(r.peers)
	}
}

// A barrier that a node will not enter any more is not a fault after this node drains or is done.
func TestUnpassableBarrierAtTheEndOfTheJob(t *testing.T) {
	for name, end := range map[string]func(r *Router){
		"goes on": func(*Router) {}, "drains": func(r *Router) { r.inDrain.Store(true) }, "done": func(r *Router) { r.done = true },
	} {
		r := openRouter(t, Config{Expect: 2})
		r.was[1] = former{incarnation: 1, ready: true, err: ErrLost, lostAt: 1}
		end(r)
		err := r.Barrier(t.Context(), "b")
		want := `barrier "b": node.1 will not enter it: lost`
		if name != "goes on" {
			want = "the job ends: " + want + ": " + ErrClosed.Error()
		}
		if err == nil || err.Error() != want || !errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) != (name != "goes on") {
			t.Errorf("%s: %v", name, err)
		}
		r.mu.Lock()
		r.inDrain.Store(false) // so that Close is the reason
		r.mu.Unlock()
	}
}

// A barrier that is passed already returns nil, though a node that had entered it is lost by now
// and the context has ended.
func TestBarrierThatIsPassedIsNoError(t *testing.T) {
	r := openRouter(t, Config{Expect: 2})
	r.was[1] = former{incarnation: 1, ready: true, err: ErrLost, lostAt: 1}
	r.passed["b"] = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Barrier(ctx, "b"); err != nil {
		t.Error(err)
	}
	if err := r.Barrier(ctx, "b"); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "will not enter it") {
		t.Errorf("the next round: %v", err)
	}
}

// The announcement that a round is passed is sent once, to all peers but the one that has sent it.
func TestPassedRoundIsAnnouncedOnce(t *testing.T) {
	r := openRouter(t, Config{})
	for id := 1; id <= 3; id++ {
		r.peers[id] = newSession(r, Peer{ID: id, Incarnation: 1}, nil)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range 2 {
		r.pass("b", 4, r.peers[2])
	}
	r.pass("b", 3, nil)
	for id, s := range r.peers {
		if want := uint64(id & 1); s.log.sent != want {
			t.Errorf("node.%d is notified %d times", id, s.log.sent)
		}
	}
	if r.passed["b"] != 4 {
		t.Errorf("round %d is passed", r.passed["b"])
	}
}

// Announcements of a peer about a round: a newcomer takes over the rounds of a running job when it has
// started, and a round that all have entered is passed if this node is in it.
func TestRoundsOfAPeer(t *testing.T) {
	for name, c := range map[string]struct {
		peerReady, beenReady, runs, all bool
		mine, theirs                    uint64
		rounds, passed                  uint64 // when the node has started
	}{
		"newcomer":              {false, false, true, false, 2, 5, 5, 0},
		"newcomer, further":     {false, false, true, false, 7, 5, 7, 0},
		"nobody has started":    {false, false, false, false, 2, 5, 2, 0},
		"the peer is ready":     {true, false, true, false, 2, 5, 2, 0},
		"this node has been":    {false, true, true, false, 2, 5, 2, 0},
		"all are in it":         {true, true, true, true, 5, 5, 5, 5},
		"all are, further":      {true, true, true, true, 6, 5, 6, 5},
		"all, but not this one": {true, true, true, true, 4, 5, 4, 0},
	} {
		r := openRouter(t, Config{})
		s := newSession(r, Peer{ID: 7, Incarnation: 1}, nil)
		s.ready, s.seen, r.beenReady, r.rounds["b"], r.peers[7] = c.peerReady, true, c.beenReady, c.mine, s
		for _, round := range []uint64{c.theirs, c.theirs - 1} { // an older one changes nothing
			if err := r.receiveBarrier(s, c.all && round == c.theirs, fmt.Appendf(nil, `{"name":"b","round":%d}`, round)); err != nil {
				t.Error(err)
			}
		}
		if r.peerReady(s, c.runs); r.rounds["b"] != c.mine {
			t.Errorf("%s: round %d before the node has started", name, r.rounds["b"])
		}
		if err := r.awaitReady(t.Context()); err != nil {
			t.Error(err)
		}
		if s.barriers["b"] != c.theirs || r.rounds["b"] != c.rounds || r.passed["b"] != c.passed {
			t.Errorf("%s: the peer is in %d, this node in %d, passed %d", name, s.barriers["b"], r.rounds["b"], r.passed["b"])
		}
		clear(r.peers)
	}
}

// A peer may use a bounded number of names of barriers, each of them again, and the length of a name
// is bounded.
func TestR7NamesOfAPeersBarriersAreBounded(t *testing.T) {
	r := openRouter(t, Config{})
	s := newSession(r, Peer{ID: 7, Incarnation: 1}, nil)
	for i := range maxBarriers - 1 {
		s.barriers[fmt.Sprint(i)] = 1
	}
	long := strings.Repeat("x", maxName)
	for _, c := range []struct {
		name string
		bad  bool
	}{{long + "x", true}, {long, false}, {"0", false}, {long, false}, {"one more", true}} {
		err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":%q,"round":1}`, c.name))
		if errors.Is(err, errBadFrame) != c.bad || !c.bad && err != nil {
			t.Errorf("%.10s: %v", c.name, err)
		}
	}
}

// Of a peer that is gone, the rounds count that it had entered and this node had not passed.
func TestRoundsThatAPeerLeavesBehind(t *testing.T) {
	r := openRouter(t, Config{})
	r.passed = map[string]uint64{"passed": 3, "further": 4, "open": 1}
	s := newSession(r, Peer{ID: 7}, nil)
	s.barriers = map[string]uint64{"passed": 3, "further": 3, "open": 2, "new": 1}
	if got, want := r.unfinished(s), (map[string]uint64{"open": 2, "new": 1}); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(s.barriers) != 4 {
		t.Error("the peer's own rounds have changed")
	}
}

// A barrier waits for the nodes of the job; where their number does not count, for those that
// are ready and those that are lost and not back, in the order of their ids.
func TestMembersThatABarrierWaitsFor(t *testing.T) {
	var ready []int
	for id := 10; id < 20; id++ {
		ready = append(ready, id)
	}
	for name, c := range map[string]struct {
		expect   int
		topology Topology
		running  bool
		want     []int
	}{
		"of so many":        {4, Mesh, false, []int{1, 2, 3}},
		"running":           {4, Mesh, true, append([]int{3}, ready...)},
		"alone":             {4, Alone, false, ready},
		"of an unknown job": {0, Star, false, append([]int{3}, ready...)},
	} {
		r := openRouter(t, Config{Expect: c.expect, Topology: c.topology})
		r.running = c.running
		r.was[3] = former{ready: true, lostAt: 5, err: ErrLost}
		r.was[10] = former{lostAt: 5, err: ErrLost} // it is back
		r.was[21] = former{err: errWentAway}
		if name != "of so many" {
			for _, id := range append(ready, 30) {
				r.peers[id] = newSession(r, Peer{ID: id}, nil)
				r.peers[id].ready = id < 30
			}
		}
		if got := r.members(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
