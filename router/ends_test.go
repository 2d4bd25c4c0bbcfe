package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A long wait is logged after 10, 20 and 40 s, and not after it has been stopped.
func TestLogOfALongWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		var said []time.Duration
		hold := make(chan struct{})
		stop := r.meanwhile(func(waited time.Duration) {
			if said = append(said, waited); len(said) == 3 {
				<-hold
			}
		})
		<-time.After(100 * time.Second)
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped while it still logs")
		default:
		}
		close(hold)
		<-stopped
		<-time.After(time.Hour)
		if want := []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}; !reflect.DeepEqual(said, want) {
			t.Errorf("%v, want %v", said, want)
		}
	})
}

// A router that has not started has no peers to notify.
func TestLeaveAndDrainBeforeStart(t *testing.T) {
	r := openRouter(t, Config{Expect: 3})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Leave(ctx); err != nil {
		t.Error(err)
	}
	if err := r.Done(ctx); !errors.Is(err, ErrNotStarted) {
		t.Error(err)
	}
	if err := r.Drain(ctx, true); err != nil {
		t.Error(err)
	}
	if err := r.Drain(ctx, true); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.Close(), r.Close(), r.Abandon()); err != nil {
		t.Error(err)
	}
}

// Leave and Drain name the peers that have not answered when their context ends.
func TestLeaveAndDrainNamePeersThatHaveNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		g.r.started.Store(true)
		g.r.mu.Lock()
		g.r.peers[7].leaves, g.r.peers[7].ready = true, true
		g.r.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.r.Leave(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "leave: node.7 may still send: ") {
			t.Error(err)
		}
		g.say(t, appendFrame(nil, frameLeave, flagOn, 0, nil))
		if err := g.r.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := (&Channel{g.r.channels[0]}).Send(t.Context(), Bytes("x"), nil); err != nil {
			t.Error(err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.r.Drain(ctx, true)
		lost, ok := errors.AsType[*PeerError](err)
		if !ok || lost.Node != 7 || lost.Undelivered != 1 || !strings.Contains(err.Error(), "has not acknowledged the end") {
			t.Error(err)
		}
		g.r.mu.Lock()
		s := g.r.peers[7]
		g.r.mu.Unlock()
		s.mu.Lock()
		sent := s.log.sent
		s.mu.Unlock()
		g.say(t, appendU64(nil, frameAck, 0, sent))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err = g.r.Drain(ctx, true); err == nil || !strings.Contains(err.Error(), "node.7: has not finished") {
			t.Error(err)
		}
		if err = g.r.Drain(t.Context(), false); err != nil {
			t.Error(err)
		}
		g.say(t, appendFrame(nil, frameFin, 0, 0, nil))
		if err = g.r.Drain(t.Context(), true); err != nil {
			t.Error(err)
		}
		if err = g.r.undrained(true); err != nil { // would be named beside others
			t.Error(err)
		}
		if _, err := (&Channel{g.r.channels[0]}).Send(t.Context(), Bytes("x"), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// A peer that never announces that it is ready sends no messages, and does not delay an end.
func TestR7PeerThatIsNeverReadyHoldsUpNoEnd(t *testing.T) {
	for _, hub := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, func(c *Config) {
				if hub {
					c.Topology = Star
				}
			})
			g.r.started.Store(true)
			g.r.note(func() { g.r.peers[7].leaves = true })
			if err := g.r.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			drained := make(chan error, 1) // one result
			go func() { drained <- g.r.Drain(t.Context(), true) }()
			synctest.Wait()
			s := g.r.peers[7]
			s.mu.Lock()
			sent := s.log.sent
			s.mu.Unlock()
			g.say(t, appendU64(nil, frameAck, 0, sent))
			synctest.Wait()
			select {
			case err := <-drained:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Error("the drain waits")
				_ = g.r.Abandon()
				if err := <-drained; err == nil {
					t.Error("and ends without an error")
				}
			}
			began := time.Now()
			if err := g.r.Close(); err != nil || time.Since(began) > 2*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	}
}

// TestR7JoinsDoNotHoldUpAnEnd: a peer that joins a node which has sent everything, and acknowledges
// nothing, is not waited for, unless all finish together.
func TestR7JoinsDoNotHoldUpAnEnd(t *testing.T) {
	for _, c := range []struct{ hub, together bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, func(cfg *Config) {
				if c.hub {
					cfg.Topology = Star
				}
			})
			g.r.started.Store(true)
			drained := make(chan error, 1) // one result
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			go func() { drained <- g.r.Drain(ctx, c.together) }()
			synctest.Wait()
			ghost, err := g.r.admit(hello{Node: 8, Incarnation: 1})
			if err != nil {
				t.Fatal(err)
			}
			g.r.note(func() { ghost.ready = true })
			s := g.r.peers[7]
			s.mu.Lock()
			sent := s.log.sent
			s.mu.Unlock()
			g.say(t, appendU64(nil, frameAck, 0, sent))
			synctest.Wait()
			select {
			case err := <-drained:
				if err != nil || c.together {
					t.Errorf("%+v: the drain has ended with %v", c, err)
				}
			default:
				if !c.together {
					t.Errorf("%+v: the drain waits for a node that has come later", c)
				}
				cancel()
				if err := <-drained; c.together && !strings.Contains(fmt.Sprint(err), "node.8") {
					t.Errorf("%+v: %v, want the node that has not acknowledged", c, err)
				}
			}
			if c.together {
				_ = g.r.Abandon()
				return
			}
			g.r.lose(s, errors.New("test"))
			began := time.Now()
			_ = g.r.Close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%+v: the node closes after %v", c, took)
			}
		})
	}
}

