package router

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ditask/ditask/internal/printable"
)

var (
	errLeft = errors.New("left")
	errBye  = errors.New("the peer took leave")
)

// ackFrames and ackBytes are how much is received before it is acknowledged at
// once; less is acknowledged with whatever is sent next, or at the next tick.
const (
	ackFrames = 256
	ackBytes  = 256 << 10
)

// receive takes one frame, but for chunks. body is valid during the call.
func (s *session) receive(l *link, h header, body []byte) error {
	if !h.typ.sequenced() {
		return s.receiveTotals(l, h, body)
	}
	if h.typ == frameData {
		in, err := s.turn(h.channel)
		if err != nil {
			return err
		}
		s.gotFrame(headerBytes + len(body))
		if !in.arrive(len(body) - 8) {
			return in.overrun()
		}
		_, err = s.deliver(in, le.Uint64(body), body[8:], false)
		return err
	}
	if h.typ == frameMsgHeader {
		in, err := s.turn(h.channel)
		if err != nil {
			return err
		}
		s.gotFrame(headerBytes + len(body))
		if in.ch.Load() != nil { // else the message is not received
			in.header = append(in.header[:0], body...)
		}
		return nil
	}
	if h.typ == frameShared {
		return s.receiveShared(h, body)
	}
	if err := s.copyAll(); err != nil { // the frame stands behind these messages
		return err
	}
	s.gotFrame(headerBytes + len(body))
	if h.typ == frameFin {
		s.ackNow() // before anyone acts on it, and closes
	}
	return s.receiveControl(h, body)
}

// receiveTotals takes a frame that is not counted.
func (s *session) receiveTotals(l *link, h header, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch h.typ {
	case frameAck:
		if !s.log.ack(le.Uint64(body), l.writing) {
			return fmt.Errorf("%w: %d frames acknowledged of %d sent", errBadFrame, le.Uint64(body), s.log.sent)
		}
		s.r.acked()
	case frameCredit:
		if s.err != nil {
			return nil // it has been counted as lost
		}
		if int(h.channel) >= len(s.outs) {
			return fmt.Errorf("%w: room for event number %d that was never sent", errBadFrame, h.channel)
		}
		if err := s.outs[h.channel].credit(le.Uint64(body), le.Uint64(body[8:])); err != nil {
			return err
		}
		s.signal()
	case framePing:
		s.pongDue = le.Uint64(body)
		s.signal()
	case framePong:
		sent := le.Uint64(body)
		s.rtt.Store(max(s.r.clock()-int64(sent), 1)) //nolint:gosec // our own clock
		if s.alive != nil && sent >= s.askedAt {
			close(s.alive)
			s.alive = nil
		}
	case frameBye:
		l.bye = fmt.Errorf("%w: %s", errLeft, cutReason(string(body)))
		return errBye
	}
	return nil
}

// receiveControl takes a sequenced frame without a payload.
func (s *session) receiveControl(h header, body []byte) error {
	r := s.r
	switch h.typ {
	case frameDeclare:
		return s.receiveDeclaration(h, body)
	case frameListen:
		in, err := s.stream(h.channel)
		if err != nil {
			return err
		}
		return r.listening(in, h.flags&flagOn != 0)
	case frameListening:
		return s.answered(h.channel, le.Uint64(body))
	case frameMembers:
		var m []Member
		if err := json.Unmarshal(body, &m); err != nil {
			return fmt.Errorf("%w: members: %w", errBadFrame, printable.Error(err))
		}
		for i := range m {
			makePrintable(m[i].Addrs)
		}
		r.learn(m, s.peer.ID)
	case frameReady:
		r.peerReady(s, h.flags&flagOn != 0)
	case frameSeen:
		r.note(func() { s.seen = true })
	case frameBarrier:
		return r.receiveBarrier(s, h.flags&flagOn != 0, body)
	case frameFin:
		r.note(func() { s.fin = true })
	case frameDone:
		r.note(func() { s.done = true })
	case frameLeave:
		if h.flags&flagOn == 0 {
			r.peerLeaves(s)
		} else {
			r.note(func() { s.quiet = true })
		}
	case frameRelay:
		return r.receiveRelay(body)
	case frameFarewell:
		return s.receiveFarewell(body)
	case frameMapped:
		return s.mapped()
	case frameRelease:
		return s.release(body)
	}
	return nil
}

