package router

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// admitted makes a node a peer, as after a handshake.
func admitted(t *testing.T, r *Router, id int, incarnation uint64) *session {
	t.Helper()
	s, err := r.admit(hello{Node: id, Incarnation: incarnation, Addrs: []string{fmt.Sprint("mem://", id)}, Features: r.features})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// announce declares an event of the peer's, which it listens to and of which it sends one
// message.
func announce(t *testing.T, s *session, name string) {
	t.Helper()
	id := uint16(len(s.ins))
	if err := s.r.declared(s, id, declaration{Name: name, Delivery: "reliable"}, true); err != nil {
		t.Fatal(err)
	}
	if _, err := s.deliver(s.ins[id], 1, []byte("hello"), false); err != nil {
		t.Fatal(err)
	}
}

// Peers come under ever new ids and incarnations, with new names of events and barriers, and
// go. What is kept of them does not grow with their number, and the sums stay.
func TestR7DepartedPeersLeaveLittle(t *testing.T) {
	r := openRouter(t, Config{Node: 1, Expect: 4, Elastic: true})
	ch, err := r.Channel(Spec{Name: "e"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const peers = 2 * maxFormer
	for i := range peers {
		id := i + 100
		if i%4 == 0 {
			id = 2
			r.joins = paces{} // it comes more slowly than this test
		}
		r.learn([]Member{{ID: id + 10000, Incarnation: 1}}, id)
		r.applyFarewell(Farewell{Node: id + 20000, Incarnation: 1, Reason: "exit code 3"}, id)
		s := admitted(t, r, id, uint64(i)+1)
		announce(t, s, "e")
		announce(t, s, fmt.Sprint("of peer ", i))
		for k := range maxUnfinished + 1 {
			if err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":"%d-%d","round":1}`, i, k)); err != nil {
				t.Fatal(err)
			}
		}
		r.lose(s, fmt.Errorf("%w: round %d", ErrLost, i))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	barriers := 0
	for _, f := range r.was {
		barriers = max(barriers, len(f.barriers))
	}
	for what, c := range map[string]struct{ n, most int }{
		"nodes that are gone":      {len(r.was), maxFormer + 4},
		"their barriers":           {barriers, maxUnfinished},
		"their counters":           {len(r.past), maxFormer + 4},
		"counters of their events": {len(r.gone), 2 * (maxFormer + 4)},
		"absences":                 {len(ch.c.absences), maxFormer + 4},
		"farewells":                {len(r.farewells), maxFormer + 4},
		"losses":                   {len(r.lost), maxLosses},
	} {
		if c.n > c.most {
			t.Errorf("%s: %d, want %d at most", what, c.n, c.most)
		}
	}
	if to := ch.c.targets.Load(); len(to.away) > maxFormer+4 {
		t.Errorf("a message is counted for %d nodes that are away", len(to.away))
	}
	if _, ok := r.was[2]; !ok {
		t.Error("a node that is expected is forgotten")
	}
	var sum StreamStats
	for _, st := range r.gone {
		sum.Add(st)
	}
	joins := uint64(0)
	for _, p := range r.past {
		joins += p.Joins
	}
	if sum.Consumed != 2*peers || sum.Unsubscribed != 2*peers || joins != peers {
		t.Errorf("of %d peers with 2 messages: %d messages, %d of them unsubscribed, %d joins", peers, sum.Consumed, sum.Unsubscribed, joins)
	}
}

// The messages of an event that this node declares later are counted once, and no counter
// falls.
func TestCountersOfAnEventThatIsDeclaredLater(t *testing.T) {
	r := openRouter(t, Config{})
	s := admitted(t, r, 7, 1)
	announce(t, s, "e")
	if st := r.Stats().Streams; len(st) != 1 || st[0].Event != "" || st[0].Peer != 7 || st[0].Consumed != 1 || st[0].ConsumedBytes != 5 {
		t.Errorf("%+v", st)
	}
	if _, err := r.Channel(Spec{Name: "e"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.deliver(s.ins[0], 2, []byte("more"), false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if st := r.Stats().Streams; len(st) != 2 || st[0].Consumed != 1 || st[1].Event != "e" || st[1].Consumed != 1 ||
			st[1].ConsumedBytes != 4 || st[1].Unsubscribed != 1 {
			t.Errorf("%+v", st)
		}
		r.lose(s, ErrLost)
	}
}

// A loss beyond those that are kept one by one is in the sum of them.
func TestLossesAreBounded(t *testing.T) {
	r := openRouter(t, Config{})
	for i := range 3 * maxLosses {
		r.mu.Lock()
		r.keepLoss(&PeerError{Node: i, Undelivered: 2, Err: ErrLost})
		r.mu.Unlock()
	}
	all := r.Losses().(interface{ Unwrap() []error }).Unwrap()
	further, ok := errors.AsType[*PeerError](all[len(all)-1])
	if n := strings.Count(r.Losses().Error(), "\n") + 1; n != maxLosses+1 || !ok || further.Undelivered != 4*maxLosses ||
		further.Node != Forgotten {
		t.Errorf("%d losses, the last one: %v", n, all[len(all)-1])
	}
	if !strings.HasSuffix(r.Losses().Error(), "further losses: 4096 messages not acknowledged") {
		t.Error(all[len(all)-1])
	}
}

// A lock for handshakes with a node is kept for as long as somebody has it or waits for it.
func TestLocksOfHandshakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		unlock := r.lockPeer(1)
		if _, ok := r.tryLockPeer(1); ok {
			t.Error("two have the lock")
		}
		second := make(chan func(), 1)
		go func() { second <- r.lockPeer(1) }()
		synctest.Wait()
		unlock()
		unlock = <-second
		if _, ok := r.tryLockPeer(1); ok || len(r.locks) != 1 {
			t.Error("two have the lock")
		}
		unlock()
		if unlock, ok := r.tryLockPeer(1); !ok {
			t.Error("nobody has the lock")
		} else {
			unlock()
		}
		if len(r.locks) != 0 {
			t.Errorf("%d locks are kept", len(r.locks))
		}
	})
}

// A node may come back as a new incarnation so many times at once, and then once a second,
// which does not concern other nodes.
func TestR7NodeThatJoinsAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Node: 0, Expect: 3})
		var news int
		r.Watch(func(Change) { news++ })
		incarnation := uint64(0)
		come := func(id int) error {
			incarnation++
			s, err := r.admit(hello{Node: id, Incarnation: incarnation})
			if err == nil {
				r.peerReady(s, false)
				r.lose(s, ErrLost)
			}
			return err
		}
		joined := 0
		for range 1000 {
			if come(1) == nil {
				joined++
			}
		}
		if joined != newsBurst || news != 2*newsBurst {
			t.Errorf("%d of 1000 joins at once, %d changes", joined, news)
		}
		for range 10 {
			<-time.After(time.Second / newsPerSecond)
			if come(1) != nil || come(1) == nil {
				t.Error("a second later it may join once")
			}
		}
		if err := come(2); err != nil {
			t.Error(err)
		}
		joined = 0
		for id := range 2 * maxPeers {
			if come(id+3) == nil {
				joined++
			}
		}
		if joined != maxPeers {
			t.Errorf("%d nodes with other ids have joined at once", joined)
		}
	})
}

