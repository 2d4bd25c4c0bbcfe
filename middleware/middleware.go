package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/ditask/ditask/task"
)

// Recover turns a panic of the rest of the step into an error and hands it to handle, with the stack.
// The result of handle is the step's error: nil continues with the next step. Without it a panic ends
// the run with a *task.PanicError. A panic in a group is a *task.PanicError already, and is handed
// over too.
func Recover[C any](handle func(value any, stack []byte) error) task.Middleware[C] {
	if handle == nil {
		panic("middleware: Recover without a handler")
	}
	return func(ctx context.Context, _ *C, next task.Next) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = handle(v, debug.Stack())
			}
		}()
		err = next(ctx)
		if pe, ok := panicError(err); ok {
			return handle(pe.Value, pe.Stack)
		}
		return err
	}
}

// Timeout ends the context of the rest of the step after d. A rest that then
// returns an error returns one that reports the timeout, and wraps context.DeadlineExceeded;
// one that does not look at its context is not stopped.
func Timeout[C any](d time.Duration) task.Middleware[C] {
	if d <= 0 {
		panic("middleware: Timeout must be positive")
	}
	cause := fmt.Errorf("step timeout of %v: %w", d, context.DeadlineExceeded)
	return func(ctx context.Context, _ *C, next task.Next) error {
		limited, cancel := context.WithTimeoutCause(ctx, d, cause)
		defer cancel()
		err := next(limited)
		if err != nil && ctx.Err() == nil && limited.Err() != nil {
			return fmt.Errorf("%w (%w)", err, cause)
		}
		return err
	}
}

// Every runs m in every n-th step, beginning with the n-th; in the others the
// step continues without it.
func Every[C any](n int, m task.Middleware[C]) task.Middleware[C] {
	if n < 1 || m == nil {
		panic("middleware: Every needs a positive number and a middleware")
	}
	step := 0
	return func(ctx context.Context, c *C, next task.Next) error {
		if step++; step < n {
			return nil
		}
		step = 0
		return m(ctx, c, next)
	}
}

// Log writes one line after every n-th step: the number of steps so far, how long
// the rest of the step took, and how many steps a second there were since the
// line before. A step that fails is logged whenever it is, at error level.
func Log[C any](log *slog.Logger, level slog.Level, n int) task.Middleware[C] {
	if log == nil || n < 1 {
		panic("middleware: Log needs a logger and a positive number")
	}
	steps, since := 0, time.Time{}
	return func(ctx context.Context, _ *C, next task.Next) error {
		begin := time.Now()
		if since.IsZero() {
			since = begin
		}
		err := next(ctx)
		now := time.Now()
		steps++
		switch {
		case err != nil:
			log.LogAttrs(ctx, slog.LevelError, "step failed", slog.Int("step", steps),
				slog.Duration("took", now.Sub(begin)), slog.Any("err", err))
		case steps%n == 0:
			log.LogAttrs(ctx, level, "step", slog.Int("step", steps),
				slog.Duration("took", now.Sub(begin)), slog.Float64("steps_per_second", rate(n, now.Sub(since))))
			since = now
		}
		return err
	}
}

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Barrierer is a node on which all nodes of a job can meet, as parallel.Node is.
type Barrierer interface {
	// Barrier returns when every node has called it with the same name, or with
	// an error that names the missing ones.
	Barrier(ctx context.Context, name string) error
}

// Barrier makes the step wait, at this point of its forward half, until every node of the job has
// reached it.
func Barrier[C any](b Barrierer, name string) task.Middleware[C] {
	if b == nil {
		panic("middleware: Barrier without a node")
	}
	return func(ctx context.Context, _ *C, _ task.Next) error {
		if err := b.Barrier(ctx, name); err != nil {
			return fmt.Errorf("barrier %q: %w", name, err)
		}
		return nil
	}
}