// receiveDeclaration takes an event that the peer has declared.
func (s *session) receiveDeclaration(h header, body []byte) error {
	var d declaration
	if err := json.Unmarshal(body, &d); err != nil {
		return fmt.Errorf("%w: declaration: %w", errBadFrame, printable.Error(err))
	}
	if err := d.check(); err != nil {
		return err
	}
	if s.declared += len(body); s.declared > maxDeclared {
		return fmt.Errorf("%w: declarations of more than %d bytes", errBadFrame, maxDeclared)
	}
	return s.r.declared(s, h.channel, d, h.flags&flagOn != 0)
}

// receiveRelay takes the hub's request to call it back.
func (r *Router) receiveRelay(body []byte) error {
	if r.cfg.Topology != Star || r.hubAddr() == "" {
		return fmt.Errorf("%w: a call of the hub to a node that is no leaf of a star", errBadFrame)
	}
	var m relayMsg
	if err := json.Unmarshal(body, &m); err != nil {
		return fmt.Errorf("%w: relay: %w", errBadFrame, printable.Error(err))
	}
	r.answerRelay(m)
	return nil
}

// stream returns the peer's event number id.
func (s *session) stream(id uint16) (*inStream, error) {
	if int(id) >= len(s.ins) {
		return nil, fmt.Errorf("%w: event number %d is not declared", errBadFrame, id)
	}
	return s.ins[id], nil
}

// turn returns the peer's event number id when the message before the next one has been taken whole.
func (s *session) turn(id uint16) (*inStream, error) {
	in, err := s.stream(id)
	if err == nil && in.copies.from != nil {
		err = s.copyFirst(in)
	}
	return in, err
}

// gotFrame counts a sequenced frame of n bytes.
func (s *session) gotFrame(n int) {
	s.received.Add(1)
	s.unacked++
	s.unackedB += n
	if s.unacked >= ackFrames || s.unackedB >= ackBytes {
		s.ackNow()
	}
}

func (s *session) ackNow() {
	s.unacked, s.unackedB = 0, 0
	s.mu.Lock()
	s.ackDue = true
	s.signal()
	s.mu.Unlock()
}

// caughtUp is called when everything that has come was taken.
func (s *session) caughtUp() {
	s.mu.Lock()
	s.burst = 0
	s.mu.Unlock()
}

// receiver returns the event to which a message of this number is to be delivered; nil if this
// node does not listen to it.
func (in *inStream) receiver(version uint64) *channel {
	ch := in.ch.Load()
	if ch == nil || !ch.listens.Load() || in.out.asked.Load() > 0 || version <= in.floor {
		return nil
	}
	return ch
}

// discard drops a message of n bytes that this node does not listen to.
func (in *inStream) discard(n int) {
	in.header = in.header[:0]
	in.unsubscribed.Add(1)
	in.Return(1, n)
}

// deliver hands a message to the node. It reports whether the payload was taken.
func (s *session) deliver(in *inStream, version uint64, payload []byte, takable bool) (bool, error) {
	ch := in.receiver(version)
	if ch == nil {
		in.discard(len(payload))
		return false, nil
	}
	header := in.header
	in.header = in.header[:0]
	if ch.spec.Delivery == Latest && version <= in.version {
		in.stale.Add(1)
		in.Return(1, len(payload))
		return false, nil
	}
	in.version = version
	// The message is filled in field by field: a composite literal would be made on the stack and copied.
	// Lent is set already.
	m := &in.msg
	m.From, m.Version, m.Payload, m.Takable, m.Taken, m.Credit, m.Header = s.peer.ID, version, payload, takable, false, in, header
	if s.r.cfg.Tap != nil {
		s.r.cfg.Tap.Received(ch.spec.Name, m)
	}
	if err := ch.deliver(m); err != nil {
		if errors.Is(err, ErrPayload) {
			return false, fmt.Errorf("%w: event %q, message %d: %w", errBadFrame, ch.spec.Name, version, err)
		}
		s.r.fail(fmt.Errorf("event %q from node.%d: %w", ch.spec.Name, s.peer.ID, err))
	}
	m.Payload = nil
	return m.Taken, nil
}

