//go:build amd64 || arm64

package router

import (
	"bytes"
	"math"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/router/sharedmem"
)

// memoryOf is the memory of a rogue, 1 MiB of bytes that are their place modulo 251, and this node's mapping of it.
func memoryOf(t testing.TB) (*sharedmem.Segment, *sharedmem.Mapping) {
	t.Helper()
	const n = 1 << 20
	a, err := sharedmem.New(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	seg := a.Take(n)
	for i := range seg.Bytes() {
		seg.Bytes()[i] = byte(i % 251)
	}
	m, err := sharedmem.Open(a.Ref(), sharedmem.MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	return seg, m
}

// inMemory is the frame of a message in the sender's memory.
func inMemory(version, total, off uint64) []byte {
	return appendFrame(nil, frameShared, 0, 0, le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, version), total), off))
}

// A frame about shared memory that a peer may not send ends its part in the job, with the reason.
func TestR7FramesAboutMemoryThatNobodyMaySend(t *testing.T) {
	const size = 1 << 20
	small := func(c *Config) { c.ChunkBytes, c.MaxMessageBytes = inlineBytes, size/2 }
	for name, c := range map[string]struct {
		edit   func(*Config)
		none   bool // the rogue has offered no memory
		frames [][]byte
		why    string
	}{
		"none was offered": {nil, true, [][]byte{inMemory(1, 65536, 0)}, "of which there is none"},
		"beyond the end": {nil, false, [][]byte{inMemory(1, 65536, size-65535)},
			"beyond the shared memory: 65536 bytes at 983041 of 1048576"},
		"a huge place":     {nil, false, [][]byte{inMemory(1, 65536, math.MaxUint64)}, "beyond the shared memory"},
		"a huge message":   {nil, false, [][]byte{inMemory(1, math.MaxUint64, 2)}, "want 65536 to 1073741824"},
		"an empty message": {nil, false, [][]byte{inMemory(1, 0, 0)}, "a message of 0 bytes in shared memory"},
		"a small message":  {nil, false, [][]byte{inMemory(1, 65535, 0)}, "a message of 65535 bytes in shared memory"},
		"over the limit":   {small, false, [][]byte{inMemory(1, size/2+1, 0)}, "want 65536 to 524288"},
		"no such event":    {nil, false, [][]byte{appendFrame(nil, frameShared, 0, 9, make([]byte, 24))}, "event number 9 is not declared"},
		"a short frame": {nil, false, [][]byte{appendFrame(nil, frameShared, 0, 0, make([]byte, 23))},
			"has a body of 23 bytes, want 24 to 24"},
		"within chunks": {nil, false, [][]byte{chunk(1, 1<<20, 0, []byte{1}), inMemory(2, 65536, 0)}, "within the chunks of another"},
		"too many": {func(c *Config) { c.WindowMessages = 4 }, false, bytesOf(5, inMemory(1, 65536, 0)),
			"more messages than there was room for"},
		"not offered to it":  {nil, false, [][]byte{appendFrame(nil, frameMapped, 0, 0, nil)}, "shared memory that was not offered"},
		"a release of none":  {nil, false, [][]byte{appendFrame(nil, frameRelease, 0, 0, make([]byte, 8))}, "shared memory 0 is released"},
		"half a release":     {nil, false, [][]byte{appendFrame(nil, frameRelease, 0, 0, make([]byte, 12))}, "12 bytes of numbers"},
		"an empty release":   {nil, false, [][]byte{appendFrame(nil, frameRelease, 0, 0, nil)}, "want 8 to"},
		"a body of a mapped": {nil, false, [][]byte{appendFrame(nil, frameMapped, 0, 0, []byte{1})}, "want 0 to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := memoryOf(t)
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, c.edit)
				if c.none {
					m.Close()
				} else {
					g.link.s.useMemory(m)
				}
				for _, f := range c.frames {
					g.say(t, f)
				}
				if why := g.lost(); !strings.Contains(why, c.why) || !strings.Contains(why, errBadFrame.Error()) {
					t.Errorf("%s, want %s", why, c.why)
				}
			})
			if _, err := m.Hold(0, 1); err == nil {
				t.Error("the memory of a peer that is lost is mapped")
			}
		})
	}
}

