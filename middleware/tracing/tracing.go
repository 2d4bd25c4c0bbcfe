// Package tracing follows events and steps with OpenTelemetry, over all nodes of
// a job.
//
//	tr := tracing.New(tracing.Config{}) // the global TracerProvider
//	t := task.New[State](node, task.Trace(tr))
//	t.Use(tracing.Step[State](tr, "train")) // a span for each step, first in the chain
//
// An emit under a span becomes its own span, and each listener that it reaches
// one more, its child, on whatever node: a trace continues from node to node, through
// listeners that emit in turn. An emit under no span is not followed.
//
// # What travels
//
// The W3C trace context: the value of traceparent and, if there is one, a newline
// and that of tracestate, beside the payload (docs/wire.md). That is 55 bytes and
// more for each message under a span. Where the two together exceed a kilobyte,
// traceparent goes alone. Baggage does not travel.
//
// # Concurrency
//
// A [Tracer] is safe for concurrent use, and serves all tasks of a process. Only
// programs that import this package depend on OpenTelemetry; the SDK is the program's own
// choice.
package tracing

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/ditask/ditask/task"
)

// scope names this package to OpenTelemetry.
const scope = "github.com/ditask/ditask/middleware/tracing"

// Config determines where spans go.
type Config struct {
	Provider trace.TracerProvider // nil: the global one
}

// Tracer satisfies task.Tracer.
type Tracer struct{ t trace.Tracer }

var _ task.Tracer = (*Tracer)(nil)

// New makes a tracer.
func New(cfg Config) *Tracer {
	if cfg.Provider == nil {
		cfg.Provider = otel.GetTracerProvider()
	}
	return &Tracer{cfg.Provider.Tracer(scope)}
}

// The attributes of spans, in OpenTelemetry's words for messaging where it has
// them.
const (
	attrSystem   = attribute.Key("messaging.system")
	attrEvent    = attribute.Key("messaging.destination.name")
	attrFrom     = attribute.Key("ditask.from_node")
	attrListener = attribute.Key("ditask.listener")
	attrStep     = attribute.Key("ditask.step")
)

// Emit begins a span if ctx has one, and returns what travels of it.
func (t *Tracer) Emit(ctx context.Context, event string) (header []byte, end func(error)) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil, nil
	}
	ctx, span := t.t.Start(ctx, "emit "+event, //nolint:spancheck // end ends it
		trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attrSystem.String("ditask"), attrEvent.String(event)))
	return appendHeader(nil, ctx), ender(span) //nolint:spancheck // end ends it
}

// Receive begins a span below the one that the event was emitted under.
func (t *Tracer) Receive(ctx context.Context, event, listener string, from int, header []byte) (received context.Context, end func(error)) {
	remote := parseHeader(header)
	if !remote.IsValid() {
		return ctx, nil
	}
	ctx, span := t.t.Start(trace.ContextWithRemoteSpanContext(ctx, remote), "receive "+event, //nolint:spancheck // end ends it
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrSystem.String("ditask"), attrEvent.String(event), attrFrom.Int(from), attrListener.String(listener)))
	return ctx, ender(span) //nolint:spancheck // end ends it
}

// Step is a middleware that puts a span called name around the rest of the step.
func Step[C any](t *Tracer, name string) task.Middleware[C] {
	if t == nil {
		panic("tracing: Step without a tracer")
	}
	n := 0
	return func(ctx context.Context, _ *C, next task.Next) error {
		n++
		ctx, span := t.t.Start(ctx, name, trace.WithAttributes(attrStep.Int(n)))
		defer span.End()
		err := errPanic
		defer func() { status(span, err) }()
		err = next(ctx)
		return err
	}
}

var errPanic = errors.New("the step panicked")

func ender(span trace.Span) func(error) {
	return func(err error) {
		status(span, err)
		span.End()
	}
}

func status(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}

// The keys of the W3C trace context.
const (
	keyParent = "traceparent"
	keyState  = "tracestate"
)

// maxHeader is the largest header of a message (router.MaxHeaderBytes).
const maxHeader = 1 << 10

func appendHeader(dst []byte, ctx context.Context) []byte { //nolint:revive // the destination comes first, as in append
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	dst = append(dst, carrier[keyParent]...)
	if state := carrier[keyState]; state != "" && len(dst)+1+len(state) <= maxHeader {
		dst = append(append(dst, '\n'), state...)
	}
	return dst
}

func parseHeader(header []byte) trace.SpanContext {
	parent, state, _ := strings.Cut(string(header), "\n")
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{keyParent: parent, keyState: state})
	return trace.SpanContextFromContext(ctx)
}
