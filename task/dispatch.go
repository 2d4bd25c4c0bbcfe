package task

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The dispatcher.
//
// Every message of an event lies in its mailbox, a typed queue. One task-level
// queue of tickets keeps the order over the mailboxes: a ticket stands for n
// consecutive messages of one mailbox. The current runner claims a run of
// tickets per lock and calls the listeners without it.
//
// Hand-off: while more than one message is outstanding, a timer looks whether the
// runner has made progress. If not, or at once if a listener is about to block in
// this package, a new runner becomes the current one. It gets back what the slow
// one had claimed, except for the mailbox of the message that is being delivered. Of
// that mailbox the slow runner is then the owner: it needs no tickets, empties
// it in order, and gives it back.
//
// The claim passes over without a lock in the quick path: the runner counts each
// message it has run by a compare-and-swap on pos, and a hand-off makes pos
// negative by another. Exactly one of the two succeeds, so both sides know which
// message was being delivered.
const (
	claimMax     = 256  // messages that a runner claims at a time
	mailboxBound = 4096 // local messages that wait in a Reliable mailbox
	// handOffAfter is the time that a runner may make no progress while messages are
	// queued. It is well above what a busy machine takes a thread away for, so
	// that a quick listener keeps its place in the order.
	handOffAfter = 10 * time.Millisecond
)

// ticket stands for n consecutive messages of one mailbox.
type ticket struct {
	box *mailbox
	n   int
}

// mailbox is the untyped side of an event's queue. A message is first in the
// typed side's "in", then, loaded, in its "out", from where it is run.
type mailbox struct {
	work work
	one  bool // load one message at a time, so that what is dropped stays exact

	// All further fields are guarded by dispatcher.mu.
	queued    int           // messages that have not been settled
	local     int           // those of them that were emitted on this node
	tickets   int           // tickets in the queue, void ones included
	void      int           // how many of the next tickets stand for nothing
	avail     int           // messages in out that no runner has claimed
	touched   bool          // in the claim, or the inheritance, of the current runner
	owner     *runner       // the slow runner that keeps it
	room      chan struct{} // closed when there is room; nil if nothing waits
	delivered uint64

	// ctx is the context of its listeners, and cancel ends it. They are set when its
	// first message is claimed, and do not change.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// dv is the context of listeners. It belongs to the runner that has
	// the mailbox, and is made when that is another one.
	dv *delivery

	busy atomic.Int64 // ns that listeners have taken

	// ran is written by the runner that has the mailbox, between two settlements.
	ran struct {
		n, local int
		credits  []creditSum
	}
}

// creditSum is the credit that is to be returned to one sender.
type creditSum struct {
	credit          Credit
	messages, bytes int
	lent            *loan // of a message without a listener; else nil
}

// work is the typed side of a mailbox.
type work interface {
	// load makes the next messages ready to run and returns their number. It is
	// called under dispatcher.mu, when all that were ready have been run.
	load() int
	// ready is the number of messages loaded and not yet run.
	ready() int
	// run runs r.left messages and returns false if r lost its claim meanwhile.
	run(r *runner) bool
	// panicked reports that the listener which was called last did not return.
	panicked(err error, stack []byte)
	// current names the event, and the listener that was called last.
	current() (event, listener string)
}

// dispatcher owns the runners of a task. They are started by start and by
// hand-offs, and have ended when stop returns without an error.
type dispatcher struct {
	base  context.Context // of the listeners; it ends when they should
	began time.Time
	wake  chan struct{} // capacity 1: one token for the one parked runner
	wg    sync.WaitGroup

	mu      sync.Mutex
	tickets deque
	current *runner
	idle    bool // current is parked: no ticket is queued
	slow    map[*runner]bool
	stopped bool
	changed chan struct{} // closed at the next change; nil if nothing waits
	timer   *time.Timer
	armed   bool
	seen    progress
	ending  *ending // nil before the end of the run
}

// progress is the state of the current runner at the last timer.
type progress struct {
	r     *runner
	batch uint64
	pos   int64
}

// runner calls listeners, one at a time.
type runner struct {
	d *dispatcher

	pos  atomic.Int64 // messages of the claim that have been run; negative: claim lost
	n    int64        // the runner's own copy of pos
	at   int          // index of the ticket that runs
	left int          // messages of it that have not been run

	sending atomic.Int64  // emits to other nodes in which its listener is now
	moves   atomic.Uint64 // emits and waits of its listeners that have begun or ended

	// Written under dispatcher.mu.
	claim     []ticket
	total     int64 // messages in claim
	batch     uint64
	touched   []*mailbox // mailboxes with something to settle
	box       *mailbox   // the mailbox that it owns once it is slow
	blockedOn *mailbox   // the full mailbox that its listener emits to
	waiting   int        // waits in which its listener is blocked
}