func bytesOf(n int, frame []byte) (all [][]byte) {
	for range n {
		all = append(all, frame)
	}
	return all
}

// Where the listeners borrow, a message is the peer's memory itself; otherwise it is a copy. A message
// without a listener is released at once. The peer learns of all of it.
func TestMessagesOfMemoryAreDeliveredAndReleased(t *testing.T) {
	const size = 1 << 20
	seg, m := memoryOf(t)
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		g := meetWith(t, &said, nil)
		s, ch := g.link.s, g.r.channels[0]
		s.useMemory(m)
		type got struct {
			version uint64
			lent    bool
			payload []byte
			credit  Credit
		}
		var all []got
		ch.deliver = func(m *Message) error {
			all = append(all, got{m.Version, m.Lent, m.Payload, m.Credit})
			m.Taken = m.Version != 3
			return nil
		}
		ch.borrows.Store(true)
		g.say(t, inMemory(1, 100_000, 4096))
		synctest.Wait()
		ch.borrows.Store(false)
		g.say(t, inMemory(2, size, 0))
		g.say(t, data(3))
		synctest.Wait()
		ch.borrows.Store(true)
		g.say(t, inMemory(4, 100_000, 0))
		synctest.Wait()
		ch.listens.Store(false)
		g.say(t, inMemory(5, 70_000, 8192))
		synctest.Wait()
		if len(all) != 4 {
			t.Fatalf("%d messages", len(all))
		}
		for i, want := range []got{
			{1, true, seg.Bytes()[4096:104096], nil}, {2, false, seg.Bytes(), nil}, {3, false, nil, nil},
			{4, true, seg.Bytes()[:100_000], nil},
		} {
			if g := all[i]; g.version != want.version || g.lent != want.lent || want.payload != nil && !bytes.Equal(g.payload, want.payload) {
				t.Errorf("message %d: %d bytes, lent %v", g.version, len(g.payload), g.lent)
			}
		}
		seg.Bytes()[4096]++
		if all[0].payload[0] != seg.Bytes()[4096] || all[1].payload[4096] == seg.Bytes()[4096] {
			t.Error("the lent message is a copy, or the copy is not")
		}
		s.mu.Lock()
		before := bytes.Clone(s.theirs.Load().released)
		s.mu.Unlock()
		// Numbers 2, a copy, and 4, which no listener received, are free at once; some may have been sent already.
		want := le.AppendUint64(le.AppendUint64(nil, 2), 4)
		if !bytes.HasSuffix(want, before) || len(before)%8 != 0 {
			t.Errorf("released %x before any was given back, want the end of %x", before, want)
		}
		all[0].credit.Recycle(all[0].payload)
		all[3].credit.Recycle(all[3].payload)
		s.creditRest()
		s.mu.Lock()
		s.signal()
		s.mu.Unlock()
		synctest.Wait()
		if n := len(s.theirs.Load().held); n != 0 {
			t.Errorf("%d messages are held", n)
		}
		var numbers []uint64
		for b := said.Bytes(); len(b) >= headerBytes; {
			h, err := parseHeader(b, g.r.cfg.ChunkBytes)
			if err != nil {
				t.Fatal(err)
			}
			if h.typ == frameRelease {
				for body := b[headerBytes : headerBytes+h.body]; len(body) > 0; body = body[8:] {
					numbers = append(numbers, le.Uint64(body))
				}
			}
			b = b[headerBytes+h.body:]
		}
		if len(numbers) != 4 {
			t.Errorf("released %d, want all of 4", numbers)
		}
	})
}

// A large message that is being copied delays its own event only, and later messages of the event
// wait.
func TestCopiesTakeTurns(t *testing.T) {
	const size = 1 << 20
	seg, m := memoryOf(t)
	g := meet(t, func(c *Config) { c.ChunkBytes = inlineBytes })
	s := g.link.s
	s.useMemory(m)
	var got []uint64
	g.r.channels[0].deliver = func(m *Message) error {
		got = append(got, m.Version)
		if m.Version < 3 && !bytes.Equal(m.Payload, seg.Bytes()) {
			t.Errorf("message %d is not what was sent", m.Version)
		}
		m.Credit.Return(1, len(m.Payload))
		return nil
	}
	for v := range uint64(2) {
		g.say(t, inMemory(v+1, size, 0))
	}
	g.say(t, data(3))
	g.say(t, data(0)[:4])
	_ = g.Close()
	<-g.link.ended
	if len(got) != 3 || got[0] != 1 || got[1] != 2 || got[2] != 3 {
		t.Errorf("received %d", got)
	}
	if len(s.copies) != 0 || len(s.theirs.Load().held) != 0 {
		t.Errorf("%d copies are unfinished, %d messages held", len(s.copies), len(s.theirs.Load().held))
	}
	g.r.lose(s, ErrLost)
}

