package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// channel is an event that this node has declared.
type channel struct {
	r       *Router
	id      uint16
	spec    Spec
	deliver func(*Message) error

	version atomic.Uint64 // of the newest message: taken under the mutexes of all sessions that it goes to
	targets atomic.Pointer[audience]

	listens  atomic.Bool // this node listens
	borrows  atomic.Bool // deliver gives back what it takes
	listened atomic.Bool // a peer listens, or has listened

	absences map[int]*absence // by node id; the router's mutex guards it

	mu     sync.Mutex // is taken before those of sessions, by all senders if serial
	serial bool       // under Latest, or with a Tap: one message after the other
	newest pending    // under Latest: what late joiners receive
}

// Channel is one declared event.
type Channel struct{ c *channel }

// Channel declares an event. deliver is called by a connection's reader for
// every message of the event: in order per sender, never twice at once for one
// sender; it must not block. It returns an error that wraps [ErrPayload] for a message that is
// not of the event's type: its sender is lost then. Any other error ends this node's part in
// the job.
func (r *Router) Channel(spec Spec, deliver func(*Message) error) (*Channel, error) {
	if spec.Name == "" || len(spec.Name) > maxName || !printable.Is(spec.Name) {
		return nil, fmt.Errorf("event name %q: want 1 to %d bytes of printable text", spec.Name, maxName)
	}
	if spec.Delivery > DropNewest {
		return nil, fmt.Errorf("event %q: unknown delivery policy %d", spec.Name, spec.Delivery)
	}
	if spec.Queue < 0 {
		return nil, fmt.Errorf("event %q: a queue of %d messages", spec.Name, spec.Queue)
	}
	def(&spec.Queue, 1024)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	if _, ok := r.byName[spec.Name]; ok {
		return nil, fmt.Errorf("event %q is declared twice", spec.Name)
	}
	if len(r.channels) == maxChannels {
		return nil, fmt.Errorf("event %q: a node can declare %d events", spec.Name, maxChannels)
	}
	id := uint16(len(r.channels)) //nolint:gosec // bounded above
	c := &channel{r: r, id: id, spec: spec, deliver: deliver, absences: map[int]*absence{}}
	c.serial = spec.Delivery == Latest || r.cfg.Tap != nil
	c.targets.Store(new(audience))
	r.channels = append(r.channels, c)
	r.byName[spec.Name] = c
	for _, s := range r.peers {
		s.declare(c)
	}
	for _, s := range r.peers {
		if in := s.remote[spec.Name]; in != nil {
			if err := r.join(c, in); err != nil {
				return nil, err
			}
		}
	}
	return &Channel{c}, nil
}

// Listen announces to the other nodes whether this node listens to the event. After Listen(true) all
// messages of a peer are delivered that it sends after it has received the announcement, until
// Listen(false). Earlier ones are dropped, except for the newest value of a Latest event.
func (c *Channel) Listen(on bool) {
	r := c.c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.c.listens.Load() == on {
		return
	}
	flags := uint8(0)
	if on {
		flags = flagOn
	}
	for _, s := range r.peers {
		s.listen(c.c.id, flags)
	}
	c.c.listens.Store(on) // from now on the answers are waited for
}

// listen announces to the peer whether this node listens to its event number id.
func (s *session) listen(id uint16, flags uint8) {
	if flags&flagOn != 0 && s.answers && s.r.channels[id].spec.Delivery != Latest {
		s.mu.Lock()
		s.outs[id].asked.Add(1)
		s.mu.Unlock()
	}
	s.control(frameListen, flags, id, nil)
}

// answered records that the peer knows that this node listens to its event number id,
// and has sent the messages up to number floor before that.
func (s *session) answered(id uint16, floor uint64) error {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(id) >= len(s.outs) {
		return fmt.Errorf("%w: an answer for event number %d, which was not declared", errBadFrame, id)
	}
	o := s.outs[id]
	if o.ch.spec.Delivery == Latest { // its newest value is received whenever it was sent
		return nil
	}
	if o.asked.Load() > 0 {
		o.asked.Add(-1)
	}
	if in := s.remote[o.ch.spec.Name]; in != nil {
		in.floor = max(in.floor, floor)
	}
	return nil
}

// Listened reports whether any peer listens to the event now, or did when it was lost or
// left.
func (c *Channel) Listened() bool {
	to := c.c.targets.Load()
	return len(to.out) > 0 || len(to.away) > 0 || c.c.spec.Delivery == Latest
}

// EverListened reports whether any peer has listened to the event.
func (c *Channel) EverListened() bool { return c.c.listened.Load() }

