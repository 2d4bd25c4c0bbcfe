package router_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

// two are a listening node.0 and a node.1 that calls it.
func two(t *testing.T, c router.Transport, edit func(*router.Config)) (nodes [2]*router.Router, out [2]*router.Channel) {
	t.Helper()
	for id := range nodes {
		cfg := router.Config{Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Transport: c, Logger: slog.New(slog.DiscardHandler)}
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

// TestR7GarbageFromAPeerEndsItsPart sends frames that the peer takes for garbage, and that would come
// again on every connection.
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
		st := routertest.Total(nodes[0], "n")
		if st.Sent != sent-1 || st.Delivered+st.Dropped()+st.Lost+uint64(st.Queued+st.InFlight) != sent-1 || st.Lost != 16 {
			t.Errorf("%d sent, the last without success: %+v", sent, st)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// TestR5HigherOfTwoNodesThatHaveLostEachOtherEnds breaks the connection for a long time, and
// restores it.
func TestR5HigherOfTwoNodesThatHaveLostEachOtherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, _ := two(t, wire, func(*router.Config) {})
		var failed [2]error
		for id, n := range nodes {
			n.Watch(func(c router.Change) {
				if c.Kind == router.Failed {
					failed[id] = c.Err
				}
			})
		}
		wire.Cut()
		<-time.After(20 * time.Second)
		wire.Heal()
		<-time.After(5 * time.Second)
		synctest.Wait()
		no, ok := errors.AsType[*router.RefusedError](failed[1])
		if failed[0] != nil || !ok || no.Code != router.RefuseLost {
			t.Errorf("failed: %v", failed)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// detour is a transport that can connect with an unauthenticated process instead.
type detour struct {
	router.Transport
	other atomic.Pointer[func(net.Conn)]
}

func (d *detour) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if s := d.other.Load(); s != nil {
		ours, theirs := net.Pipe()
		go (*s)(theirs)
		return ours, nil
	}
	return d.Transport.Dial(ctx, addr)
}

// TestR7UnauthenticatedAnswerAtAPeersAddressEndsNoNode breaks the connection and lets a node of
// another job answer for a while.
func TestR7UnauthenticatedAnswerAtAPeersAddressEndsNoNode(t *testing.T) {
	for _, code := range []string{router.RefuseJob, router.RefuseLost} {
		synctest.Test(t, func(t *testing.T) {
			wire := routertest.NewWire(memory.New())
			way := &detour{Transport: wire}
			var log logtest.Buffer
			nodes, out := two(t, way, func(c *router.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			nodes[1].Watch(func(c router.Change) {
				if c.Kind == router.Lost || c.Kind == router.Failed {
					t.Errorf("%+v", c)
				}
			})
			refuse := func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1<<10))
				b := fmt.Appendf(nil, `{"refuse":{"code":%q,"reason":"who are you?"}}`, code)
				_, _ = c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
				_ = c.Close()
			}
			way.other.Store(&refuse)
			wire.Cut()
			wire.Heal()
			<-time.After(5 * time.Second)
			way.other.Store(nil)
			if _, err := out[1].Send(t.Context(), router.Bytes("x"), nil); err != nil {
				t.Error(err)
			}
			if err := both(func(id int) error { return nodes[id].Drain(t.Context(), true) }); err != nil {
				t.Error(err)
			}
			_, _ = nodes[0].Close(), nodes[1].Close()
			if n := strings.Count(log.String(), "an unauthenticated process answers"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, log.String())
			}
		})
	}
}

// TestLostNodeIsNotifiedByTheNodesThatDialIt stops the higher node's receiving
// the lower one, which does not dial: it must not remain alone.
func TestLostNodeIsNotifiedByTheNodesThatDialIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, _ := two(t, wire, func(c *router.Config) {
			if c.Node == 0 { // as a node that was stopped for a while
				c.Heartbeat, c.LinkTimeout, c.PeerTimeout = 20*time.Second, time.Minute, time.Hour
			}
		})
		failed := make(chan error, 1)
		nodes[0].Watch(func(c router.Change) {
			if c.Kind == router.Failed {
				failed <- c.Err
			}
		})
		wire.Cut()
		<-time.After(9 * time.Second)
		wire.Heal()
		err := <-failed
		if no, ok := errors.AsType[*router.RefusedError](err); !ok || no.Code != router.RefuseLost ||
			!strings.Contains(err.Error(), "node.1 has given up node.0") {
			t.Error(err)
		}
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// TestLimitsThatDifferAreRefused: a sender would wait for room without end, because the receiver reports
// its consumption by quarters of its own window.
func TestLimitsThatDifferAreRefused(t *testing.T) {
	c := memory.New()
	var nodes [2]*router.Router
	for id := range nodes {
		cfg := router.Config{
			Job: "j", Node: id, Expect: 2, Transport: c, Listen: fmt.Sprint("mem://", id),
			WindowMessages: 100 + 1000*id, Logger: slog.New(slog.DiscardHandler),
		}
		if id == 1 {
			cfg.Attach = []string{"mem://0"}
		}
		var err error
		if nodes[id], err = router.New(cfg); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _ = nodes[0].Start(ctx, nil) }()
	err := nodes[1].Start(t.Context(), nil)
	const want = "(limits): node.1 has WindowMessages 1100, WindowBytes 8388608, ChunkBytes 262144; node.0 has WindowMessages 100, "
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Error(err)
	}
	cancel()
	_, _ = nodes[0].Close(), nodes[1].Close()
}

// TestLossesDuringDrainAreReportedOnce loses a peer while this node drains.
func TestLossesDuringDrainAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, out := two(t, wire, func(*router.Config) {})
		wire.Cut()
		if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
			t.Error(err)
		}
		if err := nodes[0].Drain(t.Context(), true); err != nil {
			t.Error(err)
		}
		if lost, ok := errors.AsType[*router.PeerError](nodes[0].Losses()); !ok || lost.Node != 1 || lost.Undelivered != 1 {
			t.Error(nodes[0].Losses())
		}
		if err := nodes[0].Close(); err != nil {
			t.Error(err)
		}
		_ = nodes[1].Close()
	})
}

func TestStartAfterCloseIsRefused(t *testing.T) {
	r, err := router.New(router.Config{Transport: memory.New(), Listen: "mem://0", Expect: 1})
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