// A change waits with whoever has made it for a watcher that is slow: so the changes that
// wait are as few as those who make them.
func TestR7ChangesWaitForASlowWatcher(t *testing.T) {
	r := openRouter(t, Config{})
	const makers, each = 3, 100
	told, most := 0, 0
	r.Watch(func(Change) {
		told++
		for range 10 {
			runtime.Gosched() // the others go on meanwhile, as far as they can
		}
		r.mu.Lock()
		most = max(most, len(r.changes))
		r.mu.Unlock()
	})
	var all sync.WaitGroup
	for id := range makers {
		all.Go(func() {
			for i := range uint64(each) {
				s, err := r.admit(hello{Node: id + 1, Incarnation: i + 1})
				if err != nil {
					t.Error(err)
					return
				}
				r.lose(s, ErrLost)
			}
		})
	}
	all.Wait()
	if told != makers*each || most > makers {
		t.Errorf("%d of %d changes are told, %d waited at once", told, makers*each, most)
	}
}

// The log takes so many lines of one message at once, and then one a second, which says how
// many there were between.
func TestR7LogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.NewTextHandler(log, nil)).With("at", 0)})
		if err != nil {
			t.Fatal(err)
		}
		for range 10_000 {
			r.log.Info("a node leaves", "peer", "node.7")
		}
		r.log.Info("another line")
		if n := strings.Count(log.String(), "a node leaves"); n != logBurst {
			t.Errorf("%d lines", n)
		}
		if !strings.Contains(log.String(), "another line") {
			t.Error("another message is not logged")
		}
		<-time.After(time.Second)
		r.log.Info("a node leaves", "peer", "node.7")
		r.log.Info("a node leaves", "peer", "node.7")
		if want := fmt.Sprintf("at=0 peer=node.7 leftOut=%d\n", 10_000-logBurst); !strings.HasSuffix(log.String(), want) {
			t.Error("the end of the log does not have", want)
		}
		_ = r.Close()
		if !strings.HasSuffix(log.String(), `message="a node leaves" lines=1`+"\n") {
			t.Error("the lines that were left out last are not counted")
		}
	})
}

