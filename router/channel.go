package router

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// channel is an event that this node has declared.
type channel struct {
	r       *Router
	id      uint16
	spec    Spec
	deliver func(*Message) error

	version atomic.Uint64
	targets atomic.Pointer[audience]
	unfed   atomic.Uint64 // messages that came while this node did not listen

	listens  atomic.Bool // this node listens
	listened atomic.Bool // a peer listens, or has listened

	absences map[int]*absence // by node id; the router's mutex guards it

	mu     sync.Mutex
	newest pending // under Latest: what late joiners receive
}

// Channel is one declared event.
type Channel struct{ c *channel }

// Channel declares an event. deliver is called by a connection's reader for
// every message of the event: in order per sender, never twice at once for one
// sender; it must not block, and returns an error only for what ends the job.
func (r *Router) Channel(spec Spec, deliver func(*Message) error) (*Channel, error) {
	if spec.Name == "" || len(spec.Name) > maxName {
		return nil, fmt.Errorf("event name %q: want 1 to %d bytes", spec.Name, maxName)
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
	c := &channel{r: r, id: uint16(len(r.channels)), spec: spec, deliver: deliver, absences: map[int]*absence{}} //nolint:gosec // bounded above
	c.targets.Store(new(audience))
	r.channels = append(r.channels, c)
	r.byName[spec.Name] = c
	for _, s := range r.peers {
		if err := s.declare(c); err != nil {
			return nil, err
		}
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

// Listen tells the other nodes whether this node listens to the event. After Listen(true)
// the messages of a peer are delivered from the first one on that the peer has sent
// knowing of it, and none of them is missed until Listen(false). What was under way before
// is dropped, but for the newest value of a Latest event.
func (c *Channel) Listen(on bool) {
	r := c.c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.c.listens.Load() == on {
		return
	}
	if !on {
		c.c.listens.Store(false)
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

// listen tells the peer whether this node listens to its event number id.
func (s *session) listen(id uint16, flags uint8) {
	if flags&flagOn != 0 && s.answers && s.r.channels[id].spec.Delivery != Latest {
		s.mu.Lock()
		s.outs[id].asked.Add(1)
		s.mu.Unlock()
	}
	s.control(frameListen, flags, id, nil)
}

// answered takes note that the peer knows that this node listens to its event number id,
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
	if o.ch.spec.Delivery == Latest { // its newest value is heard whenever it was sent
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
// Send returns and its references are released. Under Reliable it blocks while a
// peer's window is full; one peer's full window does not delay the others. A peer that
// listened and is gone is sent nothing, and keeps nobody waiting: the message is counted
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
	version := ch.version.Add(1)
	if ch.spec.Delivery == Latest {
		ch.retain(version, payload, match)
	}
	n := 0
	var full []*outStream
	to := ch.targets.Load()
	for _, a := range to.away {
		if match == nil || match(a.peer) {
			a.missed.Add(1)
		}
	}
	for _, o := range to.out {
		if match != nil && !match(o.s.peer) {
			continue
		}
		if tap := ch.r.cfg.Tap; tap != nil {
			tap.Sent(ch.spec.Name, o.s.peer.ID, version, payload.Bytes())
		}
		switch o.s.send(o, version, payload) {
		case sent:
			n++
		case noRoom:
			full = append(full, o)
		case notSent:
			o.miss()
		}
	}
	if len(full) > 0 {
		more, err := ch.sendFull(ctx, full, version, payload)
		return n + more, err
	}
	return n, nil
}

// sendFull waits for room at each of the peers, all at once, and returns how many of
// them were addressed.
func (c *channel) sendFull(ctx context.Context, full []*outStream, version uint64, payload Buffer) (int, error) {
	sends := make([]sending, len(full))
	errs := make([]error, len(full))
	var wg sync.WaitGroup
	for i, o := range full[1:] {
		wg.Go(func() { sends[i+1], errs[i+1] = o.s.sendWait(ctx, o, version, payload) })
	}
	sends[0], errs[0] = full[0].s.sendWait(ctx, full[0], version, payload)
	wg.Wait()
	n := 0
	for i := range full {
		if sends[i] == sent || errs[i] != nil {
			n++
		} else {
			full[i].miss()
		}
	}
	return n, errors.Join(errs...)
}

// retain keeps the newest value for those who join late.
func (c *channel) retain(version uint64, payload Buffer, match func(Peer) bool) {
	if match != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.newest.version {
		return
	}
	if c.newest.payload != nil {
		c.newest.payload.Release()
	}
	payload.Retain()
	c.newest = pending{version, payload}
}
