package memory_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// busy is one node's view of a network whose hosts are so busy at first that the node reads arrived
// data only once in a while, at different moments.
type busy struct {
	*memory.Network
	every, phase time.Duration
	over         *atomic.Bool
}

func (b busy) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := b.Network.Dial(ctx, addr)
	return busyConn{c, b}, err
}

func (b busy) Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := b.Network.Listen(ctx, addr)
	return busyListener{l, b}, err
}

type busyListener struct {
	net.Listener
	on busy
}

func (l busyListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return busyConn{c, l.on}, err
}

type busyConn struct {
	net.Conn
	on busy
}

func (c busyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if late := time.Now().Add(-c.on.phase); !c.on.over.Load() && !late.Equal(late.Truncate(c.on.every)) {
		<-time.After(late.Truncate(c.on.every).Add(c.on.every).Sub(late))
	}
	return n, err
}

// TestR1BusyHosts starts a job on hosts that are too busy to shake hands in the time that it
// takes otherwise: it begins late, with all its nodes, and no node is lost.
func TestR1BusyHosts(t *testing.T) {
	for name, c := range map[string]struct {
		topology router.Topology
		every    time.Duration
	}{
		"mesh, slow": {router.Mesh, 2 * time.Second}, "mesh, very slow": {router.Mesh, 3 * time.Second},
		"star, slow": {router.Star, 2 * time.Second}, "star, very slow": {router.Star, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 6
				network, over := memory.New(), &atomic.Bool{}
				var jobs, ready sync.WaitGroup
				ready.Add(n)
				for id := range n {
					cfg := router.Config{
						Node: id, Expect: n, Transport: busy{network, c.every, c.every * time.Duration(2*id+1) / (2 * n), over},
						Listen: fmt.Sprint("mem://", id), Topology: c.topology,
						JoinTimeout: 2 * time.Minute, Logger: slog.New(slog.DiscardHandler),
					}
					switch {
					case c.topology == router.Mesh:
						for k := range id {
							cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
						}
					case id > 0:
						cfg.Attach = []string{"mem://0"}
					}
					jobs.Go(func() {
						r, err := router.New(cfg)
						if err != nil {
							t.Error(err)
							return
						}
						r.Watch(func(c router.Change) {
							if c.Kind == router.Lost || c.Kind == router.Failed {
								t.Errorf("node.%d: %v of node.%d: %v", id, c.Kind, c.Peer.ID, c.Err)
							}
						})
						defer func() { _ = r.Close() }()
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
						defer cancel()
						began := time.Now()
						if err := r.Start(ctx, nil); err != nil {
							t.Errorf("node.%d: %v", id, err)
						}
						t.Logf("node.%d is ready after %v", id, time.Since(began))
						ready.Done()
						if err := r.Barrier(ctx, "all"); err != nil {
							t.Errorf("node.%d: %v", id, err)
						}
						_ = r.Drain(ctx, true)
					})
				}
				ready.Wait()
				over.Store(true)
				jobs.Wait()
			})
		})
	}
}
