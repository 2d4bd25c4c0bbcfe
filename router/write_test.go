package router

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The writer wakes for each kind of due frame, and only for these.
func TestFramesThatWakeTheWriter(t *testing.T) {
	for name, c := range map[string]struct {
		due  func(s *session)
		want bool
	}{
		"nothing":             {func(*session) {}, false},
		"a frame":             {func(s *session) { s.log.frame(frameReady, 0, 0, nil) }, true},
		"a chunk":             {func(s *session) { s.bulks = append(s.bulks, nil) }, true},
		"an acknowledgement":  {func(s *session) { s.ackDue = true }, true},
		"seen":                {func(s *session) { s.seenDue = true }, true},
		"room":                {func(s *session) { s.credits = append(s.credits, nil) }, true},
		"a ping":              {func(s *session) { s.pingDue = 1 }, true},
		"a pong":              {func(s *session) { s.pongDue = 1 }, true},
		"the answer to leave": {func(s *session) { s.leaveDue = true }, true},
		"that, but not yet":   {func(s *session) { s.leaveDue, s.outs[0].queue = true, []pending{{}} }, false},
		"behind a large one":  {func(s *session) { s.leaveDue, s.outs[0].bulk = true, &bulk{} }, false},
	} {
		s := newSession(openRouter(t, Config{}), Peer{ID: 1}, nil)
		s.outs = []*outStream{{s: s, ch: &channel{}}}
		c.due(s)
		if got := s.pendingWrite(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A sender writes directly if it can, no other goroutine writes, and it is not in a burst; in a
// burst, it writes when many bytes have accumulated that the system can accept.
func TestWriterOfAMessage(t *testing.T) {
	try := ownConn{tries: new(int)}
	for name, c := range map[string]struct {
		link     *link
		bySender bool
		burst    int // sends before this one
		todo     int
		want     bool
	}{
		"sender":                {&link{try: try}, true, 0, 1, true},
		"the last of three":     {&link{try: try}, true, burstSends - 1, 1, true},
		"a burst":               {&link{try: try}, true, burstSends, flushBytes - 1, false},
		"much has gathered":     {&link{try: try}, true, burstSends, flushBytes, true},
		"the system is full":    {&link{try: try, full: true}, true, burstSends, flushBytes, false},
		"full, in no burst":     {&link{try: try, full: true}, true, 0, 1, true},
		"too many peers":        {&link{try: try}, false, 0, 1, false},
		"no connection":         {nil, true, 0, 1, false},
		"somebody writes":       {&link{try: try, writing: true}, true, 0, 1, false},
		"it cannot but waiting": {&link{}, true, 0, 1, false},
	} {
		s := newSession(openRouter(t, Config{}), Peer{ID: 1}, nil)
		s.burst, s.log.todo = c.burst, c.todo
		if s.link = c.link; c.link != nil {
			c.link.idle = true
		}
		if got := s.goesOut(c.bySender); got != c.want || s.burst != c.burst+1 {
			t.Errorf("%s: %v, a burst of %d", name, got, s.burst)
		}
		if c.link != nil && c.link.idle != c.want {
			t.Errorf("%s: the writer is idle: %v", name, c.link.idle)
		}
		if s.caughtUp(); s.burst != 0 {
			t.Errorf("%s: a burst of %d when all has been read", name, s.burst)
		}
	}
}

// A chunk is left to the writer, which refers to its payload; a small message behind one that is
// in the log too.
func TestSenderLeavesChunksToTheWriter(t *testing.T) {
	for size, want := range map[int]int{inlineBytes: 1, inlineBytes + 1: 0} {
		synctest.Test(t, func(t *testing.T) {
			c, tries := newSlowConn(), 0
			close(c.letGo)
			s, l := linked(t, ownConn{c, &tries})
			synctest.Wait()
			if send(s.outs[0], make(Bytes, size)) != sent {
				t.Error("not sent")
			}
			synctest.Wait()
			if types := c.types(t); tries != want || len(types) != 2 {
				t.Errorf("%d bytes: %d writes by the sender, frames %v", size, tries, types)
			}
			s.mu.Lock()
			s.bulks = append(s.bulks, s.outs[0])
			s.outs[0].bulk = &bulk{pending: pending{2, Bytes("xy")}}
			s.mu.Unlock()
			s.flush()
			synctest.Wait()
			if types := c.types(t); !slices.Equal(types[2:], []frameType{frameChunk}) {
				t.Errorf("frames %v", types)
			}
			l.close()
			<-l.ended
		})
	}
}

// The rest of a partly written frame is written without other frames.
func TestRestOfAFrameIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		close(c.letGo)
		s, l := linked(t, halfConn{c})
		synctest.Wait()
		for range 2 {
			if send(s.outs[0], Bytes("a payload")) != sent {
				t.Error("not sent")
			}
			synctest.Wait()
		}
		if d := cmp.Diff([]frameType{frameAck, frameData, frameData}, c.types(t)); d != "" || c.empty != 0 {
			t.Errorf("%d writes of nothing, frames:\n%s", c.empty, d)
		}
		l.close()
		<-l.ended
	})
}

// gathering is a connection that takes many buffers in one call.
type gathering struct {
	*slowConn
	calls *int
}

func (c gathering) WriteBuffers(bufs *net.Buffers) (int64, error) {
	*c.calls++
	return bufs.WriteTo(c.slowConn)
}

