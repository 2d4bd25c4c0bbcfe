package routertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
)

// testFarewell ends a node without a leave, and makes another process announce that: all other nodes lose
// it at once, long before they detect its silence.
func testFarewell(t *testing.T, s Setup) {
	for _, dead := range []int{0, 2} {
		l := s.lab(t, 3, func(c *router.Config) { c.Incarnation, c.PeerTimeout = 5, time.Hour })
		lost := make(chan error, len(l.nodes))
		for _, n := range l.nodes {
			n.Watch(func(c router.Change) {
				if c.Kind == router.Lost && n.id != dead && c.Peer.ID == dead {
					lost <- c.Err
				}
			})
		}
		l.start()
		if err := l.nodes[dead].Abandon(); err != nil {
			t.Error(err)
		}
		cfg := l.config(dead, len(l.nodes))
		cfg.Incarnation = 5
		if err := router.SendFarewell(l.ctx, cfg, "killed by signal: killed", false); err != nil {
			t.Error(err)
		}
		for range len(l.nodes) - 1 {
			select {
			case err := <-lost:
				if want := fmt.Sprintf("node.%d: lost: killed by signal: killed", dead); err.Error() != want {
					t.Errorf("%v, want %s", err, want)
				}
			case <-l.ctx.Done():
				t.Fatal("node is not lost")
			}
		}
		for _, n := range l.nodes {
			_ = n.Abandon() // without the lost one
		}
	}
}
