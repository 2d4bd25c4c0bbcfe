package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// fakeTracer sends the value of a context, and records all calls.
type fakeTracer struct {
	mu  sync.Mutex
	log []string
}

type traceKey struct{}

func (f *fakeTracer) notef(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, fmt.Sprintf(format, args...))
}

func (f *fakeTracer) Emit(ctx context.Context, event string) (header []byte, end func(error)) {
	word, _ := ctx.Value(traceKey{}).(string)
	if event == finishEvent.Name() {
		f.notef("emitted %s", event)
	}
	if word == "" {
		return nil, nil
	}
	return []byte(word), func(err error) { f.notef("emitted %s under %s: %v", event, word, err) }
}

func (f *fakeTracer) Receive(
	ctx context.Context, event, listener string, from int, header []byte,
) (received context.Context, end func(error)) {
	ctx = context.WithValue(ctx, traceKey{}, string(header)+"+")
	if listener == "unmarked" {
		return ctx, nil
	}
	return ctx, func(err error) {
		f.notef("%s received %s of %d under %s: %v", listener, event, from, header, err)
	}
}

func TestTracerFollowsEventsToListeners(t *testing.T) {
	job := newFakeJob(2)
	tracers := [2]*fakeTracer{{}, {}}
	ask, answer := NewEvent[string]("ask"), NewEvent[string]("answer")
	done := make(chan struct{})
	var wg sync.WaitGroup
	for id := range 2 {
		tk := New[struct{}](job.node(id), Trace(tracers[id]))
		ask.On(tk, func(ctx context.Context, _ string) error {
			if Sender(ctx) != 0 || Version(ctx) == 0 {
				t.Errorf("sender %d, version %d", Sender(ctx), Version(ctx))
			}
			if id == 1 {
				return answer.Emit(ctx, tk, "yes", OnlyRemote())
			}
			return nil
		}, Named("listener"))
		if id == 0 {
			answer.On(tk, func(ctx context.Context, _ string) error {
				if word, _ := ctx.Value(traceKey{}).(string); word != "" {
					close(done)
					return errors.New("enough")
				}
				return nil
			}, Isolated(), Named("listener"))
		}
		tk.Use(Step(func(ctx context.Context, _ *struct{}) error {
			if id == 1 {
				return waitForEver(ctx)
			}
			if err := ask.Emit(ctx, tk, "untraced"); err != nil {
				return err
			}
			err := ask.Emit(context.WithValue(ctx, traceKey{}, "t"), tk, "traced")
			<-done
			return err
		}))
		wg.Go(func() {
			if err := tk.Run(t.Context(), MaxSteps(1)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for id, want := range [][]string{
		{"emitted ask under t: <nil>", "listener received ask of 0 under t: <nil>", "listener received answer of 1 under t+: enough"},
		{"listener received ask of 0 under t: <nil>", "emitted answer under t+: <nil>"},
	} {
		got := strings.Join(tracers[id].log, "\n")
		for _, line := range want {
			if strings.Count(got, line) != 1 {
				t.Errorf("node %d: want once %q in:\n%s", id, line, got)
			}
		}
		if len(tracers[id].log) != len(want) {
			t.Errorf("node %d:\n%s", id, got)
		}
	}
}

// waitForEver waits for the end of ctx.
func waitForEver(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// TestTracerIsCalledForFailures, of listeners that panic too, and needs no function for the end.
func TestTracerIsCalledForFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracer := &fakeTracer{}
		tk := New[empty](Alone(), Trace(tracer), Isolate())
		evA.On(tk, func(context.Context, int) error { panic("ouch") }, Named("panics"))
		evA.On(tk, func(context.Context, int) error { return errors.New("boom") }, Named("fails"))
		calls := 0
		evA.On(tk, func(context.Context, int) error { calls++; return nil }, Named("unmarked"))
		must(t, tk.Start(t.Context()))
		ctx := context.WithValue(t.Context(), traceKey{}, "t")
		must(t, evA.Emit(ctx, tk, 1, OnlyLocal()))
		must(t, evA.Emit(t.Context(), tk, 2, OnlyLocal()))
		must(t, tk.Close(t.Context()))
		if err := evA.Emit(ctx, tk, 3); !errors.Is(err, ErrClosed) {
			t.Errorf("error %v", err)
		}
		want := []string{
			"emitted a under t: <nil>", "fails received a of 0 under t: boom", "panics received a of 0 under t: the listener panicked",
		}
		slices.Sort(tracer.log)
		if !slices.Equal(tracer.log, want) || calls != 2 {
			t.Errorf("%d calls, %q", calls, tracer.log)
		}
	})
}

// TestUntracedMessagesTravelWithoutAHeader, although an earlier emit had one.
func TestUntracedMessagesTravelWithoutAHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		tracer := &fakeTracer{}
		tks := []*Task[empty]{New[empty](job.node(0), Trace(&fakeTracer{})), New[empty](job.node(1), Trace(tracer))}
		received := 0
		evA.On(tks[1], func(context.Context, int) error { received++; return nil }, Named("listener"))
		each(t, tks, func(tk *Task[empty]) error { return tk.Start(t.Context()) })
		for v := range 10 {
			ctx := t.Context()
			if v%2 == 0 {
				ctx = context.WithValue(ctx, traceKey{}, "t")
			}
			must(t, evA.Emit(ctx, tks[0], v))
		}
		each(t, tks, func(tk *Task[empty]) error { return tk.Close(t.Context()) })
		if received != 10 || len(tracer.log) != 5 {
			t.Errorf("%d received, of which traced %q", received, tracer.log)
		}
	})
}
