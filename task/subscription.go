package task

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Listener is one listener of an event on one task.
type Listener struct {
	event, name string
	once        bool
	waiter      bool // it belongs to an Expectation
	isolated    bool
	borrowed    bool
	gone        atomic.Bool // Off, or a Once that was called
	drop        func()      // takes it off its subscription's list
}

// Off ends the listener: no call of it begins after Off has returned. It may be
// called any number of times, and by the listener itself.
func (l *Listener) Off() {
	l.gone.Store(true)
	l.drop()
}

// take reports whether the listener is to be called.
func (l *Listener) take() bool {
	if l.once {
		return l.gone.CompareAndSwap(false, true)
	}
	return !l.gone.Load()
}

type listener[T any] struct {
	Listener
	fn func(context.Context, T) error
}

// slot is one message in a mailbox.
type slot[T any] struct {
	v       T
	version uint64
	credit  Credit // nil for a local message
	from    int
	bytes   int
	lent    *loan   // the memory that v may alias, if it must be returned
	head    *traced // the header for the tracer; nil: none
}

// subscription is an event on one task: its mailbox, its listeners and its channel.
type subscription[T any] struct {
	mailbox
	en      *engine
	core    *eventCore
	traces  bool         // the tracer follows the event
	codec   PayloadCodec // nil without a bus
	channel Channel      // nil without a bus
	lender  Lender       // the channel, if it is one; else nil
	size    atomic.Int64 // about how many bytes the next payload may have
	outbox  sync.Pool    // of *outbox[T]
	scratch sync.Pool    // of *slot[T]: a place for arriving messages

	emitted      atomic.Uint64
	refused      atomic.Uint64 // messages that arrived without a listener
	noOne        atomic.Uint64 // messages that were queued, but whose listeners had gone
	isolated     atomic.Uint64 // calls that dropped an isolated listener
	unlistened   atomic.Bool   // it was reported that there is no listener
	listened     atomic.Bool   // there is a listener
	everListened atomic.Bool   // there is one, or was
	borrowed     atomic.Bool   // and all of them only borrow

	listeners   atomic.Pointer[[]*listener[T]]
	listenersMu sync.Mutex // held to change listeners, and to announce it
	ever        bool       // a listener other than a wait was added

	// The queue: out[at:], then in[head:]. Guarded by dispatcher.mu, except that
	// out and at belong to the runner that has the mailbox.
	in, out  []slot[T]
	head, at int

	// Guarded by dispatcher.mu.
	oldest, newest, skipped uint64
	last                    map[int]uint64 // Latest: the newest version of each sender

	// Of the message being delivered; they belong to the runner.
	calling      []*listener[T]
	next         int
	called       atomic.Pointer[Listener] // the last one that was called; for others too
	onlyBorrowed bool                     // every listener that was called had the message for the call only
}

// anySubscription is the interface of a subscription with any type of payload.
type anySubscription interface {
	box() *mailbox
	off()
	stats() EventStats
	unfed() bool
}

// subscriptions are those of a task. The value is immutable: an addition makes a copy.
type subscriptions struct {
	first [8]struct { // the first ones again: a search of few is faster than a map
		core *eventCore
		sub  anySubscription
	}
	all map[*eventCore]anySubscription
}

func (ps *subscriptions) of(core *eventCore) anySubscription {
	for i := range ps.first {
		if ps.first[i].core == core {
			return ps.first[i].sub
		}
	}
	return ps.all[core]
}

func (ps *subscriptions) with(core *eventCore, f anySubscription) *subscriptions {
	more := &subscriptions{first: ps.first, all: maps.Clone(ps.all)}
	if n := len(ps.all); n < len(ps.first) {
		more.first[n].core, more.first[n].sub = core, f
	}
	if more.all == nil {
		more.all = map[*eventCore]anySubscription{}
	}
	more.all[core] = f
	return more
}