func newDispatcher() *dispatcher {
	return &dispatcher{wake: make(chan struct{}, 1), slow: map[*runner]bool{}, began: time.Now()}
}

// clock is the time since the dispatcher was made; it never goes back.
func (d *dispatcher) clock() time.Duration { return time.Since(d.began) }

func (d *dispatcher) start(base context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base = base
	d.timer = time.AfterFunc(time.Hour, d.check)
	d.timer.Stop()
	d.run(nil)
}

// run makes a new runner the current one. d.mu is held, or no other goroutine has d.
func (d *dispatcher) run(touched []*mailbox) {
	r := &runner{d: d, touched: touched}
	d.current, d.idle = r, false
	d.wg.Add(1)
	go r.loop()
}

// admit adds a ticket for a message that was put into box. d.mu is held.
func (d *dispatcher) admit(box *mailbox) {
	if box.owner != nil {
		return
	}
	box.tickets++
	d.tickets.push(box)
	switch {
	case d.current == nil: // not started: the first runner will look
	case d.idle:
		d.idle = false
		d.wake <- struct{}{}
	case !d.armed:
		d.arm()
	}
}

// arm starts the timer and notes where the runner is. d.mu is held.
func (d *dispatcher) arm() {
	d.armed = true
	d.seen = progress{r: d.current, batch: d.current.batch, pos: d.current.pos.Load()}
	d.timer.Reset(handOffAfter)
}

// check is the timer: it hands off if there was no progress though there is work.
func (d *dispatcher) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armed = false
	r := d.current
	if d.stopped {
		return
	}
	pos := r.pos.Load()
	if d.tickets.empty() && pos+1 >= r.total {
		return
	}
	if (d.seen == progress{r: r, batch: r.batch, pos: pos}) {
		d.handOff(r)
	}
	d.arm()
}

// handOff makes r slow if it is the current runner and is calling a listener.
// d.mu is held.
func (d *dispatcher) handOff(r *runner) {
	if r != d.current || d.stopped {
		return
	}
	pos := r.pos.Load()
	if pos >= r.total || !r.pos.CompareAndSwap(pos, -1-pos) {
		return
	}
	k, n := 0, int64(r.claim[0].n)
	for pos >= n {
		k++
		n += int64(r.claim[k].n)
	}
	box := r.claim[k].box
	r.box = box
	box.owner = r
	box.void = box.tickets
	for _, t := range slices.Backward(r.claim[k:]) {
		if t.box != box {
			d.tickets.unpop(t)
			t.box.tickets += t.n
			t.box.avail += t.n
		}
	}
	var rest []*mailbox
	for _, b := range r.touched {
		if b != box {
			rest = append(rest, b)
		}
	}
	r.touched = append(r.touched[:0], box)
	d.slow[r] = true
	d.run(rest)
}

// loop is the life of a runner.
func (r *runner) loop() {
	defer r.d.wg.Done()
	r.serve()
}

// serve claims and runs until r has ended.
func (r *runner) serve() {
	for r.next() {
		if r.runAll() {
			return
		}
	}
}

// runAll runs the messages that r has claimed, panics included, and those of its mailbox after it has
// lost its claim: then r has ended.
func (r *runner) runAll() (ended bool) {
	for !r.runClaim() {
	}
	if r.pos.Load() < 0 {
		r.own()
		return true
	}
	return false
}

// resume is the rest of the life of a runner, in the middle of a message.
func (r *runner) resume() {
	defer r.d.wg.Done()
	if !r.runAll() {
		r.serve()
	}
}