// A call of a leaf fails when the hub does not answer, has no such leaf or none that
// calls back.
func TestHubGivesTheReasonForAMissingPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hub := openRouter(t, Config{Topology: Star})
		for id := range 2 {
			if _, err := hub.admit(hello{Node: id + 2, Incarnation: 1}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			node, target int
			incarnation  uint64
			want         string
		}{
			{3, 1, 1, "node.1 is not connected to the hub, node.0"},
			{3, 2, 1, "node.2 did not call back"},
			{3, 2, 2, "node.3, which asks, is not connected to the hub, node.0"},
			{4, 2, 1, "node.4, which asks, is not connected to the hub, node.0"},
			{3, 3, 1, "node.0 makes no pipe from node.3 to node.3"},
		} {
			ours, theirs := net.Pipe()
			received := make(chan string, 1) // one result
			go func() { b, _ := io.ReadAll(theirs); received <- string(b) }()
			kept, err := hub.relay(ours, hello{Node: c.node, Incarnation: c.incarnation, Target: c.target})
			_ = ours.Close()
			if got := <-received; kept || err != nil || !strings.Contains(got, c.want) || !strings.Contains(got, RefuseRelay) {
				t.Errorf("%v, %v, %q, want %q", kept, err, got, c.want)
			}
			if len(hub.tickets) != 0 || len(hub.pipes) != 0 {
				t.Errorf("%d tickets and %d pipes are left", len(hub.tickets), len(hub.pipes))
			}
		}
	})
}

// A connection cannot take over a session that has ended, nor one of which the peer has more
// than was sent.
func TestConnectionsThatCannotTakeOver(t *testing.T) {
	r := openRouter(t, Config{})
	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	mine, theirs := net.Pipe()
	defer func() { _, _ = mine.Close(), theirs.Close() }()
	if l, err := s.attach(mine, true, 1); l != nil || err == nil || !strings.Contains(err.Error(), "reports 1 received frames, of 0 sent") {
		t.Error(err)
	}
	if perr, first := s.end(ErrLost); !first || perr.Undelivered != 0 || s.current() != nil {
		t.Error(perr, first)
	}
	if l, err := s.attach(mine, true, 0); l != nil || !errors.Is(err, ErrLost) {
		t.Error(err)
	}
	s.control(frameReady, 0, 0, nil)
	if s.log.sent != 0 {
		t.Error("a session that has ended takes frames")
	}
	if perr, first := s.end(ErrClosed); first || perr != nil {
		t.Error("it ends twice")
	}
}

