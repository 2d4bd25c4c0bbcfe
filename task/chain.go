package task

import (
	"context"
	"fmt"
	"runtime/debug"
)

// Next runs the rest of a step: the middleware that follow, forward and back.
type Next func(context.Context) error

// Middleware is code around the rest of a step. The code before its call of next is its forward half,
// the code after it its backward half; all forwards of a step come before the first backward. A
// middleware that returns nil without having called next is a plain step: the engine then continues
// with the rest. An error ends the step and, unless one before it takes it, the run. A second call of
// next runs the rest once more. next must be called by the goroutine that called the middleware, and c
// is valid during the call only.
type Middleware[C any] func(ctx context.Context, c *C, next Next) error

// Wrapper puts code around every middleware of a task, under its name; see
// [Task.Wrap].
type Wrapper[C any] func(name string, m Middleware[C]) Middleware[C]

// Step makes a middleware of a function that has no backward half.
func Step[C any](fn func(ctx context.Context, c *C) error) Middleware[C] {
	if fn == nil {
		panic("task: Step of a nil function")
	}
	return func(ctx context.Context, c *C, _ Next) error {
		if p, ok := ctx.(*probe); ok {
			p.name = funcName(fn)
			return nil
		}
		return fn(ctx, c)
	}
}

// Name gives m a name for errors, for a [PanicError] and for wrappers, such as those
// that measure or trace. Without it a middleware has the name of the function that made
// it, such as "rl.Collect", which is "main.play" for all that were written in one
// function. A name that is empty panics.
func Name[C any](name string, m Middleware[C]) Middleware[C] {
	if name == "" || m == nil {
		panic("task: Name needs a name and a middleware")
	}
	_, lock := describe(m)
	return func(ctx context.Context, c *C, next Next) error {
		if p, ok := ctx.(*probe); ok {
			p.name, p.lock = name, lock
			return nil
		}
		return m(ctx, c, next)
	}
}

// link is one middleware in a frame.
type link[C any] struct {
	m      Middleware[C]
	name   string
	lock   *Lock
	next   Next
	called bool // next was called in the present step
}

func newLinks[C any](ms []Middleware[C]) []link[C] {
	links := make([]link[C], len(ms))
	for i, m := range ms {
		if m == nil {
			panic("task: nil middleware")
		}
		name, lock := describe(m)
		links[i] = link[C]{m: m, name: name, lock: lock}
	}
	return links
}

// frame is a chain built once: one goroutine at a time runs it, any number of
// times, without an allocation.
type frame[C any] struct {
	links  []link[C]
	c      *C
	rest   Next // the rest of the step, after the last
	at     int  // the middleware that runs now, for the name in an error
	origin int  // index of the middleware that the newest error came from; -1: none in this run

	err error // the error of that middleware; of an earlier run if origin is -1
}

func newFrame[C any](links []link[C]) *frame[C] {
	f := &frame[C]{links: append([]link[C](nil), links...), origin: -1}
	for i := range f.links {
		l := &f.links[i]
		l.next = func(ctx context.Context) error {
			l.called = true
			err := f.run(ctx, i+1)
			f.at = i
			return err
		}
	}
	return f
}

// run runs the middleware from the i-th on, then the rest.
func (f *frame[C]) run(ctx context.Context, i int) error {
	for ; i < len(f.links); i++ {
		l := &f.links[i]
		l.called = false
		f.at = i
		err := l.m(ctx, f.c, l.next)
		if err != nil {
			f.failed(i, err)
			return err
		}
		if l.called {
			return nil
		}
	}
	err := f.rest(ctx)
	if err != nil {
		f.failed(len(f.links), err)
	}
	return err
}

// failed notes that the i-th middleware has returned err. If it only passes on the error
// of a later one, that stays the origin.
func (f *frame[C]) failed(i int, err error) {
	if f.origin < i || !carries(err, f.err) {
		f.origin, f.err = i, err
	}
}

// named puts the name of the middleware that err came from before it, unless it
// came from what follows the frame or has the name already.
func (f *frame[C]) named(err error) error {
	if err == nil || f.origin == len(f.links) {
		return err
	}
	return withName(f.links[f.origin].name, err)
}

func withName(name string, err error) error {
	if _, ok := err.(*PanicError); ok { //nolint:errorlint // only as it comes from recovering: a wrapped one has its name
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// errExited means that something, such as t.FailNow of a test, has ended the goroutine
// of what has this name.
func errExited(name string) error {
	return fmt.Errorf("%s ended its goroutine (runtime.Goexit): return an error instead", name)
}

// catch turns a panic into a *PanicError: defer it with the name of what runs. If
// neither a panic nor a return ends that, it is runtime.Goexit: then no error can be
// returned, and exited, if it is not nil, is called with it instead.
func catch(ctx context.Context, name func() string, err *error, returned *bool, exited func(error)) {
	v := recover()
	if v == nil {
		if exited != nil && !*returned {
			exited(errExited(name()))
		}
		return
	}
	if pe, ok := v.(*PanicError); ok {
		*err = pe // a panic of a group's goroutine that continued in its caller
		return
	}
	pe := &PanicError{Name: name(), Value: v, Stack: debug.Stack()}
	if e := engineOf(ctx); e != nil {
		pe.Node, pe.Roles = e.id, e.roles
	}
	*err = pe
}
