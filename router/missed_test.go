package router

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
)

var errWentAway = fmt.Errorf("%w: the node has ended", errLeft)

// listener is the session of a node that listens to all events of r.
func listener(t *testing.T, r *Router, node int, incarnation uint64) *session {
	t.Helper()
	s, err := r.admit(hello{Node: node, Incarnation: incarnation})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range r.channels {
		d := declaration{Name: c.spec.Name, Delivery: c.spec.Delivery.String(), Fingerprint: c.spec.Fingerprint}
		if err := r.declared(s, uint16(i), d, true); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// event declares an event that keeps no messages.
func event(t *testing.T, r *Router, spec Spec) *Channel {
	t.Helper()
	ch, err := r.Channel(spec, func(*Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// listens makes a peer listen to its first event, or stop listening to it.
func listens(t *testing.T, s *session, on bool) {
	t.Helper()
	if err := s.r.listening(s.ins[0], on); err != nil {
		t.Error(err)
	}
}

// A message for a peer that goes while the sender looks at the audience is counted: as lost, or
// as sent away if the peer leaves. One for a peer that only stops listening is not, and no
// Latest one is.
func TestMessageForAPeerThatGoesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		delivery  Delivery
		err       error
		withdrawn bool
		counted   bool
		left      bool
	}{
		"lost":              {Reliable, ErrLost, false, true, false},
		"left":              {Reliable, errWentAway, false, true, true},
		"leaves":            {Reliable, nil, true, true, true},
		"lost as it leaves": {Reliable, ErrLost, true, true, true},
		"does not listen":   {Reliable, nil, false, false, false},
		"the newest value":  {Latest, ErrLost, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := openRouter(t, Config{})
			r.started.Store(true)
			ch := event(t, r, Spec{Name: "e", Delivery: c.delivery})
			s := listener(t, r, 7, 1)
			to := ch.c.targets.Load()
			r.mu.Lock()
			s.withdrawn = c.withdrawn
			r.mu.Unlock()
			s.mu.Lock()
			s.err, s.outs[0].listens = c.err, false
			s.mu.Unlock()
			ch.c.targets.Store(to) // as the sender has read it
			if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 0 || err != nil {
				t.Error(n, err)
			}
			a := ch.c.absences[7]
			if (a != nil) != c.counted || a != nil && (a.missed.Load() != 1 || a.left != c.left || a.peer.Incarnation != 1) {
				t.Errorf("%+v", a)
			}
		})
	}
}

// When a peer goes, messages to it are counted from then on for the events that it listened to: not
// for those that it declared differently, nor for newest values.
func TestEventsThatAPeerMisses(t *testing.T) {
	for _, left := range []bool{false, true} {
		r := openRouter(t, Config{})
		r.beenReady = true // an event that differs is no failure
		for _, name := range []string{"received", "off", "newest", "differs"} {
			delivery := map[bool]Delivery{true: Latest}[name == "newest"]
			event(t, r, Spec{Name: name, Delivery: delivery})
		}
		s, err := r.admit(hello{Node: 7, Incarnation: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range r.channels {
			d := declaration{Name: c.spec.Name, Delivery: c.spec.Delivery.String()}
			if d.Name == "differs" {
				d.Fingerprint = 9
			}
			if err := r.declared(s, uint16(i), d, d.Name != "off"); err != nil {
				t.Fatal(err)
			}
		}
		event(t, r, Spec{Name: "not the peer's"})
		r.mu.Lock()
		r.setOff(s, left)
		for _, c := range r.channels {
			a := c.absences[7]
			if (a != nil) != (c.spec.Name == "received") || a != nil && (a.left != left || a.peer.Incarnation != 3) {
				t.Errorf("%s: %+v", c.spec.Name, a)
			}
		}
		r.mu.Unlock()
	}
}

// The messages that a node has missed are reported when it is back, once, in one error for all events;
// or only logged, if it had left. Then nothing more is counted, also if it does not listen any more.
func TestNodeThatIsBackMissesNothingMore(t *testing.T) {
	for _, left := range []bool{false, true} {
		var log logtest.Buffer
		r := openRouter(t, Config{})
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.started.Store(true)
		chs := []*Channel{event(t, r, Spec{Name: "a"}), event(t, r, Spec{Name: "b"})}
		s := listener(t, r, 7, 1)
		if left {
			r.depart(s, Left, errWentAway)
		} else {
			r.depart(s, Lost, ErrLost)
		}
		send := func() {
			for i, ch := range chs {
				for range i + 1 {
					if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 0 || err != nil {
						t.Error(n, err)
					}
				}
			}
		}
		send()
		if r.isBack(7, 1); log.String() != "" { // a late frame of the one that is gone
			t.Error(log.String())
		}
		if !chs[0].Listened() {
			t.Error("no node is absent")
		}
		for range 2 {
			r.isBack(7, 2)
		}
		send()
		if chs[0].Listened() {
			t.Error("the node is still absent")
		}
		r.reportAway()
		perr, ok := errors.AsType[*PeerError](r.Losses())
		if ok == left || ok && (perr.Undelivered != 3 || perr.Incarnation != 1 || strings.Contains(r.Losses().Error(), "\n")) {
			t.Errorf("left %v: %v", left, r.Losses())
		}
		want := `level=WARN msg="messages for a node were not sent, as it was lost" peer=node.7 messages=3`
		if left {
			want = `level=INFO msg="messages for a node were not sent, as it had left" peer=node.7 messages=3`
		}
		if strings.Count(log.String(), want) != 1 || strings.Count(log.String(), "messages for a node") != 1 {
			t.Errorf("left %v: the log:\n%s", left, log.String())
		}
	}
}

// The messages missed by nodes that do not come back are reported at the end, in one error for each
// node, or logged if it had left.
func TestNodesThatStayAwayAreReported(t *testing.T) {
	var log logtest.Buffer
	r := openRouter(t, Config{})
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	r.mu.Lock()
	for node, left := range []bool{false, true, false} {
		s := newSession(r, Peer{ID: node, Incarnation: 1}, nil)
		for i, name := range []string{"a", "b"} {
			if r.byName[name] == nil {
				c := &channel{r: r, spec: Spec{Name: name}, absences: map[int]*absence{}}
				r.byName[name], r.channels = c, append(r.channels, c)
			}
			if a := r.byName[name].absent(s, left); node < 2 {
				a.missed.Add(uint64(i) + 1)
			}
		}
	}
	r.mu.Unlock()
	r.reportAway()
	if err := r.Losses(); err == nil || err.Error() != "node.0: away: 3 messages not acknowledged" {
		t.Error(err)
	}
	for _, want := range []string{`it was lost" peer=node.0 messages=3`, `it had left" peer=node.1 messages=3`} {
		if strings.Count(log.String(), want) != 1 || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("want %s:\n%s", want, log.String())
		}
	}
}

// The messages missed by an incarnation that had left are no loss when the next one is gone too.
func TestNodeThatLeftTwice(t *testing.T) {
	r := openRouter(t, Config{})
	ch := event(t, r, Spec{Name: "e"})
	r.mu.Lock()
	ch.c.absent(newSession(r, Peer{ID: 7, Incarnation: 1}, nil), true).missed.Add(2)
	ch.c.absent(newSession(r, Peer{ID: 7, Incarnation: 2}, nil), false)
	r.mu.Unlock()
	if err := r.Losses(); err != nil {
		t.Error(err)
	}
	if st := r.Stats().Streams[0]; st.Away != 2 || st.Sent != 2 || st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// A message that waits for room when the peer leaves or stops listening is not addressed to it;
// in the first case it is counted as away.
func TestSendThatWaitsForAPeerThatLeaves(t *testing.T) {
	for _, left := range []bool{false, true} {
		r := openRouter(t, Config{})
		ch := event(t, r, Spec{Name: "e"})
		s := listener(t, r, 7, 1)
		s.mu.Lock()
		w := s.outs[0].wait(1, Bytes("x"))
		s.mu.Unlock()
		if left {
			r.depart(s, Left, errWentAway)
		} else {
			listens(t, s, false)
		}
		if n, err := ch.c.await(t.Context(), []*waiter{w}); n != 0 || err != nil {
			t.Error(n, err)
		}
		a := ch.c.absences[7]
		if (a != nil) != left || left && a.missed.Load() != 1 {
			t.Errorf("left %v: %+v", left, a)
		}
	}
}

// A peer listens now, or has listened, or is away, or the event has a newest value for it.
func TestWhetherAnyPeerListens(t *testing.T) {
	r := openRouter(t, Config{})
	ch, newest := event(t, r, Spec{Name: "e"}), event(t, r, Spec{Name: "n", Delivery: Latest})
	if ch.Listened() || ch.EverListened() || !newest.Listened() || newest.EverListened() {
		t.Error("a peer listens")
	}
	s := listener(t, r, 7, 1)
	if !ch.Listened() || !ch.EverListened() {
		t.Error("no peer listens")
	}
	listens(t, s, false)
	if ch.Listened() || !ch.EverListened() {
		t.Error("the peer still listens, or never has")
	}
	listens(t, s, true)
	r.depart(s, Lost, ErrLost)
	if !ch.Listened() || len(ch.c.targets.Load().out) != 0 {
		t.Error("the peer is not awaited")
	}
}