// A send that waits for room ends with Drain, with Close, and with the cause of its context.
func TestSendsThatWaitEnd(t *testing.T) {
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		end  func(r *Router, cancel context.CancelCauseFunc)
		want error
	}{
		"drain":   {func(r *Router, _ context.CancelCauseFunc) { go func() { _ = r.Drain(context.Background(), false) }() }, ErrClosed},
		"close":   {func(r *Router, _ context.CancelCauseFunc) { go func() { _ = r.Abandon() }() }, ErrClosed},
		"context": {func(_ *Router, cancel context.CancelCauseFunc) { cancel(enough) }, enough},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, func(c *Config) { c.WindowMessages = 4 })
				g.r.started.Store(true)
				synctest.Wait() // it has declared the event, and listens
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				sent := make(chan error, 1) // one result
				go func() {
					var err error
					for err == nil {
						_, err = (&Channel{g.r.channels[0]}).Send(ctx, Bytes("x"), nil)
					}
					sent <- err
				}()
				synctest.Wait()
				began := time.Now()
				c.end(g.r, cancel)
				select {
				case err := <-sent:
					took := time.Since(began) // virtual time
					if !errors.Is(err, c.want) || !strings.Contains(err.Error(), `event "e"`) ||
						!strings.Contains(err.Error(), "node.7") || took > 0 {
						t.Error(err)
					}
				case <-time.After(time.Second):
					t.Error("it still waits")
				}
			})
		})
	}
}

// A peer without a connection is lost as soon as its process is known to have ended.
func TestR5GonePeerWithoutAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		synctest.Wait()
		_ = g.Close()
		synctest.Wait()
		if st := g.r.Stats().Peers[0].State; st != LinkDown {
			t.Errorf("it is %s", st)
		}
		g.r.Gone(Farewell{Node: 7, Incarnation: 1, Reason: "exit code 3"})
		synctest.Wait()
		if st := g.r.Stats().Peers[0].State; st != LinkLost {
			t.Errorf("it is %s", st)
		}
		g.r.Gone(Farewell{Node: 7, Incarnation: 1, Reason: "exit code 3"}) // again
		g.r.Gone(Farewell{Node: 7, Incarnation: 0, Reason: "exit code 3"}) // an older one
		synctest.Wait()
		if n := g.r.Stats().Peers[0].Joins; n != 1 {
			t.Errorf("%d incarnations", n)
		}
	})
}

// While there is no connection, a sender continues up to its window. With a connection it stays close
// to the writer.
func TestSenderIsAheadOfAConnectionByABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, c)
		fill := func() (bytes int) {
			for send(s.outs[0], make(Bytes, inlineBytes)) == sent {
				bytes += inlineBytes
			}
			return bytes
		}
		if n := fill(); n < aheadBytes || n > aheadBytes+inlineBytes {
			t.Errorf("%d bytes ahead of a connection", n)
		}
		l.close()
		close(c.letGo)
		<-l.ended
		if fill(); s.outs[0].bytes != s.r.cfg.WindowBytes {
			t.Errorf("%d bytes without a connection, of a window of %d", s.outs[0].bytes, s.r.cfg.WindowBytes)
		}
	})
}

// A connection sends nothing more when its session has ended, not even bye.
func TestEndedSessionTakesNoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		close(c.letGo)
		s, l := linked(t, c)
		synctest.Wait()
		said := len(c.types(t))
		if _, first := s.end(ErrLost); !first {
			t.Error("it had ended")
		}
		synctest.Wait()
		if types := c.types(t); len(types) != said {
			t.Errorf("said after the end: %v", types[said:])
		}
		l.close()
		<-l.ended
	})
}
