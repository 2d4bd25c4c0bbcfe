package router

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// A node may return as a new incarnation a few times at once, and then once a second. That does not
// limit other nodes.
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

// A change for a slow watcher waits in the goroutine that has made it: so no more changes wait than
// there are such goroutines.
func TestR7ChangesWaitForASlowWatcher(t *testing.T) {
	r := openRouter(t, Config{})
	const makers, each = 3, 100
	told, most := 0, 0
	r.Watch(func(Change) {
		told++
		for range 10 {
			runtime.Gosched() // the others continue meanwhile, as far as they can
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
		t.Errorf("%d of %d changes reached the peer, %d waited at once", told, makers*each, most)
	}
}

// The log takes a few lines of one message at once, and then one a second, which has the number of
// those left out.
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

// Rounds of barriers and names of events are bounded.
func TestR7NamesOfAPeerAreBounded(t *testing.T) {
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

// An incarnation from the far future is refused, and not remembered.
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
