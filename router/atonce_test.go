package router_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// No message between nodes waits for a heartbeat: on a network without latency, no time passes.
func TestNothingWaitsForAHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.WindowMessages = 4 })
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e"})
		newest, seen := j.channels(router.Spec{Name: "newest", Delivery: router.Latest})
		j.start()
		<-time.After(10*time.Second + time.Millisecond) // between two ticks
		began := time.Now()
		check := func(what string, err error) {
			t.Helper()
			synctest.Wait()
			if took := time.Since(began); took > 0 || err != nil {
				t.Errorf("%s took %v: %v", what, took, err)
				began = time.Now()
			}
		}
		for i := range 50 {
			_, err := out[0].Send(t.Context(), router.Bytes("x"), nil)
			check(fmt.Sprint("message ", i), err)
		}
		if n := len(strings.Fields(in[1].all())); n != 50 {
			t.Errorf("%d messages received", n)
		}
		large := make(router.Bytes, 1<<20)
		_, err := out[0].Send(t.Context(), large, nil)
		check("a large message", err)
		if n := len(in[1].all()); n != 100+1<<20 {
			t.Errorf("%d bytes received", n)
		}
		newest[1].Listen(false)
		check("Listen(false)", nil)
		_, err = newest[0].Send(t.Context(), router.Bytes("v"), nil)
		check("a newest value", err)
		newest[1].Listen(true)
		check("Listen(true)", nil)
		if got := seen[1].all(); got != "v" {
			t.Errorf("received %q", got)
		}
		late, err := j.nodes[1].Channel(router.Spec{Name: "late"}, in[1].deliver)
		check("a late event", err)
		late.Listen(true)
		to, err := j.nodes[0].Channel(router.Spec{Name: "late"}, in[0].deliver)
		check("the same on the other side", err)
		n, err := to.Send(t.Context(), router.Bytes("x"), nil)
		if check("its message", err); n != 1 {
			t.Errorf("%d peers addressed", n)
		}
		entered := enter(t.Context(), j.nodes[0], "b")
		check("half a barrier", j.nodes[1].Barrier(t.Context(), "b"))
		check("a barrier", <-entered)
		done := make(chan error, 1) // one result
		go func() { done <- j.nodes[0].Done(t.Context()) }()
		check("half a done", j.nodes[1].Done(t.Context()))
		check("done", <-done)
		check("leave", j.nodes[1].Leave(t.Context()))
		check("drain", j.nodes[1].Drain(t.Context(), false))
		check("close", j.nodes[1].Close())
		check("drain, alone", j.nodes[0].Drain(t.Context(), true))
	})
}

// A ping is answered at once, and its round-trip time is counted.
func TestTimeThatAPingTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.start()
		<-time.After(10*time.Second + 500*time.Millisecond)   // between two ticks
		if rtt := j.nodes[0].Stats().Peers[0].RTT; rtt != 1 { // the least that is not 0
			t.Errorf("%v", rtt)
		}
		release := j.gates.hold(1, 0)
		<-time.After(4 * time.Second)
		release()
		synctest.Wait()
		if rtt := j.nodes[0].Stats().Peers[0].RTT; rtt < 500*time.Millisecond || rtt > 4*time.Second {
			t.Errorf("%v", rtt)
		}
	})
}

// Close reports what the peers have not acknowledged, and Drain and Leave end with it.
func TestCloseReportsUnacknowledgedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		out, _ := j.channels(router.Spec{Name: "e"})
		j.start()
		release := j.gates.hold(1, 0)
		defer j.gates.hold(0, 1)()
		if _, err := out[0].Send(t.Context(), router.Bytes("x"), nil); err != nil {
			t.Error(err)
		}
		ended := make(chan error, 3) // one result for each call
		go func() { ended <- j.nodes[0].Drain(t.Context(), true) }()
		go func() { ended <- j.nodes[0].Leave(t.Context()) }()
		go func() { ended <- j.nodes[0].Barrier(t.Context(), "b") }()
		synctest.Wait()
		began := time.Now()
		err := j.nodes[0].Close()
		gone, ok := errors.AsType[*router.PeerError](err)
		if !ok || gone.Node != 1 || gone.Undelivered != 1 || !errors.Is(err, router.ErrClosed) || strings.Contains(err.Error(), "\n") {
			t.Error(err)
		}
		if took := time.Since(began); took != time.Second { // for the leave to be received
			t.Errorf("closed after %v", took)
		}
		for range 3 {
			if err := <-ended; err != nil && !errors.Is(err, router.ErrClosed) {
				t.Error(err)
			}
		}
		if err := j.nodes[0].Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		release()
	})
}

// Only the hub of a star, and only after Drain, waits for the other nodes when it is closed.
func TestCloseThatDoesNotWait(t *testing.T) {
	for name, c := range map[string]struct {
		topology router.Topology
		node     int
		drains   bool
	}{"a mesh": {router.Mesh, 0, true}, "a leaf": {router.Star, 1, true}, "a hub in the middle": {router.Star, 0, false}} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, func(cfg *router.Config) { cfg.Topology = c.topology })
			defer j.close()
			j.start()
			r := j.nodes[c.node]
			if c.drains {
				if err := r.Drain(t.Context(), false); err != nil {
					t.Error(err)
				}
			}
			began := time.Now()
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 0 { // of virtual time
				t.Errorf("%s: closed after %v", name, took)
			}
		})
	}
}

// The connection between two leaves of a star goes through the hub, and lasts.
func TestPipeBetweenLeavesLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Topology, c.Attach = router.Star, c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		<-time.After(time.Minute)
		for id, r := range j.nodes {
			st := r.Stats()
			for _, p := range st.Peers {
				if p.Reconnects != 0 || p.State != router.LinkUp {
					t.Errorf("node.%d: %+v", id, p)
				}
			}
			if len(st.Peers) != 2 || id == 0 && st.Dialed != 0 {
				t.Errorf("node.%d: %+v", id, st)
			}
		}
		_ = j.nodes[2].Abandon()
		<-time.After(time.Second)
		if p := j.nodes[1].Stats().Peers[1]; p.Node != 2 || p.State != router.LinkDown { // the hub has closed the other end
			t.Errorf("%+v", p)
		}
	})
}

// A newest value is sent once to a peer that listens, whichever node joins meanwhile.
func TestNewestValueIsSentOnceWhenOthersJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Expect = min(2, 1+c.Node) + c.Node/2 })
		defer j.close()
		out, in := j.channels(router.Spec{Name: "e", Delivery: router.Latest})
		j.start(0, 1)
		if _, err := out[0].Send(t.Context(), router.Bytes("v"), nil); err != nil {
			t.Error(err)
		}
		<-time.After(5 * time.Second)
		j.start(2)
		<-time.After(5 * time.Second)
		for id := 1; id < 3; id++ {
			if st := streamTo(j.nodes[0], id); st.Sent != 1 || in[id].all() != "v" {
				t.Errorf("node.%d has received %q: %+v", id, in[id].all(), st)
			}
		}
	})
}
