package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

// PeerTimeout also holds while a node drains: frames to be acknowledged then are acknowledged when the
// connection is back.
func TestR5PeerTimeoutHoldsWhileDraining(t *testing.T) {
	for _, tt := range []struct {
		timeout, away time.Duration
		lost          bool
	}{{0, 7 * time.Second, false}, {0, 10 * time.Second, true}, {time.Minute, 50 * time.Second, false}} {
		synctest.Test(t, func(t *testing.T) {
			wire := routertest.NewWire(memory.New())
			nodes, out := two(t, wire, func(c *router.Config) { c.PeerTimeout = tt.timeout })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			wire.Cut()
			if _, err := out[0].Send(ctx, router.Bytes("x"), nil); err != nil {
				t.Error(err)
			}
			time.AfterFunc(tt.away, wire.Heal)
			if err := both(func(id int) error { return nodes[id].Drain(ctx, true) }); err != nil {
				t.Error(err)
			}
			if lost := nodes[0].Losses(); (lost != nil) != tt.lost {
				t.Errorf("out of reach for %v, with a timeout of %v: %v", tt.away, tt.timeout, lost)
			}
			_, _ = nodes[0].Close(), nodes[1].Close()
		})
	}
}

// A peer that falls silent is lost after PeerTimeout and half a Heartbeat at most.
func TestR5BoundOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		lost := make(chan time.Time, 2) // two peers
		for _, r := range j.nodes[:2] {
			r.Watch(func(c router.Change) {
				if c.Kind == router.Lost {
					lost <- time.Now()
				}
			})
		}
		j.start()
		<-time.After(30 * time.Second)
		for _, to := range []int{0, 1} { // as if node.2 were stopped
			defer j.gates.hold(2, to)()
			defer j.gates.hold(to, 2)()
		}
		began := time.Now()
		for range 2 {
			if after := (<-lost).Sub(began); after > 9*time.Second || after < 6*time.Second { // 8 s of silence, since a heartbeat
				t.Errorf("lost after %v", after)
			}
		}
	})
}

// An unreachable peer is lost after PeerTimeout, for any value of it, and not before.
func TestR5PeerTimeoutIsHowLongAPeerIsAwaited(t *testing.T) {
	for _, tt := range []struct {
		timeout, away time.Duration
		lost          int32
	}{
		{0, 7 * time.Second, 0}, {0, 10 * time.Second, 2},
		{time.Second, 600 * time.Millisecond, 0}, {time.Second, 2 * time.Second, 2},
		{time.Minute, 55 * time.Second, 0}, {time.Minute, 70 * time.Second, 2},
	} {
		t.Run(fmt.Sprint(tt.timeout, " away for ", tt.away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := routertest.NewWire(memory.New())
				var lost atomic.Int32
				var log logtest.Buffer
				nodes := make([]*router.Router, 2)
				for id := range nodes {
					cfg := router.Config{
						Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Transport: wire, Listen: fmt.Sprint("mem://", id),
						PeerTimeout: tt.timeout, Logger: slog.New(slog.NewTextHandler(&log, nil)),
					}
					if id == 1 {
						cfg.Attach = []string{"mem://0"}
					}
					r, err := router.New(cfg)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = r.Close() }()
					r.Watch(func(c router.Change) {
						if c.Kind == router.Lost {
							lost.Add(1)
						}
					})
					nodes[id] = r
				}
				started := make(chan error, len(nodes))
				for _, r := range nodes {
					go func() { started <- r.Start(t.Context(), nil) }()
				}
				for range nodes {
					if err := <-started; err != nil {
						t.Fatal(err)
					}
				}
				wire.Cut()
				<-time.After(tt.away)
				if n := lost.Load(); n != tt.lost {
					t.Errorf("%d of 2 have lost the other, want %d", n, tt.lost)
				}
				<-time.After(time.Minute)
				if n := strings.Count(log.String(), "still without a node that was lost"); tt.lost > 0 && (n < 4 || n > 8) {
					t.Errorf("logged %d times that a node is away:\n%s", n, log.String())
				}
				wire.Heal()
			})
		})
	}
}
