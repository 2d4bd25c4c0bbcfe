package envs

import (
	"errors"
	"fmt"
	"time"
)

// Watchdog returns env with a limit on the time of each call. A Reset or Step
// that takes longer returns an [ErrHung]; so does every later call, because the
// environment is still busy with the first. A call that hangs cannot be stopped:
// its goroutine stays until the call returns, if ever. A panic becomes an [*Error].
//
// Each call runs in its own goroutine, which costs about a microsecond.
func Watchdog[A Action](env Env[A], limit time.Duration) Env[A] {
	if limit <= 0 {
		panic(fmt.Sprintf("envs: watchdog of %v", limit))
	}
	return &watchdog[A]{Env: env, limit: limit}
}

type watchdog[A Action] struct {
	Env[A]
	limit time.Duration
	hung  error
}

// Unwrap returns the environment inside.
func (w *watchdog[A]) Unwrap() Env[A] { return w.Env }

// call runs fn until it returns or takes too long.
func (w *watchdog[A]) call(op string, fn func() error) error {
	if w.hung != nil {
		return w.hung
	}
	done := make(chan error, 1) // room for a call that comes too late
	go func() {
		var err error
		defer func() {
			if p := recover(); p != nil {
				err = panicError(w.Name(), 0, op, p)
			}
			done <- err
		}()
		err = fn()
	}()
	timer := time.NewTimer(w.limit)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		w.hung = fmt.Errorf("%w: %s of %s for more than %v", ErrHung, op, w.Name(), w.limit)
		return w.hung
	}
}

func (w *watchdog[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	var r struct {
		obs  []float32
		info Info
	}
	err := w.call("reset", func() (err error) {
		r.obs, r.info, err = w.Env.Reset(seed...)
		return err
	})
	if err != nil {
		return nil, Info{}, err // r may still be written to
	}
	return r.obs, r.info, nil
}

func (w *watchdog[A]) Step(action A) (Step, error) {
	var s Step
	err := w.call("step", func() (err error) {
		s, err = w.Env.Step(action)
		return err
	})
	if err != nil {
		return Step{}, err
	}
	return s, nil
}

func (w *watchdog[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	s, err := snapshotOf(w.Env)
	if err != nil || w.hung != nil {
		return nil, errors.Join(err, w.hung)
	}
	return s.AppendSnapshot(dst)
}

func (w *watchdog[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	s, err := snapshotOf(w.Env)
	if err != nil || w.hung != nil {
		return nil, errors.Join(err, w.hung)
	}
	return s.RestoreSnapshot(src)
}
