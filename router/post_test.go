package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// ownConn counts the writes of senders.
type ownConn struct {
	*slowConn
	tries *int
}

func (c ownConn) TryWrite(b []byte) (int, error) { *c.tries++; return c.Write(b) }

// A sender writes to the first 64 peers by itself, and the writers of the others write at once
// too.
func TestMessageForManyPeersIsWrittenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		r.started.Store(true)
		ch, err := r.Channel(Spec{Name: "e"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		to := &audience{}
		var conns [66]*slowConn
		var tries [66]int
		for i := range conns {
			s, err := r.admit(hello{Node: i + 1, Incarnation: 1})
			if err != nil {
				t.Fatal(err)
			}
			conns[i] = newSlowConn()
			close(conns[i].letGo)
			if _, err := s.attach(ownConn{conns[i], &tries[i]}, true, 0); err != nil {
				t.Fatal(err)
			}
			s.outs[0].listens = true
			to.out = append(to.out, s.outs[0])
		}
		ch.c.targets.Store(to)
		synctest.Wait()
		if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 66 || err != nil {
			t.Error(n, err)
		}
		synctest.Wait()
		for i, c := range conns {
			want := 0
			if i < 64 {
				want = 1
			}
			if !slices.Contains(c.types(t), frameData) || tries[i] != want {
				t.Errorf("peer %d of 66: frames %v, %d of them written by the sender", i+1, c.types(t), tries[i])
			}
		}
	})
}

// A payload is as long as MaxMessageBytes at most.
func TestPayloadsAreBounded(t *testing.T) {
	r := openRouter(t, Config{ChunkBytes: inlineBytes, MaxMessageBytes: inlineBytes + 1})
	r.started.Store(true)
	ch, err := r.Channel(Spec{Name: "e"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Send(t.Context(), make(Bytes, inlineBytes+1), nil); err != nil {
		t.Error(err)
	}
	if _, err := ch.Send(t.Context(), make(Bytes, inlineBytes+2), nil); err == nil ||
		!strings.Contains(err.Error(), "over the limit of 32769") {
		t.Error(err)
	}
}

// A send that is cancelled while it waits counts the peer that it names.
func TestCancelledSendCountsThePeerThatItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.WindowMessages = 4 })
		g.r.started.Store(true)
		synctest.Wait() // it has declared the event, and listens
		ch := &Channel{g.r.channels[0]}
		for range 4 {
			if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 1 || err != nil {
				t.Error(n, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := ch.Send(ctx, Bytes("x"), nil); n != 1 || !errors.Is(err, context.Canceled) {
			t.Error(n, err)
		}
	})
}

// deafTap records no messages.
type deafTap struct{}

func (deafTap) Sent(string, int, uint64, []byte) {}
func (deafTap) Received(string, *Message)        {}

// No payload is kept for late joiners but under Latest, also with a Tap.
func TestPayloadIsNotKeptForATap(t *testing.T) {
	r := openRouter(t, Config{Tap: deafTap{}})
	r.started.Store(true)
	ch, err := r.Channel(Spec{Name: "e"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := &counted{b: []byte("x")}
	if _, err := ch.Send(t.Context(), payload, nil); err != nil || payload.refs.Load() != 0 {
		t.Errorf("%v, kept %d times", err, payload.refs.Load())
	}
}

// The messages of a peer that does not answer Listen are received at once.
func TestListenDoesNotWaitForAnOlderVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		synctest.Wait()
		received := 0
		g.r.channels[0].deliver = func(*Message) error { received++; return nil }
		ch := &Channel{g.r.channels[0]}
		ch.Listen(false)
		ch.Listen(true)
		g.say(t, data(1))
		synctest.Wait()
		if received != 1 {
			t.Errorf("%d messages are received", received)
		}
	})
}

// Messages that arrive while a node does not listen are dropped and counted, and their room is
// returned.
func TestMessageWithoutAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		synctest.Wait()
		received := 0
		g.r.channels[0].deliver = func(*Message) error { received++; return nil }
		ch := &Channel{g.r.channels[0]}
		ch.Listen(false)
		g.say(t, data(1))
		synctest.Wait()
		in := g.link.s.ins[0]
		if received != 0 || in.unsubscribed.Load() != 1 || in.consumed[0].Load() != 1 || in.consumed[1].Load() != 5 {
			t.Errorf("%d messages are received, %d dropped, %d given back", received, in.unsubscribed.Load(), in.consumed[0].Load())
		}
	})
}

// A message for all goes to the nodes that listen when it is numbered, not when its sender began.
func TestMessageForAllGoesToPresentListeners(t *testing.T) {
	for _, match := range []func(Peer) bool{nil, func(Peer) bool { return true }} {
		r := openRouter(t, Config{Tap: deafTap{}})
		ch := event(t, r, Spec{Name: "e"})
		then := ch.c.targets.Load()
		listener(t, r, 7, 1)
		to, p := ch.c.postSerially(then, match, Bytes("x"))
		if want := map[bool]int{true: 1}[match == nil]; p.sent != want || len(to.out) != want {
			t.Errorf("sent to %d of %d", p.sent, len(to.out))
		}
	}
}

// A sender leaves a message to the writer if the writer has other frames to write.
func TestSenderLeavesTheWritingToABusyWriter(t *testing.T) {
	for name, due := range map[string]func(s *session){
		"nothing":         func(*session) {},
		"acknowledgement": func(s *session) { s.ackDue = true },
		"seen":            func(s *session) { s.seenDue = true },
		"ping":            func(s *session) { s.pingDue = 1 },
		"pong":            func(s *session) { s.pongDue = 1 },
		"room":            func(s *session) { s.credits = append(s.credits, &inStream{s: s}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c, tries := newSlowConn(), 0
			close(c.letGo)
			s, l := linked(t, ownConn{c, &tries})
			synctest.Wait()
			s.mu.Lock()
			due(s)
			s.mu.Unlock()
			if send(s.outs[0], Bytes("x")) != sent {
				t.Error("not sent")
			}
			synctest.Wait()
			if types := c.types(t); (tries == 1) != (name == "nothing") || !slices.Contains(types, frameData) {
				t.Errorf("%s: %d writes by the sender, frames %v", name, tries, types)
			}
			l.close()
			<-l.ended
		})
	}
}
