package task

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// leaver ends its goroutine, as t.FailNow does.
func leaver(context.Context, *empty) error { runtime.Goexit(); return nil }

func TestGoexitInAStepIsAFailure(t *testing.T) {
	pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
	for name, tc := range map[string]struct {
		set  func(tk *Task[empty])
		want string
	}{
		"step":     {func(tk *Task[empty]) { tk.Use(pass, Step(leaver)) }, "task.leaver ended its goroutine"},
		"serial":   {func(tk *Task[empty]) { tk.Use(pass, Serial(pass, Step(leaver))) }, "task.leaver) ended its goroutine"},
		"backward": {func(tk *Task[empty]) { tk.Use(backwardLeaver, pass) }, "task.backwardLeaver ended its goroutine"},
		"hook": {func(tk *Task[empty]) {
			tk.Use(pass)
			tk.OnFinish(func(ctx context.Context, _ Outcome) error { return leaver(ctx, nil) })
		}, "task.TestGoexitInAStepIsAFailure ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := newFakeJob(2)
				leaves, other := New[empty](job.node(0)), New[empty](job.node(1))
				var saved []Outcome
				leaves.OnFinish(func(_ context.Context, o Outcome) error { saved = append(saved, o); return nil })
				tc.set(leaves)
				other.Use(waitForNothing(other))
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					_ = leaves.Run(t.Context(), MaxSteps(1))
					t.Error("Run has returned")
				}()
				err := other.Run(t.Context())
				<-gone
				if re, ok := errors.AsType[*RemoteError](err); !ok || !strings.Contains(re.Reason, tc.want) {
					t.Errorf("the other node: %v", err)
				}
				if o := leaves.Outcome(); o.Kind != Failure || !strings.Contains(o.Reason, tc.want) {
					t.Errorf("outcome %+v", o)
				}
				if len(saved) != 1 || name != "hook" && saved[0].Kind != Failure {
					t.Errorf("hooks were called with %+v", saved)
				}
				if err := evA.Emit(t.Context(), leaves, 1); !errors.Is(err, ErrClosed) {
					t.Errorf("the task is not closed: %v", err)
				}
			})
		})
	}
}

func backwardLeaver(ctx context.Context, _ *empty, next Next) error {
	defer runtime.Goexit()
	return next(ctx)
}

func TestGoexitInAGroupIsAnError(t *testing.T) {
	pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
	for name, tc := range map[string]struct {
		opts []Option
		ms   []Middleware[empty]
		want string
	}{
		"async":             {[]Option{Async()}, []Middleware[empty]{pass, Step(leaver), pass}, "task.leaver ended its goroutine"},
		"async, backward":   {[]Option{Async()}, []Middleware[empty]{pass, backwardLeaver, pass}, "task.backwardLeaver ended its goroutine"},
		"parallel":          {nil, []Middleware[empty]{Parallel(pass, Step(leaver), pass), pass}, "task.leaver ended its goroutine"},
		"parallel backward": {nil, []Middleware[empty]{Parallel(pass, backwardLeaver), pass}, "task.backwardLeaver ended its goroutine"},
		"serial in a group": {nil, []Middleware[empty]{Parallel(pass, Serial(pass, Step(leaver)))}, "task.leaver) ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tk := New[empty](Alone(), tc.opts...)
				tk.Use(tc.ms...)
				if err := tk.Run(t.Context(), MaxSteps(1)); err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestGoexitInAListenerKeepsItsEvent lets an isolated listener end its goroutine: as
// the current runner, and as one that keeps its mailbox.
func TestGoexitInAListenerKeepsItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		const n = 6
		var received []int
		evA.On(tk, func(context.Context, int) error { runtime.Goexit(); return nil }, Isolated())
		evA.On(tk, func(ctx context.Context, v int) error {
			received = append(received, v)
			if v == 2 { // it keeps its mailbox, and the next message is received by it
				evA.On(tk, func(context.Context, int) error { runtime.Goexit(); return nil }, Isolated())
				_, err := evB.WaitFor(ctx, tk)
				return err
			}
			return nil
		})
		for v := range n {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		synctest.Wait()
		must(t, evB.Emit(t.Context(), tk, 1))
		must(t, tk.Close(t.Context()))
		if len(received) != n {
			t.Errorf("received %v", received)
		}
		if s := tk.Stats()[0]; s.Dropped[DropReasonIsolated] != 2 || s.Queued != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}
