package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Start waits for the nodes of the job; where their number does not count, for the addresses to
// dial, unless the job runs already, and for the nodes that answered there or were learned of.
func TestNodesThatStartWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		expect   int
		topology Topology
		edit     func(r *Router)
		want     []string
	}{
		"nobody": {1, Mesh, func(*Router) {}, nil},
		"of three": {3, Mesh, func(r *Router) { r.trouble["a"] = "why" },
			[]string{"node.1", "node.2 (a: why)"}},
		"ids that are others":      {3, Mesh, func(r *Router) { r.peers[9] = &session{} }, []string{"node.9 (connected, not ready)", "1 more"}},
		"ids that were others":     {3, Mesh, func(r *Router) { r.was[9] = former{ready: true} }, []string{"1 more"}},
		"ids that were learned of": {3, Mesh, func(r *Router) { r.known[9] = rumour{incarnation: 1} }, []string{"node.1", "node.2"}},
		"connected": {3, Mesh, func(r *Router) {
			r.peers[1], r.peers[2] = &session{member: member{ready: true, seen: true}}, &session{member: member{ready: true}}
		}, []string{"node.2 (connected, not ready)"}},
		"had been ready": {3, Mesh, func(r *Router) {
			r.was[1], r.was[2], r.peers[2] = former{ready: true}, former{ready: true}, &session{member: member{seen: true}}
		}, []string{"node.2 (connected, not ready)"}},
		"unknown":             {0, Mesh, func(r *Router) { r.trouble["a"] = "why" }, []string{"a (why)", "b"}},
		"unknown, they run":   {0, Mesh, func(r *Router) { r.running = true }, nil},
		"unknown, it answers": {0, Mesh, func(r *Router) { r.attached["a"] = 4 }, []string{"b", "node.4"}},
		"alone":               {3, Alone, func(*Router) {}, []string{"a", "b"}},
		"running": {3, Mesh, func(r *Router) {
			r.running, r.peers[1] = true, &session{}
			for id, incarnation := range map[int]uint64{1: 1, 2: 4, 3: 5} {
				r.known[id] = rumour{incarnation: incarnation}
			}
			for id := 2; id <= 3; id++ {
				r.forget(report{Farewell: Farewell{Node: id, Incarnation: 4}}, ErrLost)
			}
		}, []string{"node.1 (connected, not ready)", "node.3"}},
	} {
		r := openRouter(t, Config{Expect: c.expect, Topology: c.topology, Attach: []string{"b", "a"}})
		c.edit(r)
		if got := r.missing(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		clear(r.peers)
	}
}

// Start names the nodes that it waits for, and starts nothing else after a failure.
func TestStartOfAJobOfUnknownSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r := openRouter(t, Config{Transport: n, Attach: []string{"a"}})
		began := time.Now()
		err := r.Start(t.Context(), nil)
		if err == nil || err.Error() != "waited for a (nobody there): the join timeout has passed" || time.Since(began) != time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		full := errors.New("the disk is full")
		r.fail(full)
		r.fail(io.EOF)
		if err := r.awaitReady(t.Context()); !errors.Is(err, full) || err.Error() != full.Error() || r.beenReady {
			t.Error(err)
		}
	})
}

// That all are ready counts, though the context of Start has ended.
func TestStartThatIsReadyIsNoError(t *testing.T) {
	r := openRouter(t, Config{Expect: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.awaitReady(ctx); err != nil || !r.beenReady {
		t.Error(err)
	}
}

// peer is the session with a node, or nil.
func (r *Router) peer(id int) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[id]
}

// A process that did not run for a while does not treat that as silence of its peers.
func TestPausedProcessLosesNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		g.r.mu.Lock()
		g.r.beenReady = true
		g.r.was[1] = former{lostAt: 1, sayAt: 1} // it is logged at the first tick, and the log pauses the process
		g.r.log = pausingLog(20 * time.Second)
		g.r.mu.Unlock()
		g.r.wg.Go(g.r.tick)
		<-time.After(22 * time.Second)
		if g.r.peer(7) == nil {
			t.Error("the peer is lost")
		}
		if received, now := g.link.s.lastReceived.Load(), g.r.clock(); received > now || received < now-int64(4*time.Second) {
			t.Errorf("received at %v of %v", time.Duration(received), time.Duration(now))
		}
		<-time.After(10 * time.Second)
		if g.r.peer(7) != nil {
			t.Error("a silent peer is not lost")
		}
	})
}

