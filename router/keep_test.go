package router

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// A peer that gives credit and does not acknowledge is lost, before the node has kept more
// than three windows of what it has sent. One that acknowledges one round late is not.
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
					heard := &tally{}
					spec := Spec{Name: "o"}
					for spec.Delivery.String() != c.delivery {
						spec.Delivery++
					}
					g := meetWith(t, heard, func(c *Config) {
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
						frames, m, b := heard.count()
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
					_, m, _ := heard.count()
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

// logged is how many bytes the log of a session holds.
func logged(s *session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, seg := range s.log.segs {
		n += seg.size()
	}
	return n
}
