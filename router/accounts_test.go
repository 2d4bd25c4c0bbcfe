package router

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// countingTransport is a transport that counts.
type countingTransport struct{ noTransport }

func (countingTransport) Counters() map[string]int64 { return map[string]int64{"open_connections": 3} }

// Stats has the counters of the transport, and the calls that did not lead to a connection.
func TestStatsOfTheTransport(t *testing.T) {
	r := openRouter(t, Config{Transport: countingTransport{}})
	if _, err := r.call(t.Context(), "mem://a", -1, r.cfg.HandshakeTimeout); err == nil {
		t.Error("a dial without a listener succeeds")
	}
	st := r.Stats()
	if st.Transport["open_connections"] != 3 || st.DialsFailed != 1 || st.Dialed != 0 || st.Accepted != 0 {
		t.Errorf("%+v", st)
	}
}

// A large message counts as undelivered once, until its last chunk is acknowledged.
func TestLargeMessageIsUndeliveredOnce(t *testing.T) {
	var l sendLog
	payload := &counted{b: make([]byte, 100)}
	l.frame(frameReady, 0, 0, nil)
	l.data(0, 1, []byte("x"))
	l.chunk(0, 2, payload, 0, 60)
	l.chunk(0, 2, payload, 60, 40)
	l.data(0, 3, []byte("y"))
	for acked, want := range []int{3, 3, 2, 2, 1, 0} {
		if !l.ack(uint64(acked), false) {
			t.Errorf("frame %d is not acknowledged", acked)
		}
		if got := l.undelivered(); got != want {
			t.Errorf("after %d frames: %d, want %d", acked, got, want)
		}
	}
	var all net.Buffers
	l.wrote(l.gather(&all, 1<<20))
	l.trim(false)
	if n := payload.refs.Load(); n != 0 || len(l.segs) != 0 || l.unwritten() {
		t.Errorf("the payload is kept %d times, %d segments, unwritten: %v", n, len(l.segs), l.unwritten())
	}
}

// The messages that two incarnations of a node have missed are counted, and reported once for each
// incarnation.
func TestMissesOfTwoIncarnations(t *testing.T) {
	r := openRouter(t, Config{})
	ch, err := r.Channel(Spec{Name: "e"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	older, newer := newSession(r, Peer{ID: 7, Incarnation: 1}, nil), newSession(r, Peer{ID: 7, Incarnation: 2}, nil)
	r.mu.Lock()
	ch.c.absent(older, false).missed.Add(2)
	ch.c.absent(older, false).missed.Add(1)
	ch.c.absent(newer, false).missed.Add(4)
	r.mu.Unlock()
	if st := r.Stats().Streams[0]; st.Sent != 7 || st.Lost != 7 || st.Away != 0 || st.Peer != 7 || st.Event != "e" {
		t.Errorf("%+v", st)
	}
	first, ok := errors.AsType[*PeerError](r.Losses())
	if !ok || first.Incarnation != 1 || first.Undelivered != 3 || !errors.Is(first, ErrAway) {
		t.Errorf("%v", r.Losses())
	}
	for range 2 {
		r.reportAway()
	}
	if err := r.Losses(); strings.Count(err.Error(), "\n") != 1 || !strings.Contains(err.Error(), "node.7: away: 4 messages") {
		t.Error(err)
	}
	r.mu.Lock()
	ch.c.absent(newer, true).missed.Add(1)
	r.mu.Unlock()
	if st := r.Stats().Streams[0]; st.Sent != 8 || st.Lost != 3 || st.Away != 5 {
		t.Errorf("it has left: %+v", st)
	}
	r.mu.Lock()
	now := ch.c.absent(newer, true)         // for senders
	ch.c.absent(older, false).missed.Add(1) // by a sender with an old list of peers
	r.mu.Unlock()
	now.missed.Add(1)
	if st := r.Stats().Streams[0]; st.Sent != 10 || st.Lost != 3 || st.Away != 7 {
		t.Errorf("after a late sender: %+v", st)
	}
}

// A barrier of a job of unknown size waits for the peers that are connected and ready, and fails for
// one that was lost. The barrier of a node that is alone does not.
func TestBarrierOfAJobOfUnknownSize(t *testing.T) {
	for topology, fails := range map[Topology]bool{Mesh: true, Alone: false} {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, func(c *Config) { c.Topology = topology })
			if err := g.r.Barrier(t.Context(), "not ready"); err != nil {
				t.Error(err)
			}
			g.say(t, appendFrame(nil, frameReady, 0, 0, nil))
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.r.Barrier(ctx, "ready"); !errors.Is(err, context.DeadlineExceeded) ||
				!strings.Contains(err.Error(), `barrier "ready" waits for node.7: `) {
				t.Error(err)
			}
			if p := g.r.Peers(); len(p) != 1 || p[0].ID != 7 {
				t.Errorf("peers: %+v", p)
			}
			_ = g.Close()
			g.r.Gone(Farewell{Node: 7, Incarnation: 1, Reason: "exit code 3"})
			<-time.After(2 * time.Second)
			if err := g.r.Barrier(t.Context(), "lost"); (err != nil) != fails ||
				fails && !strings.Contains(err.Error(), "node.7 will not enter it: lost: exit code 3") {
				t.Errorf("%v: %v", topology, err)
			}
		})
	}
}

