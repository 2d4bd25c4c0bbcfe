package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
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

// announce declares an event of the peer, which listens to it and sends one message of it.
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

// Peers come and go under new ids and incarnations, with new names of events and barriers. The state
// that is kept of them does not grow with their number, and the sums stay.
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
		t.Errorf("a message is counted for %d absent nodes", len(to.away))
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

// A loss beyond those that are kept one by one is added to their sum.
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

// A lock for handshakes with a node is kept while a goroutine holds it or waits for it.
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
			t.Error("no goroutine has the lock")
		} else {
			unlock()
		}
		if len(r.locks) != 0 {
			t.Errorf("%d locks are kept", len(r.locks))
		}
	})
}
