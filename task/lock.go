package task

import (
	"context"
	"slices"
	"sync"
)

// Lock keeps middleware from overlapping in a task that runs them concurrently;
// see [Locked]. The zero value is an open lock.
type Lock struct {
	mu    sync.Mutex
	queue []*place
}

// place is a place in a lock's queue; its turn has come when ready is closed.
type place struct {
	ready chan struct{}
}

// Locked puts m under l: of all middleware under one lock, at most one is in its
// forward or backward half at any time. In a task made with [Async], and in
// [Parallel], those that were added directly run their forwards in the order in
// which they were added; within nested groups it is the order of arrival.
func Locked[C any](l *Lock, m Middleware[C]) Middleware[C] {
	if l == nil || m == nil {
		panic("task: Locked needs a lock and a middleware")
	}
	name, _ := describe(m)
	return func(ctx context.Context, c *C, next Next) error {
		if p, ok := ctx.(*probe); ok {
			p.name, p.lock = name, l
			return nil
		}
		pl, _ := ctx.Value(placeKey{l}).(*place)
		if pl == nil {
			pl = l.enqueue()
		}
		if err := l.wait(ctx, pl); err != nil {
			return err
		}
		defer func() { l.leave(pl) }()
		return m(ctx, c, func(ctx context.Context) error {
			l.leave(pl)
			err := next(ctx)
			pl = l.enqueue()
			<-pl.ready // the backward half runs even if ctx has ended
			return err
		})
	}
}

func (l *Lock) enqueue() *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &place{ready: make(chan struct{})}
	l.queue = append(l.queue, p)
	if len(l.queue) == 1 {
		close(p.ready)
	}
	return p
}

func (l *Lock) wait(ctx context.Context, p *place) error {
	select {
	case <-p.ready:
		return nil
	case <-ctx.Done():
		l.leave(p)
		return context.Cause(ctx)
	}
}

// leave gives up a place, in turn or not. Leaving twice does nothing.
func (l *Lock) leave(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.queue, p)
	if i < 0 {
		return
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	if i == 0 && len(l.queue) > 0 {
		close(l.queue[0].ready)
	}
}

// placeKey finds the place that a fan has taken for a member.
type placeKey struct{ lock *Lock }

func withPlace(ctx context.Context, l *Lock) context.Context {
	return context.WithValue(ctx, placeKey{l}, l.enqueue())
}

// leavePlace gives up the place that withPlace took, if it did and the member did not.
func leavePlace(ctx context.Context, l *Lock) {
	if p, ok := ctx.Value(placeKey{l}).(*place); ok {
		l.leave(p)
	}
}
