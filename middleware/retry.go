package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

// Backoff determines how often something is tried, and how long to wait in between.
type Backoff struct {
	// Tries is how often it is tried in all. Zero means 3.
	Tries int
	// First is the wait after the first failure; each further wait is twice as
	// long. Zero means 100 ms.
	First time.Duration
	// Most bounds the wait. Zero means 10 s, or First if that is more.
	Most time.Duration
	// If reports whether an error is worth another try. Nil means every error is. A
	// context that has ended is never tried again.
	If func(error) bool
}

func (b Backoff) withDefaults() Backoff {
	if b.Tries == 0 {
		b.Tries = 3
	}
	if b.First == 0 {
		b.First = 100 * time.Millisecond
	}
	if b.Most == 0 {
		b.Most = max(10*time.Second, b.First)
	}
	return b
}

func (b Backoff) validate() error {
	var errs []error
	if b.Tries < 0 {
		errs = append(errs, fmt.Errorf("tries %d is negative", b.Tries))
	}
	if b.First < 0 || b.Most < b.First {
		errs = append(errs, fmt.Errorf("waits from %v to %v", b.First, b.Most))
	}
	return errors.Join(errs...)
}

// Retry runs m, and runs it again if it fails, after a wait that grows. It covers
// m's forward half: once m has called next, its error is that of the whole step
// and is returned as it is. The error after the last try joins those of all
// tries. Retry does not undo what a failed try did to the context. A bad Backoff
// panics.
func Retry[C any](b Backoff, m task.Middleware[C]) task.Middleware[C] {
	b = b.withDefaults()
	if err := b.validate(); err != nil {
		panic("middleware: Retry: " + err.Error())
	}
	if m == nil {
		panic("middleware: Retry without a middleware")
	}
	return func(ctx context.Context, c *C, next task.Next) error {
		var errs []error
		for wait := b.First; ; wait = min(2*wait, b.Most) {
			through := false
			err := m(ctx, c, func(ctx context.Context) error {
				through = true
				return next(ctx)
			})
			if err == nil || through {
				return err
			}
			errs = append(errs, err)
			if len(errs) == b.Tries || b.If != nil && !b.If(err) || !pause(ctx, wait) {
				return tried(errs)
			}
		}
	}
}

// tried reports how often something was tried, if more than once.
func tried(errs []error) error {
	if len(errs) == 1 {
		return errs[0]
	}
	return fmt.Errorf("tried %d times: %w", len(errs), errors.Join(errs...))
}

// pause waits for d, or until ctx ends, and reports whether ctx continues.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func panicError(err error) (*task.PanicError, bool) { return errors.AsType[*task.PanicError](err) }
