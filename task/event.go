package task

import (
	"context"
	"fmt"
)

// Event is the declaration of an event: its name, the type of its payload, and
// what happens when a listener is slow. It holds no state, so one package-level
// value serves all tasks. Payloads are shared with the listeners of this node:
// an emitter does not change an emitted slice, map or pointer afterwards.
type Event[T any] struct{ core eventCore }

type eventCore struct {
	name     string
	policy   Delivery
	queue    int
	internal bool // not of the user: no reports, no Off by glob
}

// EventOption chooses the delivery policy of an event.
type EventOption func(*eventCore)

// Reliable is the default: it blocks the emitter while a listener is too slow.
func Reliable() EventOption { return func(c *eventCore) { c.policy = DeliverReliable } }

// Latest keeps only the newest value of each sender: older ones that were not
// received yet are skipped and counted. A newer value takes the place of the one it
// replaces, so what was emitted after a value is never delivered before it or a newer
// one. A node that joins late receives the newest value before its first step.
func Latest() EventOption { return func(c *eventCore) { c.policy = DeliverLatest } }

// DropOldest keeps the newest n messages that wait, and counts the others.
func DropOldest(n int) EventOption { return dropping(DeliverDropOldest, n) }

// DropNewest keeps the oldest n messages that wait, and counts the others.
func DropNewest(n int) EventOption { return dropping(DeliverDropNewest, n) }

func dropping(policy Delivery, n int) EventOption {
	if n < 1 {
		panic("task: an event that drops needs room for one message at least")
	}
	return func(c *eventCore) { c.policy, c.queue = policy, n }
}

// NewEvent declares an event. Two different declarations of one name cannot be
// used on one task.
func NewEvent[T any](name string, opts ...EventOption) *Event[T] {
	if name == "" {
		panic("task: event without a name")
	}
	e := &Event[T]{core: eventCore{name: name}}
	for _, o := range opts {
		o(&e.core)
	}
	return e
}

// Name returns the name of the event.
func (e *Event[T]) Name() string { return e.core.name }

// Host is a task on which events are emitted and received: every [*Task].
type Host interface{ engine() *engine }

// EmitOption restricts the receivers of an emit.
type EmitOption struct {
	where emitWhere
	to    []string
}

type emitWhere uint8

const (
	everywhere emitWhere = iota
	onlyLocal
	onlyRemote
)

// OnlyLocal reaches the listeners of this node.
func OnlyLocal() EmitOption { return EmitOption{where: onlyLocal} }

// OnlyRemote reaches the listeners of all other nodes.
func OnlyRemote() EmitOption { return EmitOption{where: onlyRemote} }

// To reaches the nodes, this one included, that have a label or role which
// matches any of the patterns, such as "node.1" or "collector". With several To
// every one must match.
func To(patterns ...string) EmitOption { return EmitOption{to: patterns} }

// Emit hands v to every listener of the event on this node and on the others,
// each once. It returns when v is queued here and taken over by the bus, without
// waiting for the listeners to run. On a [Reliable] event it blocks while a queue
// is full, until ctx or the task ends; an error names the nodes that were not reached.
func (e *Event[T]) Emit(ctx context.Context, h Host, v T, opts ...EmitOption) error {
	en := h.engine()
	if err := en.usable("emit", e.core.name); err != nil {
		return err
	}
	p, err := e.subscription(en)
	if err != nil {
		return err
	}
	if p.traces {
		return p.emitTraced(ctx, v, opts)
	}
	return p.emit(ctx, v, nil, opts)
}