// failingConn fails to write.
type failingConn struct{ *slowConn }

func (failingConn) TryWrite([]byte) (int, error) { return 0, io.ErrClosedPipe }

// A connection that a sender cannot write to is closed, and the sent frames are kept for the next
// one.
func TestConnectionThatASenderCannotWriteTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, failingConn{c})
		c.letGo <- struct{}{} // the first acknowledgement
		synctest.Wait()
		if send(s.outs[0], Bytes("x")) != sent {
			t.Fatal("not sent")
		}
		synctest.Wait()
		select {
		case <-l.ended:
		default:
			t.Error("the connection continues")
		}
		if s.current() != nil || !errors.Is(l.why, io.ErrClosedPipe) || s.log.undelivered() != 1 || s.log.todo == 0 {
			t.Errorf("link %v, %v, %d undelivered", s.current(), l.why, s.log.undelivered())
		}
	})
}

// netConn is a connection over another one.
type netConn struct {
	net.Conn
	under net.Conn
}

func (c netConn) NetConn() net.Conn { return c.under }

// An unauthenticated connection is closed without an alert of TLS.
func TestHangUpSendsNoAlert(t *testing.T) {
	hung := ""
	over := &caller{hang: func() { hung += "over" }}
	under := &caller{hang: func() { hung += "under" }}
	closeNow(netConn{over, under})
	closeNow(over)
	if hung != "underover" {
		t.Error(hung)
	}
}

// lame is a listener that never accepts.
type lame struct{ calls chan struct{} }

func (l lame) Accept() (net.Conn, error) { l.calls <- struct{}{}; return nil, io.ErrShortBuffer }
func (lame) Close() error                { return nil }
func (lame) Addr() net.Addr              { return &net.UnixAddr{Name: "a", Net: "unix"} }

// Close does not wait for a listener to accept.
func TestCloseWithAListenerThatCannotAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lame{make(chan struct{}, 100)} // more calls than there are within 4 s
		r, err := New(Config{Expect: 1, Transport: noTransport{}, Listener: l, Advertise: "mem://a", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context(), []string{"x"}); err != nil || r.Addr() != "mem://a" {
			t.Error(err, r.Addr())
		}
		if err := r.Start(t.Context(), nil); err == nil {
			t.Error("started twice")
		}
		<-time.After(time.Second + time.Millisecond)
		if n := len(l.calls); n != 21 {
			t.Errorf("%d calls in a second, want one in 50 ms", n)
		}
		began := time.Now()
		if err := r.Close(); err != nil || time.Since(began) > 0 { // of virtual time
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
	})
}

// The error lists the names of unreachable addresses up to a bound.
func TestTroubleIsBounded(t *testing.T) {
	r := openRouter(t, Config{})
	if got := r.membership.troubles(); got != "" {
		t.Error(got)
	}
	var all []string
	for i := range maxTrouble + 2 {
		addr := "a" + string(rune('a'+i))
		r.trouble[addr] = "why"
		all = append(all, addr+": why")
		want := " (" + strings.Join(all, ", ") + ")"
		if i > maxTrouble {
			want = " (" + strings.Join(all[:maxTrouble], ", ") + ", and 2 more)"
		}
		if got := r.membership.troubles(); got != want {
			t.Errorf("%d: %s, want %s", i+1, got, want)
		}
	}
}

// The id of a node that was met, but gone before it was ready, does not show how the nodes are
// numbered.
func TestNodesThatWereNeverReadyAreNotExpected(t *testing.T) {
	for ready, want := range map[bool][]int{true: {5}, false: {1, 2}} {
		r := openRouter(t, Config{Expect: 3})
		r.was[5] = former{incarnation: 1, ready: ready, err: ErrLost}
		if ids, unknown := r.expected(); !reflect.DeepEqual(ids, want) || unknown != len(want)&1 {
			t.Errorf("ready %v: %v and %d more", ready, ids, unknown)
		}
	}
}

// Start waits for the nodes of the job, by id where the ids are known.
func TestNodesThatAreExpected(t *testing.T) {
	for _, c := range []struct {
		node, expect int
		peers        []int
		ids          []int
		unknown      int
	}{
		{0, 3, nil, []int{1, 2}, 0}, {1, 3, []int{0}, []int{0, 2}, 0}, {3, 3, nil, nil, 2}, {3, 3, []int{5}, []int{5}, 1},
		{0, 3, []int{3}, []int{3}, 1}, {0, 2, []int{1}, []int{1}, 0}, {0, 2, []int{7, 9}, []int{7, 9}, 0}, {0, 1, nil, nil, 0},
	} {
		r := openRouter(t, Config{Node: c.node, Expect: c.expect})
		for _, id := range c.peers {
			if _, err := r.admit(hello{Node: id, Incarnation: 1}); err != nil {
				t.Error(err)
			}
		}
		if ids, unknown := r.expected(); !reflect.DeepEqual(ids, c.ids) || unknown != c.unknown {
			t.Errorf("%+v: %v and %d more", c, ids, unknown)
		}
	}
}
