package router_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// spy is a network that keeps the connections that one node has dialled, and can
// break the next ones at once.
type spy struct {
	*memory.Network
	mu     sync.Mutex
	dialed []net.Conn
	refuse int
}

func (s *spy) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := s.Network.Dial(ctx, addr)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.refuse > 0 {
		s.refuse--
		_ = c.Close()
		return nil, errors.New("the connection broke")
	}
	s.dialed = append(s.dialed, c)
	return c, err
}

// TestR3ALeafAnswersTheHubAgain breaks the pipe between two leaves, and then the
// first answers to the hub's request for another: the next one comes while the
// other leaf still waits, and not only after that has given up.
func TestR3ALeafAnswersTheHubAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memory.New()
		leaf := &spy{Network: network}
		var nodes [3]*router.Router
		got := make(chan string, 1)
		for id := range nodes {
			cfg := router.Config{Job: "j", Node: id, Expect: 3, Topology: router.Star, Transport: network, Listen: fmt.Sprint("mem://", id)}
			if id == 1 {
				cfg.Transport = leaf
			}
			if id > 0 {
				cfg.Attach = []string{"mem://0"}
			}
			r, err := router.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			nodes[id] = r
		}
		receive := func(m *router.Message) error {
			got <- string(m.Payload)
			m.Credit.Return(1, len(m.Payload))
			return nil
		}
		if ch, err := nodes[1].Channel(router.Spec{Name: "n"}, receive); err == nil {
			ch.Listen(true)
		}
		out, err := nodes[2].Channel(router.Spec{Name: "n"}, receive)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, r := range nodes {
			all.Go(func() {
				if err := r.Start(t.Context(), nil); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		leaf.mu.Lock()
		leaf.refuse = 3
		_ = leaf.dialed[len(leaf.dialed)-1].Close() // the first was to the hub, for itself
		leaf.mu.Unlock()
		synctest.Wait()
		if _, err := out.Send(t.Context(), router.Bytes("x"), nil); err != nil {
			t.Error(err)
		}
		select {
		case <-got:
		case <-time.After(2 * time.Second):
			t.Error("the leaves are not connected again")
		}
		for _, r := range nodes {
			all.Go(func() { _ = r.Close() })
		}
		all.Wait()
	})
}

// TestR3LeavesStayConnected: the deadlines of the handshakes that make a pipe between two
// leaves do not end the pipe.
func TestR3LeavesStayConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, func(c *router.Config) { c.Topology, c.Attach = router.Star, c.Attach[:min(len(c.Attach), 1)] })
		defer j.close()
		j.start()
		<-time.After(time.Minute)
		for id, r := range j.nodes {
			for _, p := range r.Stats().Peers {
				if p.State != router.LinkUp || p.Reconnects > 0 {
					t.Errorf("node.%d: %+v", id, p)
				}
			}
		}
	})
}
