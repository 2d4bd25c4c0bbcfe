package router

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// slowConn is a connection whose writes end when the test lets them, whatever happens to it meanwhile.
type slowConn struct {
	net.Conn // nil: other methods are not called
	letGo    chan struct{}
	closed   chan struct{}
	once     sync.Once
	mu       sync.Mutex
	written  bytes.Buffer
	empty    int // writes of nothing
}

func newSlowConn() *slowConn {
	return &slowConn{letGo: make(chan struct{}), closed: make(chan struct{})}
}

func (c *slowConn) Read([]byte) (int, error) { <-c.closed; return 0, io.EOF }
func (c *slowConn) Close() error             { c.once.Do(func() { close(c.closed) }); return nil }
func (c *slowConn) Write(b []byte) (int, error) {
	<-c.letGo
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) == 0 {
		c.empty++
	}
	return c.written.Write(b)
}

func (c *slowConn) types(t *testing.T) (types []frameType) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for b := c.written.Bytes(); len(b) >= headerBytes; {
		h, err := parseHeader(b, 256<<10)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, h.typ)
		b = b[headerBytes+h.body:]
	}
	return types
}

// tryingConn is a slowConn that claims to write without waiting.
type tryingConn struct{ *slowConn }

func (c tryingConn) TryWrite(b []byte) (int, error) { return c.Write(b) }

// halfConn takes half of the bytes of a write that must not wait.
type halfConn struct{ *slowConn }

func (c halfConn) TryWrite(b []byte) (int, error) { return c.Write(b[:len(b)/2]) }

// counted is a Buffer that counts its references.
type counted struct {
	b    []byte
	refs atomic.Int64
}

func (c *counted) Bytes() []byte  { return c.b }
func (c *counted) Header() []byte { return nil }
func (c *counted) Retain()        { c.refs.Add(1) }
func (c *counted) Release()       { c.refs.Add(-1) }

// linked is a session over a connection, with one event to which the peer
// listens.
func linked(t *testing.T, conn net.Conn) (*session, *link) {
	t.Helper()
	r, err := New(Config{Transport: struct{ Transport }{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	s.outs = []*outStream{{s: s, ch: &channel{r: r}, listens: true}}
	l, err := s.attach(conn, true, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s, l
}

// send sends one message to one peer, as a channel does.
func send(o *outStream, payload Buffer) sending {
	o.s.mu.Lock()
	was := o.post(1, payload)
	mine := was == sent && o.s.goesOut(true)
	o.s.mu.Unlock()
	if mine {
		o.s.flush()
	}
	return was
}

// TestR4NextLinkWaitsForTheLastWrite closes a connection in the middle of a write
// call that succeeds in the end: its bytes must not count for the next one.
func TestR4NextLinkWaitsForTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, c)
		if send(s.outs[0], Bytes("x")) != sent {
			t.Fatal("not sent")
		}
		synctest.Wait() // the writer is in its call
		l.close()
		synctest.Wait()
		if s.current() == nil {
			t.Error("the link is closed while it writes")
		}
		close(c.letGo)
		<-l.ended
		next := newSlowConn()
		close(next.letGo)
		if l, err := s.attach(next, true, 0); err != nil {
			t.Error(err)
		} else {
			synctest.Wait()
			l.close()
			<-l.ended
		}
		if d := cmp.Diff([]frameType{frameAck, frameData}, next.types(t)); d != "" {
			t.Errorf("frames on the next connection:\n%s", d)
		}
	})
}

// TestR5FramesStayWholeAfterAPartialWrite lets the system take a part of a frame
// while an acknowledgement is due: that comes after the frame's rest.
func TestR5FramesStayWholeAfterAPartialWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, halfConn{c})
		c.letGo <- struct{}{} // the first acknowledgement
		synctest.Wait()
		s.r.wg.Go(func() { _ = send(s.outs[0], Bytes("a payload")) })
		synctest.Wait()
		s.mu.Lock()
		s.ackDue = true
		s.mu.Unlock()
		close(c.letGo)
		synctest.Wait()
		if d := cmp.Diff([]frameType{frameAck, frameData, frameAck}, c.types(t)); d != "" {
			t.Errorf("frames:\n%s", d)
		}
		l.close()
		<-l.ended
	})
}

// TestByeIsSentAfterASendersOwnWrite says bye while a sender is in a write call.
func TestByeIsSentAfterASendersOwnWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, tryingConn{c})
		c.letGo <- struct{}{} // the first acknowledgement
		synctest.Wait()
		s.r.wg.Go(func() { _ = send(s.outs[0], Bytes("x")) })
		synctest.Wait()
		l.sendBye("the end")
		s.mu.Lock()
		s.ackDue = false // so that only bye remains to be sent
		s.mu.Unlock()
		synctest.Wait() // the writer has seen that another goroutine writes
		close(c.letGo)
		synctest.Wait()
		if d := cmp.Diff([]frameType{frameAck, frameData, frameBye}, c.types(t)); d != "" {
			t.Errorf("frames:\n%s", d)
		}
		l.close()
		<-l.ended
	})
}

// TestByeComesAfterAnAcknowledgement so that what was received is not reported
// as lost.
func TestByeComesAfterAnAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		close(c.letGo)
		_, l := linked(t, c)
		synctest.Wait()
		l.sendBye("the end")
		synctest.Wait()
		if d := cmp.Diff([]frameType{frameAck, frameAck, frameBye}, c.types(t)); d != "" {
			t.Errorf("frames:\n%s", d)
		}
		l.close()
		<-l.ended
	})
}

// TestEndedSessionKeepsNoPayload ends a session in the middle of a write call.
func TestEndedSessionKeepsNoPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s, l := linked(t, c)
		payload := &counted{b: make([]byte, inlineBytes+1)}
		if send(s.outs[0], payload) != sent {
			t.Fatal("not sent")
		}
		synctest.Wait()
		if perr, first := s.end(errors.New("gone")); !first || perr.Undelivered != 1 {
			t.Errorf("undelivered: %+v", perr)
		}
		l.close()
		close(c.letGo)
		<-l.ended
		if n := payload.refs.Load(); n != 0 {
			t.Errorf("the payload is kept %d times", n)
		}
	})
}