// A peer is lost when it has been silent for longer than PeerTimeout, and its connection is cut
// when that was silent for longer than LinkTimeout.
func TestSilenceThatEndsAConnection(t *testing.T) {
	for silent, want := range map[time.Duration]string{
		5 * time.Second: "connected", 5*time.Second + 1: "cut", 8 * time.Second: "cut", 8*time.Second + 1: "lost",
	} {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, nil)
			synctest.Wait()
			<-time.After(time.Minute)
			s := g.link.s
			s.lastReceived.Store(g.r.clock() - int64(silent))
			g.r.check(s, false)
			synctest.Wait()
			got := "connected"
			switch {
			case g.r.peer(7) == nil:
				got = "lost"
				if err := g.r.was[7].err; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "silent for 8") {
					t.Error(err)
				}
			case s.current() == nil:
				got = "cut"
				if !strings.Contains(fmt.Sprint(g.link.why), "nothing was received for ") {
					t.Error(g.link.why)
				}
			}
			if got != want {
				t.Errorf("silent for %v: %s", silent, got)
			}
		})
	}
}

// At each tick a peer gets a report of the consumption since the last report, once.
func TestRestOfTheRoomIsGivenBack(t *testing.T) {
	s := newSession(openRouter(t, Config{}), Peer{ID: 1, Incarnation: 1}, nil)
	in := &inStream{s: s}
	s.remote["e"] = in
	for _, c := range []struct {
		consumed, told uint64
		err            error
		due            int
	}{{5, 5, nil, 0}, {6, 5, ErrLost, 0}, {6, 5, nil, 1}, {7, 5, nil, 1}} {
		in.consumed[0].Store(c.consumed)
		in.reported[0].Store(c.told)
		s.err = c.err
		if s.creditRest(); len(s.credits) != c.due || in.due != (c.due == 1) {
			t.Errorf("%+v: due %v, %d times", c, in.due, len(s.credits))
		}
	}
}

// A node that is not started again is the failure of a Start that waits; its loss is reported if no
// node had met it, unless it has left or a newer incarnation is known.
func TestNodeThatIsNotStartedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		was              former
		back, unmet      bool
		beenReady        bool
		reported, failed bool
	}{
		"waited for":      {former{}, false, true, false, true, true},
		"was met":         {former{incarnation: 5, err: ErrLost}, false, false, false, false, true},
		"all were ready":  {former{incarnation: 5, err: ErrLost}, false, true, true, true, false},
		"has left":        {former{incarnation: 5, err: errWentAway}, false, true, false, false, false},
		"a newer is gone": {former{incarnation: 6, err: ErrLost}, false, true, false, false, false},
		"is back":         {former{incarnation: 5, err: ErrLost}, true, true, false, false, false},
	} {
		r := openRouter(t, Config{})
		var kinds []ChangeKind
		r.Watch(func(c Change) { kinds = append(kinds, c.Kind) })
		r.was[7], r.beenReady = c.was, c.beenReady
		if c.back {
			r.peers[7] = newSession(r, Peer{ID: 7, Incarnation: 6}, nil)
		}
		woken := r.changed.wait()
		r.hasFailed(Farewell{Node: 7, Incarnation: 5}, c.unmet, &FailedError{"why"})
		var want []ChangeKind
		if c.reported {
			want = append(want, Lost)
		}
		if c.failed {
			want = append(want, Failed)
		}
		if !reflect.DeepEqual(kinds, want) || (r.failure != nil) != c.failed {
			t.Errorf("%s: changes %v, %v", name, kinds, r.failure)
		}
		select {
		case <-woken:
		default:
			t.Errorf("%s: the waiting goroutines are not woken", name)
		}
	}
}

