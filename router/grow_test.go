package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// Nodes of a job that grows are configured with different sizes. Those that come later join the
// running ones, whether these have been ready before or still wait for each other, and do not wait for
// others that are still to come.
func TestNodesWithDifferentSizesOfTheJobConnect(t *testing.T) {
	for _, started := range []bool{true, false} {
		t.Run(fmt.Sprint("first ones are ready: ", started), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := memory.New()
				ready := make(chan error, 4)
				open := func(id, size int) *router.Router {
					cfg := router.Config{
						Job: "j", Token: []byte("secret"), Node: id, Expect: size, Transport: network,
						Listen: fmt.Sprint("mem://", id), Logger: slog.New(slog.DiscardHandler),
					}
					for k := range id {
						cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
					}
					r, err := router.New(cfg)
					if err != nil {
						t.Fatal(err)
					}
					go func() { ready <- r.Start(context.Background(), nil) }()
					return r
				}
				wait := func(n int) {
					for range n {
						if err := <-ready; err != nil {
							t.Error(err)
						}
					}
				}
				nodes := []*router.Router{open(0, 2)}
				if started {
					nodes = append(nodes, open(1, 2))
					wait(2)
					nodes = append(nodes, open(2, 3))
					wait(1)
				} else { // the late one is there before node 1
					nodes = append(nodes, open(2, 3))
					synctest.Wait()
					nodes = append(nodes, open(1, 2))
					wait(3)
				}
				synctest.Wait()
				for i, r := range nodes {
					if got := len(r.Peers()); got != 2 {
						t.Errorf("node %d of %v has %d peers, want 2", i, started, got)
					}
				}
				late := open(3, 5)
				wait(1)
				if got := len(late.Peers()); got != 3 {
					t.Errorf("a node that expects one that never comes has %d peers, want 3", got)
				}
				for _, r := range append(nodes, late) {
					_ = r.Abandon()
				}
			})
		})
	}
}

// The error of a wait for many nodes names each node, and has the reason why an address cannot be reached once, for
// some of them.
func TestWaitForManyNamesEachReasonOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := router.Config{Job: "j", Node: 12, Expect: 13, Transport: memory.New(), Listen: "mem://12", Logger: slog.New(slog.DiscardHandler)}
		for id := range 12 {
			cfg.Attach = append(cfg.Attach, fmt.Sprintf("mem://host%d.", id))
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Start(t.Context(), nil)
		_ = r.Close()
		if err == nil {
			t.Fatal("ready without the others")
		}
		for id := range 12 {
			if !strings.Contains(err.Error(), fmt.Sprintf("node.%d", id)) {
				t.Errorf("node.%d is not named", id)
			}
		}
		if n := strings.Count(err.Error(), "connection refused"); n != 8 || !strings.Contains(err.Error(), ", and 4 more)") {
			t.Errorf("%d reasons of 12, want 8: %v", n, err)
		}
	})
}