// Rounds of barriers have bounds, and names of events too.
func TestR7WhatAPeerMaySay(t *testing.T) {
	for name, c := range map[string]struct {
		frame []byte
		why   string
	}{
		"the last round": {appendFrame(nil, frameBarrier, 0, 0, []byte(`{"name":"b","round":18446744073709551615}`)),
			"round 18446744073709551615"},
		"round 0": {appendFrame(nil, frameBarrier, 0, 0, []byte(`{"name":"b"}`)), "round 0"},
		"the end of all": {appendFrame(nil, frameBarrier, flagOn, 0, []byte(`{"name":"b","round":4611686018427387905}`)),
			"round 4611686018427387905"},
		"an event unnamed": {appendFrame(nil, frameDeclare, 0, 1, []byte(`{"name":"","delivery":"reliable"}`)),
			`event "": want a name of 1 to 255 bytes`},
		"a name too long": {appendFrame(nil, frameDeclare, 0, 1, fmt.Appendf(nil, `{"name":"%0256d"}`, 1)),
			`event "00000000000000000000": want a name of 1 to 255 bytes`},
		"a leave, at length": {appendFrame(nil, frameBye, 0, 0, make([]byte, 50<<10)), "left: "},
	} {
		t.Run(name, func(t *testing.T) {
			g := meet(t, nil)
			g.say(t, c.frame)
			if why := g.lost(); !strings.Contains(why, c.why) || len(why) > 2*maxReason {
				t.Errorf("%.200q", why)
			}
		})
	}
}

// A barrier does not wrap.
func TestBarrierHasALastRound(t *testing.T) {
	r := openRouter(t, Config{})
	r.rounds["b"] = maxRound - 1
	if err := r.Barrier(t.Context(), "b"); err != nil {
		t.Error(err)
	}
	if err := r.Barrier(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "is the last one") || r.rounds["b"] != maxRound {
		t.Errorf("%v, round %d", err, r.rounds["b"])
	}
}

// A newcomer takes the newest round over that its members can have, whatever one of them says.
func TestR7RoundsThatANewcomerTakesOver(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []uint64 // rounds; 0: it says none
		want    uint64
	}{
		{"one member", []uint64{57}, 57},
		{"members in one round", []uint64{57, 57, 57}, 57},
		{"one is ahead, in a barrier", []uint64{57, 58, 57}, 58},
		{"one is behind", []uint64{58, 57, 58, 58}, 58},
		{"of two one is ahead", []uint64{57, 58}, 58},
		{"the first round", []uint64{0, 1, 0}, 1},
		{"no round", []uint64{0, 0}, 0},
		{"one of three says nonsense", []uint64{57, maxRound, 58}, 58},
		{"one of two says nonsense", []uint64{maxRound, 57}, 57},
		{"one of three says nothing", []uint64{57, 0, 58}, 58},
		{"only one of three says anything", []uint64{0, maxRound, 0}, 0},
		{"two of five", []uint64{maxRound, 57, 57, maxRound, 58}, 58},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := openRouter(t, Config{Node: 99, Expect: len(c.members)})
			var all []*session
			for id, round := range c.members {
				s := admitted(t, r, id, 1)
				if round > 0 {
					if err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":"b","round":%d}`, round)); err != nil {
						t.Fatal(err)
					}
				}
				r.peerReady(s, true)
				r.note(func() { s.seen = true })
				if err := r.receiveBarrier(s, false, []byte(`{"name":"later","round":9}`)); err != nil { // it is no member of that
					t.Fatal(err)
				}
				all = append(all, s)
			}
			before := all[0].log.sent
			if err := r.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if r.rounds["b"] != c.want || r.rounds["later"] != 0 || r.offers != nil {
				t.Errorf("round %d, want %d", r.rounds["b"], c.want)
			}
			if told := all[0].log.sent - before; told != min(c.want, 1) {
				t.Errorf("its peers are told %d times", told)
			}
		})
	}
}