// A node that is closed while it receives the last messages of a departed peer does not lose it.
func TestClosedNodeLosesNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		synctest.Wait()
		changes := 0
		g.r.Watch(func(Change) { changes++ })
		g.r.Gone(Farewell{Node: 7, Incarnation: 1, Reason: "killed", Final: true})
		<-time.After(time.Millisecond)
		g.r.cancel()
		synctest.Wait()
		if g.r.peers[7] != g.link.s || changes != 0 {
			t.Errorf("%d changes", changes)
		}
	})
}

// The text in the error of a Drain for each peer.
func TestErrorOfADrainForAPeer(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(s *session)
		waits bool
		want  string
	}{
		"nothing is said": {func(*session) {}, false, "node.1: has not acknowledged the end"},
		"a message, and one that waits": {func(s *session) {
			s.log.data(0, 1, []byte("x"))
			s.outs = []*outStream{{queue: make([]pending, 1)}}
		}, false, "node.1: has not acknowledged the end: 2 messages not acknowledged"},
		"not acknowledged": {func(s *session) { s.control(frameFin, 0, 0, nil) }, false, "node.1: has not acknowledged the end"},
		"acknowledged":     {func(s *session) { s.control(frameFin, 0, 0, nil); s.log.ack(1, false) }, false, ""},
		"not finished": {func(s *session) { s.control(frameFin, 0, 0, nil); s.log.ack(1, false); s.ready = true }, true,
			"node.1: has not finished"},
		"not ready": {func(s *session) { s.control(frameFin, 0, 0, nil); s.log.ack(1, false) }, true, ""},
		"finished":  {func(s *session) { s.control(frameFin, 0, 0, nil); s.log.ack(1, false); s.fin = true }, true, ""},
	} {
		r := openRouter(t, Config{})
		s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
		c.edit(s)
		r.peers[1] = s
		if err := r.undrained(c.waits); (err == nil) != (c.want == "") || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v", name, err)
		}
		delete(r.peers, 1)
	}
}

// A farewell is sent once for each incarnation, to those peers that understand it and have not sent
// it; only of other nodes, and of a bounded number.
func TestFarewellsThatAreReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Node: 1})
		for id := 2; id <= 5; id++ {
			r.peers[id] = newSession(r, Peer{ID: id, Incarnation: 9}, nil)
			r.peers[id].takesFarewells = id < 5
		}
		told := func() (got []uint64) {
			for id := 2; id <= 5; id++ {
				got = append(got, r.peers[id].log.sent)
			}
			return got
		}
		for _, c := range []struct {
			node        int
			incarnation uint64
			from        int
			want        []uint64
		}{
			{2, 3, 3, []uint64{0, 0, 1, 0}}, {2, 3, 4, []uint64{0, 0, 1, 0}}, {2, 4, 4, []uint64{0, 1, 1, 0}}, {2, 3, 9, []uint64{0, 1, 1, 0}},
			{1, 9, 9, []uint64{0, 1, 1, 0}}, {-1, 9, 9, []uint64{0, 1, 1, 0}}, {maxNode + 1, 9, 9, []uint64{0, 1, 1, 0}},
			{maxNode, 9, 9, []uint64{1, 2, 2, 0}}, {0, 9, 9, []uint64{2, 3, 3, 0}},
		} {
			r.applyFarewell(Farewell{Node: c.node, Incarnation: c.incarnation, Reason: "x"}, c.from)
			if !slices.Equal(told(), c.want) {
				t.Errorf("%+v: passed on to %v", c, told())
			}
		}
		for i := range maxFormer {
			r.applyFarewell(Farewell{Node: 1000 + i, Incarnation: 1}, 9)
		}
		r.applyFarewell(Farewell{Node: 2, Incarnation: 5}, 9)
		newest := r.farewells[1000+maxFormer-1]
		if len(r.farewells) != maxFormer || r.farewells[2] != (knownFarewell{incarnation: 5}) || newest != (knownFarewell{incarnation: 1}) {
			t.Errorf("%d farewells, of incarnations %d and %d", len(r.farewells), r.farewells[2].incarnation, newest.incarnation)
		}
		synctest.Wait()
	})
}

// A farewell needs a configuration that works.
func TestFarewellWithoutATransport(t *testing.T) {
	if err := SendFarewell(context.Background(), Config{}, "x", false); err == nil || !strings.Contains(err.Error(), "Transport is missing") {
		t.Error(err)
	}
}