// Where the connection can, all waiting frames are written in one call.
func TestManyFramesAreWrittenInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, calls := newSlowConn(), 0
		close(c.letGo)
		s, l := linked(t, gathering{c, &calls})
		synctest.Wait()
		before := calls
		s.mu.Lock()
		for range 3 {
			s.outs[0].put(1, make(Bytes, inlineBytes+1))
		}
		s.signal()
		s.mu.Unlock()
		synctest.Wait()
		if d := cmp.Diff([]frameType{frameAck, frameChunk, frameChunk, frameChunk}, c.types(t)); d != "" || calls != before+1 {
			t.Errorf("%d calls, frames:\n%s", calls-before, d)
		}
		l.close()
		<-l.ended
	})
}

// brokenConn fails to write when the test releases it.
type brokenConn struct{ *slowConn }

func (c brokenConn) Write([]byte) (int, error) { <-c.letGo; return 0, io.ErrShortWrite }

// When the writer cannot write, the connection is closed for that reason. The frames are kept, and
// wait to be written; a sender that was too far ahead continues.
func TestConnectionThatTheWriterCannotWriteTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := brokenConn{newSlowConn()}
		s, l := linked(t, c)
		o := s.outs[0]
		n := 0
		for ; send(o, make(Bytes, inlineBytes)) == sent; n++ {
		}
		s.mu.Lock()
		w := o.wait(2, Bytes("x"))
		s.mu.Unlock()
		close(c.letGo)
		<-l.ended
		if was, err := w.end(ErrClosed); was != sent || err != nil {
			t.Errorf("%d, %v", was, err)
		}
		if s.current() != nil || !errors.Is(l.why, io.ErrShortWrite) || s.log.undelivered() != n+1 || s.log.todo < n*inlineBytes {
			t.Errorf("link %v, %v, %d undelivered of %d, %d bytes to be written", s.current(), l.why, s.log.undelivered(), n, s.log.todo)
		}
	})
}

// A new connection begins with an acknowledgement and the totals of the consumption, which may have
// been lost with the last one; also those that were due then.
func TestNewConnectionSendsTheTotals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSlowConn()
		s := newSession(openRouter(t, Config{}), Peer{ID: 1, Incarnation: 1}, nil)
		for id := range uint16(2) {
			s.ins = append(s.ins, &inStream{s: s, id: id})
		}
		s.ins[1].due, s.credits = true, []*inStream{s.ins[1]}
		<-time.After(time.Minute)
		l, err := s.attach(c, true, 0)
		if err != nil || s.lastReceived.Load() != s.r.clock() || s.links != 1 {
			t.Error(err, s.lastReceived.Load(), s.r.clock(), s.links)
		}
		close(c.letGo)
		synctest.Wait()
		if d := cmp.Diff([]frameType{frameAck, frameCredit, frameCredit}, c.types(t)); d != "" {
			t.Errorf("frames:\n%s", d)
		}
		s.mu.Lock()
		if s.ins[0].due || s.ins[1].due || len(s.credits) != 0 || s.wireOut != uint64(c.written.Len()) {
			t.Errorf("due %v %v, %d credits, %d bytes written", s.ins[0].due, s.ins[1].due, len(s.credits), s.wireOut)
		}
		s.mu.Unlock()
		l.close()
		<-l.ended
	})
}

// A session that has ended accepts no connection, and one that continues accepts none whose peer has
// received frames that were never sent.
func TestConnectionsThatASessionDoesNotTake(t *testing.T) {
	for _, ended := range []bool{true, false} {
		s := newSession(openRouter(t, Config{}), Peer{ID: 1, Incarnation: 1}, nil)
		got := uint64(1)
		if ended {
			_, _ = s.end(ErrLost)
			got = 0
		}
		if l, err := s.attach(newSlowConn(), true, got); l != nil || err == nil || errors.Is(err, ErrLost) != ended || s.link != nil {
			t.Errorf("%v, %v", l, err)
		}
	}
}

// Frames are staged for the writer: the totals that are due, one chunk of each large message in turn
// up to a limit, and the frames that must come behind the messages.
func TestStagedFrames(t *testing.T) {
	r := openRouter(t, Config{ChunkBytes: inlineBytes, WindowBytes: 8 * inlineBytes})
	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	for id := range uint16(2) {
		o := &outStream{s: s, ch: &channel{r: r, id: id, spec: Spec{Delivery: Latest}}, listens: true}
		s.outs = append(s.outs, o)
		o.put(1, make(Bytes, 2*inlineBytes))
	}
	s.seenDue, s.leaveDue = true, true
	staged := func() (types []frameType) {
		ctl := s.stage(nil, inlineBytes+1) // room for two chunks
		var bufs net.Buffers
		s.log.wrote(s.log.gather(&bufs, 1<<20))
		for b := append(slices.Concat(bufs...), ctl...); len(b) > 0; {
			h, err := parseHeader(b, inlineBytes)
			if err != nil {
				t.Fatal(err)
			}
			types, b = append(types, h.typ), b[headerBytes+h.body:]
		}
		return types
	}
	if d := cmp.Diff([]frameType{frameChunk, frameChunk}, staged()); d != "" || s.outs[0].bulk == nil || s.outs[1].bulk == nil {
		t.Errorf("%s, %v, %v", d, s.outs[0].bulk, s.outs[1].bulk)
	}
	s.received.Store(3)
	s.pingDue, s.pongDue = 5, 6
	if d := cmp.Diff([]frameType{frameChunk, frameChunk, frameSeen, frameLeave, frameAck, framePing, framePong}, staged()); d != "" {
		t.Error(d)
	}
	if s.pendingWrite() || len(s.bulks) != 0 || s.acked != 3 || staged() != nil {
		t.Errorf("not everything is staged: %d large messages, acknowledged %d", len(s.bulks), s.acked)
	}
	s.outs[0].put(2, make(Bytes, 2*inlineBytes))
	if got := s.stage(nil, 0); got != nil || s.log.unwritten() {
		t.Error("staged beyond the limit")
	}
}