// Memory of a peer that the system cannot read is the peer's fault, and not the end of this process.
func TestR7MemoryThatCannotBeRead(t *testing.T) {
	_, m := memoryOf(t)
	b, err := m.Hold(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mprotect(b, syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	m.Drop()
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, nil)
		g.link.s.useMemory(m)
		g.say(t, inMemory(1, 1<<20, 0))
		if why := g.lost(); !strings.Contains(why, "the shared memory cannot be read") {
			t.Error(why)
		}
	})
}

// segmentBuffer is a payload in memory of this node's.
type segmentBuffer struct {
	seg  *sharedmem.Segment
	refs int
}

func (b *segmentBuffer) Bytes() []byte  { return b.seg.Bytes() }
func (b *segmentBuffer) Header() []byte { return nil }

func (b *segmentBuffer) Memory() Memory { return b.seg }
func (b *segmentBuffer) Retain()        { b.refs++ }
func (b *segmentBuffer) Release()       { b.refs-- }

// A peer that releases nothing gets half of the memory, and loses its claims with the session.
func TestR7PeerThatReleasesNothingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := meet(t, func(c *Config) { c.SharedBytes, c.WindowBytes = 1<<20, 1<<30 })
		s, a := g.link.s, g.r.memory()
		g.say(t, appendFrame(nil, frameListen, flagOn, 0, nil))
		g.say(t, appendFrame(nil, frameMapped, 0, 0, nil))
		synctest.Wait()
		if g.r.mem.sharers.Load() != 1 {
			t.Fatal("the peer does not share")
		}
		seg := a.Take(200_000)
		b := &segmentBuffer{seg, 1}
		ch := &Channel{g.r.channels[0]}
		g.r.started.Store(true)
		for range 6 {
			if n, err := ch.Send(t.Context(), b, nil); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if st := g.r.Stats().Shared; st.Sent != 2 || len(s.claims.held) != 2 || st.SentBytes != 400_000 || st.Segments != 1 {
			t.Errorf("%+v, %d claims", st, len(s.claims.held))
		}
		g.say(t, appendFrame(nil, frameRelease, 0, 0, le.AppendUint64(nil, 2)))
		synctest.Wait()
		if len(s.claims.held) != 1 || s.claims.bytes != 200_000 {
			t.Errorf("%d claims of %d bytes after a release", len(s.claims.held), s.claims.bytes)
		}
		_ = g.Close()
		<-g.link.ended
		g.r.lose(s, ErrLost)
		if st := g.r.Stats().Shared; b.refs != 2 || g.r.mem.sharers.Load() != 0 || ch.Lend(1<<17) != nil ||
			st.Withheld != 200_000 || st.Over != 4 {
			t.Errorf("%d references, %d sharers after the loss, %+v", b.refs, g.r.mem.sharers.Load(), st)
		}
		if _, err := g.r.admit(hello{Node: s.peer.ID, Incarnation: s.peer.Incarnation + 1}); err != nil || b.refs != 1 {
			t.Errorf("%d references when the peer was made again, %v", b.refs, err)
		}
		seg.Release()
	})
}