// subscription returns the event's subscription on a task, and declares it on first use.
func (e *Event[T]) subscription(en *engine) (*subscription[T], error) {
	if p := en.subscriptions.Load().of(&e.core); p != nil {
		return p.(*subscription[T]), nil
	}
	en.subscriptionsMu.Lock()
	defer en.subscriptionsMu.Unlock()
	old := en.subscriptions.Load()
	if p := old.of(&e.core); p != nil {
		return p.(*subscription[T]), nil
	}
	for c := range old.all {
		if c.name == e.core.name {
			return nil, fmt.Errorf("event %q is declared twice on this task", c.name)
		}
	}
	p, err := newSubscription[T](en, &e.core)
	if err != nil {
		return nil, fmt.Errorf("event %q: %w", e.core.name, err)
	}
	en.subscriptions.Store(old.with(&e.core, p))
	return p, nil
}

func newSubscription[T any](en *engine, core *eventCore) (*subscription[T], error) {
	p := &subscription[T]{en: en, core: core, traces: en.cfg.tracer != nil && !core.internal}
	p.work, p.one = p, core.policy != DeliverReliable
	p.listeners.Store(new([]*listener[T]))
	p.scratch.New = func() any { return new(slot[T]) }
	p.outbox.New = p.newOutbox
	if core.policy == DeliverLatest {
		p.last = map[int]uint64{}
	}
	if en.bus == nil {
		return p, nil
	}
	var err error
	if p.codec, err = en.node.Codec().Payload(reflect.TypeFor[T]()); err != nil {
		return nil, err
	}
	p.channel, err = en.bus.Channel(ChannelSpec{
		Name: core.name, Delivery: core.policy, Queue: core.queue,
		Fingerprint: p.codec.Fingerprint(), Schema: p.codec.Schema(), Headers: p.traces,
	}, p.deliver)
	p.lender, _ = p.channel.(Lender)
	return p, err
}

func (p *subscription[T]) box() *mailbox { return &p.mailbox }

// add puts l on the list and tells the other nodes of the first.
func (p *subscription[T]) add(l *listener[T]) {
	l.drop = func() { p.remove(l) }
	p.listenersMu.Lock()
	defer p.listenersMu.Unlock()
	p.ever = p.ever || !l.waiter
	p.setListeners(append(slices.Clone(*p.listeners.Load()), l))
}

func (p *subscription[T]) remove(l *listener[T]) {
	p.listenersMu.Lock()
	defer p.listenersMu.Unlock()
	list := *p.listeners.Load()
	if i := slices.Index(list, l); i >= 0 {
		p.setListeners(slices.Delete(slices.Clone(list), i, i+1))
	}
}

// off ends all listeners, but not waits.
func (p *subscription[T]) off() {
	for _, l := range *p.listeners.Load() {
		if !l.waiter {
			l.Off()
		}
	}
}

// onlyBorrow reports whether all of them have a payload for the time of the call only.
func onlyBorrow[T any](list []*listener[T]) bool {
	return !slices.ContainsFunc(list, func(l *listener[T]) bool { return !l.borrowed })
}

func (p *subscription[T]) setListeners(list []*listener[T]) {
	p.listeners.Store(&list)
	p.borrowed.Store(onlyBorrow(list))
	if p.lender != nil {
		p.lender.Borrow(p.borrowed.Load())
	}
	if on := len(list) > 0; on != p.listened.Load() {
		p.listened.Store(on)
		p.everListened.Store(true)
		if p.channel != nil {
			p.channel.Listen(on)
		}
	}
}

// emitLocal queues a message of this node, waiting while the mailbox is full. It
// numbers the message as it is queued, so that versions rise in the mailbox.
func (p *subscription[T]) emitLocal(ctx context.Context, s slot[T]) error {
	d := p.en.d
	d.mu.Lock()
	for p.core.policy == DeliverReliable && p.local >= mailboxBound {
		r := runnerOf(ctx, d)
		if r != nil {
			d.handOff(r)
			if r.wouldStop(&p.mailbox) {
				break // it waits for this listener itself
			}
			r.blockedOn = &p.mailbox
		}
		if p.room == nil {
			p.room = make(chan struct{})
		}
		room := p.room
		d.mu.Unlock()
		err := p.awaitRoom(ctx, room)
		d.mu.Lock()
		if r != nil {
			r.blockedOn = nil
			r.moves.Add(1)
		}
		if err != nil {
			p.emitted.Add(1)
			d.mu.Unlock()
			return err
		}
	}
	s.version = p.emitted.Add(1)
	dropped := p.put(&s)
	d.mu.Unlock()
	returnCredit(dropped)
	return nil
}

