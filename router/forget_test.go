package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The end of an older incarnation does not overwrite the state of a newer one.
func TestForgetKeepsANewerIncarnation(t *testing.T) {
	left := fmt.Errorf("%w: the node has ended", errLeft)
	r := openRouter(t, Config{})
	r.was[1] = former{incarnation: 5, ready: true, err: left}
	want := r.was[1]
	for _, incarnation := range []uint64{4, 5} {
		if s := r.forget(report{Farewell: Farewell{Node: 1, Incarnation: incarnation}}, ErrLost); s != nil || !reflect.DeepEqual(r.was[1], want) {
			t.Errorf("incarnation %d: %+v", incarnation, r.was[1])
		}
	}
	if r.forget(report{Farewell: Farewell{Node: 1, Incarnation: 6}}, ErrLost); r.was[1].incarnation != 6 || !errors.Is(r.was[1].err, ErrLost) {
		t.Errorf("a newer one: %+v", r.was[1])
	}
}

// unmetTransport makes no connections.
type unmetTransport struct{ Transport }

// A barrier that waits for a node that never connected ends when that node is gone.
func TestR6ABarrierEndsWithANodeThatWasNeverMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Job: "j", Expect: 2, Transport: unmetTransport{}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		failed := make(chan error, 1)
		go func() { failed <- r.Barrier(ctx, "b") }()
		synctest.Wait()
		r.Gone(Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "exit code 3") {
			t.Error(err)
		}
		_ = r.Close()
		r.Gone(Farewell{Node: 2, Incarnation: 5, Reason: "after Close"})
		synctest.Wait()
		if was, ok := r.was[2]; ok {
			t.Errorf("after Close: %+v", was)
		}
	})
}

// A peer that leaves keeps its connection until it has left: otherwise Gone would report it as
// lost meanwhile.
func TestALeaveKeepsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Config{Job: "j", Transport: unmetTransport{}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.Close() }()
		s := newSession(r, Peer{ID: 1}, nil)
		r.peers[1] = s
		ours, theirs := net.Pipe()
		l, err := s.attach(ours, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		if _, err := theirs.Write(appendFrame(nil, frameBye, 0, 0, []byte("the node has ended"))); err != nil {
			t.Fatal(err)
		}
		<-l.ended
		if s.current() != l || !errors.Is(r.was[1].err, errLeft) {
			t.Errorf("connection %v, want %v; %+v", s.current(), l, r.was[1])
		}
	})
}
