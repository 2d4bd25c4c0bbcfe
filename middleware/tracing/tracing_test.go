package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/ditask/ditask/middleware/tracing"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

var (
	questions = task.NewEvent[int]("question")
	answers   = task.NewEvent[[]float32]("answer")
)

// job runs a step on node 0 that asks node 1, which answers with that many numbers;
// it returns the spans of both nodes by name.
func job(t *testing.T, numbers int, traced [2]bool, parent trace.SpanContext) map[string]tracetest.SpanStub {
	t.Helper()
	exporters := [2]*tracetest.InMemoryExporter{tracetest.NewInMemoryExporter(), tracetest.NewInMemoryExporter()}
	err := parallel.Run(t.Context(), parallel.Config{Nodes: 2, Logger: slog.New(slog.DiscardHandler)},
		func(ctx context.Context, node *parallel.Node) error {
			var opts []task.Option
			tr := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider(sdk.WithSyncer(exporters[node.ID()]))})
			if traced[node.ID()] {
				opts = append(opts, task.Trace(tr))
			}
			tk := task.New[struct{}](node, opts...)
			got := make(chan int, 1)
			switch node.ID() {
			case 0:
				answers.On(tk, func(_ context.Context, v []float32) error { got <- len(v); return nil })
				if parent.IsValid() {
					ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
				}
				tk.Use(tracing.Step[struct{}](tr, "step"), task.Step(func(ctx context.Context, _ *struct{}) error {
					if err := questions.Emit(ctx, tk, numbers); err != nil {
						return err
					}
					select {
					case n := <-got:
						if n != numbers {
							t.Errorf("%d numbers came of %d", n, numbers)
						}
						return nil
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}))
			case 1:
				questions.On(tk, func(ctx context.Context, n int) error { return answers.Emit(ctx, tk, make([]float32, n)) }, task.Named("answerer"))
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { <-ctx.Done(); return context.Cause(ctx) }))
			}
			return tk.Run(ctx, task.MaxSteps(1))
		})
	if err != nil {
		t.Fatal(err)
	}
	spans := map[string]tracetest.SpanStub{}
	for _, e := range exporters {
		for _, s := range e.GetSpans() {
			if _, twice := spans[s.Name]; twice {
				t.Errorf("two spans %q", s.Name)
			}
			spans[s.Name] = s
		}
	}
	return spans
}

func TestATraceGoesOnOverNodes(t *testing.T) {
	state, err := trace.ParseTraceState("vendor=a:1,other=b")
	if err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4}, TraceFlags: trace.FlagsSampled, TraceState: state, Remote: true,
	})
	for name, numbers := range map[string]int{"small": 3, "one chunk": 30_000, "chunks": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			spans := job(t, numbers, [2]bool{true, true}, parent)
			above := parent
			for _, name := range []string{"step", "emit question", "receive question", "emit answer", "receive answer"} {
				s, ok := spans[name]
				if !ok {
					t.Fatalf("no span %q in %v", name, spans)
				}
				if s.SpanContext.TraceID() != parent.TraceID() || s.Parent.SpanID() != above.SpanID() ||
					s.SpanContext.TraceState().String() != state.String() {
					t.Errorf("%s: trace %v, parent %v, state %v; want %v, %v, %v", name, s.SpanContext.TraceID(), s.Parent.SpanID(),
						s.SpanContext.TraceState(), parent.TraceID(), above.SpanID(), state)
				}
				if remote := strings.HasPrefix(name, "receive") || name == "step"; s.Parent.IsRemote() != remote {
					t.Errorf("%s: the parent is remote: %v", name, s.Parent.IsRemote())
				}
				above = s.SpanContext
			}
			if len(spans) != 5 {
				t.Errorf("%d spans", len(spans))
			}
			for _, a := range spans["receive question"].Attributes {
				if a.Key == "ditask.listener" && a.Value.AsString() != "answerer" || a.Key == "ditask.from_node" && a.Value.AsInt64() != 0 {
					t.Errorf("attribute %v", a)
				}
			}
		})
	}
}

// TestANodeWithoutATracerPassesOver has one traced node only: its own emits are followed, and the
// other nodes are unaffected.
func TestANodeWithoutATracerPassesOver(t *testing.T) {
	if spans := job(t, 3, [2]bool{true, false}, trace.SpanContext{}); len(spans) != 2 {
		t.Errorf("spans: %v", spans)
	}
	if spans := job(t, 3, [2]bool{false, true}, trace.SpanContext{}); len(spans) != 1 {
		t.Errorf("spans: %v", spans)
	}
}

func TestErrorsAreOnTheirSpans(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	tr := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider(sdk.WithSyncer(exporter))})
	tk := task.New[struct{}](task.Alone(), task.Trace(tr))
	received := make(chan struct{})
	questions.On(tk, func(context.Context, int) error { close(received); panic("no idea") })
	tk.Use(tracing.Step[struct{}](tr, "step"), task.Step(func(ctx context.Context, _ *struct{}) error {
		if err := questions.Emit(ctx, tk, 1); err != nil {
			return err
		}
		<-received
		return errors.New("no answer")
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(1)); err == nil {
		t.Error("no error")
	}
	for name, want := range map[string]codes.Code{"step": codes.Error, "emit question": codes.Unset, "receive question": codes.Error} {
		found := false
		for _, s := range exporter.GetSpans() {
			if s.Name == name {
				found = true
				if s.Status.Code != want {
					t.Errorf("%s: %v", name, s.Status)
				}
			}
		}
		if !found {
			t.Errorf("no span %q", name)
		}
	}
}

func TestWhatIsNoTraceContextIsPassedOver(t *testing.T) {
	tr := tracing.New(tracing.Config{Provider: sdk.NewTracerProvider()})
	for _, header := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01", "\n\n", strings.Repeat("0", 1000)} {
		if _, end := tr.Receive(t.Context(), "e", "l", 0, []byte(header)); end != nil {
			t.Errorf("%q began a span", header)
		}
	}
	if header, end := tr.Emit(t.Context(), "e"); header != nil || end != nil {
		t.Errorf("an emit under no span sends %q", header)
	}
}
