package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/middleware"
	"github.com/ditask/ditask/task"
)

type state struct{ N int }

var errBoom = errors.New("boom")

func step(fn func(ctx context.Context) error) task.Middleware[state] {
	return task.Step(func(ctx context.Context, _ *state) error { return fn(ctx) })
}

// run runs a chain for some steps.
func run(t testing.TB, steps int, ms ...task.Middleware[state]) error {
	t.Helper()
	tk := task.New[state](task.Alone())
	tk.Use(ms...)
	return tk.Run(t.Context(), task.MaxSteps(steps))
}

func TestRecoverHandsOverPanics(t *testing.T) {
	bad := step(func(context.Context) error { panic("ouch") })
	for name, m := range map[string]task.Middleware[state]{"plain": bad, "group": task.Parallel(bad)} {
		t.Run(name, func(t *testing.T) {
			var got []string
			rec := middleware.Recover[state](func(v any, stack []byte) error {
				got = append(got, fmt.Sprint(v, " ", strings.Contains(string(stack), "middleware_test")))
				return nil
			})
			if err := run(t, 2, rec, m); err != nil || !slices.Equal(got, []string{"ouch true", "ouch true"}) {
				t.Errorf("%v, %q", err, got)
			}
		})
	}
	keep := middleware.Recover[state](func(any, []byte) error { return errBoom })
	if err := run(t, 1, keep, bad); !errors.Is(err, errBoom) {
		t.Errorf("the handler's error is lost: %v", err)
	}
	if err := run(t, 1, keep, step(func(context.Context) error { return context.Canceled })); !errors.Is(err, context.Canceled) {
		t.Errorf("an error that is no panic is changed: %v", err)
	}
}

func TestTimeoutEndsTheContextOfTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := step(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		begin := time.Now()
		err := run(t, 1, middleware.Timeout[state](time.Minute), wait)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(),
			"step timeout of 1m0s") || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		err = run(t, 3, middleware.Timeout[state](time.Minute), step(func(ctx context.Context) error { return ctx.Err() }))
		if err != nil {
			t.Errorf("a quick step: %v", err)
		}
		err = run(t, 3, middleware.Timeout[state](time.Minute), step(func(context.Context) error { return errBoom }))
		if !errors.Is(err, errBoom) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an error within the time: %v", err)
		}
	})
}

func TestRetry(t *testing.T) {
	for name, tc := range map[string]struct {
		backoff middleware.Backoff
		fails   int // so often, then it succeeds
		calls   int
		took    time.Duration
		err     string
	}{
		"at once":  {fails: 0, calls: 1},
		"defaults": {fails: 2, calls: 3, took: 300 * time.Millisecond},
		"too often": {backoff: middleware.Backoff{Tries: 2, First: time.Second}, fails: 2, calls: 2, took: time.Second,
			err: "tried 2 times: boom\nboom"},
		"bounded": {backoff: middleware.Backoff{Tries: 9, First: time.Second, Most: 3 * time.Second}, fails: 4, calls: 5,
			took: 9 * time.Second},
		"by default": {fails: 9, calls: 3, took: 300 * time.Millisecond, err: "tried 3 times: boom\nboom\nboom"},
		"worth it": {backoff: middleware.Backoff{If: func(err error) bool { return errors.Is(err, errBoom) }}, fails: 1, calls: 2,
			took: 100 * time.Millisecond},
		"not worth it": {backoff: middleware.Backoff{If: func(error) bool { return false }}, fails: 2, calls: 1, err: "boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				begin := time.Now()
				err := run(t, 1, middleware.Retry(tc.backoff, step(func(context.Context) error {
					if calls++; calls <= tc.fails {
						return errBoom
					}
					return nil
				})))
				if calls != tc.calls || time.Since(begin) != tc.took {
					t.Errorf("%d calls in %v, want %d in %v", calls, time.Since(begin), tc.calls, tc.took)
				}
				if (err == nil) != (tc.err == "") || err != nil && !strings.HasSuffix(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
			})
		})
	}
}

func TestRetryLeavesTheRestOfTheStepAlone(t *testing.T) {
	calls, rest := 0, 0
	m := func(ctx context.Context, _ *state, next task.Next) error { calls++; return next(ctx) }
	err := run(t, 1, middleware.Retry(middleware.Backoff{}, m), step(func(context.Context) error { rest++; return errBoom }))
	if !errors.Is(err, errBoom) || calls != 1 || rest != 1 {
		t.Errorf("%v, %d and %d calls", err, calls, rest)
	}
}

func TestRetryEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := task.New[state](task.Alone())
		tk.Use(middleware.Retry(middleware.Backoff{Tries: 100, First: time.Hour, Most: time.Hour},
			step(func(context.Context) error { return errBoom })))
		cause := errors.New("walltime")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 90*time.Minute, cause)
		defer cancel()
		begin := time.Now()
		if err := tk.Run(ctx); !errors.Is(err, errBoom) || time.Since(begin) != 90*time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestEveryRunsInEveryNthStep(t *testing.T) {
	for n, want := range map[int][]int{1: {1, 2, 3, 4, 5}, 2: {2, 4}, 3: {3}, 6: nil} {
		steps, got := 0, []int(nil)
		err := run(t, 5, step(func(context.Context) error { steps++; return nil }),
			middleware.Every(n, step(func(context.Context) error { got = append(got, steps); return nil })))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("every %d: %v, in steps %v, want %v", n, err, got, want)
		}
	}
}

func TestLogWritesALineEveryNthStepAndForFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		log := slog.New(slog.NewTextHandler(&buf, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		n := 0
		err := run(t, 10, middleware.Log[state](log, slog.LevelInfo, 2), step(func(context.Context) error {
			timer := time.NewTimer(500 * time.Millisecond)
			<-timer.C
			if n++; n == 5 {
				return errBoom
			}
			return nil
		}))
		line := "level=INFO msg=step step=%d took=500ms steps_per_second=2\n"
		want := fmt.Sprintf(line, 2) + fmt.Sprintf(line, 4) + "level=ERROR msg=\"step failed\" step=5 took=500ms err=boom\n"
		if !errors.Is(err, errBoom) || buf.String() != want {
			t.Errorf("%v, log\n%swant\n%s", err, buf.String(), want)
		}
	})
}

type meeting struct {
	names []string
	err   error
}

func (m *meeting) Barrier(_ context.Context, name string) error {
	m.names = append(m.names, name)
	return m.err
}

func TestBarrierMeetsInEveryStep(t *testing.T) {
	var m meeting
	if err := run(t, 2, middleware.Barrier[state](&m, "epoch")); err != nil || !slices.Equal(m.names, []string{"epoch", "epoch"}) {
		t.Errorf("%v, %v", err, m.names)
	}
	m.err = errBoom
	if err := run(t, 2, middleware.Barrier[state](&m, "epoch")); !errors.Is(err, errBoom) || !strings.Contains(err.Error(),
		`barrier "epoch"`) {
		t.Errorf("%v", err)
	}
}

func TestStepTimerMeasuresEachByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sleep := func(d time.Duration) { <-time.NewTimer(d).C }
		timer := middleware.NewStepTimer[state]()
		tk := task.New[state](task.Alone())
		tk.Wrap(timer.Wrap)
		tk.Use(func(ctx context.Context, _ *state, next task.Next) error {
			sleep(time.Second)
			err := next(ctx)
			sleep(2 * time.Second)
			return err
		}, task.Name("slow", task.Step(slow)))
		if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
			t.Fatal(err)
		}
		want := []middleware.Timing{
			{Name: "middleware_test.TestStepTimerMeasuresEachByItself", Calls: 2, Last: 3 * time.Second, Max: 3 * time.Second,
				Total: 6 * time.Second},
			{Name: "slow", Calls: 2, Last: time.Minute, Max: time.Minute, Total: 2 * time.Minute},
		}
		if got := timer.Stats(); !slices.Equal(got, want) {
			t.Errorf("got %v\nwant %v", got, want)
		}
	})
}

func slow(context.Context, *state) error { <-time.NewTimer(time.Minute).C; return nil }

func TestAssemblyMistakesPanic(t *testing.T) {
	nop := step(func(context.Context) error { return nil })
	for name, f := range map[string]func(){
		"Recover":          func() { middleware.Recover[state](nil) },
		"Timeout":          func() { middleware.Timeout[state](0) },
		"Every 0":          func() { middleware.Every(0, nop) },
		"Every nil":        func() { middleware.Every[state](1, nil) },
		"Log":              func() { middleware.Log[state](nil, slog.LevelInfo, 1) },
		"Barrier":          func() { middleware.Barrier[state](nil, "x") },
		"Retry nil":        func() { middleware.Retry[state](middleware.Backoff{}, nil) },
		"Retry tries":      func() { middleware.Retry(middleware.Backoff{Tries: -1}, nop) },
		"Retry wait":       func() { middleware.Retry(middleware.Backoff{First: -1}, nop) },
		"Retry wait bound": func() { middleware.Retry(middleware.Backoff{First: 2, Most: 1}, nop) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.HasPrefix(msg, "middleware: ") {
					t.Errorf("panic %q", msg)
				}
			}()
			f()
		})
	}
}

func TestWrappedStepAllocatesNothing(t *testing.T) {
	timer := middleware.NewStepTimer[state]()
	m := timer.Wrap("x", func(ctx context.Context, _ *state, next task.Next) error { return next(ctx) })
	ctx, c, next := t.Context(), new(state), func(context.Context) error { return nil }
	if n := testing.AllocsPerRun(1000, func() {
		if err := m(ctx, c, next); err != nil {
			t.Fatal(err)
		}
	}); n > 0 && !race.Enabled {
		t.Errorf("%v allocations", n)
	}
}

func ExampleRetry() {
	tries := 0
	fetch := task.Step(func(context.Context, *state) error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		fmt.Println("fetched in try", tries)
		return nil
	})
	t := task.New[state](task.Alone())
	t.Use(middleware.Retry(middleware.Backoff{Tries: 5, First: time.Microsecond}, fetch))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// fetched in try 3
	// <nil>
}

func ExampleEvery() {
	t := task.New[state](task.Alone())
	t.Use(middleware.Every(4, task.Step(func(context.Context, *state) error {
		fmt.Println("after", t.Steps(), "whole steps")
		return nil
	})))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(10)))
	// Output:
	// after 3 whole steps
	// after 7 whole steps
	// <nil>
}

func ExampleRecover() {
	t := task.New[state](task.Alone())
	t.Use(middleware.Recover[state](func(value any, _ []byte) error {
		fmt.Println("went on after:", value)
		return nil
	}), task.Step(func(context.Context, *state) error { panic("a bad sample") }))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(2)))
	// Output:
	// went on after: a bad sample
	// went on after: a bad sample
	// <nil>
}

func BenchmarkStepTimer(b *testing.B) {
	timer := middleware.NewStepTimer[state]()
	plain := func(ctx context.Context, _ *state, next task.Next) error { return next(ctx) }
	ctx, c, next := b.Context(), new(state), func(context.Context) error { return nil }
	for name, m := range map[string]task.Middleware[state]{"wrapped": timer.Wrap("x", plain), "baseline": plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := m(ctx, c, next); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
