package router

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

// chunkOf is a chunk of an event by its number.
func chunkOf(event uint16, version, total, off uint64, piece []byte) []byte {
	b := chunk(version, total, off, piece)
	le.PutUint16(b[6:], event)
	return b
}

// declares lets the rogue declare n more events, f1, f2 and so on.
func (g *rogue) declares(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		g.say(t, appendFrame(nil, frameDeclare, 0, uint16(i+1), fmt.Appendf(nil, `{"name":"f%d","delivery":"reliable","fingerprint":"0"}`, i+1)))
	}
}

// unfinished is the memory that the node has for incomplete messages of the peer, and the bytes of
// them that have arrived.
func (s *session) unfinished() (taken, have int) {
	for _, in := range s.ins {
		taken += len(in.asm)
		have += in.asmHave
	}
	return taken, have
}

// Large messages of events that this node does not have, or does not listen to, take no memory. They
// are counted and credited when they have arrived.
func TestR7MessagesWithoutAListenerAreNotAssembled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.ChunkBytes = inlineBytes })
		if _, err := g.r.Channel(Spec{Name: "f1"}, func(*Message) error { t.Error("received"); return nil }); err != nil {
			t.Fatal(err)
		}
		const n = 1000
		g.declares(t, n)
		piece := make([]byte, inlineBytes)
		for id := range uint16(n) {
			g.say(t, appendFrame(nil, frameMsgHeader, 0, id+1, piece[:MaxHeaderBytes]))
			g.say(t, chunkOf(id+1, 1, 1<<30, 0, piece))
		}
		synctest.Wait()
		for _, in := range g.link.s.ins {
			if in.asm != nil || cap(in.header) > 0 && in.id != 1 {
				t.Fatalf("event %d: %d bytes are kept of a message, %d of its header", in.id, len(in.asm), cap(in.header))
			}
		}

		whole := meet(t, func(c *Config) { c.ChunkBytes = inlineBytes })
		whole.declares(t, 1)
		for v := range uint64(3) {
			for off := range uint64(4) {
				whole.say(t, chunkOf(1, v+1, 4*inlineBytes, off*inlineBytes, piece))
			}
		}
		synctest.Wait()
		if in := whole.link.s.ins[1]; in.unsubscribed.Load() != 3 || in.consumed[0].Load() != 3 || in.consumed[1].Load() != 12*inlineBytes {
			t.Errorf("%d messages are not received, %d of %d bytes credited", in.unsubscribed.Load(), in.consumed[0].Load(), in.consumed[1].Load())
		}
	})
}

// A message whose first chunk came before this node listened is not delivered, as its sender did not
// know of it. The next one is.
func TestMessageThatBeganBeforeTheListenerIsNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.ChunkBytes = inlineBytes })
		var got []uint64
		ch, err := g.r.Channel(Spec{Name: "f1"}, func(m *Message) error {
			got = append(got, m.Version)
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		g.declares(t, 1)
		piece := make([]byte, inlineBytes)
		for v := range uint64(2) {
			g.say(t, chunkOf(1, v+1, 2*inlineBytes, 0, piece))
			synctest.Wait()
			ch.Listen(true)
			g.say(t, chunkOf(1, v+1, 2*inlineBytes, inlineBytes, piece))
			synctest.Wait()
		}
		if len(got) != 1 || got[0] != 2 {
			t.Errorf("received messages %d, want 2", got)
		}
	})
}