// emit is [Event.Emit] with the tracer's header; nil for none.
func (p *subscription[T]) emit(ctx context.Context, v T, head *traced, opts []EmitOption) error {
	local, remote := true, p.channel != nil
	var match func(Peer) bool
	if len(opts) > 0 {
		local, remote, match = route(p.en, remote, opts)
	}
	if local && p.listened.Load() {
		if err := p.emitLocal(ctx, slot[T]{v: v, from: p.en.id, head: head}); err != nil {
			return fmt.Errorf("emit %q: %w", p.core.name, err)
		}
	} else {
		p.emitted.Add(1)
	}
	if remote && p.channel.Listened() {
		if err := p.send(ctx, &v, head, match); err != nil {
			return fmt.Errorf("emit %q: %w", p.core.name, err)
		}
	} else if len(opts) == 0 {
		p.reportNoListener()
	}
	return nil
}

// reportNoListener logs once that the event has no listener. It does not if there is
// a listener, or was one before, such as a Once that has fired.
func (p *subscription[T]) reportNoListener() {
	if p.everListened.Load() || p.channel != nil && p.channel.EverListened() || p.unlistened.Swap(true) {
		return
	}
	p.en.log.Warn("event has no listener on any node", "event", p.core.name, "node", p.en.id)
}

// route returns the receivers that the options select.
func route(en *engine, remote bool, opts []EmitOption) (local, rem bool, match func(Peer) bool) {
	local, rem = true, remote
	to := make([][]string, 0, len(opts))
	for _, o := range opts {
		switch o.where {
		case onlyLocal:
			rem = false
		case onlyRemote:
			local = false
		}
		if o.to != nil {
			to = append(to, o.to)
		}
	}
	if len(to) == 0 {
		return local, rem, nil
	}
	matches := func(words []string) bool {
		for _, patterns := range to {
			if !matchAny(patterns, words) {
				return false
			}
		}
		return true
	}
	return local && matches(en.words), rem, func(p Peer) bool { return matches(p.Labels) }
}

// ListenOption configures one listener.
type ListenOption func(*Listener)

// Isolated makes an error or a panic of the listener drop only this listener,
// which is logged and counted, instead of ending the task.
func Isolated() ListenOption { return func(l *Listener) { l.isolated = true } }

// Named gives the listener a name for errors and logs; without it, it has the
// name of its function.
func Named(name string) ListenOption { return func(l *Listener) { l.name = name } }

// Borrowed means that the listener uses the payload during its call only. Where all
// listeners of an event ask for it, the memory of large tensors from other nodes is
// used again for the next message, without garbage; from nodes of the same host they are that node's memory
// itself. The listener does not write to the payload: in such memory a write panics.
func Borrowed() ListenOption { return func(l *Listener) { l.borrowed = true } }

// On calls fn for every message of the event, until Off. Calls are never concurrent, and in order per
// sender. fn's ctx ends when the run does: at once if the task fails, else when all messages have been
// delivered, or when the listener blocks for longer than [ListenerGrace] at the end. An error that fn
// then returns because of that, such as ctx.Err() or context.Cause(ctx), is no failure. See also
// [Sender] and [Version]. Any other error, and a panic, ends the task with a [*ListenerError], unless
// [Isolated]. On panics for a payload type that cannot travel to other nodes, and for a name that
// another Event has on this task.
func (e *Event[T]) On(h Host, fn func(ctx context.Context, v T) error, opts ...ListenOption) *Listener {
	return e.listen(h, fn, false, opts)
}

// Once is On for the first message only.
func (e *Event[T]) Once(h Host, fn func(ctx context.Context, v T) error, opts ...ListenOption) *Listener {
	return e.listen(h, fn, true, opts)
}

func (e *Event[T]) listen(h Host, fn func(context.Context, T) error, once bool, opts []ListenOption) *Listener {
	if fn == nil {
		panic(fmt.Sprintf("task: nil listener of event %q", e.core.name))
	}
	p, err := e.subscription(h.engine())
	if err != nil {
		panic("task: listen: " + err.Error())
	}
	l := &listener[T]{Listener: Listener{event: e.core.name, once: once}, fn: fn}
	for _, o := range opts {
		o(&l.Listener)
	}
	if l.name == "" {
		l.name = funcName(fn)
	}
	p.add(l)
	return &l.Listener
}
