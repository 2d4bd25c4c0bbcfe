package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func openRouter(t *testing.T, cfg Config) *Router {
	t.Helper()
	if cfg.Transport == nil {
		cfg.Transport = noTransport{}
	}
	cfg.Logger = slog.New(slog.DiscardHandler)
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// The hub of a star makes a bounded number of pipes at a time, and a leaf answers a bounded number of
// calls.
func TestR7PipesInTheMakingAreBounded(t *testing.T) {
	hub := openRouter(t, Config{Topology: Star, HandshakeTimeout: time.Minute})
	for id := range 2 {
		_, _ = hub.admit(hello{Node: id + 1, Incarnation: 1})
	}
	call := hello{Node: 1, Incarnation: 1, Target: 2}
	for i := range maxTickets {
		hub.tickets[fmt.Sprint(i)] = nil
	}
	ours, theirs := net.Pipe()
	_ = theirs.Close()
	if kept, err := hub.relay(ours, call); kept || err != nil || len(hub.tickets) != maxTickets {
		t.Errorf("%v, %v, %d tickets", kept, err, len(hub.tickets))
	}
	done := make(chan struct{})
	go func() { _, _ = hub.relay(ours, call); close(done) }()
	select {
	case <-done: // and does not wait for node 2 to call back
	case <-time.After(10 * time.Second):
		t.Error("one more pipe is in the making")
	}

	dialed := make(chan net.Conn, 1)
	leaf := openRouter(t, Config{Node: 1, Topology: Star, Attach: []string{"hub"}, Transport: deafTransport{dialed: dialed}})
	leaf.answering.Store(maxTickets)
	leaf.answerRelay(relayMsg{Ticket: "t", From: 2})
	if n := leaf.answering.Load(); n != maxTickets {
		t.Errorf("%d answers are under way", n)
	}
	leaf.answering.Store(maxTickets - 1)
	leaf.answerRelay(relayMsg{Ticket: "t", From: 2})
	select {
	case <-dialed:
	case <-time.After(10 * time.Second):
		t.Error("the last one that is allowed is not made")
	}
}

func TestR7PeersAreBounded(t *testing.T) {
	r := openRouter(t, Config{Node: maxPeers + 7, Topology: Alone})
	for id := range maxPeers {
		if _, err := r.admit(hello{Node: id, Incarnation: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.admit(hello{Node: maxPeers, Incarnation: 1}); err == nil || !strings.Contains(err.Error(), "takes no more") {
		t.Error(err)
	}
}

// A peer that announces that all nodes have entered a round, in which this node is not, does not make
// this node pass it later.
func TestBarrierIsNotPassedBeforeItIsEntered(t *testing.T) {
	g := meet(t, nil)
	g.say(t, appendFrame(nil, frameReady, 0, 0, nil))
	g.say(t, appendFrame(nil, frameBarrier, flagOn, 0, []byte(`{"name":"b","round":1}`)))
	g.say(t, appendFrame(nil, frameBarrier, flagOn, 0, []byte(`{"name":"b","round":2}`)))
	g.say(t, data(1)[:4]) // read only when all before it has been taken
	g.r.mu.Lock()
	g.r.peers[8] = newSession(g.r, Peer{ID: 8, Incarnation: 1}, nil) // another one, which has not entered
	g.r.peers[8].ready = true
	g.r.rounds["b"] = 0
	g.r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.r.Barrier(ctx, "b"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waits for node.8") {
		t.Errorf("passed: %v", err)
	}
}

func TestR7AnEventThatIsDeclaredTwiceEndsThePeer(t *testing.T) {
	g := meet(t, nil)
	g.say(t, appendFrame(nil, frameDeclare, flagOn, 1, []byte(`{"name":"e","delivery":"reliable","fingerprint":"0"}`)))
	if why := g.lost(); !strings.Contains(why, `event "e" is declared twice`) {
		t.Error(why)
	}
}

// An answer for an event that this node does not have, and one that was not asked for.
func TestR7AnswersToListenAreChecked(t *testing.T) {
	g := meet(t, nil)
	g.say(t, appendU64(nil, frameListening, 0, 0)) // not asked for: it holds nothing back
	g.say(t, data(1))
	g.say(t, appendU64(nil, frameListening, 9, 0))
	if why := g.lost(); !strings.Contains(why, "an answer for event number 9") {
		t.Error(why)
	}
	if n := g.link.s.ins[0].unsubscribed.Load(); n != 0 {
		t.Errorf("%d messages were dropped", n)
	}
	if n := g.link.s.outs[0].asked.Load(); n != 0 {
		t.Errorf("%d answers are awaited", n)
	}
}

// A run of frames is acknowledged once, and what comes after it begins another one.
func TestRunsOfFramesAreAcknowledgedOnce(t *testing.T) {
	r := openRouter(t, Config{})
	for name, run := range map[string]struct{ frames, bytes int }{"frames": {ackFrames, 1}, "bytes": {4, ackBytes / 4}} {
		s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
		for i := range 3 * run.frames {
			s.gotFrame(run.bytes)
			if last := (i+1)%run.frames == 0; s.ackDue != last {
				t.Errorf("%s: after %d frames an acknowledgement is due: %v", name, i+1, s.ackDue)
			}
			s.ackDue = false
		}
	}
}

// A peer gets a report of the consumption after a quarter of its window, at least one message.
func TestAQuarterOfAWindow(t *testing.T) {
	for _, c := range []struct {
		delivery Delivery
		queue    int
		want     uint64
	}{{Reliable, 0, 25}, {Latest, 0, 1}, {DropOldest, 40, 10}, {DropNewest, 3, 1}, {DropNewest, 0, 1}, {DropOldest, 500, 25}} {
		r := openRouter(t, Config{WindowMessages: 100, WindowBytes: 4 * inlineBytes})
		in := &inStream{s: newSession(r, Peer{ID: 1}, nil), decl: declaration{Delivery: c.delivery.String(), Queue: c.queue}}
		if messages, bytes := in.quarter(); messages != c.want || bytes != inlineBytes {
			t.Errorf("%s, a queue of %d: %d messages, %d bytes, want %d", c.delivery, c.queue, messages, bytes, c.want)
		}
	}
}

// A node that has not been ready fails when an event of a peer differs from its own, and notifies its
// watchers at once.
func TestAnEventThatDiffersIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		changes := make(chan Change, 1) // one failure
		r.Watch(func(c Change) { changes <- c })
		if _, err := r.Channel(Spec{Name: "e", Fingerprint: 1}, nil); err != nil {
			t.Fatal(err)
		}
		s, err := r.admit(hello{Node: 7, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		woken := r.changed.wait()
		if err := r.declared(s, 0, declaration{Name: "e", Delivery: "reliable", Fingerprint: 2}, true); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-woken:
		default:
			t.Error("the waiting goroutines are not woken")
		}
		select {
		case c := <-changes:
			if c.Kind != Failed || !strings.Contains(c.Err.Error(), `event "e" differs: `) {
				t.Errorf("%+v", c)
			}
		default:
			t.Error("the watchers are not notified")
		}
	})
}
