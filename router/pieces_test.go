package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Frames are taken whole, in whatever pieces they come.
func TestFramesThatComeInPieces(t *testing.T) {
	large := bytes.Repeat([]byte("large "), 100)
	frames := slices.Concat(data(1), chunk(2, 600, 0, large[:250]), appendFrame(nil, frameMsgHeader, 0, 0, []byte("beside")),
		chunk(2, 600, 250, large[250:]), data(3), data(4))
	for size := 1; size <= len(frames); size += 1 + size/2 {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, nil)
			var got []string
			g.r.channels[0].deliver = func(m *Message) error {
				got = append(got, fmt.Sprintf("%d %s", m.Version, m.Payload))
				m.Credit.Return(1, len(m.Payload))
				return nil
			}
			synctest.Wait()
			before := g.link.s.wireIn.Load()
			for piece := range slices.Chunk(frames, size) {
				g.say(t, piece)
			}
			synctest.Wait()
			if want := []string{"1 hello", "2 " + string(large), "3 hello", "4 hello"}; !slices.Equal(got, want) {
				t.Errorf("pieces of %d bytes: %q", size, got)
			}
			if n := g.link.s.wireIn.Load() - before; n != uint64(len(frames)) {
				t.Errorf("pieces of %d bytes: %d bytes counted, want %d", size, n, len(frames))
			}
			if n := g.link.s.received.Load(); n != 7 {
				t.Errorf("pieces of %d bytes: %d frames received, want 7", size, n)
			}
		})
	}
}

// A peer that sends a long chunk slowly is not silent.
func TestSlowChunkIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		whole := chunk(1, 300, 0, make([]byte, 300))
		for piece := range slices.Chunk(whole, 50) {
			<-time.After(3 * time.Second)
			g.say(t, piece)
			synctest.Wait()
			if s := g.link.s; s.lastReceived.Load() != s.r.clock() {
				t.Errorf("silent for %v", time.Duration(s.r.clock()-s.lastReceived.Load()))
			}
		}
	})
}

// A connection that ends within a chunk, or with the last bytes that it brings, delivers the complete
// messages.
func TestConnectionThatEndsWithinAChunk(t *testing.T) {
	for name, c := range map[string]struct {
		frames   []byte
		received int
	}{
		"within a chunk": {slices.Concat(data(1), chunk(2, 300, 0, make([]byte, 300))[:200]), 1},
		"after a chunk":  {slices.Concat(data(1), chunk(2, 300, 0, make([]byte, 300))), 2},
		"within a frame": {data(1)[:20], 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, nil)
				received := 0
				g.r.channels[0].deliver = func(*Message) error { received++; return nil }
				g.say(t, c.frames)
				_ = g.Close()
				<-g.link.ended
				if received != c.received || g.link.s.current() != nil || g.r.peers[7] != g.link.s {
					t.Errorf("%d messages received, link %v, a peer: %v", received, g.link.s.current(), g.r.peers[7] != nil)
				}
			})
		})
	}
}

// lastWords is a connection whose last bytes arrive together with its end.
type lastWords struct {
	net.Conn
	b    []byte
	idle bool // one read returns nothing, without an end
	err  error
}

func (c *lastWords) Read(b []byte) (int, error) {
	if c.idle {
		c.idle = false
		return 0, nil
	}
	n := copy(b, c.b)
	if c.b = c.b[n:]; len(c.b) > 0 {
		return n, nil
	}
	return n, c.err
}
func (*lastWords) Write(b []byte) (int, error) { return len(b), nil }
func (*lastWords) Close() error                { return nil }

// Bytes that arrive together with the end of a connection are received, and the end is never in order: a
// peer leaves by a frame.
func TestBytesThatComeWithTheEndOfAConnection(t *testing.T) {
	big := make([]byte, 2*readBytes) // beyond what is read with the head of its chunk
	for _, c := range []struct {
		frames    []byte
		err, want error
	}{
		{slices.Concat(data(1), data(2)), io.EOF, io.ErrUnexpectedEOF}, {slices.Concat(data(1), data(2)), io.ErrClosedPipe, io.ErrClosedPipe},
		{slices.Concat(data(1), chunk(2, uint64(len(big)), 0, big)), io.EOF, io.ErrUnexpectedEOF},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := meet(t, nil)
			synctest.Wait()
			received := 0
			g.r.channels[0].deliver = func(*Message) error { received++; return nil }
			s := g.link.s
			s.detach()
			l := &link{s: s, conn: &lastWords{b: c.frames, idle: true, err: c.err}, ended: make(chan struct{})}
			if err := l.readFrames(); !errors.Is(err, c.want) || received != 2 {
				t.Errorf("%v, %d messages received", err, received)
			}
		})
	}
}