// next settles the messages that were run and claims more, waiting for them if need be.
func (r *runner) next() bool {
	d := r.d
	for _, b := range r.touched {
		b.returnCredits()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range r.touched {
		d.settle(b)
	}
	r.touched = r.touched[:0]
	for !d.stopped {
		if d.claim(r); r.total > 0 {
			return true
		}
		d.idle = true
		d.note()
		d.mu.Unlock()
		<-d.wake // a token comes with the next ticket, or from stop
		d.mu.Lock()
	}
	return false
}

// claim gives r the next messages. d.mu is held.
func (d *dispatcher) claim(r *runner) {
	r.claim, r.total = r.claim[:0], 0
	for r.total < claimMax && !d.tickets.empty() {
		t := d.tickets.front()
		b := t.box
		gone := min(t.n, b.void)
		b.void -= gone
		b.tickets -= gone
		t.n -= gone
		if t.n == 0 {
			d.tickets.pop()
			continue
		}
		if b.avail == 0 {
			if b.touched {
				break // out is in this claim: it must be run before more is loaded
			}
			b.avail = b.work.load()
		}
		n := min(t.n, b.avail, claimMax-int(r.total))
		b.avail -= n
		b.tickets -= n
		if t.n -= n; t.n == 0 {
			d.tickets.pop()
		}
		if !b.touched {
			b.touched = true
			r.touched = append(r.touched, b)
			d.equip(b, r)
		}
		r.claim = append(r.claim, ticket{box: b, n: n})
		r.total += int64(n)
	}
	r.batch++
	r.n, r.at = 0, 0
	if r.total > 0 {
		r.left = r.claim[0].n
	}
	r.pos.Store(0)
}

// runClaim runs what r has claimed and returns true when that has ended: all of
// it was run, or the claim was lost. It returns false after a panic.
func (r *runner) runClaim() (ended bool) {
	defer func() {
		if !ended {
			r.recovered(recover())
		}
	}()
	at := r.d.clock()
	for {
		b := r.claim[r.at].box
		ended := !b.work.run(r)
		now := r.d.clock()
		b.busy.Add(int64(now - at)) // atomic: the mailbox may be another runner's by now
		if at = now; ended {
			return true
		}
		if r.at++; r.at == len(r.claim) {
			return true
		}
		r.left = r.claim[r.at].n
	}
}

// advance counts a message that was run. It is false if the claim was lost, as it is for
// a runner that runs what it owns.
func (r *runner) advance() bool {
	r.left--
	r.n++
	return r.pos.CompareAndSwap(r.n-1, r.n)
}

// own empties the mailbox that a slow runner kept, and gives it back.
func (r *runner) own() {
	d := r.d
	d.mu.Lock() // the hand-off has ended: box is set
	b := r.box
	d.mu.Unlock()
	r.claim = append(r.claim[:0], ticket{box: b, n: 1})
	for {
		b.returnCredits()
		d.mu.Lock()
		d.settle(b)
		n := b.work.ready()
		if n == 0 {
			n = b.work.load()
		}
		if n == 0 || d.stopped {
			b.owner, b.avail = nil, n
			delete(d.slow, r)
			d.note()
			d.mu.Unlock()
			return
		}
		r.batch++ // progress
		d.mu.Unlock()
		r.at, r.left = 0, 1
		for !r.runClaim() {
		}
	}
}

// returnCredits returns their room to the senders of the messages that were run. Only the runner that
// has the mailbox calls it.
func (b *mailbox) returnCredits() {
	for i := range b.ran.credits {
		c := &b.ran.credits[i]
		c.credit.Return(c.messages, c.bytes)
		*c = creditSum{}
	}
	b.ran.credits = b.ran.credits[:0]
}

// settle counts the messages that were run and lets blocked emitters continue. d.mu is held.
func (d *dispatcher) settle(b *mailbox) {
	b.touched = false
	b.queued -= b.ran.n
	b.local -= b.ran.local
	b.delivered += uint64(b.ran.n) //nolint:gosec // a count
	b.ran.n, b.ran.local = 0, 0
	if b.room != nil && b.local <= mailboxBound/2 {
		close(b.room)
		b.room = nil
	}
	d.note()
}

// account notes a message that was run.
func (b *mailbox) account(credit Credit, bytes int) {
	b.ran.n++
	if credit == nil {
		b.ran.local++
		return
	}
	for i := len(b.ran.credits) - 1; i >= 0; i-- {
		if c := &b.ran.credits[i]; c.credit == credit {
			c.messages++
			c.bytes += bytes
			return
		}
	}
	b.ran.credits = append(b.ran.credits, creditSum{credit, 1, bytes, nil})
}

// wouldStop reports whether an emit of r's listener to box waits, through other
// blocked listeners, for r itself. d.mu is held, and r has been handed off.
func (r *runner) wouldStop(box *mailbox) bool {
	for b := box; b != nil && b.owner != nil; b = b.owner.blockedOn {
		if b.owner == r {
			return true
		}
	}
	return false
}

// note wakes the goroutines that wait for a change. d.mu is held.
func (d *dispatcher) note() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// await waits until cond, which is called under d.mu, is true.
func (d *dispatcher) await(ctx context.Context, cond func() bool) error {
	for {
		d.mu.Lock()
		if cond() {
			d.mu.Unlock()
			return nil
		}
		if d.changed == nil {
			d.changed = make(chan struct{})
		}
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
