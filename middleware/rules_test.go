package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/middleware"
	"github.com/ditask/ditask/task"
)

// sleep waits in the time of a synctest bubble.
func sleep(d time.Duration) { <-time.NewTimer(d).C }

func TestTimeoutIsNamedOnlyWhereItIsTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inner <-chan struct{}
		late := step(func(ctx context.Context) error { inner = ctx.Done(); sleep(2 * time.Minute); return nil })
		if err := run(t, 1, middleware.Timeout[state](time.Minute), late); err != nil {
			t.Errorf("a rest that succeeded too late: %v", err)
		}
		if err := run(t, 1, middleware.Timeout[state](time.Hour), late); err != nil {
			t.Error(err)
		}
		select {
		case <-inner:
		default:
			t.Error("the context of the rest goes on after the step")
		}
		tk := task.New[state](task.Alone())
		tk.Use(middleware.Timeout[state](time.Minute), step(func(context.Context) error { sleep(time.Hour); return errBoom }))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := tk.Run(ctx); !errors.Is(err, errBoom) || strings.Contains(err.Error(), "step timeout") {
			t.Errorf("the run's context had ended before: %v", err)
		}
	})
}

func TestEveryKeepsTheBackwardHalf(t *testing.T) {
	var order []string
	onion := func(ctx context.Context, _ *state, next task.Next) error {
		order = append(order, "forward")
		err := next(ctx)
		order = append(order, "backward")
		return err
	}
	err := run(t, 2, middleware.Every(2, onion), step(func(context.Context) error { order = append(order, "step"); return nil }))
	if got := strings.Join(order, " "); err != nil || got != "step forward step backward" {
		t.Errorf("%v, %s", err, got)
	}
}

func TestLogOfAFailureHasTheTimeOfItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		n := 0
		err := run(t, 3, middleware.Log[state](slog.New(slog.NewTextHandler(&buf, nil)), slog.LevelInfo, 1), step(func(context.Context) error {
			if n++; n == 1 {
				return nil // in no time at all
			}
			sleep(time.Second)
			if n == 3 {
				return errBoom
			}
			return nil
		}))
		s := buf.String()
		for _, want := range []string{"step=1 took=0s steps_per_second=0", "step=2 took=1s steps_per_second=1", "step=3 took=1s err=boom"} {
			if !errors.Is(err, errBoom) || !strings.Contains(s, want) {
				t.Errorf("%v; want %q in\n%s", err, want, s)
			}
		}
		buf.Reset()
		n = 1
		_ = run(t, 3, middleware.Log[state](slog.New(slog.NewTextHandler(&buf, nil)), slog.LevelInfo, 10), step(func(context.Context) error {
			sleep(time.Second)
			if n++; n == 3 {
				return errBoom
			}
			return nil
		}))
		if s := buf.String(); !strings.Contains(s, "step=2 took=1s err=boom") {
			t.Errorf("log\n%s", s)
		}
	})
}

func TestRetryOfOneTryIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := step(func(context.Context) error { return errBoom })
		if err := run(t, 1, middleware.Retry(middleware.Backoff{Tries: 1}, bad)); !errors.Is(err, errBoom) || strings.Contains(err.Error(),
			"tried") {
			t.Errorf("error %v", err)
		}
		begin := time.Now()
		err := run(t, 1, middleware.Retry(middleware.Backoff{Tries: 3, First: time.Minute}, bad))
		if took := time.Since(begin); !errors.Is(err, errBoom) || took != 2*time.Minute {
			t.Errorf("a first wait beyond the default bound: %v after %v", err, took)
		}
	})
}

func TestStepTimerOfUnevenCalls(t *testing.T) {
	if m := (middleware.Timing{}).Mean(); m != 0 {
		t.Errorf("mean of no call: %v", m)
	}
	synctest.Test(t, func(t *testing.T) {
		timer := middleware.NewStepTimer[state]()
		tk := task.New[state](task.Alone())
		tk.Wrap(timer.Wrap)
		tk.Use(task.Name("twice", func(ctx context.Context, _ *state, next task.Next) error { return errors.Join(next(ctx), next(ctx)) }),
			task.Name("uneven", step(func(context.Context) error {
				if s := timer.Stats(); s[0].Calls != tk.Steps() {
					t.Errorf("during step %d: %v", tk.Steps()+1, s[0])
				}
				sleep(time.Duration(3-tk.Steps()) * time.Second)
				return nil
			})))
		if err := tk.Run(t.Context(), task.MaxSteps(2)); err != nil {
			t.Fatal(err)
		}
		s := timer.Stats()
		if s[0].Total != 0 || s[1].Calls != 4 || s[1].Max != 3*time.Second || s[1].Last != 2*time.Second || s[1].Mean() != 2500*time.Millisecond {
			t.Errorf("%v", s)
		}
	})
}