// A peer announces many large messages of events that this node listens to: the node takes memory for
// twice the bytes that have arrived, and a bounded amount ahead.
func TestR7MemoryAheadOfReceivedBytesIsBoundedForAPeer(t *testing.T) {
	const events = 100
	g := meet(t, func(c *Config) { c.ChunkBytes = 256 << 10 })
	for i := range events {
		ch, err := g.r.Channel(Spec{Name: fmt.Sprint("f", i+1)}, func(*Message) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
	}
	g.declares(t, events)
	piece := make([]byte, 256<<10)
	for id := range uint16(events) {
		g.say(t, chunkOf(id+1, 1, 1<<30, 0, piece))
	}
	g.say(t, data(0)[:4]) // read only when all before it has been taken
	s := g.link.s
	taken, have := s.unfinished()
	if have != events*len(piece) || taken > 2*have+peerAhead {
		t.Errorf("%d bytes are taken for %d that have come", taken, have)
	}
	if s.ahead > peerAhead || g.r.ahead.Load() != int64(s.ahead) || s.ahead < peerAhead-growth*len(piece) {
		t.Errorf("%d bytes are reserved, %d by all peers, want a little less than %d", s.ahead, g.r.ahead.Load(), peerAhead)
	}
	g.r.lose(s, ErrLost)
	<-g.link.ended
	if n := g.r.ahead.Load(); n != 0 {
		t.Errorf("%d bytes are reserved for a peer that is lost", n)
	}
}

// The same bound holds for all peers together.
func TestR7MemoryAheadOfReceivedBytesIsBoundedForANode(t *testing.T) {
	r := openRouter(t, Config{})
	var all []*inStream
	for i := range 2 * nodeAhead / peerAhead {
		s := newSession(r, Peer{ID: i + 1, Incarnation: 1}, nil)
		for range 2 {
			in := &inStream{s: s}
			if want := (len(all)+1)*peerAhead/2 <= nodeAhead; in.reserve(peerAhead/2) != want || in.reserve(peerAhead+1) {
				t.Fatalf("stream %d: reserved %d of %d bytes", len(all), in.ahead, r.ahead.Load())
			}
			all = append(all, in)
		}
	}
	if n := r.ahead.Load(); n != nodeAhead {
		t.Errorf("%d bytes are reserved, want %d", n, nodeAhead)
	}
	for i, in := range all {
		if i%2 == 0 {
			in.reserve(0)
		} else {
			_, _ = in.s.end(ErrLost)
			if in.reserve(1) {
				t.Error("a session that has ended reserves memory")
			}
		}
	}
	if n := r.ahead.Load(); n != 0 {
		t.Errorf("%d bytes are left reserved", n)
	}
}

// A message is received even if no memory can be reserved ahead of it.
func TestMessageComesInWhenNoMemoryIsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, full := range []bool{false, true} {
			g := meet(t, func(c *Config) { c.ChunkBytes = inlineBytes })
			var got []byte
			g.r.channels[0].deliver = func(m *Message) error {
				got = bytes.Clone(m.Payload)
				m.Credit.Return(1, len(m.Payload))
				return nil
			}
			if s := g.link.s; full {
				s.mu.Lock()
				s.ahead = peerAhead
				s.r.ahead.Add(peerAhead)
				s.mu.Unlock()
			}
			want := make([]byte, 100*inlineBytes+1)
			for i := range want {
				want[i] = byte(i * 7)
			}
			for off := 0; off < len(want); off += inlineBytes {
				g.say(t, chunk(1, uint64(len(want)), uint64(off), want[off:min(len(want), off+inlineBytes)]))
				if s := g.link.s; full {
					synctest.Wait()
					if taken, have := s.unfinished(); taken > 2*have {
						t.Errorf("%d bytes are taken for %d that have come", taken, have)
					}
				}
			}
			synctest.Wait()
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes came, want %d", len(got), len(want))
			}
		}
	})
}

// The first chunk of a message needs room in the window, and a message begins once.
func TestR7MessageBeginsOnceAndWithinItsWindow(t *testing.T) {
	for name, c := range map[string]struct {
		frames [][]byte
		why    string
	}{
		"beyond the window": {[][]byte{data(1), data(2), data(3), data(4), chunk(5, 1<<30, 0, []byte{1})},
			"more messages than there was room for"},
		"again": {[][]byte{chunk(1, 1<<30, 0, []byte{1}), chunk(1, 1<<30, 0, []byte{1})},
			"a chunk of 1 bytes at 0 of 1073741824, have 1 of 1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, func(c *Config) { c.WindowMessages = 4 })
				for _, f := range c.frames {
					g.say(t, f)
				}
				if why := g.lost(); !strings.Contains(why, c.why) {
					t.Error(why)
				}
			})
		})
	}
}

// Buffers that are kept for the next messages are bounded for a peer and for a node, the
// newest are kept, and none when the peer is gone.
func TestR7SparesAreBounded(t *testing.T) {
	r := openRouter(t, Config{})
	var sessions []*session
	for i := range 2 * nodeSpares / peerSpares {
		s := newSession(r, Peer{ID: i + 1, Incarnation: 1}, nil)
		sessions = append(sessions, s)
		for _, n := range []int{spareBytes + 1, 1000, 1 << 20, spareBytes, 2 << 20, spareBytes, spareBytes, spareBytes, spareBytes} {
			(&inStream{s: s}).Recycle(make([]byte, n)[:0])
		}
		if s.spares.bytes > peerSpares || r.spareBytes.Load() > nodeSpares {
			t.Errorf("%d bytes of a peer, %d of all", s.spares.bytes, r.spareBytes.Load())
		}
	}
	if n := sessions[0].spares.bytes; n != peerSpares {
		t.Errorf("%d bytes are kept of the first peer, want %d", n, peerSpares)
	}
	if n := r.spareBytes.Load(); n != nodeSpares {
		t.Errorf("%d bytes are kept of all, want %d", n, nodeSpares)
	}
	for _, s := range sessions {
		_, _ = s.end(ErrLost)
		(&inStream{s: s}).Recycle(make([]byte, 1000))
	}
	if n := r.spareBytes.Load(); n != 0 || sessions[0].spares.all != nil {
		t.Errorf("%d bytes are kept of peers that are gone", n)
	}

	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	for i := range 2 * spareBuffers {
		s.spares.put(make([]byte, 1000+i))
	}
	if n := len(s.spares.all); n != spareBuffers || cap(s.spares.all[0]) != 1000+spareBuffers {
		t.Errorf("%d buffers are kept, the oldest of %d bytes", n, cap(s.spares.all[0]))
	}
	if b := s.spares.take(1000 + 2*spareBuffers); b != nil {
		t.Errorf("%d bytes for a message of %d", cap(b), 1000+2*spareBuffers)
	}
	if b := s.spares.take(250); b != nil {
		t.Errorf("%d bytes for a message of 250", cap(b))
	}
	if b := s.spares.take(1000); len(b) != 1000 || cap(b) != 1000+2*spareBuffers-1 || len(s.spares.all) != spareBuffers-1 {
		t.Errorf("%d of %d bytes for a message of 1000", len(b), cap(b))
	}
}
