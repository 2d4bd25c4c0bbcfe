package router

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Done announces to the peers that this node has done its part of the job, and returns when every
// expected node has announced the same or has left. Until then this node continues to receive and may
// send. Done waits for a node that is lost: its next incarnation has to announce it again. A Barrier
// that a done node has not entered fails at once on the other nodes. After 10 s, and then at growing
// intervals, the log names the nodes that are not done. When ctx ends first, the error names them.
//
// A node of a version without this call cannot announce that it is done. It ends the wait by leaving.
func (r *Router) Done(ctx context.Context) error {
	if !r.started.Load() {
		return ErrNotStarted
	}
	r.note(func() {
		if !r.done {
			r.done = true
			for _, s := range r.peers {
				s.sendDone()
			}
		}
	})
	defer r.meanwhile(func(waited time.Duration) {
		r.mu.Lock()
		names := r.undone()
		r.mu.Unlock()
		r.log.Info("this node is done and waits for the others", "missing", strings.Join(names, ", "), "waited", waited)
	})()
	var names []string
	err := r.await(ctx, func() (bool, error) {
		names = r.undone()
		return len(names) == 0, nil
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("done, but not %s: %w", strings.Join(names, ", "), err)
	}
	return err
}

// sendDone announces to the peer that this node is done, if it understands that.
func (s *session) sendDone() {
	if s.knowsDone {
		s.control(frameDone, 0, 0, nil)
	}
}

// meanwhile calls log after logAfter, and each time after twice as long, until the
// function that it returns is called.
func (r *Router) meanwhile(log func(waited time.Duration)) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		waited := logAfter
		t := time.NewTimer(waited)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				log(waited)
				t.Reset(waited)
				waited *= 2
			case <-quit:
				return
			}
		}
	}()
	return func() { close(quit); <-ended }
}