// Send hands payload to every listening peer that match accepts (nil accepts
// all) and returns the number of peers addressed. payload may be reused when
// Send returns and its references are released. Concurrent calls are numbered one after the
// other, and every peer receives their messages in that order. Under Reliable Send blocks
// while a peer's window is full, or an earlier message waits for room in it; one peer's full
// window does not delay the others. A peer that
// listened and is gone is sent nothing and is not waited for: the message is counted
// for it, see [StreamStats], until it is back. The
// error joins a *[PeerError] for each peer that was lost meanwhile, and the
// cause of ctx if it ended first, in which case some peers have the message and
// the error names those that do not.
func (c *Channel) Send(ctx context.Context, payload Buffer, match func(Peer) bool) (int, error) {
	ch := c.c
	if n := len(payload.Bytes()); n > ch.r.cfg.MaxMessageBytes {
		return 0, fmt.Errorf("event %q: a payload of %d bytes is over the limit of %d", ch.spec.Name, n, ch.r.cfg.MaxMessageBytes)
	}
	if err := ch.r.sendable(); err != nil {
		return 0, err
	}
	to := ch.targets.Load().only(match)
	var p posting
	if ch.serial {
		to, p = ch.postSerially(to, match, payload)
	} else {
		p = ch.post(to, payload)
	}
	for i := 0; p.unwritten != 0; i++ {
		if p.unwritten&1 != 0 {
			to.out[i].s.flush()
		}
		p.unwritten >>= 1
	}
	if p.rest == nil {
		return p.sent, nil
	}
	for _, o := range p.rest.missed {
		o.miss()
	}
	n, err := ch.await(ctx, p.rest.waits)
	return p.sent + n, err
}

// posting is the result of one message.
type posting struct {
	sent      int    // peers that it is on its way to
	unwritten uint64 // bits: those of them, by index in the audience, that the sender may write to at once
	rest      *unsent
}

// unsent is a message for the peers that it is not on its way to.
type unsent struct {
	waits  []*waiter    // for room
	missed []*outStream // of peers that are gone, or do not listen any more
}

// post gives a message its number, and its place in the stream of each peer of the audience.
// It takes the number when it has the mutexes of all of them, so that no other message with a
// later number comes first in one of the streams. All senders take the mutexes in the order
// of the peers' ids.
func (c *channel) post(to *audience, payload Buffer) (p posting) {
	for _, o := range to.out {
		o.s.mu.Lock()
	}
	version := c.version.Add(1)
	for i, o := range to.out {
		was := o.post(version, payload)
		if was == sent && o.s.goesOut(i < 64) {
			p.unwritten |= 1 << i
		}
		if was == sent {
			p.sent++
		} else {
			p.rest = p.rest.add(o, was, version, payload)
		}
		o.s.mu.Unlock()
	}
	for _, a := range to.away {
		a.missed.Add(1)
	}
	return p
}

// add records a peer that the message is not on its way to. The session's mutex is
// held.
func (u *unsent) add(o *outStream, was sending, version uint64, payload Buffer) *unsent {
	if u == nil {
		u = &unsent{}
	}
	if was == noRoom {
		u.waits = append(u.waits, o.wait(version, payload))
	} else {
		u.missed = append(u.missed, o)
	}
	return u
}

// postSerially is post where a message is recorded, or kept for peers that join late, before
// it is sent: no other one of the event is numbered meanwhile.
func (c *channel) postSerially(to *audience, match func(Peer) bool, payload Buffer) (*audience, posting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := c.version.Load() + 1
	if match == nil {
		if c.spec.Delivery == Latest {
			c.retain(version, payload)
		}
		to = c.targets.Load() // after that: a node that listens later gets the newest value
	}
	if tap := c.r.cfg.Tap; tap != nil {
		for _, o := range to.out {
			tap.Sent(c.spec.Name, o.s.peer.ID, version, payload.Bytes())
		}
	}
	return to, c.post(to, payload)
}

// await waits until no message of one Send waits for room any more, and returns how many of
// the peers were addressed.
func (c *channel) await(ctx context.Context, waits []*waiter) (int, error) {
	say := time.NewTimer(logAfter)
	defer say.Stop()
	began, n := time.Now(), 0
	var errs []error
	for i := 0; i < len(waits); {
		w, peer := waits[i], waits[i].o.s.peer.ID
		var why error
		select {
		case <-w.over:
		case <-say.C:
			waited := time.Since(began).Round(time.Second)
			logBlocked(waits[i:], waited)
			say.Reset(waited)
			continue
		case <-c.r.draining:
			why = fmt.Errorf("event %q is not sent to node.%d: %w", c.spec.Name, peer, ErrClosed)
		case <-ctx.Done():
			why = fmt.Errorf("event %q is not sent to node.%d, whose window is full: %w", c.spec.Name, peer, context.Cause(ctx))
		}
		was, err := w.end(why)
		if was == sent || err != nil {
			n++
		} else {
			w.o.miss()
		}
		errs = append(errs, err)
		i++
	}
	return n, errors.Join(errs...)
}

// logBlocked logs the peers that a Send waits for.
func logBlocked(waits []*waiter, waited time.Duration) {
	for _, w := range waits {
		select {
		case <-w.over:
		default:
			w.o.s.r.log.Warn("still waiting for room", "event", w.o.ch.spec.Name, "peer", fmt.Sprintf("node.%d", w.o.s.peer.ID),
				"waited", waited)
		}
	}
}

// retain keeps the newest value for nodes that join late. The mutex is held.
func (c *channel) retain(version uint64, payload Buffer) {
	if c.newest.payload != nil {
		c.newest.payload.Release()
	}
	payload.Retain()
	c.newest = pending{version, payload}
}