// A member that leaves lags behind, and counts only if there is no other one. What was lost
// since counts.
func TestRoundsOfMembersThatLeave(t *testing.T) {
	for _, others := range []bool{true, false} {
		r := openRouter(t, Config{Node: 99, Expect: 100})
		rounds := []uint64{50, 50, 50, 70, 70}
		if !others {
			rounds = rounds[:3]
		}
		for id, round := range rounds {
			s := admitted(t, r, id, 1)
			if err := r.receiveBarrier(s, false, fmt.Appendf(nil, `{"name":"b","round":%d}`, round)); err != nil {
				t.Fatal(err)
			}
			r.peerReady(s, true)
			r.note(func() { s.seen = true })
			switch id {
			case 0, 1:
				r.peerLeaves(s)
			case 2:
				r.depart(s, Left, errLeft)
			case 3:
				r.lose(s, ErrLost)
			}
		}
		if err := r.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if want := rounds[len(rounds)-1]; r.rounds["b"] != want {
			t.Errorf("round %d, want %d", r.rounds["b"], want)
		}
	}
}

// Of the rounds that a peer which is gone had entered those are kept that this node is in.
func TestRoundsOfAPeerThatIsGone(t *testing.T) {
	r := openRouter(t, Config{})
	s := admitted(t, r, 7, 1)
	for i := range 10 * maxUnfinished {
		s.barriers[fmt.Sprint(i)] = 1
	}
	r.rounds["5"], r.rounds["6"], r.passed["6"] = 1, 1, 1
	got := r.unfinished(s)
	if len(got) != maxUnfinished || got["5"] != 1 || got["6"] != 0 {
		t.Errorf("%d rounds, %v", len(got), got)
	}
}

// An incarnation from the far future is refused, and not learned of.
func TestR7IncarnationsFromTheFuture(t *testing.T) {
	now := uint64(time.Now().UnixNano())
	day := uint64(maxAhead)
	for _, c := range []struct {
		own, incarnation uint64
		ok               bool
	}{
		{1, now, true}, {1, now + day, true}, {1, now + day + uint64(time.Hour), false}, {1, 1<<64 - 1, false}, {1, 1, true},
		{now + 10*day, now + 10*day, true}, {now + 10*day, now + 11*day, true}, {now + 10*day, now + 12*day, false}, {1<<64 - 1, 1<<64 - 1, true},
	} {
		r := openRouter(t, Config{Node: 5, Expect: 6, Incarnation: c.own})
		no := r.acceptable(hello{Protocol: Protocol, Node: 3, Incarnation: c.incarnation, Limits: r.limits()})
		if (no == nil) != c.ok || no != nil && (no.Code != RefuseClock || !strings.Contains(no.Reason, "set the clocks of their hosts")) {
			t.Errorf("%+v: %+v", c, no)
		}
		r.learn([]Member{{ID: 3, Incarnation: c.incarnation}}, 1)
		if _, ok := r.known[3]; ok != c.ok {
			t.Errorf("%+v: a member: %v", c, ok)
		}
		r.applyFarewell(Farewell{Node: 2, Incarnation: c.incarnation}, 1)
		r.mu.Lock()
		if _, ok := r.farewells[2]; ok != c.ok {
			t.Errorf("%+v: a farewell: %v", c, ok)
		}
		r.mu.Unlock()
	}
}

