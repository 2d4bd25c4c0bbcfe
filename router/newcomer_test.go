package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// A node that joins while another one leaves is notified of that.
func TestNewcomerReceivesThatANodeLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Expect = min(2, 1+c.Node) + c.Node/2 })
		defer j.close()
		out, _ := j.channels(router.Spec{Name: "e"})
		j.start(0, 1)
		synctest.Wait()
		answer := j.gates.hold(1, 0)
		left := make(chan error, 1) // one result
		go func() { left <- j.nodes[0].Leave(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := j.nodes[2].Start(ctx, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		n, err := out[2].Send(t.Context(), router.Bytes("x"), func(p router.Peer) bool { return p.ID == 0 })
		if n != 0 || err != nil {
			t.Errorf("%d, %v: node.0 leaves", n, err)
		}
		answer()
		if err := returned(left); err != nil {
			t.Error(err)
		}
	})
}

// A node that joins when another one has drained is notified that the other sends no more messages.
func TestNewcomerReceivesThatANodeHasFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, func(c *router.Config) { c.Expect = 1 + c.Node })
		defer j.close()
		j.start(0)
		if err := j.nodes[0].Drain(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		j.each(func(_ int, r *router.Router) error { return r.Start(ctx, nil) }, 1)
		if err := j.nodes[1].Drain(ctx, true); err != nil {
			t.Error(err)
		}
	})
}

// Two nodes join a running job at the same time, and receive announcements of more that never join. They wait for its
// members and each other only, in whatever order the announcements arrive.
func TestNewcomersWaitForMembersOnly(t *testing.T) {
	for _, last := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, func(c *router.Config) {
				if c.Expect = 5; c.Node == 0 {
					c.Expect = 1
				}
			})
			defer j.close()
			j.start(0)
			release := j.gates.hold(last, 2)
			time.AfterFunc(time.Second, release)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			j.each(func(_ int, r *router.Router) error { return r.Start(ctx, nil) }, 1, 2)
		})
	}
}

// The hub of a star that ends by itself does not wait for the pipes between its leaves.
func TestHubEndsWithPipesOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, func(c *router.Config) { c.Topology, c.Attach = router.Star, c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		ended := make(chan error, 1) // one result
		go func() { ended <- j.nodes[0].Abandon() }()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("it waits for its leaves")
			j.each(func(_ int, r *router.Router) error { _ = r.Abandon(); return nil }, 1, 2)
		}
	})
}

// The error of a Drain that ends too soon names the nodes that have not acknowledged the end,
// or have not finished.
func TestDrainNamesTheOthersWhenItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, nil)
		defer j.close()
		j.start()
		synctest.Wait()
		defer j.gates.hold(2, 0)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := j.nodes[0].Drain(ctx, true)
		for _, want := range []string{"node.1: has not finished", "node.2: has not acknowledged the end"} {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}