func (p *subscription[T]) awaitRoom(ctx context.Context, room <-chan struct{}) error {
	say := newLate(func(waited time.Duration) {
		p.en.log.Warn("emit still blocked by a listener of this node", "event", p.core.name, "waited", waited)
	})
	defer say.stop()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("mailbox of node %d is full: %w", p.en.id, context.Cause(ctx))
	case <-p.en.base.Done():
		return fmt.Errorf("mailbox of node %d is full: %w", p.en.id, context.Cause(p.en.base))
	}
}

// put queues a message by the event's policy and returns the credit of the one
// that was dropped for it. dispatcher.mu is held.
func (p *subscription[T]) put(s *slot[T]) (dropped creditSum) {
	waiting := p.in[p.head:]
	switch p.core.policy {
	case DeliverLatest:
		last := p.last[s.from]
		if last > 0 && s.version > last+1 && s.credit != nil {
			p.skipped += s.version - last - 1
		}
		p.last[s.from] = s.version
		for i := range waiting {
			if waiting[i].from == s.from {
				dropped = waiting[i].given()
				waiting[i] = *s
				p.skipped++
				return dropped
			}
		}
	case DeliverDropOldest:
		if len(waiting) >= p.core.queue {
			dropped = p.dropOldest()
		}
	case DeliverDropNewest:
		if len(waiting) >= p.core.queue {
			p.newest++
			return s.given()
		}
	}
	if len(p.in) == cap(p.in) {
		n := copy(p.in, p.in[p.head:])
		clear(p.in[n:])
		p.in, p.head = p.in[:n], 0
	}
	p.in = append(p.in, *s)
	p.queued++
	if s.credit == nil {
		p.local++
	}
	p.en.d.admit(&p.mailbox)
	return dropped
}

func (p *subscription[T]) dropOldest() creditSum {
	s := p.in[p.head]
	p.in[p.head] = slot[T]{}
	p.head++
	p.oldest++
	p.queued--
	if s.credit == nil {
		p.local--
	}
	if p.owner == nil {
		p.void++
	}
	return s.given()
}

// given is the credit of a dropped message.
func (s *slot[T]) given() creditSum { return creditSum{s.credit, 1, s.bytes, s.lent} }

// load moves messages from in to out: all by exchange, or one if what waits may
// still be dropped.
func (p *subscription[T]) load() int {
	p.at = 0
	switch {
	case p.head == len(p.in):
		p.in, p.out, p.head = p.in[:0], p.out[:0], 0
	case p.one:
		p.out = append(p.out[:0], p.in[p.head])
		p.in[p.head] = slot[T]{}
		if p.head++; p.head == len(p.in) {
			p.in, p.head = p.in[:0], 0
		}
	default:
		p.in, p.out = p.out[:0], p.in
	}
	return len(p.out)
}

func (p *subscription[T]) ready() int { return len(p.out) - p.at }

// run calls the listeners of the next r.left messages.
func (p *subscription[T]) run(r *runner) bool {
	for r.left > 0 {
		s := &p.out[p.at]
		if s.lent != nil && s.lent.shared {
			p.callLent(s)
		} else {
			p.call(s)
		}
		if s.lent != nil {
			p.restore(s.lent)
		}
		p.account(s.credit, s.bytes)
		*s = slot[T]{}
		p.at++
		if !r.advance() {
			return false
		}
	}
	return true
}

// call calls the listeners of one message; after a panic it continues with the next.
func (p *subscription[T]) call(s *slot[T]) {
	if p.calling == nil {
		p.calling, p.next, p.onlyBorrowed = *p.listeners.Load(), 0, true
		if len(p.calling) == 0 {
			p.noOne.Add(1)
		}
	}
	p.dv.from, p.dv.version = s.from, s.version
	for p.next < len(p.calling) {
		l := p.calling[p.next]
		p.next++
		if !l.take() {
			continue
		}
		if p.called.Load() != &l.Listener {
			p.called.Store(&l.Listener)
		}
		p.onlyBorrowed = p.onlyBorrowed && l.borrowed
		if l.once {
			p.remove(l)
		}
		var err error
		if s.head == nil {
			err = l.fn(p.dv, s.v)
		} else {
			err = p.callTraced(p.dv, l, s)
		}
		if err != nil {
			p.failed(&l.Listener, err, nil)
		}
	}
	p.calling = nil
}

