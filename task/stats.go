package task

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The reasons for which a message or a listener is dropped.
const (
	DropReasonOldest   = "oldest"      // a newer message took its room (DropOldest)
	DropReasonNewest   = "newest"      // there was no room for it (DropNewest)
	DropReasonNoOne    = "no listener" // it arrived after the last listener had gone
	DropReasonIsolated = "isolated"    // listeners dropped for an error or panic
	DropReasonGone     = "peer gone"   // it waited for room at another node, which then left or was lost
)

// EventStats counts the messages of an event on one task.
type EventStats struct {
	Event     string
	Emitted   uint64            // calls of Emit on this node
	Delivered uint64            // messages that were handed to listeners here
	Dropped   map[string]uint64 // by reason; reasons that did not occur are missing
	Skipped   uint64            // values of a Latest event that a newer one replaced
	Queued    int               // messages that wait here now
	Busy      time.Duration     // that listeners here have taken, what they waited included
	Listeners int               // there are now
	// Unsent is the number of this node's own messages that were dropped before they were on
	// their way to another node, by peer; peers for which nothing was dropped are
	// missing. Dropped and Skipped above count in the mailbox here. So a message of a
	// DropOldest, DropNewest or Latest event for another node is counted once: here in
	// Unsent, or there in Dropped or Skipped. Only [Task.Stats] has it.
	Unsent []Unsent
}

// Unsent counts messages of one event that were dropped before they were on their way
// to one other node.
type Unsent struct {
	Event   string
	Peer    int               // id of the node that they were for
	Dropped map[string]uint64 // by reason: oldest, newest or peer gone; reasons that did not occur are missing
	Skipped uint64            // values of a Latest event that a newer one replaced
}

func (p *subscription[T]) stats() EventStats {
	s := EventStats{
		Event: p.core.name, Emitted: p.emitted.Load(), Dropped: map[string]uint64{},
		Busy: time.Duration(p.busy.Load()), Listeners: len(*p.listeners.Load()),
	}
	d := p.en.d
	d.mu.Lock()
	noOne := p.noOne.Load()
	s.Delivered, s.Queued, s.Skipped = p.delivered-min(noOne, p.delivered), p.queued, p.skipped
	drops := map[string]uint64{DropReasonOldest: p.oldest, DropReasonNewest: p.newest}
	d.mu.Unlock()
	drops[DropReasonNoOne], drops[DropReasonIsolated] = noOne+p.refused.Load(), p.isolated.Load()
	for reason, n := range drops {
		if n > 0 {
			s.Dropped[reason] = n
		}
	}
	return s
}

// unfed reports whether the user's listeners here never received anything.
func (p *subscription[T]) unfed() bool {
	p.listenersMu.Lock()
	ever := p.ever
	p.listenersMu.Unlock()
	d := p.en.d
	d.mu.Lock()
	defer d.mu.Unlock()
	return ever && p.delivered == 0 && p.queued == 0 && !p.core.internal
}

func (e *engine) stats() []EventStats {
	var all []EventStats
	for c, p := range e.subscriptions.Load().all {
		if !c.internal {
			all = append(all, p.stats())
		}
	}
	slices.SortFunc(all, func(a, b EventStats) int { return cmp.Compare(a.Event, b.Event) })
	return all
}

// unsent adds the messages to stats that the bus has dropped.
func (e *engine) unsent(stats []EventStats) {
	bus, ok := e.bus.(Counter)
	if !ok {
		return
	}
	for _, u := range bus.Unsent() {
		i, ok := slices.BinarySearchFunc(stats, u.Event, func(s EventStats, name string) int { return cmp.Compare(s.Event, name) })
		if ok {
			stats[i].Unsent = append(stats[i].Unsent, u)
		}
	}
}

// reportUnfed logs the listeners that never received their event.
func (e *engine) reportUnfed() {
	if e.bus == nil {
		return // alone, some have no sender
	}
	for c, p := range e.subscriptions.Load().all {
		if p.unfed() {
			e.log.Info("listener never received its event", "event", c.name, "node", e.id)
		}
	}
}

// backlog names the events that have messages waiting, and the listeners that run.
func (e *engine) backlog() string {
	var parts []string
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	received := e.d.running()
	for c, p := range e.subscriptions.Load().all {
		b := p.box()
		if b.queued == 0 {
			continue
		}
		part := fmt.Sprintf("event %q: %d not delivered to the end", c.name, b.queued)
		if received[b] {
			_, listener := b.work.current()
			part += ", in listener " + listener
		}
		parts = append(parts, part)
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// snapshot returns the state of the task.
func (e *engine) snapshot() Snapshot {
	s := Snapshot{Role: strings.Join(e.roles, "+"), Steps: e.steps.Load(), Lag: math.Float64frombits(e.lag.Load())}
	s.Events = e.stats()
	for _, ev := range s.Events {
		s.Queued += ev.Queued
	}
	return s
}
