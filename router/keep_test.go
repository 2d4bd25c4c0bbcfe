package router

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tally counts what a node sends: sequenced frames, whole messages and their bytes.
type tally struct {
	mu                      sync.Mutex
	rest                    []byte
	frames, messages, bytes uint64
	ctl                     []header // of the frames that are not sequenced
	said                    []uint64 // the first number in each of them
}

func (c *tally) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for len(c.rest) >= headerBytes {
		h, err := parseHeader(c.rest, 256<<10)
		if err != nil {
			return 0, err
		}
		if len(c.rest) < headerBytes+h.body {
			break
		}
		body := c.rest[headerBytes : headerBytes+h.body]
		switch {
		case h.typ == frameData:
			c.messages++
			c.bytes += uint64(len(body) - 8)
		case h.typ == frameChunk:
			c.bytes += uint64(len(body) - 24)
			if le.Uint64(body[16:])+uint64(len(body)-24) == le.Uint64(body[8:]) {
				c.messages++
			}
		case !h.typ.sequenced():
			c.ctl, c.said = append(c.ctl, h), append(c.said, le.Uint64(body))
		}
		if h.typ.sequenced() {
			c.frames++
		}
		c.rest = c.rest[headerBytes+h.body:]
	}
	return len(b), nil
}

func (c *tally) count() (frames, messages, bytes uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames, c.messages, c.bytes
}

// A peer that gives credit and does not acknowledge is lost, before the node has kept more than three
// windows of sent messages. One that acknowledges one round late is not.
func TestR7CreditWithoutAcknowledgementIsBounded(t *testing.T) {
	const window = 16
	for name, c := range map[string]struct {
		delivery string
		payload  int
		credit   func(messages, bytes uint64) (uint64, uint64)
		most     uint64 // messages that are sent before the peer is lost
	}{
		"messages":            {"reliable", 5, func(m, b uint64) (uint64, uint64) { return m, b }, 3 * window},
		"no messages":         {"reliable", 0, func(m, b uint64) (uint64, uint64) { return m, b }, 3 * window},
		"single chunks":       {"reliable", inlineBytes + 1, func(m, b uint64) (uint64, uint64) { return m, b }, 3 * window},
		"several chunks":      {"reliable", 4 * inlineBytes, func(m, b uint64) (uint64, uint64) { return m, b }, 3 * window},
		"only bytes":          {"reliable", inlineBytes + 1, func(_, b uint64) (uint64, uint64) { return 0, b }, 3 * window},
		"only messages":       {"reliable", 5, func(m, _ uint64) (uint64, uint64) { return m, 0 }, 3 * window},
		"all but the newest":  {"reliable", 5, func(m, b uint64) (uint64, uint64) { return m - 1, b - 5 }, 3 * window},
		"of a latest event":   {"latest", 5, func(m, b uint64) (uint64, uint64) { return m, b }, 3},
		"of a dropping event": {"drop-oldest", 5, func(m, b uint64) (uint64, uint64) { return m, b }, 3 * window},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", acknowledged late: ", late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					received := &tally{}
					spec := Spec{Name: "o"}
					for spec.Delivery.String() != c.delivery {
						spec.Delivery++
					}
					g := meetWith(t, received, func(c *Config) {
						c.WindowMessages, c.ChunkBytes = window, inlineBytes
						if name == "only bytes" {
							c.WindowMessages, c.WindowBytes = 1<<14, window*inlineBytes
						}
					})
					g.r.started.Store(true)
					out, err := g.r.Channel(spec, nil)
					if err != nil {
						t.Fatal(err)
					}
					g.say(t, appendFrame(nil, frameDeclare, flagOn, 1, fmt.Appendf(nil, `{"name":"o","delivery":%q,"fingerprint":"0"}`, c.delivery)))
					synctest.Wait()
					ctx, cancel := context.WithCancel(t.Context())
					var sending sync.WaitGroup
					sending.Go(func() {
						for ctx.Err() == nil {
							if _, err := out.Send(ctx, make(Bytes, c.payload), nil); err != nil {
								return
							}
							if c.delivery != "reliable" {
								<-time.After(time.Millisecond)
							}
						}
					})
					before, kept := uint64(0), 0
					for range 20 {
						<-time.After(100 * time.Millisecond)
						synctest.Wait()
						frames, m, b := received.count()
						kept = max(kept, logged(g.link.s))
						var say []byte
						if late {
							say = appendU64(say, frameAck, 0, before)
							before = frames
						}
						if m, b = c.credit(m, b); m < 1<<63 {
							say = appendU64(say, frameCredit, 1, m, b)
						}
						if _, err := g.Write(say); err != nil {
							break
						}
					}
					synctest.Wait()
					cancel()
					sending.Wait()
					_, m, _ := received.count()
					if late {
						if g.link.s.err != nil || m < 6*c.most {
							t.Errorf("%d messages, lost: %v", m, g.link.s.err)
						}
						return
					}
					if g.link.s.err == nil || m > c.most || kept > int(c.most)*(c.payload+64)+4*segmentBytes {
						t.Errorf("%d messages, want %d at most; the log held %d bytes", m, c.most, kept)
					}
					if why := g.lost(); !strings.Contains(why, `event "o": messages consumed, but not acknowledged: 0 frames acknowledged, want `) {
						t.Error(why)
					}
				})
			})
		}
	}
}