// callLent is call for a message in memory of another process. A listener that writes there panics. A message whose
// listeners do not all borrow any more is decoded again, into memory that is theirs.
func (p *subscription[T]) callLent(s *slot[T]) {
	if p.calling == nil {
		p.calling, p.next, p.onlyBorrowed = *p.listeners.Load(), 0, true
	}
	if len(p.calling) == 0 {
		p.noOne.Add(1)
		return
	}
	if p.next == 0 && !onlyBorrow(p.calling) {
		if err := p.decode(s.lent.b, &s.v, false, true); err != nil {
			p.calling = nil // it did decode before: the sender changes it
			p.en.fail(&PayloadError{Event: p.core.name, Node: s.from, Version: s.version, Err: err})
			return
		}
		s.lent.giveBack()
		s.lent = nil
		p.call(s)
		return
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	p.call(s)
}

func (p *subscription[T]) panicked(err error, stack []byte) {
	p.failed(&p.calling[p.next-1].Listener, err, stack)
}

func (p *subscription[T]) current() (event, listener string) {
	if l := p.called.Load(); l != nil {
		listener = l.name
	}
	return p.core.name, listener
}

func (p *subscription[T]) failed(l *Listener, err error, stack []byte) {
	if p.en.failed(l, err, stack) {
		p.isolated.Add(1)
	}
}

// send encodes v once and hands it to the listening peers that match accepts.
func (p *subscription[T]) send(ctx context.Context, v *T, head *traced, match func(Peer) bool) error {
	if err := p.en.sendable(); err != nil {
		return err
	}
	out := p.outbox.Get().(*outbox[T])
	out.refs.Store(1)
	out.v = *v
	if head != nil {
		out.head = head.header
	}
	var err error
	err = p.encode(out)
	var zero T
	out.v = zero
	if err == nil {
		err = p.hand(ctx, &out.encoded, match)
	}
	out.Release()
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	return err
}

// hand gives a message to the bus. The end of the run then knows that a listener which takes long in
// this call is not blocked elsewhere.
func (p *subscription[T]) hand(ctx context.Context, payload Buffer, match func(Peer) bool) error {
	if r := runnerOf(ctx, p.en.d); r != nil {
		r.sending.Add(1)
		r.moves.Add(1)
		defer func() {
			r.sending.Add(-1)
			r.moves.Add(1)
		}()
	}
	_, err := p.channel.Send(ctx, payload, match)
	return err
}

// encoded is the [Buffer] of an emit.
type encoded struct {
	b    []byte
	head []byte
	mem  Memory // where b is, if the bus has lent that; else nil
	refs atomic.Int32
	free func() // called when the last reference is released
}

func (e *encoded) Bytes() []byte  { return e.b }
func (e *encoded) Header() []byte { return e.head }
func (e *encoded) Memory() Memory { return e.mem }
func (e *encoded) Retain()        { e.refs.Add(1) }

func (e *encoded) Release() {
	if e.refs.Add(-1) == 0 {
		e.free()
	}
}

// outbox is the state of one emit to other nodes: a place for the value, and the
// buffer that it is encoded into.
type outbox[T any] struct {
	encoded
	v    T
	heap []byte // the buffer, where no memory is lent
}

// shareBytes is the least payload for which memory of the bus is asked.
const shareBytes = 64 << 10

// encode encodes the value: into memory that other processes of the host read, if the channel has some and the payloads
// of the event are large.
func (p *subscription[T]) encode(out *outbox[T]) (err error) {
	guess := int(p.size.Load())
	dst := out.heap[:0]
	if p.lender != nil && guess >= shareBytes {
		if out.mem = p.lender.Lend(guess + guess/8); out.mem != nil {
			dst = out.mem.Bytes()[:0]
		}
	}
	if out.b, err = p.codec.Append(dst, &out.v); err != nil {
		return err
	}
	n := len(out.b)
	if p.lender != nil && (n >= shareBytes || guess > 0) {
		p.size.Store(int64(max(n, guess-guess/8)))
	}
	switch {
	case out.mem != nil && n > 0 && &out.b[0] == &out.mem.Bytes()[0]:
		out.mem.Fit(n)
		return nil
	case out.mem != nil: // it was too small
		out.mem.Release()
		out.mem = nil
	}
	out.heap = out.b
	if p.lender != nil && n >= shareBytes {
		if out.mem = p.lender.Lend(n); out.mem != nil {
			out.b = out.mem.Bytes()
			copy(out.b, out.heap)
		}
	}
	return nil
}

// keepBytes is the largest encoding buffer that is kept for the next emit.
const keepBytes = 8 << 20

func (p *subscription[T]) newOutbox() any {
	out := new(outbox[T])
	out.free = func() {
		if out.mem != nil {
			out.mem.Release()
		}
		out.head, out.mem, out.b = nil, nil, nil
		if cap(out.heap) <= keepBytes {
			p.outbox.Put(out)
		}
	}
	return out
}

// deliver takes a message from another node; it never blocks. It decodes on the
// caller's goroutine and outside the lock, so a large one does not stop others.
func (p *subscription[T]) deliver(in *Inbound) error {
	if !p.listened.Load() {
		p.refused.Add(1)
		returnCredit(creditSum{in.Credit, 1, len(in.Payload), nil})
		return nil
	}
	s := p.scratch.Get().(*slot[T])
	src, owned, lent := p.lend(in)
	if err := p.decode(src, &s.v, owned, in.Lent); err != nil {
		returnCredit(creditSum{in.Credit, 1, len(in.Payload), lent})
		return &PayloadError{Event: p.core.name, Node: in.From, Version: in.Version, Err: err}
	}
	s.version, s.credit, s.from, s.bytes, s.lent = in.Version, in.Credit, in.From, len(in.Payload), lent
	if len(in.Header) > 0 && p.en.cfg.tracer != nil {
		s.head = &traced{slices.Clone(in.Header)}
	}
	d := p.en.d
	d.mu.Lock()
	dropped := p.put(s)
	d.mu.Unlock()
	returnCredit(dropped)
	*s = slot[T]{}
	p.scratch.Put(s)
	return nil
}

// decode decodes a payload. Another process may change a lent one, or it cannot be read: any
// consequence of that is an error.
func (p *subscription[T]) decode(src []byte, v *T, owned, lent bool) (err error) {
	if lent {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if fault := recover(); fault != nil {
				err = fmt.Errorf("the payload is changed while it is decoded, or cannot be read: %v", fault)
			}
		}()
	}
	return p.codec.Decode(src, v, owned)
}

