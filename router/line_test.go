package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// fullStream is a stream of a session without a connection, whose window of 4 messages is full.
func fullStream(t *testing.T) *outStream {
	t.Helper()
	r := openRouter(t, Config{WindowMessages: 4})
	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	o := &outStream{s: s, ch: &channel{r: r, spec: Spec{Name: "e"}}, listens: true}
	s.outs = []*outStream{o}
	for range 4 {
		if send(o, Bytes("x")) != sent {
			t.Fatal("not sent")
		}
	}
	return o
}

// The messages in a line are sent as room becomes free. A message that leaves the line is not sent.
func TestLineIsSentAsRoomComes(t *testing.T) {
	o := fullStream(t)
	var line []*waiter
	for v := range uint64(3) {
		line = append(line, o.wait(5+v, Bytes("x")))
	}
	if o.s.waiting != 3 || send(o, Bytes("x")) != noRoom {
		t.Errorf("%d messages wait", o.s.waiting)
	}
	if o.credit(2, 2) != nil || o.version != 6 {
		t.Errorf("sent up to number %d", o.version)
	}
	why := errors.New("enough")
	for i, w := range line {
		want, wantErr := sent, error(nil)
		if i == 2 {
			want, wantErr = noRoom, why
		}
		if was, err := w.end(why); was != want || !errors.Is(err, wantErr) {
			t.Errorf("message %d: %d, %v", w.version, was, err)
		}
	}
	if o.s.waiting != 0 || len(o.line) != 0 {
		t.Errorf("%d messages wait, %d are in the line", o.s.waiting, len(o.line))
	}
}

// No waiting message is sent after the end that this node has announced.
func TestLineEndsWithTheEndOfTheSender(t *testing.T) {
	o := fullStream(t)
	w := o.wait(5, Bytes("x"))
	o.s.control(frameFin, 0, 0, nil)
	if o.credit(1, 1) != nil {
		t.Error("no credit is taken")
	}
	if was, err := w.end(ErrClosed); was != noRoom || !errors.Is(err, ErrClosed) || o.version != 1 {
		t.Errorf("%d, %v, sent up to number %d", was, err, o.version)
	}
}

// A session that ends ends its lines: with an error, unless the peer has left.
func TestLineEndsWithItsSession(t *testing.T) {
	for _, reason := range []error{ErrLost, fmt.Errorf("%w: it has ended", errLeft)} {
		o := fullStream(t)
		w := o.wait(5, Bytes("x"))
		_, _ = o.s.end(reason)
		select {
		case <-w.over:
		default:
			t.Errorf("%v: it still waits", reason)
		}
		was, err := w.end(ErrClosed)
		if lost := errors.Is(reason, ErrLost); was != notSent || errors.Is(err, ErrLost) != lost || lost != (err != nil) {
			t.Errorf("%v: %d, %v", reason, was, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), `event "e": node.1: lost`) {
			t.Error(err)
		}
		if o.s.waiting != 0 || len(o.line) != 0 {
			t.Errorf("%v: %d messages wait", reason, o.s.waiting)
		}
	}
}

// A sender that is too far ahead of the writer continues when the writer has written enough.
func TestLineIsSentWhenTheWriterHasCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, c)
		o := s.outs[0]
		for send(o, make(Bytes, inlineBytes)) == sent {
		}
		s.mu.Lock()
		w := o.wait(2, Bytes("x"))
		s.mu.Unlock()
		close(c.letGo)
		synctest.Wait()
		if was, err := w.end(ErrClosed); was != sent || err != nil {
			t.Errorf("%d, %v", was, err)
		}
		l.close()
		<-l.ended
	})
}