// logged is the number of bytes in the log of a session.
func logged(s *session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, seg := range s.log.segs {
		n += seg.size()
	}
	return n
}

// A peer is lost that asks repeatedly, or lets the node send, and never acknowledges control frames.
func TestR7ControlFramesThatAreNotAcknowledgedAreBounded(t *testing.T) {
	for _, asks := range []bool{true, false} {
		t.Run(fmt.Sprint("it asks: ", asks), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := meet(t, nil)
				s := g.link.s
				g.r.mu.Lock()
				s.answers = true
				g.r.mu.Unlock()
				const n = 100
				s.mu.Lock()
				s.log.ctl += maxControlLog - n*(headerBytes+8) - s.log.ctl // this much is not acknowledged
				s.mu.Unlock()
				for i := range n {
					if asks {
						g.say(t, appendFrame(nil, frameListen, flagOn, 0, nil))
					} else {
						s.control(frameListening, 0, 0, make([]byte, 8))
					}
					synctest.Wait()
					if g.r.check(s, false); s.err != nil {
						t.Fatalf("lost after %d frames: %v", i+1, s.err)
					}
				}
				if asks {
					g.say(t, appendFrame(nil, frameListen, flagOn, 0, nil))
				} else {
					s.control(frameListening, 0, 0, make([]byte, 8))
					g.r.check(s, false)
				}
				if why := g.lost(); !strings.Contains(why, "67108880 bytes of control frames are not acknowledged, want 67108864 at most") {
					t.Error(why)
				}
			})
		})
	}
}

// Control frames count until they are acknowledged; frames sent with messages do not count.
func TestControlFramesCountUntilTheyAreAcknowledged(t *testing.T) {
	var l sendLog
	want := 0
	for i := range 10_000 {
		body := make([]byte, i%100)
		l.frame(frameBarrier, 0, 0, body)
		l.frame(frameMsgHeader, 0, 0, body)
		l.data(0, uint64(i), body)
		if i%50 == 0 {
			l.chunk(0, uint64(i), Bytes("x"), 0, 1)
		}
		want += headerBytes + len(body)
	}
	if l.ctl != want {
		t.Errorf("%d bytes, want %d", l.ctl, want)
	}
	l.wrote(l.todo)
	if !l.ack(l.sent/2, false) || l.ctl < want/2-segmentBytes || l.ctl > want/2+segmentBytes {
		t.Errorf("%d bytes when half of %d is acknowledged", l.ctl, want)
	}
	if !l.ack(l.sent, false) || l.ctl != 0 {
		t.Errorf("%d bytes when all is acknowledged", l.ctl)
	}
	l.frame(frameFin, 0, 0, nil)
	if l.free(); l.ctl != 0 {
		t.Errorf("%d bytes of a log that was dropped", l.ctl)
	}
}

