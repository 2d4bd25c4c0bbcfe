package router

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
)

// frames returns the bodies of the frames in b, and the rest of it.
func frames(t *testing.T, b []byte) (bodies []string, rest []byte) {
	t.Helper()
	for len(b) >= headerBytes {
		h, err := parseHeader(b, 256<<10)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < headerBytes+h.body {
			break
		}
		body := b[headerBytes : headerBytes+h.body]
		switch h.typ {
		case frameData:
			body = body[8:]
		case frameChunk:
			body = body[24:]
		}
		bodies = append(bodies, string(body))
		b = b[headerBytes+h.body:]
	}
	return bodies, b
}

// TestLogSendsEverythingOnceWhateverIsCut writes, acknowledges, cuts and rewinds a
// log at random places: the other side receives every frame, once, in order.
func TestLogSendsEverythingOnceWhateverIsCut(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var l sendLog
		var sent, got []string
		var wire []byte // what the present connection has carried and the peer not parsed
		for range 400 {
			switch rnd.IntN(8) {
			case 0, 1:
				s := fmt.Sprint("small ", len(sent), string(make([]byte, rnd.IntN(3000))))
				l.data(1, 1, []byte(s))
				sent = append(sent, s)
			case 2:
				s := fmt.Sprint("chunk ", len(sent), string(make([]byte, rnd.IntN(100))))
				l.chunk(2, 1, Bytes(s), 0, len(s))
				sent = append(sent, s)
			case 3, 4:
				var bufs net.Buffers
				n := l.gather(&bufs, rnd.IntN(20_000))
				b := slices.Concat(bufs...)
				if len(b) != n {
					t.Fatalf("seed %d: gathered %d bytes, said %d", seed, len(b), n)
				}
				n = rnd.IntN(n + 1) // a write call may end early
				wire = append(wire, b[:n]...)
				l.wrote(n)
				l.trim(false)
			case 5:
				var more []string
				more, wire = frames(t, wire)
				got = append(got, more...)
				if !l.ack(uint64(rnd.IntN(len(got)+1)), rnd.IntN(2) == 0) {
					t.Fatalf("seed %d: an honest acknowledgement is refused", seed)
				}
			case 6:
				wire = nil
				if !l.rewind(uint64(len(got))) {
					t.Fatalf("seed %d: cannot go back to frame %d: %d sent, %d acknowledged", seed, len(got), l.sent, l.done)
				}
			case 7: // a write call that fails has sent more than is counted
				var bufs net.Buffers
				l.gather(&bufs, rnd.IntN(20_000))
				var more []string
				more, _ = frames(t, append(wire, slices.Concat(bufs...)...))
				got, wire = append(got, more...), nil
				if !l.rewind(uint64(len(got))) {
					t.Fatalf("seed %d: cannot continue after frame %d", seed, len(got))
				}
				l.wrote(0) // the next connection begins with an acknowledgement
				l.trim(false)
			}
			if n := len(sent) - int(l.done); l.undelivered() != n {
				t.Fatalf("seed %d: %d undelivered, want %d", seed, l.undelivered(), n)
			}
		}
		for l.unwritten() {
			var bufs net.Buffers
			n := l.gather(&bufs, 1<<20)
			wire = append(wire, slices.Concat(bufs...)...)
			l.wrote(n)
		}
		more, rest := frames(t, wire)
		got = append(got, more...)
		if len(rest) > 0 || !slices.Equal(got, sent) {
			t.Fatalf("seed %d: %d frames sent, %d came, %d bytes over", seed, len(sent), len(got), len(rest))
		}
		if !l.ack(l.sent, false) || len(l.segs) != 0 {
			t.Fatalf("seed %d: %d segments are kept after all is acknowledged", seed, len(l.segs))
		}
	}
}

func TestLogRefusesUnsentFrames(t *testing.T) {
	var l sendLog
	l.data(0, 1, []byte("x"))
	if l.ack(2, false) || l.rewind(2) {
		t.Error("an acknowledgement of frame 2 of 1 is accepted")
	}
	if !l.ack(1, false) || l.rewind(0) {
		t.Error("going back to acknowledged frames succeeds")
	}
}

func TestParseHeaderBounds(t *testing.T) {
	for _, test := range []struct {
		typ  frameType
		body uint32
		ok   bool
	}{
		{frameData, 8, true},
		{frameData, 7, false},
		{frameData, maxFrameBody + 1, false},
		{frameChunk, 24, true},
		{frameChunk, 24 + 256<<10, true},
		{frameChunk, 25 + 256<<10, false},
		{frameChunk, 1<<32 - 1, false},
		{frameAck, 8, true},
		{frameAck, 9, false},
		{frameAck, 7, false},
		{framePing, 8, true},
		{framePing, 9, false},
		{framePong, 7, false},
		{frameListening, 8, true},
		{frameListening, 7, false},
		{frameListening, 9, false},
		{frameCredit, 16, true},
		{frameCredit, 15, false},
		{frameCredit, 17, false},
		{frameMsgHeader, 0, false},
		{frameMsgHeader, 1, true},
		{frameMsgHeader, MaxHeaderBytes, true},
		{frameMsgHeader, MaxHeaderBytes + 1, false},
		{frameListen, 1, false},
		{frameReady, 1, false},
		{frameSeen, 1, false},
		{frameLeave, 1, false},
		{frameDone, 1, false},
		{frameDeclare, 0, true},
		{frameMembers, maxFrameBody, true},
		{frameBarrier, maxFrameBody + 1, false},
		{frameRelay, maxFrameBody + 1, false},
		{frameFarewell, maxFrameBody, true},
		{frameBye, maxFrameBody + 1, false},
		{frameFin, 0, true},
		{frameFin, 1, false},
		{frameSequencedEnd, 0, false},
		{0, 0, false},
		{255, 0, false},
	} {
		var b [headerBytes]byte
		le.PutUint32(b[:], test.body)
		b[4] = byte(test.typ)
		if _, err := parseHeader(b[:], 256<<10); (err == nil) != test.ok {
			t.Errorf("type %d with %d bytes: %v", test.typ, test.body, err)
		}
	}
}

// A session that sends little takes little memory for it, and one that sends more takes the
// large buffers, which are used again.
// TestSegmentsGrow with what is not acknowledged: a peer that is sent little takes little memory.
func TestSegmentsGrow(t *testing.T) {
	var l sendLog
	caps := func() (out []int) {
		for _, s := range l.segs {
			out = append(out, cap(s.buf)>>10)
		}
		return out
	}
	fill := func(kib int) {
		for range kib {
			l.frame(frameReady, 0, 0, make([]byte, 1<<10-headerBytes))
		}
	}
	for _, want := range [][]int{{2, 4, 8, 16, 32, 64, 64}, {2, 4}} { // also when buffers are used again
		fill(map[int]int{7: 130, 2: 5}[len(want)])
		if got := caps(); !slices.Equal(got, want) {
			t.Errorf("segments of %v KiB, want %v", got, want)
		}
		l.wrote(l.todo)
		if !l.ack(l.sent, false) || len(l.segs) != 0 {
			t.Fatalf("%d segments are left", len(l.segs))
		}
	}
	// A frame that is larger than the next segment has a segment of its size, and those between chunks stay
	// small.
	l.data(1, 1, make([]byte, inlineBytes))
	for range 3 {
		l.chunk(1, 1, Bytes(make([]byte, 100)), 0, 100)
		l.data(1, 1, make([]byte, 100))
	}
	if got := caps(); got[0] != 64 || got[2] != 2 || got[4] != 2 || got[6] != 2 {
		t.Errorf("segments of %v KiB", got)
	}
}
