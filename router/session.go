package router

import (
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// session is one peer in one of its incarnations: the frames sent to it and not acknowledged, the
// state of those received from it, and the connection that carries both at the moment. It has no
// goroutine, clock or socket of its own: a link's reader calls receive, its writer calls gather.
type session struct {
	r *Router

	headers   bool // the peer understands frameMsgHeader
	leaves    bool // the peer understands frameLeave
	knowsDone bool // the peer understands frameDone
	answers   bool // the peer answers frameListen with frameListening

	takesFarewells bool // the peer understands frameFarewell

	mu      sync.Mutex
	wake    sync.Cond // the writer waits here
	link    *link     // nil while there is no connection
	err     error     // set once, when the session has ended
	log     sendLog
	outs    []*outStream // by this node's number of the event
	bulks   []*outStream // whose chunks go out, in turn
	waiting int          // messages that wait for room, under Reliable
	burst   int          // sends since the peer was last received
	finSeq  uint64       // number of our Fin, or 0
	acked   uint64       // frames of the peer's that were acknowledged

	ackDue     bool
	seenDue    bool
	leaveDue   bool   // the peer leaves, and is to learn that no more messages come
	pingDue    uint64 // clock to send, or 0
	pongDue    uint64
	credits    []*inStream
	releaseDue bool   // releases of the peer's memory are to be sent
	claims     claims // what the peer has of this node's memory

	processOver bool // the peer's process has ended, or has left in order
	quietFor    int  // ticks without anything written
	ahead       int  // bytes reserved for the peer's unfinished messages

	links    uint64        // connections so far
	wireOut  uint64        // bytes written
	pingedAt int64         // clock of the newest ping
	askedAt  uint64        // clock of the ping that ask waits for
	alive    chan struct{} // closed when that is answered; nil: nothing waits

	// The reader owns these.
	ins      []*inStream // by the peer's number of the event
	unacked  int         // frames since the last acknowledgement
	unackedB int         // bytes of them
	declared int         // bytes of the peer's declarations
	copies   []*inStream // whose messages are being copied out of the peer's memory, in turn

	theirs  atomic.Pointer[peerMemory] // nil: the peer has passed none
	sharing atomic.Bool                // the peer has mapped this node's memory, and is not gone

	spares       spares
	received     atomic.Uint64 // sequenced frames
	wireIn       atomic.Uint64 // bytes read
	lastReceived atomic.Int64  // clock of the last frame
	rtt          atomic.Int64  // ns, of the last ping

	// The router's mutex guards these.
	remote map[string]*inStream // the peer's events by name
	member
}

// sessions are the present peers, by node id.
type sessions map[int]*session

func (all sessions) of(id int) *member {
	if s := all[id]; s != nil {
		return &s.member
	}
	return nil
}

func (all sessions) all() iter.Seq2[int, *member] {
	return func(yield func(int, *member) bool) {
		for id, s := range all {
			if !yield(id, &s.member) {
				return
			}
		}
	}
}

func (all sessions) count() int { return len(all) }

func newSession(r *Router, peer Peer, addrs []string) *session {
	s := &session{r: r, remote: map[string]*inStream{}, member: member{peer: peer, addrs: addrs, barriers: map[string]uint64{}}}
	s.wake.L = &s.mu
	s.spares.r = r
	return s
}

// declaration is the body of frameDeclare.
type declaration struct {
	Name        string `json:"name"`
	Delivery    string `json:"delivery"`
	Queue       int    `json:"queue,omitempty"`
	Fingerprint uint64 `json:"fingerprint,string"`
	Schema      string `json:"schema,omitempty"`
}

// maxSchema bounds in bytes the schema in a declaration, which serves only for the error when two
// declarations differ.
const maxSchema = 8 << 10

// check judges the declaration of a peer, and makes it safe to print.
func (d *declaration) check() error {
	if d.Name == "" || len(d.Name) > maxName || !printable.Is(d.Name) {
		return fmt.Errorf("%w: event %.20q: want a name of 1 to %d bytes of printable text", errBadFrame, d.Name, maxName)
	}
	d.Delivery, d.Schema = printable.Text(d.Delivery), printable.Cut(d.Schema, maxSchema)
	return nil
}

// declare announces an event to the peer. The router's mutex is held.
func (s *session) declare(c *channel) {
	d := declaration{c.spec.Name, c.spec.Delivery.String(), c.spec.Queue, c.spec.Fingerprint, printable.Cut(c.spec.Schema, maxSchema)}
	body, _ := json.Marshal(d) //nolint:errchkjson // texts and numbers: it cannot fail
	flags := uint8(0)
	if c.listens.Load() {
		flags = flagOn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outs = append(s.outs, &outStream{s: s, ch: c})
	if s.err == nil {
		s.log.frame(frameDeclare, flags, c.id, body)
		s.signal()
	}
}

// control appends a sequenced control frame.
func (s *session) control(t frameType, flags uint8, channel uint16, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.log.frame(t, flags, channel, body)
	if t == frameFin {
		s.finSeq = s.log.sent
	}
	s.signal()
}

// sending is the state of a message for one peer.
type sending uint8

const (
	notSent sending = iota // the peer has gone, or does not listen any more: it is not addressed
	noRoom                 // to send it would block
	sent                   // it is on its way
)

// post gives one message its place in the stream, if there is room. The session's mutex is
// held.
func (o *outStream) post(version uint64, payload Buffer) sending {
	switch {
	case o.s.err != nil || !o.listens:
		return notSent
	case o.ch.spec.Delivery != Reliable:
		o.offer(version, payload)
	case len(o.line) > 0 || !o.open():
		return noRoom
	default:
		o.put(version, payload)
	}
	return sent
}

// logAfter is the time after which the log names the peers for which a send waits, or a lost peer that
// is still away.
const logAfter = 10 * time.Second

// burstSends is the number of messages that a sender writes to the connection by itself before it
// leaves the writing to the writer, which then sends many at once. Any frame from the peer starts the
// count again, so that questions and answers go out without a change of goroutine.
const burstSends = 3

// flushBytes is the number of bytes that a sender in a burst gathers before it writes by
// itself after all: the writer may be waiting for the processor that the sender
// has.
const flushBytes = 48 << 10

// goesOut gets what was just appended on its way: by the writer, or by the sender if that
// can and is not in a burst. Then it returns true, and flush is to be called. The mutex is
// held.
func (s *session) goesOut(bySender bool) bool {
	l := s.link
	s.burst++
	if !bySender || l == nil || l.writing || l.try == nil || s.burst > burstSends && (s.log.todo < flushBytes || l.full) {
		s.signal()
		return false
	}
	return true
}

// flush writes what was just appended, unless another goroutine does.
func (s *session) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.link; l != nil && !l.writing && l.try != nil && s.log.unwritten() {
		l.writeNow()
	} else {
		s.signal()
	}
}

// signal wakes the writer. The mutex is held.
func (s *session) signal() {
	if l := s.link; l != nil && l.idle {
		l.idle = false
		s.wake.Broadcast()
	}
}

// wrote records n bytes that were written, and lets senders continue that were
// too far ahead. The mutex is held.
func (s *session) wrote(n int) {
	s.log.wrote(n)
	s.log.trim(false)
	if s.log.todo <= aheadBytes/2 {
		s.wakeWaiting()
	}
}

// wakeWaiting wakes senders for which there is room. The mutex is held.
func (s *session) wakeWaiting() {
	if s.waiting == 0 {
		return
	}
	for _, o := range s.outs {
		o.admit()
	}
}

// pendingWrite reports whether the writer has anything to do.
func (s *session) pendingWrite() bool {
	return s.log.unwritten() || len(s.bulks) > 0 || s.ackDue || s.seenDue || s.releaseDue ||
		len(s.credits) > 0 || s.pingDue != 0 || s.pongDue != 0 || s.leaveDue && s.messagesSent()
}

// stage prepares what is to be written next: one chunk of each bulk goes into
// the log, and the totals that are due into dst, which is empty, and which it returns.
func (s *session) stage(dst []byte, limit int) []byte {
	s.stageReleases() // before the credit of the same messages
	if s.ackDue || len(s.credits) > 0 || s.received.Load() != s.acked {
		dst = appendU64(dst, frameAck, 0, 0)
		for _, in := range s.credits {
			in.due = false
			m, b := in.consumed[0].Load(), in.consumed[1].Load()
			in.reported[0].Store(m)
			in.reported[1].Store(b)
			dst = appendU64(dst, frameCredit, in.id, m, b)
		}
		clear(s.credits)
		s.credits = s.credits[:0]
		s.ackDue, s.acked = false, s.received.Load() // after the totals: what was consumed is acknowledged before
		le.PutUint64(dst[headerBytes:], s.acked)
	}
	if s.pingDue != 0 {
		dst = appendU64(dst, framePing, 0, s.pingDue)
		s.pingDue = 0
	}
	if s.pongDue != 0 {
		dst = appendU64(dst, framePong, 0, s.pongDue)
		s.pongDue = 0
	}
	for n, staged := len(s.bulks), 0; n > 0 && staged < limit; n-- {
		o := s.bulks[0]
		s.bulks = append(s.bulks[:0], s.bulks[1:]...)
		if !o.chunkOut() {
			s.bulks = append(s.bulks, o)
		}
		staged += s.r.cfg.ChunkBytes
	}
	if s.seenDue && s.newestSent() {
		s.seenDue = false
		s.log.frame(frameSeen, 0, 0, nil)
	}
	if s.leaveDue && s.messagesSent() {
		s.leaveDue = false
		s.log.frame(frameLeave, flagOn, 0, nil)
	}
	return dst
}

// messagesSent reports whether every message is in the log whole.
func (s *session) messagesSent() bool {
	for _, o := range s.outs {
		if o.bulk != nil || len(o.queue) > 0 {
			return false
		}
	}
	return true
}

// newestSent reports whether every newest value is in the log whole, or waits behind an
// older one that is.
func (s *session) newestSent() bool {
	for _, o := range s.outs {
		if o.ch.spec.Delivery == Latest && o.bulk != nil {
			return false
		}
	}
	return true
}

func appendU64(dst []byte, t frameType, channel uint16, v ...uint64) []byte {
	var h [headerBytes]byte
	putHeader(h[:], 8*len(v), t, 0, channel)
	dst = append(dst, h[:]...)
	for _, x := range v {
		dst = le.AppendUint64(dst, x)
	}
	return dst
}

// end ends the session: senders that wait are woken, and what was not
// acknowledged is counted. It returns that count, and false if the session had
// ended before.
func (s *session) end(reason error) (*PeerError, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, false
	}
	lost := s.log.undelivered()
	perr := &PeerError{Node: s.peer.ID, Incarnation: s.peer.Incarnation, Err: reason}
	for _, o := range s.outs {
		lost += o.end()
	}
	perr.Undelivered = lost
	s.err = perr
	s.r.ahead.Add(-int64(s.ahead))
	s.ahead = 0
	s.spares.end()
	s.endClaims()
	if pm := s.theirs.Load(); pm != nil {
		pm.m.Close()
	}
	if s.link == nil || !s.link.writing {
		s.log.free()
	}
	s.wake.Broadcast()
	return perr, true
}