// declared records an event of the peer's.
func (r *Router) declared(s *session, id uint16, d declaration, on bool) error {
	if int(id) != len(s.ins) || int(id) >= maxChannels {
		return fmt.Errorf("%w: event %q has number %d, want %d", errBadFrame, d.Name, id, len(s.ins))
	}
	in := &inStream{s: s, id: id, decl: d, listens: on}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.remote[d.Name] != nil {
		return fmt.Errorf("%w: event %q is declared twice", errBadFrame, d.Name)
	}
	s.ins = append(s.ins, in)
	s.remote[d.Name] = in
	if c := r.byName[d.Name]; c != nil {
		if err := r.join(c, in); err != nil {
			r.incompatible(s, err)
		}
	}
	return nil
}

// join connects an event of this node's with the peer's of the same name. The
// mutex is held.
func (r *Router) join(c *channel, in *inStream) error {
	d := in.decl
	if d.Delivery != c.spec.Delivery.String() || d.Fingerprint != c.spec.Fingerprint {
		return fmt.Errorf("event %q differs: node.%d has %s %s (%016x), node.%d has %s %s (%016x): build both from one source",
			d.Name, r.cfg.Node, c.spec.Delivery, c.spec.Schema, c.spec.Fingerprint, in.s.peer.ID, d.Delivery, d.Schema, d.Fingerprint)
	}
	in.s.mu.Lock()
	in.out = in.s.outs[c.id]
	in.s.mu.Unlock()
	if st := in.stats(); st.Consumed > 0 {
		in.before = &st
	}
	in.ch.Store(c)
	r.retarget(c)
	return nil
}

// listening records whether the peer listens to one of its events. It returns an error
// if the peer asks, and does not acknowledge the answers.
func (r *Router) listening(in *inStream, on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	in.listens = on
	c := in.ch.Load()
	if on && in.s.answers {
		floor := uint64(0)
		if c != nil {
			floor = c.version.Load()
		}
		in.s.control(frameListening, 0, in.id, le.AppendUint64(nil, floor))
	}
	if c != nil {
		r.retarget(c)
	}
	in.s.mu.Lock()
	defer in.s.mu.Unlock()
	return in.s.log.overdue()
}

// retarget works out again which peers listen to c, and gives the newest value
// to those that have just begun. They are targets before that: a value that is
// sent meanwhile finds them, or is the newest. The mutex is held.
func (r *Router) retarget(c *channel) {
	var begun []*outStream
	to := &audience{}
	for _, s := range r.peers {
		in := s.remote[c.spec.Name]
		o, began := s.aim(c, in != nil && in.ch.Load() == c && in.listens && !s.withdrawn)
		if o != nil {
			to.out = append(to.out, o)
		}
		if began {
			begun = append(begun, o)
		}
	}
	slices.SortFunc(to.out, func(a, b *outStream) int { return a.s.peer.ID - b.s.peer.ID })
	for id, a := range c.absences {
		if !a.over && !slices.ContainsFunc(to.out, func(o *outStream) bool { return o.s.peer.ID == id }) {
			to.away = append(to.away, a)
		}
	}
	c.targets.Store(to)
	if len(to.out) > 0 {
		c.listened.Store(true)
	}
	if c.spec.Delivery == Latest {
		for _, o := range begun {
			o.offerNewest()
		}
	}
}

// aim records whether the peer listens to c. It returns its stream if so,
// and whether it has just begun.
func (s *session) aim(c *channel, on bool) (o *outStream, began bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = s.outs[c.id]
	began = on && !o.listens
	o.listens = on
	if on {
		return o, began
	}
	o.dismiss()
	return nil, false
}

// offerNewest sends the newest value to a peer that has begun to listen.
func (o *outStream) offerNewest() {
	o.ch.mu.Lock()
	defer o.ch.mu.Unlock()
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	p := o.ch.newest
	if p.payload != nil && p.version == o.version && len(o.queue) == 0 {
		o.version-- // the peer may have dropped it, as it did not listen; if not, it drops it now
	}
	if o.s.err == nil && p.payload != nil && p.version > o.newest() {
		if tap := o.s.r.cfg.Tap; tap != nil {
			tap.Sent(o.ch.spec.Name, o.s.peer.ID, p.version, p.payload.Bytes())
		}
		o.offer(p.version, p.payload)
		o.s.signal()
	}
}