// A payload that its listener has not taken is the memory of the next one.
func TestPayloadThatWasNotTakenIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		var at []*byte
		g.r.channels[0].deliver = func(m *Message) error { at = append(at, &m.Payload[0]); return nil }
		for v := range uint64(2) {
			g.say(t, chunk(v+1, 300, 0, make([]byte, 300)))
		}
		synctest.Wait()
		if len(at) != 2 || at[0] != at[1] {
			t.Errorf("payloads at %v", at)
		}
	})
}

// Memory that is returned is used for the next message if it fits that one, up to a bound. Memory
// beyond twice the bytes that have arrived is reserved.
func TestMemoryOfLargeMessages(t *testing.T) {
	in := &inStream{s: newSession(openRouter(t, Config{}), Peer{ID: 1}, nil)}
	kept := &in.s.spares
	in.Recycle(make([]byte, spareBytes+1))
	if len(kept.all) != 0 {
		t.Error("too large a buffer is kept")
	}
	in.Recycle(make([]byte, spareBytes))
	for range spareBuffers - 1 {
		in.Recycle(make([]byte, 400))
	}
	if len(kept.all) != spareBuffers || cap(kept.all[0]) != spareBytes {
		t.Errorf("%d buffers are kept, the oldest of %d bytes", len(kept.all), cap(kept.all[0]))
	}
	if in.Recycle(make([]byte, 400)); len(kept.all) != spareBuffers || cap(kept.all[0]) != 400 {
		t.Errorf("%d buffers are kept, the oldest of %d bytes", len(kept.all), cap(kept.all[0]))
	}
	for _, c := range []struct {
		total, n int
		have     int // memory that is there when n bytes have come
		spares   int // fewer than before
	}{
		{400, 1, 400, 1}, {100, 1, 100, 1}, {401, 1, 16, 0}, {99, 2, 32, 0}, {99, 50, 99, 0}, {99, 5, 80, 0},
	} {
		before := len(kept.all)
		in.asmTotal = c.total
		in.grow(c.n)
		if len(in.asm) != c.have || in.asmTotal != c.total || in.asmHave != 0 || before-len(kept.all) != c.spares {
			t.Errorf("%+v: %d bytes of %d, %d spares of %d", c, len(in.asm), in.asmTotal, len(kept.all), before)
		}
		if want := c.have - min(c.total, 2*c.n); in.ahead != want || in.s.ahead != want || in.s.r.ahead.Load() != int64(want) {
			t.Errorf("%+v: %d bytes are reserved, %d of the peer", c, in.ahead, in.s.ahead)
		}
		in.assembled()
	}
}

// Memory grows with what comes, by a factor, and no further than the message.
func TestMemoryGrowsWithReceivedBytes(t *testing.T) {
	in := &inStream{s: newSession(openRouter(t, Config{}), Peer{ID: 1}, nil), asm: []byte("abc"), asmHave: 3, asmTotal: 100}
	if in.grow(0); len(in.asm) != 3 {
		t.Errorf("%d bytes", len(in.asm))
	}
	if in.grow(2); len(in.asm) != 80 || in.s.ahead != 70 || !strings.HasPrefix(string(in.asm), "abc\x00") {
		t.Errorf("%d bytes, %d reserved: %q", len(in.asm), in.s.ahead, in.asm)
	}
	in.asmHave = 80
	if in.grow(20); len(in.asm) != 100 || in.s.ahead != 0 {
		t.Errorf("%d bytes, %d reserved", len(in.asm), in.s.ahead)
	}
	if b := in.assembled(); len(b) != 100 || in.asm != nil || in.asmHave != 0 || in.asmTotal != 0 {
		t.Errorf("%d bytes, then %d of %d", len(b), in.asmHave, in.asmTotal)
	}
}
