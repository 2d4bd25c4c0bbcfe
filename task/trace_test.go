package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// fakeTracer sends the value of a context, and notes all that it is told.
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
	if word == "" {
		return nil, nil
	}
	return []byte(word), func(err error) { f.notef("emitted %s under %s: %v", event, word, err) }
}

func (f *fakeTracer) Hear(ctx context.Context, event, listener string, from int, header []byte) (heard context.Context, end func(error)) {
	return context.WithValue(ctx, traceKey{}, string(header)+"+"), func(err error) {
		f.notef("%s heard %s of %d under %s: %v", listener, event, from, header, err)
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
		{"emitted ask under t: <nil>", "listener heard ask of 0 under t: <nil>", "listener heard answer of 1 under t+: enough"},
		{"listener heard ask of 0 under t: <nil>", "emitted answer under t+: <nil>"},
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
