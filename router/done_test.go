package router

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// Done waits for the members that are not done and have not left.
func TestNodesThatAreNotDone(t *testing.T) {
	for name, c := range map[string]struct {
		peer *session
		was  former
		want bool
	}{
		"connected":         {&session{}, former{}, true},
		"done":              {&session{member: member{done: true}}, former{}, false},
		"leaves":            {&session{member: member{withdrawn: true}}, former{}, false},
		"back":              {&session{}, former{withdrawn: true, err: errWentAway}, true},
		"never met":         {nil, former{}, true},
		"lost":              {nil, former{err: ErrLost}, true},
		"left":              {nil, former{err: errWentAway}, false},
		"lost as it leaves": {nil, former{withdrawn: true, err: ErrLost}, false},
	} {
		r := openRouter(t, Config{Expect: 2})
		if r.was[1] = c.was; c.peer != nil {
			r.peers[1] = c.peer
		}
		if got := r.undone(); slices.Equal(got, []string{"node.1"}) != c.want || !c.want && len(got) != 0 {
			t.Errorf("%s: %v", name, got)
		}
		clear(r.peers)
	}
}

// A node announces once that it is done, and that it leaves, to the peers that understand it; the log
// of a long wait and the error name the others.
func TestAnnouncementsOfANodeAtItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		r := openRouter(t, Config{})
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		if err := r.Done(t.Context()); !errors.Is(err, ErrNotStarted) {
			t.Error(err)
		}
		if err := r.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		ch := event(t, r, Spec{Name: "e"})
		if _, err := ch.Send(t.Context(), Bytes("x"), nil); !errors.Is(err, ErrNotStarted) {
			t.Error(err)
		}
		r.started.Store(true)
		for id, features := range [][]string{{}, {featureDone, featureLeave}, {featureDone, featureLeave}} {
			s, err := r.admit(hello{Node: id, Incarnation: 1, Features: features})
			if err != nil {
				t.Fatal(err)
			}
			s.ready = true
		}
		before := r.peers[1].log.sent
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 45*time.Second)
			err := r.Done(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "done, but not node.0, node.1, node.2: ") {
				t.Error(err)
			}
			err = r.Leave(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "leave: node.1, node.2 may still send: ") {
				t.Error(err)
			}
			cancel()
		}
		if a, b := r.peers[0].log.sent, r.peers[1].log.sent; a != before || b != before+2 {
			t.Errorf("%d and %d frames, %d before", a, b, before)
		}
		for _, waited := range []string{"10s", "20s", "40s"} {
			if n := strings.Count(log.String(), `missing="node.0, node.1, node.2" waited=`+waited); n != 2 {
				t.Errorf("%s is logged %d times:\n%s", waited, n, log.String())
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 6 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
		ended := make(chan error, 1) // one result
		go func() { ended <- r.Done(t.Context()) }()
		synctest.Wait()
		r.mu.Lock()
		r.closed = true
		r.mu.Unlock()
		r.changed.broadcast()
		if err := <-ended; err == nil || err.Error() != ErrClosed.Error() {
			t.Error(err)
		}
		r.closed = false
	})
}
