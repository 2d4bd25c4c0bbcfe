package router_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

// two are a listening node.0 and a node.1 that calls it.
func two(t *testing.T, c router.Carrier, edit func(*router.Config)) (nodes [2]*router.Router, out [2]*router.Channel) {
	t.Helper()
	for id := range nodes {
		cfg := router.Config{Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Carrier: c, Logger: slog.New(slog.DiscardHandler)}
		if id == 0 {
			cfg.Listen = "mem://0"
		} else {
			cfg.Attach = []string{"mem://0"}
		}
		edit(&cfg)
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		nodes[id] = r
		out[id], err = r.Channel(router.Spec{Name: "n"}, func(*router.Message) error { return nil }) // nothing is consumed
		if err != nil {
			t.Fatal(err)
		}
		out[id].Listen(true)
	}
	if err := both(func(id int) error { return nodes[id].Start(t.Context(), nil) }); err != nil {
		t.Fatal(err)
	}
	return nodes, out
}

// TestR7GarbageFromAPeerEndsItsPart sends what the peer takes for garbage, which
// would come again on every connection.
func TestR7GarbageFromAPeerEndsItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, out := two(t, memory.New(), func(c *router.Config) {
			if c.Node == 1 {
				c.MaxMessageBytes = 1 << 20
			}
		})
		lost := make(chan router.Change, 1)
		nodes[1].Watch(func(c router.Change) {
			select {
			case lost <- c:
			default:
			}
		})
		if _, err := out[0].Send(t.Context(), make(router.Bytes, 2<<20), nil); err != nil {
			t.Error(err)
		}
		if c := <-lost; c.Kind != router.Lost || !strings.Contains(c.Err.Error(), "over the limit") {
			t.Errorf("change: %+v", c)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// TestR5EverySendToALostPeerIsAccountedFor fills a window, cuts and waits.
func TestR5EverySendToALostPeerIsAccountedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, out := two(t, wire, func(c *router.Config) { c.WindowMessages = 16 })
		sent := uint64(0)
		var err error
		for ; err == nil; sent++ {
			if sent == 5 {
				wire.Cut()
			}
			_, err = out[0].Send(t.Context(), router.Bytes("x"), nil)
		}
		var gone *router.PeerError
		if !errors.As(err, &gone) || gone.Node != 1 {
			t.Error(err)
		}
		if st := out[0].Stats(); st.Sent != sent || st.Consumed+st.Dropped+st.Lost+uint64(st.Queued) != sent-1 || st.Lost != 16 {
			t.Errorf("%d sent, the last in vain: %+v", sent, st)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// TestR5ANodeOutlivesOneThatItHasGivenUp cuts until both have given the other up:
// the one that calls is told so by its own memory, and does not end for it.
func TestR5ANodeOutlivesOneThatItHasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, _ := two(t, wire, func(*router.Config) {})
		var failed error
		nodes[1].Watch(func(c router.Change) {
			if c.Kind == router.Failed {
				failed = c.Err
			}
		})
		wire.Cut()
		<-time.After(20 * time.Second)
		wire.Heal()
		<-time.After(5 * time.Second)
		synctest.Wait()
		if failed != nil {
			t.Error(failed)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

func TestStartAfterCloseIsRefused(t *testing.T) {
	r, err := router.New(router.Config{Carrier: memory.New(), Listen: "mem://0", Expect: 1})
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if err := r.Start(t.Context(), nil); !errors.Is(err, router.ErrClosed) {
		t.Error(err)
	}
}

func TestNamesAndQueuesAreBounded(t *testing.T) {
	r, _, _ := victim(t, nil)
	if _, err := r.Channel(router.Spec{Name: "x", Delivery: router.DropOldest, Queue: -1}, nil); err == nil {
		t.Error("a queue of -1 messages")
	}
	if err := r.Barrier(context.Background(), strings.Repeat("x", 64<<10)); err == nil {
		t.Error("a barrier's name of 64 KiB")
	}
}