// Nodes that others tell of and that never come are called less often the more they are, and
// forgotten. Whoever tells of them again is believed again.
func TestR7GhostsAreCalledAtABoundedRateAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		count := func() (all int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			for _, c := range n.calls {
				all += c
			}
			return all
		}
		r, err := New(Config{Node: maxNode, Expect: 4, Transport: n, JoinTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = r.Start(t.Context(), nil) }()
		const ghosts = 2000
		for i := range ghosts {
			r.learn([]Member{{ID: i, Incarnation: 1, Addrs: []string{fmt.Sprint(i)}},
				{ID: i + ghosts, Incarnation: 1, Addrs: []string{strings.Repeat("x", maxAddr+1)}}}, 1)
		}
		synctest.Wait()
		first := count()
		<-time.After(time.Minute)
		if all := count() - first; first != ghosts || all > 60*callsPerSecond+ghosts {
			t.Errorf("%d calls at once, %d more in a minute", first, all)
		}
		r.mu.Lock()
		if n := len(r.trouble); n > ghosts {
			t.Errorf("%d addresses in trouble", n)
		}
		r.mu.Unlock()
		<-time.After(2 * time.Minute)
		all := count()
		<-time.After(time.Hour)
		r.mu.Lock()
		if len(r.known)+len(r.reached)+len(r.trouble) > 0 || count() != all {
			t.Errorf("%d nodes are remembered, %d called, %d addresses, %d calls in an hour", len(r.known), len(r.reached), len(r.trouble),
				count()-all)
		}
		r.mu.Unlock()
		r.learn([]Member{{ID: 1, Incarnation: 1, Addrs: []string{"again"}}}, 1)
		synctest.Wait()
		if n.mu.Lock(); n.calls["again"] != 1 {
			t.Errorf("%d calls of a node that is told of again", n.calls["again"])
		}
		n.mu.Unlock()
		_ = r.Close()
	})
}

// A node is said to be at ever new addresses. Why they cannot be reached is kept of the last
// one.
func TestR7TroubleWithAddressesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r, err := New(Config{Node: 5, Transport: n, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(100) {
			r.learn([]Member{{ID: 1, Incarnation: i + 1, Addrs: []string{fmt.Sprint(i)}}}, 1)
			<-time.After(2 * time.Second)
		}
		r.mu.Lock()
		if len(r.trouble) > 1 || len(n.calls) < 50 {
			t.Errorf("%d addresses in trouble, %d were called", len(r.trouble), len(n.calls))
		}
		r.mu.Unlock()
		_ = r.Close()
	})
}

// A node is told of by others and then met: the rumour is forgotten, and a member that was
// never met does not change who is expected.
func TestR7GhostsAreNoMembers(t *testing.T) {
	r := openRouter(t, Config{Node: 1, Expect: 3})
	r.learn([]Member{{ID: 7, Incarnation: 1}, {ID: 2, Incarnation: 3}}, 0)
	r.mu.Lock()
	if ids, unknown := r.expected(); fmt.Sprint(ids) != "[0 2]" || unknown != 0 {
		t.Errorf("expected: %v and %d more", ids, unknown)
	}
	r.mu.Unlock()
	admitted(t, r, 2, 2)
	if _, ok := r.known[2]; !ok {
		t.Error("an older incarnation has come, and the newer one is forgotten")
	}
	admitted(t, r, 2, 4)
	if _, ok := r.known[2]; ok {
		t.Error("a node that has come is remembered as one that has not")
	}
}

// Farewells of one node come so many at once, and then once a second, and are looked into by
// one goroutine.
func TestR7AFloodOfFarewells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Node: 0, Expect: 4})
		peer := admitted(t, r, 1, 1)
		sent := func() uint64 { peer.mu.Lock(); defer peer.mu.Unlock(); return peer.log.sent }
		unlock := r.lockPeer(3) // a handshake goes on
		before := sent()
		for i := range uint64(1000) {
			r.applyFarewell(Farewell{Node: 3, Incarnation: i + 1, Reason: "exit code 3"}, 2)
		}
		if n := sent() - before; n != newsBurst {
			t.Errorf("%d farewells are passed on", n)
		}
		synctest.Wait()
		r.mu.Lock()
		if len(r.hearsay) != 1 || r.hearsay[3].Incarnation != newsBurst || r.locks[3].users != 2 {
			t.Errorf("%d, %+v", len(r.hearsay), r.hearsay[3])
		}
		r.mu.Unlock()
		unlock()
		synctest.Wait()
		r.mu.Lock()
		if len(r.hearsay) != 0 || r.was[3].incarnation != newsBurst || !r.was[3].hearsay {
			t.Errorf("%d, %+v", len(r.hearsay), r.was[3])
		}
		r.mu.Unlock()
		for range 5 {
			<-time.After(time.Second / newsPerSecond)
			before := sent()
			for i := range uint64(10) {
				r.applyFarewell(Farewell{Node: 3, Incarnation: 1000 + uint64(r.clock()) + i, Reason: "exit code 3"}, 2)
			}
			if n := sent() - before; n != 1 {
				t.Errorf("%d farewells are passed on in a second", n)
			}
		}
	})
}

