package task

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
)

// Serial makes one middleware of several: their forwards in order, the rest of
// the step, their backwards in reverse. A wrapper sees it as one.
func Serial[C any](m ...Middleware[C]) Middleware[C] {
	links := newLinks(m)
	name := groupName("task.Serial", links)
	frames := sync.Pool{New: func() any { return newFrame(links) }}
	return func(ctx context.Context, c *C, next Next) (err error) {
		if p, ok := ctx.(*probe); ok {
			p.name = name
			return nil
		}
		f := frames.Get().(*frame[C])
		f.c, f.rest, f.origin = c, next, -1
		defer catch(ctx, func() string { return f.links[f.at].name }, &err, nil, nil)
		err = f.named(f.run(ctx, 0))
		frames.Put(f)
		return err
	}
}

// Parallel makes one middleware of several that run concurrently. It joins them
// twice: the rest of the step begins when all forwards have ended, and the
// middleware before it continue when all backwards have. Each member's next returns
// what the rest returned; the rest runs under the context that Parallel was given.
// An error of one cancels the context of the others, with that error as the
// cause, and every error that is not such a cancellation is reported. Members
// share c: what they write must not overlap.
func Parallel[C any](m ...Middleware[C]) Middleware[C] {
	links := newLinks(m)
	name := groupName("task.Parallel", links)
	return func(ctx context.Context, c *C, next Next) error {
		if p, ok := ctx.(*probe); ok {
			p.name = name
			return nil
		}
		return fanOut(ctx, c, links, next, false)
	}
}

func groupName[C any](kind string, links []link[C]) string {
	names := make([]string, len(links))
	for i := range links {
		names[i] = links[i].name
	}
	return kind + "(" + strings.Join(names, ", ") + ")"
}

// member is one middleware of a fan: a goroutine between two joins.
type member struct {
	arrived chan struct{} // closed when its forward half has ended
	turn    chan struct{} // closed when its backward half may begin
	done    chan struct{} // closed when it has returned
	once    sync.Once     // closes arrived
	waiting bool          // it has a backward half; written before arrived is closed
	rest    error         // the result of its next; written before turn is closed
	err     error         // its result; written before done is closed
}

func (m *member) arrive() { m.once.Do(func() { close(m.arrived) }) }

// fan runs middleware concurrently. The function that makes one waits for all of
// its goroutines.
type fan struct {
	members []*member
	cancel  context.CancelCauseFunc

	mu    sync.Mutex
	first error // the failure that cancelled the others
}

// fanOut runs the forwards concurrently, then the rest, then the backwards:
// together, or if sequential is set one after the other in reverse.
func fanOut[C any](ctx context.Context, c *C, links []link[C], rest Next, sequential bool) error {
	fctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &fan{cancel: cancel}
	defer f.release()
	// Locks are queued for here, in order, before a member can be first by chance.
	ctxs := make([]context.Context, len(links))
	for i := range links {
		ctxs[i] = fctx //nolint:fatcontext // one for each member, none within another
		if l := links[i].lock; l != nil {
			ctxs[i] = withPlace(fctx, l)
		}
	}
	for i := range links {
		m := &member{arrived: make(chan struct{}), turn: make(chan struct{}), done: make(chan struct{})}
		f.members = append(f.members, m)
		go runMember(ctxs[i], f, m, &links[i], c)
	}
	err := f.forward()
	if err == nil {
		err = rest(ctx)
	}
	if sequential {
		return f.backwardInTurn(err)
	}
	return f.backward(err)
}

func runMember[C any](ctx context.Context, f *fan, m *member, l *link[C], c *C) {
	defer close(m.done)
	defer m.arrive()
	defer leavePlace(ctx, l.lock)
	defer func() { f.note(m.err) }()
	m.err = errExited(l.name) // stays if it is so
	m.err = func() (err error) {
		defer catch(ctx, func() string { return l.name }, &err, nil, nil)
		return l.m(ctx, c, func(context.Context) error {
			m.once.Do(func() { m.waiting = true; close(m.arrived) })
			<-m.turn // closed when the fan returns at the latest
			return m.rest
		})
	}()
	passedOn := m.waiting && carries(m.err, m.rest)
	if m.err != nil && !passedOn {
		m.err = withName(l.name, m.err)
	}
}

// note keeps the first error and cancels the other members with it.
func (f *fan) note(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	if f.first == nil {
		f.first = err
	}
	f.mu.Unlock()
	f.cancel(err)
}

// forward waits for all forwards and joins the errors of those that failed.
func (f *fan) forward() error {
	var errs []error
	for _, m := range f.members {
		<-m.arrived
		if !m.waiting {
			<-m.done
			errs = append(errs, m.err)
		}
	}
	return f.join(nil, errs)
}

// backward lets all members continue with the result of the rest.
func (f *fan) backward(rest error) error {
	var errs []error
	for _, m := range f.members {
		m.rest = rest
		close(m.turn)
	}
	for _, m := range f.members {
		<-m.done
		errs = append(errs, m.err)
	}
	return f.join(rest, errs)
}

// backwardInTurn lets the members continue from the last to the first, each with the result of the one
// after it.
func (f *fan) backwardInTurn(rest error) error {
	for _, m := range slices.Backward(f.members) {
		m.rest = rest
		close(m.turn)
		<-m.done
		if m.waiting {
			rest = m.err
		}
	}
	return rest
}

// release ends every member when the rest of the step panicked.
func (f *fan) release() {
	for _, m := range f.members {
		select {
		case <-m.turn:
		default:
			m.rest = errors.New("the rest of the step panicked")
			close(m.turn)
		}
		<-m.done
	}
}

// join joins rest and the members' errors, without those that only repeat rest
// or the cancellation by the first failure.
func (f *fan) join(rest error, errs []error) error {
	f.mu.Lock()
	first := f.first
	f.mu.Unlock()
	var out []error
	if rest != nil {
		out = append(out, rest)
	}
	for _, err := range errs {
		switch {
		case err == nil:
		case carries(err, rest) || errors.Is(rest, err):
		case err != first && (carries(err, first) || errors.Is(err, context.Canceled)): //nolint:errorlint // first is reported
		default:
			out = append(out, err)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return errors.Join(out...)
}
