package routertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
)

// RunOutage checks how routers behave when the server between them is gone and does not
// return. stop ends or suspends the server. Every router reports the loss of every
// other one, a blocked emitter returns the loss as its error, and Close returns.
// A call that does not return in time is cut off by the test's context.
func RunOutage(t *testing.T, s Setup, stop func()) {
	t.Helper()
	const n, peerTimeout = 8, 4 * time.Second
	l := s.lab(t, n, func(c *router.Config) { c.PeerTimeout = peerTimeout })
	flowing := make(chan struct{}, n*n) // one for each pair
	lost := make([]chan int, n)
	channels := make([]*router.Channel, n)
	for i, node := range l.nodes {
		var received [n]sync.Once
		ch, err := node.Channel(router.Spec{Name: "flow"}, func(m *router.Message) error {
			received[m.From].Do(func() { flowing <- struct{}{} })
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		channels[i], lost[i] = ch, make(chan int, n)
		node.Watch(func(c router.Change) {
			if c.Kind == router.Lost {
				lost[i] <- c.Peer.ID
			}
		})
	}
	l.start()
	for _, ch := range channels {
		if got, err := ch.Send(l.ctx, router.Bytes(make([]byte, 1)), nil); got != n-1 || err != nil {
			t.Fatalf("sent to %d peers, %v", got, err)
		}
	}
	for range n * (n - 1) {
		await(l.ctx, t, flowing, "the first messages")
	}
	stop()
	// Only from here on, because on a busy machine so much data can delay heartbeats for long.
	emitted := make(chan error, n)
	for i := range l.nodes {
		go func() { emitted <- emitUntilLost(l.ctx, channels[i]) }()
	}
	ctx, cancel := context.WithTimeout(l.ctx, 30*time.Second)
	defer cancel()
	for i := range l.nodes {
		for range n - 1 {
			await(ctx, t, lost[i], fmt.Sprintf("the losses that node.%d reports", i))
		}
	}
	for range n {
		if err := await(ctx, t, emitted, "the end of the emits"); err != nil {
			t.Error(err)
		}
	}
	for i, node := range l.nodes {
		closed := make(chan struct{})
		go func() { _ = node.Close(); close(closed) }()
		await(ctx, t, closed, fmt.Sprintf("the end of node.%d", i))
	}
}

// emitUntilLost emits until the loss of a peer ends that.
func emitUntilLost(ctx context.Context, ch *router.Channel) error {
	payload := router.Bytes(make([]byte, 100<<10))
	for {
		n, err := ch.Send(ctx, payload, nil)
		if _, ok := errors.AsType[*router.PeerError](err); ok || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("an emit ends with %w, want the loss of a peer", err)
		}
	}
}

// await receives from ch while the test has time.
func await[T any](ctx context.Context, t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-ctx.Done():
		t.Fatalf("%s: %v", what, context.Cause(ctx))
		panic("unreachable")
	}
}
