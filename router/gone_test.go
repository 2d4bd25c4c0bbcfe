package router_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

// changesOf collects the changes of a router's peers.
func changesOf(r *router.Router) chan router.Change {
	changes := make(chan router.Change, 16) // more than any of these tests makes
	r.Watch(func(c router.Change) { changes <- c })
	return changes
}

// incarnated gives both nodes incarnation 5.
func incarnated(c *router.Config) { c.Incarnation = 5 }

// after fails the test if something took longer than limit of virtual time.
func after(t *testing.T, began time.Time, limit time.Duration) {
	t.Helper()
	if took := time.Since(began); took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
}

// A peer that is known to be gone is lost as soon as its connection ends, and after
// a second where the connection stays.
func TestR5AGonePeerIsLostAtOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		cut    bool
		within time.Duration
	}{{"socket", true, 0}, {"server", false, time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire := routertest.NewWire(memory.New())
				nodes, out := two(t, wire, incarnated)
				changes := changesOf(nodes[0])
				if c.cut {
					wire.Cut()
				}
				began := time.Now()
				nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "killed by signal: killed"})
				got := <-changes
				after(t, began, c.within)
				if got.Kind != router.Lost || !errors.Is(got.Err, router.ErrLost) || got.Err.Error() != "node.1: lost: killed by signal: killed" {
					t.Errorf("%+v", got)
				}
				if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
					t.Error(err)
				}
				_, _ = nodes[0].Close(), nodes[1].Close()
			})
		})
	}
}

// Messages that the peer had sent before its end are delivered, even if the node is slow to receive
// them.
func TestR5AGonePeerIsReceivedToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, release := memory.New(), make(chan struct{})
		received := 0
		var nodes [2]*router.Router
		var out [2]*router.Channel
		for id := range nodes {
			cfg := router.Config{
				Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Transport: network, Incarnation: 5,
				Listen: fmt.Sprint("mem://", id),
			}
			if id == 1 {
				cfg.Attach = []string{"mem://0"}
			}
			var err error
			if nodes[id], err = router.New(cfg); err != nil {
				t.Fatal(err)
			}
			deliver := func(*router.Message) error { <-release; received++; return nil }
			if out[id], err = nodes[id].Channel(router.Spec{Name: "n"}, deliver); err != nil {
				t.Fatal(err)
			}
			out[id].Listen(true)
		}
		if err := both(func(id int) error { return nodes[id].Start(t.Context(), nil) }); err != nil {
			t.Fatal(err)
		}
		changes := changesOf(nodes[0])
		for range 10 {
			if _, err := out[1].Send(t.Context(), router.Bytes("x"), nil); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		_ = nodes[1].Abandon() // it reports what was not acknowledged
		nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		synctest.Wait()
		if len(changes) > 0 || received > 0 {
			t.Errorf("before it was received: %d changes, %d messages", len(changes), received)
		}
		close(release)
		<-changes
		if received != 10 {
			t.Errorf("%d messages received, want 10", received)
		}
		_ = nodes[0].Close()
	})
}

// A send that waits for a peer ends when that is gone, with the reason.
func TestR5ASendToAGonePeerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, out := two(t, wire, func(c *router.Config) { c.Incarnation, c.WindowMessages = 5, 16 })
		blocked := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = out[0].Send(t.Context(), router.Bytes("x"), nil)
			}
			blocked <- err
		}()
		synctest.Wait()
		wire.Cut()
		began := time.Now()
		nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		if err := <-blocked; err == nil || !strings.Contains(err.Error(), "node.1: lost: exit code 3: 16 messages not acknowledged") {
			t.Error(err)
		}
		after(t, began, 0)
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// A barrier does not wait for a peer that is gone.
func TestR6ABarrierEndsWithAGonePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		nodes, _ := two(t, wire, incarnated)
		began := time.Now()
		failed := make(chan error, 1)
		go func() { failed <- nodes[0].Barrier(t.Context(), "b") }()
		wire.Cut()
		nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "exit code 3") {
			t.Error(err)
		}
		after(t, began, 0)
		_, _ = nodes[0].Close(), nodes[1].Close()
	})
}

// A newer incarnation is not lost with an older one; an older one is lost with a newer one.
func TestGoneIsAboutAnIncarnation(t *testing.T) {
	for incarnation, lost := range map[uint64]bool{4: false, 5: true, 6: true} {
		synctest.Test(t, func(t *testing.T) {
			nodes, _ := two(t, memory.New(), incarnated)
			changes := changesOf(nodes[0])
			nodes[0].Gone(router.Farewell{Node: 1, Incarnation: incarnation, Reason: "exit code 3"})
			nodes[0].Gone(router.Farewell{Node: 0, Incarnation: 9, Reason: "itself"})
			<-time.After(2 * time.Second)
			if (len(changes) == 1) != lost {
				t.Errorf("incarnation %d of 5: %d changes", incarnation, len(changes))
			}
			_, _ = nodes[0].Close(), nodes[1].Close()
			nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 9, Reason: "after Close"})
		})
	}
}

// A peer that has left in order is not lost.
func TestGoneAfterALeaveIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := two(t, memory.New(), incarnated)
		changes := changesOf(nodes[0])
		if err := nodes[1].Close(); err != nil {
			t.Error(err)
		}
		nodes[0].Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		<-time.After(2 * time.Second)
		if c := <-changes; c.Kind != router.Left || len(changes) > 0 {
			t.Errorf("%+v, and %d more", c, len(changes))
		}
		_ = nodes[0].Close()
	})
}

// A process that ended before this node met it does not join any more; the next one
// does.
func TestGoneBeforeItWasMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memory.New()
		start := func(id int, incarnation uint64) (*router.Router, chan error) {
			cfg := router.Config{
				Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Transport: network, Incarnation: incarnation,
				JoinTimeout: time.Minute,
			}
			if id == 0 {
				cfg.Listen = "mem://0"
			} else {
				cfg.Attach = []string{"mem://0"}
			}
			r, err := router.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			started := make(chan error, 1)
			go func() { started <- r.Start(t.Context(), nil) }()
			return r, started
		}
		waits, met := start(0, 5)
		synctest.Wait()
		waits.Gone(router.Farewell{Node: 1, Incarnation: 5, Reason: "exit code 3"})
		synctest.Wait()
		dead, refused := start(1, 5)
		if err := <-refused; err == nil || !strings.Contains(err.Error(), "exit code 3") {
			t.Errorf("the old incarnation: %v", err)
		}
		_ = dead.Close()
		next, joined := start(1, 6)
		if err := errors.Join(<-met, <-joined); err != nil {
			t.Error(err)
		}
		_, _ = next.Close(), waits.Close()
	})
}
