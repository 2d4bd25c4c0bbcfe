package router

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// outStream is the sending side of one event in one session. The session's mutex guards
// it.
type outStream struct {
	s        *session
	ch       *channel
	listens  bool         // the peer listens
	asked    atomic.Int32 // times that this node has said that it listens, and the peer has not answered
	version  uint64       // newest version handed to the session
	messages int          // on their way: sent and not yet consumed
	bytes    int
	consumed [2]uint64 // totals the peer has consumed: messages, bytes
	sent     [2]uint64 // totals sent
	queue    []pending // what waits for room, under the policies that do not block
	bulk     *bulk     // the message whose chunks are going out
	line     []*waiter // what waits for room, under Reliable: in the order of versions
	mark     mark      // the first message since the peer's credit reached the mark before
	due      uint64    // frame to be acknowledged when the peer's credit reaches the mark

	dropped     uint64 // given up here, under a policy that may
	abandoned   uint64 // of them: because the session ended
	undelivered uint64 // neither consumed nor dropped, when the session ended
}

// mark is a place in a stream at which acknowledgements are compared with credit. A consumed
// message was received, so a peer that gives credit must acknowledge too; otherwise the log
// would grow without bound. The acknowledgements may lag one mark behind the credit, as the
// two totals are read one after the other. So the log holds at most three windows of a stream.
type mark struct {
	messages uint64 // total sent with the marked message; 0: no message is marked
	bytes    uint64 // total sent without it
	frame    uint64 // newest sequenced frame then
}

// pending is a payload that waits for room.
type pending struct {
	version uint64
	payload Buffer
}

// bulk is a message that goes out in chunks.
type bulk struct {
	pending
	off int
}

// windows are the bounds of what may be on its way.
func (o *outStream) windows() (messages, bytes int) {
	c := &o.s.r.cfg
	switch o.ch.spec.Delivery {
	case Latest:
		return 1, c.WindowBytes
	case DropOldest, DropNewest:
		return min(o.ch.spec.Queue, c.WindowMessages), c.WindowBytes
	}
	return c.WindowMessages, c.WindowBytes
}

// aheadBytes is the number of bytes by which a Reliable sender may be ahead of the writer while there
// is a connection: what is written soon is still in the processor's cache.
const aheadBytes = 1 << 20

// open reports whether another message may go out: one that is larger than the
// window goes out alone.
func (o *outStream) open() bool {
	m, b := o.windows()
	return o.bulk == nil && o.messages < m && o.bytes < b &&
		(o.s.log.todo < aheadBytes || o.s.link == nil || o.ch.spec.Delivery != Reliable)
}

// put hands one message to the log. The stream is open.
func (o *outStream) put(version uint64, payload Buffer) {
	b := payload.Bytes()
	o.version = version
	o.messages++
	o.bytes += len(b)
	o.sent[0]++
	o.sent[1] += uint64(len(b))
	l := &o.s.log
	if o.ch.spec.Headers && o.s.headers {
		if h := payload.Header(); len(h) > 0 && len(h) <= MaxHeaderBytes {
			l.frame(frameMsgHeader, 0, o.ch.id, h)
		}
	}
	seg, inMemory := o.segment(payload)
	switch chunk := o.s.r.cfg.ChunkBytes; {
	case inMemory:
		o.putShared(version, payload, seg)
	case len(b) <= inlineBytes:
		l.data(o.ch.id, version, b)
	case len(b) <= chunk:
		l.chunk(o.ch.id, version, payload, 0, len(b))
	default:
		payload.Retain()
		o.bulk = &bulk{pending: pending{version, payload}}
		o.s.bulks = append(o.s.bulks, o)
	}
	if o.mark.messages == 0 {
		o.mark = mark{o.sent[0], o.sent[1] - uint64(len(b)), l.sent}
	}
}

// chunkOut puts the next chunk of the stream's bulk into the log, and reports
// whether it was the last.
func (o *outStream) chunkOut() bool {
	k := o.bulk
	total := len(k.payload.Bytes())
	n := min(o.s.r.cfg.ChunkBytes, total-k.off)
	o.s.log.chunk(o.ch.id, k.version, k.payload, k.off, n)
	k.off += n
	if k.off < total {
		return false
	}
	k.payload.Release()
	o.bulk = nil
	o.refill()
	return true
}

// offer takes a message under the policies that do not block: at once if there
// is room, else into the queue, or not at all.
func (o *outStream) offer(version uint64, payload Buffer) {
	if len(o.queue) == 0 && o.open() {
		o.put(version, payload)
		return
	}
	limit := o.ch.spec.Queue
	switch o.ch.spec.Delivery {
	case Latest:
		limit = 1
	case DropNewest:
		if len(o.queue) >= limit {
			o.dropped++
			return
		}
	}
	if len(o.queue) >= limit {
		o.queue[0].payload.Release()
		copy(o.queue, o.queue[1:])
		o.queue = o.queue[:len(o.queue)-1]
		o.dropped++
	}
	payload.Retain()
	o.queue = append(o.queue, pending{version, payload})
}

// newest is the newest version that the stream has sent or holds.
func (o *outStream) newest() uint64 {
	if n := len(o.queue); n > 0 {
		return o.queue[n-1].version
	}
	return o.version
}

