package router_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
)

// A drain that waits for the peers does not end before they have finished.
func TestDrainWaitsForPeersToFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := j.nodes[0].Drain(ctx, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// The hub of a star waits for its leaves: 5 s, or a minute if all finish together.
func TestHubWaitsForItsLeaves(t *testing.T) {
	for _, together := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, func(c *router.Config) { c.Topology, c.Attach = router.Star, c.Attach[:min(len(c.Attach), 1)] })
			defer j.close()
			j.start()
			drains := []int{0, 1, 2}
			if !together {
				drains = drains[:1]
			}
			j.each(func(_ int, r *router.Router) error { return r.Drain(t.Context(), together) }, drains...)
			closed := make(chan error, 1) // one result
			go func() { closed <- j.nodes[0].Close() }()
			<-time.After(20 * time.Second)
			if err := returned(closed); errors.Is(err, errWaits) != together {
				t.Errorf("together %v: %v", together, err)
			}
			j.each(func(_ int, r *router.Router) error { return r.Close() }, 1, 2)
			if err := returned(closed); together && err != nil {
				t.Error(err)
			}
		})
	}
}

// A connection without received data for 5 s is made again.
func TestR4SilentConnectionIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, nil)
		defer j.close()
		j.start()
		release := j.gates.hold(1, 0)
		<-time.After(7 * time.Second)
		release()
		<-time.After(5 * time.Second)
		for id, r := range j.nodes {
			if p := r.Stats().Peers[0]; p.Reconnects == 0 || p.State != router.LinkUp {
				t.Errorf("node.%d: %+v", id, p)
			}
		}
		j.says(1, `msg="lost the connection, waiting for a new one" at=0 peer=node.1 err="nothing was received for `)
	})
}
