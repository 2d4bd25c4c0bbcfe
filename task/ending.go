package task

import (
	"context"
	"sync"
	"time"
)

// The end of the listeners.
//
// A listener that is in the middle of a message when the step loop has ended may
// wait for something that does not come any more, such as a reader of a channel. It
// then keeps its mailbox, and the credit of the nodes that emitted to it, so that no
// node can drain. The dispatcher therefore watches its runners during the end. When
// one has made no progress for a while, the context of the event that it receives ends,
// for this message and those behind it. The listeners of other events keep theirs.
//
// A wait of this package may still be answered by another node: a [Event.WaitFor], or
// an emit to a full queue. It has longer, but not so long that the others cannot drain.

// ending is the watch over the runners during the end of a run.
type ending struct {
	within     time.Duration // how long a message may take without progress
	waitWithin time.Duration // the same while its listener waits in this package
	report     func(box *mailbox, waited time.Duration)
	timer      *time.Timer

	mu   sync.Mutex // held by checkEnd; it is locked before dispatcher.mu
	seen map[*runner]sighting
}

// lateBox is a mailbox whose context is to end.
type lateBox struct {
	box    *mailbox
	waited time.Duration
}

// sighting is a state of a runner, and the time of its first observation.
type sighting struct {
	progress
	moves uint64
	since time.Duration
}

// equip makes b's listeners ready to be called by r. d.mu is held.
func (d *dispatcher) equip(b *mailbox, r *runner) {
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithCancelCause(d.base)
	}
	if b.dv == nil || b.dv.r != r {
		b.dv = &delivery{Context: b.ctx, r: r}
	}
}

// watchEnd begins the watch. report is called for each event whose context has ended.
func (d *dispatcher) watchEnd(within, waitWithin time.Duration, report func(*mailbox, time.Duration)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ending != nil {
		return
	}
	e := &ending{within: within, waitWithin: waitWithin, report: report, seen: map[*runner]sighting{}}
	d.ending = e
	e.timer = time.AfterFunc(e.every(), d.checkEnd)
}

// every is the time between two looks at the runners.
func (e *ending) every() time.Duration { return max(e.within/4, time.Millisecond) }

// checkEnd is the timer of the watch.
func (d *dispatcher) checkEnd() {
	e := d.ending // set before the timer
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range d.blocked(e) {
		e.report(l.box, l.waited)
		l.box.cancel(ErrFinished)
	}
}

// blocked looks at the runners, and returns the mailboxes of those that have made no
// progress for too long.
func (d *dispatcher) blocked(e *ending) []lateBox {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return nil
	}
	now := d.clock()
	seen := map[*runner]sighting{}
	var late []lateBox
	for _, r := range d.calling() {
		s := sighting{progress{r, r.batch, r.pos.Load()}, r.moves.Load(), now}
		if old := e.seen[r]; old.progress == s.progress && old.moves == s.moves {
			s.since = old.since
		}
		seen[r] = s
		limit := e.within
		if r.waits() {
			limit = e.waitWithin
		}
		if now-s.since < limit {
			continue
		}
		d.handOff(r)
		if b := r.box; b != nil && b.ctx.Err() == nil {
			late = append(late, lateBox{b, now - s.since})
		}
	}
	e.seen = seen
	e.timer.Reset(e.every())
	return late
}

// calling are the runners that call listeners now. d.mu is held.
func (d *dispatcher) calling() []*runner {
	all := make([]*runner, 0, len(d.slow)+1)
	for r := range d.slow {
		all = append(all, r)
	}
	if r := d.current; r.claimed() != nil {
		all = append(all, r)
	}
	return all
}

// claimed is the mailbox of the message that r, the current runner, receives, or nil
// if it is between two claims. d.mu is held.
func (r *runner) claimed() *mailbox {
	pos := r.pos.Load()
	for _, t := range r.claim {
		if pos -= int64(t.n); pos < 0 {
			return t.box
		}
	}
	return nil
}

// waits reports whether r's listener waits in this package. d.mu is held.
func (r *runner) waits() bool {
	return r.waiting > 0 || r.blockedOn != nil || r.sending.Load() > 0
}

// running returns the mailboxes whose listeners are being called. d.mu is held.
func (d *dispatcher) running() map[*mailbox]bool {
	m := map[*mailbox]bool{}
	for _, r := range d.calling() {
		b := r.box
		if b == nil {
			b = r.claimed()
		}
		m[b] = true
	}
	return m
}

// stopWatch ends the watch, and waits for a look that is under way.
func (d *dispatcher) stopWatch() {
	if e := d.ending; e != nil { // watchEnd and stop are called by one goroutine
		e.timer.Stop()
		e.mu.Lock()
		e.mu.Unlock() //nolint:staticcheck // checkEnd has returned
	}
}

// quiet reports whether every message was run, up to listeners that are blocked in a
// wait for an event. d.mu is held.
func (d *dispatcher) quiet() bool {
	for r := range d.slow {
		if r.waiting == 0 {
			return false
		}
	}
	return d.idle
}

// empty reports whether every message was run and no listener is. d.mu is held.
func (d *dispatcher) empty() bool { return d.idle && len(d.slow) == 0 }

// stop ends the runners and waits for them until ctx ends.
func (d *dispatcher) stop(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	d.timer.Stop()
	if d.idle {
		d.idle = false
		d.wake <- struct{}{}
	}
	d.mu.Unlock()
	d.stopWatch()
	done := make(chan struct{})
	go func() { d.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