// refill moves what waits into the room that has come.
func (o *outStream) refill() {
	i := 0
	for ; i < len(o.queue) && o.open(); i++ {
		p := o.queue[i]
		o.put(p.version, p.payload)
		p.payload.Release()
	}
	o.queue = slices.Delete(o.queue, 0, i)
	o.admit()
}

// credit records what the peer has consumed. It returns an error for totals that go
// back or beyond what was sent, and for those of messages that should have been acknowledged.
func (o *outStream) credit(messages, bytes uint64) error {
	if messages < o.consumed[0] || messages > o.sent[0] || bytes < o.consumed[1] || bytes > o.sent[1] {
		return fmt.Errorf("%w: room for event number %d that was never sent", errBadFrame, o.ch.id)
	}
	if m := o.mark; m.messages > 0 && (messages >= m.messages || bytes > m.bytes) {
		if done := o.s.log.done; done < o.due {
			return fmt.Errorf("%w: event %q: messages consumed, but not acknowledged: %d frames acknowledged, want %d at least",
				errBadFrame, o.ch.spec.Name, done, o.due)
		}
		o.mark, o.due = mark{}, m.frame
	}
	o.messages -= int(messages - o.consumed[0]) //nolint:gosec // at most what is on its way
	o.bytes -= int(bytes - o.consumed[1])       //nolint:gosec // at most what is on its way
	o.consumed = [2]uint64{messages, bytes}
	o.refill()
	return nil
}

// end releases the senders that wait and drops the held messages, under the policies that may; it
// returns the number of other messages that had not been handed to the log whole.
func (o *outStream) end() int {
	n := 0
	o.undelivered = uint64(o.messages) //nolint:gosec // not negative
	o.abandoned = uint64(len(o.queue))
	o.dropped += o.abandoned
	for _, p := range o.queue {
		p.payload.Release()
	}
	o.queue = nil
	if o.bulk != nil {
		n++
		o.bulk.payload.Release()
		o.bulk = nil
	}
	o.dismiss()
	return n
}

// inStream is the receiving side of one event in one session. Its reader owns it, but
// for the totals of what has been consumed.
type inStream struct {
	s       *session
	ch      atomic.Pointer[channel] // nil while this node has not declared the event
	out     *outStream              // what goes the other way; set before ch
	id      uint16                  // the peer's number of the event
	decl    declaration
	listens bool // the peer listens; the router's mutex guards it
	version uint64
	floor   uint64 // messages up to this number were sent when this node did not listen, or not yet
	header  []byte // of the next message

	received [2]uint64 // messages, bytes: at most a window more than has been consumed

	unsubscribed, stale atomic.Uint64 // dropped here: without a listener; older than the value here

	asm      []byte // the message whose chunks are coming in, as far as there is memory for it
	asmHave  int
	asmTotal int  // 0: there is none
	asmSkip  bool // this node does not listen to it: nothing of it is kept
	ahead    int  // bytes that are reserved for it
	msg      Message
	copies   copying // the message that is being copied out of the peer's memory

	consumed [2]atomic.Uint64 // messages, bytes
	reported [2]atomic.Uint64 // the part of consumed that was sent to the peer
	due      bool             // queued for the writer; the session's mutex guards it

	before *StreamStats // counted when this node had not declared the event; nil: nothing. The router's mutex guards it
}

// Return gives the sender its room back.
func (in *inStream) Return(messages, bytes int) {
	m := in.consumed[0].Add(uint64(messages)) //nolint:gosec // not negative
	b := in.consumed[1].Add(uint64(bytes))    //nolint:gosec // not negative
	every, everyBytes := in.quarter()
	if m-in.reported[0].Load() < every && b-in.reported[1].Load() < everyBytes {
		return
	}
	s := in.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !in.due && s.err == nil {
		in.due = true
		s.credits = append(s.credits, in)
		s.signal()
	}
}

// quarter is the consumption after which the peer gets a report: a
// quarter of its window.
func (in *inStream) quarter() (messages, bytes uint64) {
	c := &in.s.r.cfg
	m := c.WindowMessages
	switch in.decl.Delivery {
	case Latest.String():
		m = 1
	case DropOldest.String(), DropNewest.String():
		m = min(m, max(in.decl.Queue, 1))
	}
	return uint64(max(m/4, 1)), uint64(c.WindowBytes / 4) //nolint:gosec // positive
}

// arrive counts a message of n bytes. It reports false if the peer had no room
// for it: an honest one sends no more than its window. A message in chunks arrives with the first.
func (in *inStream) arrive(n int) bool {
	c := &in.s.r.cfg
	messages, bytes := in.received[0]-in.consumed[0].Load(), in.received[1]-in.consumed[1].Load()
	in.received[0]++
	in.received[1] += uint64(n)                                                 //nolint:gosec // not negative
	return messages < uint64(c.WindowMessages) && bytes < uint64(c.WindowBytes) //nolint:gosec // positive
}

// overrun is the error for a message for which arrive reports false.
func (in *inStream) overrun() error {
	return fmt.Errorf("%w: event %q: more messages than there was room for; are the windows of all nodes the same?", errBadFrame,
		in.decl.Name)
}