// A peer that answers after its farewell has come lives, and its true farewell is received then.
// One that does not answer is lost after a second.
func TestR7AFarewellOfAPeerThatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		r, err := New(Config{Expect: 3, Transport: noTransport{}, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s := admitted(t, r, 1, 5)
		mine, theirs := net.Pipe()
		l, err := s.attach(mine, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		var answers sync.WaitGroup
		pings := make(chan uint64, 100)
		answers.Go(func() {
			defer close(pings)
			for {
				var head [headerBytes]byte
				if _, err := io.ReadFull(theirs, head[:]); err != nil {
					return
				}
				body := make([]byte, le.Uint32(head[:]))
				if _, err := io.ReadFull(theirs, body); err != nil {
					return
				}
				if frameType(head[4]) == framePing {
					pings <- le.Uint64(body)
				}
			}
		})
		<-time.After(time.Second)
		early := uint64(r.clock()) - 1
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "exit code 3", Final: true}, 2)
		asked := <-pings
		pong := func(v uint64) {
			if _, err := theirs.Write(appendU64(nil, framePong, 0, v)); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		if pong(early); len(r.hearsay) != 1 {
			t.Error("an answer to an older question proves nothing")
		}
		if pong(asked); len(r.hearsay) != 0 || r.peers[1] != s || r.failure != nil {
			t.Errorf("it has answered: %+v, %v", r.was[1], r.failure)
		}
		if !strings.Contains(log.String(), `msg="a node announced the end of another one, which answers" `+
			`from=node.2 peer=node.1 reason="exit code 3"`) {
			t.Error(log.String())
		}
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "passed on by another one"}, 0)
		if len(r.hearsay) != 0 {
			t.Error("a farewell that has just been disbelieved is looked into again")
		}
		<-time.After(goneWithin + 1)
		other := admitted(t, r, 2, 1)
		sent := func() uint64 { other.mu.Lock(); defer other.mu.Unlock(); return other.log.sent }
		before, began := sent(), time.Now()
		r.applyFarewell(Farewell{Node: 1, Incarnation: 5, Reason: "killed"}, 0)
		if synctest.Wait(); sent() != before {
			t.Error("a doubtful farewell is passed on")
		}
		<-l.ended
		if synctest.Wait(); sent() != before+1 {
			t.Error("a farewell that has proved true is not passed on")
		}
		if took := time.Since(began); took != goneWithin || !strings.Contains(fmt.Sprint(r.was[1].err), "killed") {
			t.Errorf("lost after %v: %v", took, r.was[1].err)
		}
		_ = theirs.Close()
		answers.Wait()
		_ = r.Close()
	})
}

// A node of which another one has said that a newer incarnation has ended is let in.
func TestR7AFarewellOfANodeThatWasNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{Expect: 3})
		r.applyFarewell(Farewell{Node: 1, Incarnation: 9, Reason: "exit code 3"}, 2)
		r.Gone(Farewell{Node: 2, Incarnation: 9, Reason: "exit code 3"})
		synctest.Wait()
		for _, c := range []struct {
			id          int
			incarnation uint64
			code        string
		}{{1, 8, ""}, {1, 9, RefuseLost}, {1, 10, ""}, {2, 8, RefuseStale}, {2, 9, RefuseLost}, {2, 10, ""}} {
			code := ""
			if _, no := r.find(hello{Node: c.id, Incarnation: c.incarnation}); no != nil {
				code = no.Code
			}
			if code != c.code {
				t.Errorf("%+v: %s", c, code)
			}
		}
	})
}

// A newcomer waits for an expected member that it has only learned of for half of the time that it
// has to join, and for any other as long as a peer may be silent.
func TestR7AMemberThatIsNotThereHoldsUpNobody(t *testing.T) {
	for _, c := range []struct {
		id         int
		join, want time.Duration
	}{
		{7, time.Minute, 8 * time.Second},
		{3, time.Minute, 30 * time.Second},
		{3, 10 * time.Second, 8 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{Node: 2, Expect: 4, PeerTimeout: 8 * time.Second, Heartbeat: time.Second, JoinTimeout: c.join})
			for id := range 2 {
				s := admitted(t, r, id, 1)
				r.peerReady(s, true)
				r.note(func() { s.seen = true })
			}
			r.learn([]Member{{ID: c.id, Incarnation: 1}}, 0)
			r.wg.Go(r.tick)
			began := time.Now()
			err := r.await(t.Context(), func() (bool, error) { return len(r.lacks(r.clock())) == 0, nil })
			if took := time.Since(began); err != nil || took <= c.want || took > c.want+time.Second {
				t.Errorf("node.%d: waited %v, want %v: %v", c.id, took, c.want, err)
			}
		})
	}
}