// The memory that a lost peer claims is not used again while its process may run: until the launcher
// reports its end, a newer incarnation joins, or it has left in order.
func TestMemoryOfALostPeerIsNotUsedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(r *Router, s *session)
		refs int
	}{
		"silent":        {func(r *Router, s *session) { r.lose(s, ErrLost) }, 2},
		"a bad frame":   {func(r *Router, s *session) { r.linkEnded(s, errBadFrame) }, 2},
		"hearsay":       {func(r *Router, s *session) { r.giveUp(report{Farewell: farewellOf(s), hearsay: true}) }, 2},
		"replaced":      {func(r *Router, s *session) { r.lose(s, ErrReplaced) }, 1},
		"left":          {func(r *Router, s *session) { r.linkEnded(s, errLeft) }, 1},
		"ended":         {func(r *Router, s *session) { r.giveUp(report{Farewell: farewellOf(s)}) }, 1},
		"silent, ended": {func(r *Router, s *session) { r.lose(s, ErrLost); r.giveUp(report{Farewell: farewellOf(s)}) }, 1},
		"an older end": {func(r *Router, s *session) {
			r.lose(s, ErrLost)
			f := farewellOf(s)
			f.Incarnation--
			r.giveUp(report{Farewell: f})
		}, 2},
		"silent, hearsay": {func(r *Router, s *session) {
			r.lose(s, ErrLost)
			r.giveUp(report{Farewell: farewellOf(s), hearsay: true})
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, func(c *Config) { c.SharedBytes = 1 << 20 })
				seg := g.r.memory().Take(100_000)
				g.say(t, appendFrame(nil, frameListen, flagOn, 0, nil))
				g.say(t, appendFrame(nil, frameMapped, 0, 0, nil))
				synctest.Wait()
				g.r.started.Store(true)
				b := &segmentBuffer{seg, 1}
				if n, err := (&Channel{g.r.channels[0]}).Send(t.Context(), b, nil); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				_ = g.Close()
				<-g.link.ended
				c.end(g.r, g.link.s)
				if st := g.r.Stats().Shared; b.refs != c.refs || st.Withheld != 100_000*(c.refs-1) {
					t.Errorf("%d references, want %d; %d bytes are withheld", b.refs, c.refs, st.Withheld)
				}
				g.r.closeMemory()
				if b.refs != 1 {
					t.Errorf("%d references after the end of the router", b.refs)
				}
				seg.Release()
			})
		})
	}
}

func farewellOf(s *session) Farewell {
	return Farewell{Node: s.peer.ID, Incarnation: s.peer.Incarnation, Reason: "killed"}
}

// FuzzShared gives a node arbitrary frames of a peer that has offered its memory: the node never reads
// beyond that memory, and returns all that it has held at the end.
func FuzzShared(f *testing.F) {
	f.Add(inMemory(1, 100_000, 4096), true)
	f.Add(append(inMemory(1, 100_000, 4096), inMemory(2, 1<<17, 0)...), false)
	f.Add(append(inMemory(1, 1<<20, 0), data(2)...), false)
	f.Add(inMemory(1, 1<<20, 1), true)
	f.Add(inMemory(math.MaxUint64, math.MaxUint64, math.MaxUint64), false)
	f.Add(appendFrame(nil, frameRelease, 0, 0, make([]byte, 16)), true)
	f.Fuzz(func(t *testing.T, frames []byte, borrows bool) {
		_, m := memoryOf(t)
		r := openRouter(t, Config{Node: 5, ChunkBytes: inlineBytes, MaxMessageBytes: 1 << 20})
		ch, err := r.Channel(Spec{Name: "e"}, func(m *Message) error {
			sum := byte(0)
			for _, b := range m.Payload {
				sum += b
			}
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ch.Borrow(borrows)
		ch.Listen(true)
		s, err := r.admit(hello{Node: 7, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		s.useMemory(m)
		declaration := []byte(`{"name":"e","delivery":"reliable","fingerprint":"0"}`)
		if err := s.receive(nil, header{typ: frameDeclare, flags: flagOn}, declaration); err != nil {
			t.Fatal(err)
		}
		for len(frames) >= headerBytes {
			h, err := parseHeader(frames, r.cfg.ChunkBytes)
			if err != nil || len(frames) < headerBytes+h.body ||
				h.typ != frameShared && h.typ != frameRelease && h.typ != frameMapped && h.typ != frameData {
				break
			}
			if s.receive(nil, h, frames[headerBytes:headerBytes+h.body]) != nil {
				break
			}
			frames = frames[headerBytes+h.body:]
		}
		if s.copyAll() != nil {
			s.endCopies()
		}
		if n := len(s.theirs.Load().held); n != 0 {
			t.Errorf("%d messages are held at the end", n)
		}
		r.lose(s, ErrLost)
		if _, err := m.Hold(0, 1); err == nil {
			t.Error("the memory is mapped after the session")
		}
	})
}