// A peer that acknowledges and gives no credit holds a sender of a reliable event at its window; of
// other events the node keeps their queue.
func TestR7PeerWithoutCreditMakesNothingGrow(t *testing.T) {
	for _, delivery := range []Delivery{Reliable, Latest, DropOldest, DropNewest} {
		t.Run(delivery.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const window, queue = 16, 8
				received := &tally{}
				g := meetWith(t, received, func(c *Config) { c.WindowMessages = window })
				g.r.started.Store(true)
				out, err := g.r.Channel(Spec{Name: "o", Delivery: delivery, Queue: queue}, nil)
				if err != nil {
					t.Fatal(err)
				}
				g.say(t, appendFrame(nil, frameDeclare, flagOn, 1, fmt.Appendf(nil, `{"name":"o","delivery":%q,"fingerprint":"0"}`, delivery)))
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for i := range 1000 {
					_, err := out.Send(ctx, make(Bytes, 1000), nil)
					if blocked := delivery == Reliable && i >= window; (err != nil) != blocked {
						t.Fatalf("message %d: %v", i+1, err)
					}
					synctest.Wait()
					frames, _, _ := received.count()
					g.say(t, appendU64(nil, frameAck, 0, frames))
				}
				synctest.Wait()
				o := g.link.s.outs[1]
				if n := logged(g.link.s); n > 0 || len(o.queue) > queue || len(o.line) > 0 || o.messages > window {
					t.Errorf("the log holds %d bytes, %d messages wait, %d are in the line, %d under way", n, len(o.queue), len(o.line), o.messages)
				}
			})
		})
	}
}

// Credit follows an acknowledgement of what it counts, also over the connection that takes
// over from a broken one.
func TestCreditStandsBehindItsAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := &tally{}
		g := meetWith(t, received, func(c *Config) { c.WindowMessages = 4 })
		g.r.channels[0].deliver = func(m *Message) error { m.Credit.Return(1, len(m.Payload)); return nil }
		check := func(received *tally, messages int) {
			t.Helper()
			synctest.Wait()
			acked, credits := uint64(0), 0
			for i, h := range received.ctl {
				switch h.typ {
				case frameAck:
					acked = received.said[i]
				case frameCredit:
					if credits++; acked < received.said[i]+1 { // and the declaration
						t.Errorf("%d messages consumed, %d frames acknowledged", received.said[i], acked)
					}
				}
			}
			if credits == 0 || received.said[len(received.said)-1] != uint64(messages) {
				t.Errorf("no credit for %d messages: %v", messages, received.said)
			}
		}
		for v := range uint64(100) {
			g.say(t, data(v+1))
		}
		check(received, 100)
		g.link.s.detach()
		mine, theirs := net.Pipe()
		again := &tally{}
		go func() { _, _ = io.Copy(again, theirs) }()
		if _, err := g.link.s.attach(mine, false, 0); err != nil {
			t.Fatal(err)
		}
		check(again, 100)
		_ = theirs.Close()
	})
}

// The same while messages arrive: what is consumed between two reads of the totals is not
// credited before it is acknowledged.
func TestCreditStandsBehindItsAcknowledgementWhileMessagesCome(t *testing.T) {
	s := newSession(openRouter(t, Config{}), Peer{ID: 1, Incarnation: 1}, nil)
	in := &inStream{s: s}
	var stop atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for !stop.Load() {
			s.received.Add(1)
			in.consumed[0].Add(1)
			runtime.Gosched()
		}
	})
	var b []byte
	for range 200_000 {
		in.due = true
		s.credits = append(s.credits, in)
		b = s.stage(b[:0], writeLimit)
		acked, credit := le.Uint64(b[headerBytes:]), le.Uint64(b[2*headerBytes+8:])
		if frameType(b[4]) != frameAck || frameType(b[headerBytes+8+4]) != frameCredit || credit > acked {
			t.Errorf("%d messages consumed, %d frames acknowledged", credit, acked)
			break
		}
	}
	stop.Store(true)
	reader.Wait()
}