// One member of four says that the job runs, and tells of no other: the newcomer waits until it
// has met the other members as well, however late they are, while one that lives can come.
func TestR7OneMemberAloneDoesNotStartANewcomer(t *testing.T) {
	for _, c := range []struct {
		name         string
		node, expect int
		attach       []string
		said         []int // peers that say that the job runs
		wait         time.Duration
	}{
		{"one that is not expected", 1, 4, nil, []int{4}, 8 * time.Second},
		{"many that are not expected", 1, 4, nil, []int{4, 5, 6, 7}, 8 * time.Second},
		{"one of three", 1, 4, nil, []int{0}, 8 * time.Second},
		{"two of three", 1, 4, nil, []int{0, 2}, 0},
		{"one of two", 1, 3, nil, []int{0}, 8 * time.Second},
		{"the other one", 1, 2, nil, []int{0}, 0},
		{"an additional node, two of three", 9, 3, nil, []int{0, 1}, 0},
		{"an additional node, one of three", 9, 3, nil, []int{0}, 8 * time.Second},
		{"no number, an address that does not answer", 1, 0, []string{"mem://8"}, []int{0}, 8 * time.Second},
		{"no number, no address", 1, 0, nil, []int{0}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := openRouter(t, Config{
					Node: c.node, Expect: c.expect, Attach: c.attach, PeerTimeout: 8 * time.Second,
					Heartbeat: time.Second, JoinTimeout: time.Hour,
				})
				for _, id := range c.said {
					s := admitted(t, r, id, 1)
					r.peerReady(s, true)
					r.note(func() { s.seen = true })
				}
				r.wg.Go(r.tick)
				began := time.Now()
				err := r.await(t.Context(), func() (bool, error) { return len(r.lacks(r.clock())) == 0, nil })
				if took := time.Since(began); err != nil || took < c.wait || took > c.wait+time.Second {
					t.Errorf("waited %v, want %v; %v", took, c.wait, err)
				}
			})
		})
	}
}

// A member that lies is not believed once all expected nodes have been met: a barrier waits
// for all of them.
func TestR7MembersOfANewcomerAreTheExpectedOnes(t *testing.T) {
	r := openRouter(t, Config{Node: 1, Expect: 4})
	for _, id := range []int{4, 0, 2, 3} {
		s := admitted(t, r, id, 1)
		r.peerReady(s, id == 4)
		r.note(func() { s.seen = true })
	}
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.note(func() { r.peers[0].ready = false })
	if got := r.members(); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("members %v", got)
	}
}

// TestAFarewellIsAnsweredBeforeItIsReceived: what it says may end the node that receives it, and the answer with
// it.
func TestAFarewellIsAnsweredBeforeItIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		ours, theirs := net.Pipe()
		done := make(chan error, 1) // one result
		go func() {
			_, err := r.answerFarewell(ours, hello{Node: 3, Incarnation: 2, Farewell: &Farewell{Reason: "exit code 3", Final: true}})
			done <- err
		}()
		synctest.Wait()
		received := func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.farewells[3].incarnation == 2
		}
		if received() {
			t.Error("it is received before it is answered")
		}
		var w welcome
		if _, err := readMsg(theirs, &w); err != nil || w.Refuse != nil {
			t.Errorf("answer %+v, %v", w, err)
		}
		if err := <-done; err != nil || !received() {
			t.Errorf("%v, received: %v", err, received())
		}
		// One that has gone is received all the same.
		_ = theirs.Close()
		if _, err := r.answerFarewell(ours, hello{Node: 4, Incarnation: 2, Farewell: &Farewell{Reason: "exit code 3"}}); err == nil {
			t.Error("an answer to nobody is no error")
		}
		if r.mu.Lock(); r.farewells[4].incarnation != 2 {
			t.Error("a farewell is lost with its answer")
		}
		r.mu.Unlock()
	})
}