// loan is memory that a message's value may refer to, to be used again when the
// listeners have had it.
type loan struct {
	b    []byte
	back Credit // the owner of b; nil for the subscription's own

	shared bool // b is memory of another process
}

// lendBytes is the least payload whose memory is worth being lent.
const lendBytes = 4 << 10

// lend chooses the memory from which the value is decoded. Where the listeners only borrow it, that
// memory is used again.
func (p *subscription[T]) lend(in *Inbound) (src []byte, owned bool, l *loan) {
	borrowed := p.borrowed.Load()
	if in.Lent && !borrowed { // a listener that keeps has just come
		return in.Payload, false, nil
	}
	if !borrowed || !in.Takable && len(in.Payload) < lendBytes {
		in.Taken = in.Takable
		return in.Payload, in.Takable, nil
	}
	l, _ = p.en.loans.Get().(*loan)
	if l == nil {
		l = new(loan)
	}
	if in.Takable {
		in.Taken = true
		l.b, l.back, l.shared = in.Payload, in.Credit, in.Lent
	} else {
		l.b, l.back = append(l.b[:0], in.Payload...), nil
	}
	return l.b, true, l
}

// restore takes a loan back, unless a listener may have kept the value.
func (p *subscription[T]) restore(l *loan) {
	if l.back != nil || !p.onlyBorrowed {
		if p.onlyBorrowed {
			l.back.Recycle(l.b)
		}
		*l = loan{}
	}
	p.en.loans.Put(l)
}

// giveBack returns memory of another process.
func (l *loan) giveBack() {
	if l != nil && l.shared {
		l.back.Recycle(l.b)
		*l = loan{}
	}
}

func returnCredit(c creditSum) {
	if c.credit != nil {
		c.lent.giveBack()
		c.credit.Return(c.messages, c.bytes)
	}
}
