package task

import (
	"context"
	"errors"
)

// Tracer follows events from the emit to the listeners, in this process and in
// others. Package middleware/tracing has one for OpenTelemetry; give it to a task
// by [Trace]. Its methods are called by emitters and by runners of listeners,
// any number at a time.
type Tracer interface {
	// Emit is called as an emit begins. The header travels with the event: some
	// hundred bytes at most, not to be changed any more, nil for nothing. end, if
	// it is not nil, is called with the result of the emit.
	Emit(ctx context.Context, event string) (header []byte, end func(error))
	// Receive is called before a listener is, for an event that came with a header;
	// from is the id of the node that emitted it. The listener is called with the
	// context that Receive returns, which must be ctx or made of it, and end, if it is
	// not nil, with what the listener returned. header is valid during the call.
	Receive(ctx context.Context, event, listener string, from int, header []byte) (received context.Context, end func(error))
}

// Trace lets tr follow the events of the task. Nodes of a job need not agree: one without a Tracer
// ignores the headers of others. Without this option nothing is sent and nothing is spent.
func Trace(tr Tracer) Option {
	if tr == nil {
		panic("task: Trace with a nil tracer")
	}
	return func(c *config) { c.tracer = tr }
}

// traced is the header that a message came with.
type traced struct{ header []byte }

// emitTraced is emit between the two calls of the tracer.
func (p *subscription[T]) emitTraced(ctx context.Context, v T, opts []EmitOption) error {
	var head *traced
	header, end := p.en.cfg.tracer.Emit(ctx, p.core.name)
	if len(header) > 0 {
		head = &traced{header}
	}
	err := p.emit(ctx, v, head, opts)
	if end != nil {
		end(err)
	}
	return err
}

var errListenerPanic = errors.New("the listener panicked")

// callTraced calls one listener of a message that came with a header.
func (p *subscription[T]) callTraced(ctx context.Context, l *listener[T], s *slot[T]) error {
	ctx, end := p.en.cfg.tracer.Receive(ctx, p.core.name, l.name, s.from, s.head.header)
	if end == nil {
		return l.fn(ctx, s.v)
	}
	err := errListenerPanic
	defer func() { end(err) }()
	err = l.fn(ctx, s.v)
	return err
}
