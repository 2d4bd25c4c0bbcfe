package router_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

// sim is a job of three nodes whose connections are cut, whose listeners are slow,
// and the last of which may be killed and started again, at random virtual times.
type sim struct {
	seed  uint64
	wire  *routertest.Wire
	log   lockedBuffer
	mu    sync.Mutex
	rnd   *rand.Rand
	heard map[string][]uint64 // versions, by receiver, sender and event
	errs  []error
}

var simEvents = []router.Spec{
	{Name: "reliable"},
	{Name: "latest", Delivery: router.Latest},
	{Name: "oldest", Delivery: router.DropOldest, Queue: 8},
	{Name: "newest", Delivery: router.DropNewest, Queue: 8},
}

type simNode struct {
	*router.Router
	sim         *sim
	id          int
	incarnation uint64
	ch          []*router.Channel
	consumers   sync.WaitGroup
}

func (s *sim) chance(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *sim) pause(d time.Duration) { <-time.After(time.Duration(s.chance(int(d)))) }

func (s *sim) faultf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs, fmt.Errorf(format, args...))
}

func (s *sim) node(t *testing.T, id int, incarnation uint64) *simNode {
	n := &simNode{sim: s, id: id, incarnation: incarnation}
	cfg := router.Config{
		Job: "sim", Token: []byte("secret"), Node: id, Incarnation: incarnation, Expect: 3, Carrier: s.wire,
		Listen: fmt.Sprint("mem://", id), WindowMessages: 16, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	for k := range id {
		cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
	}
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Router = r
	for _, spec := range simEvents {
		ch, err := r.Channel(spec, func(m *router.Message) error { n.hear(spec, m); return nil })
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
		n.ch = append(n.ch, ch)
	}
	return n
}

// hear keeps a message's version; some are consumed a while later.
func (n *simNode) hear(spec router.Spec, m *router.Message) {
	who := binary.LittleEndian.Uint64(m.Payload)
	key := fmt.Sprintf("node.%d/%d heard node.%d/%d %s", n.id, n.incarnation, m.From, who, spec.Name)
	n.sim.mu.Lock()
	n.sim.heard[key] = append(n.sim.heard[key], m.Version)
	n.sim.mu.Unlock()
	credit, size := m.Credit, len(m.Payload)
	if n.sim.chance(4) > 0 {
		credit.Return(1, size)
		return
	}
	n.consumers.Go(func() {
		n.sim.pause(200 * time.Millisecond)
		credit.Return(1, size)
	})
}

const simEach = 20 // messages of each event from each node

// send sends all events. Only a peer that is gone may make it fail.
func (n *simNode) send(ctx context.Context) {
	for range simEach {
		for k, ch := range n.ch {
			size := []int{8, 8, 8, 8, 100, 3000, 40 << 10, 300 << 10}[n.sim.chance(8)]
			b := make(router.Bytes, size)
			binary.LittleEndian.PutUint64(b, n.incarnation)
			var gone *router.PeerError
			if _, err := ch.Send(ctx, b, nil); err != nil && (!errors.As(err, &gone) || gone.Node != 2) && !errors.Is(err, router.ErrClosed) {
				n.sim.faultf("node.%d sends %s: %w", n.id, simEvents[k].Name, err)
			}
		}
		if n.sim.chance(4) == 0 {
			n.sim.pause(300 * time.Millisecond)
		}
	}
}

func (s *sim) run(t *testing.T, restart bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	nodes := []*simNode{s.node(t, 0, 1), s.node(t, 1, 1), s.node(t, 2, 1)}
	all := append([]*simNode(nil), nodes...)
	s.each(nodes, "start", func(n *simNode) error { return n.Start(ctx, nil) })
	var work sync.WaitGroup
	for _, n := range nodes {
		work.Go(func() { n.send(ctx) })
	}
	for cut := range 4 {
		s.pause(2 * time.Second)
		s.wire.Cut()
		if restart && cut == 2 {
			_ = nodes[2].Close()
			nodes[2] = s.node(t, 2, 2)
			all = append(all, nodes[2])
		}
		s.pause(1500 * time.Millisecond)
		s.wire.Heal()
		<-time.After(1100 * time.Millisecond) // who dials again does so within a second
		if restart && cut == 2 {
			s.each(nodes[2:], "start again", func(n *simNode) error { return n.Start(ctx, nil) })
			work.Go(func() { nodes[2].send(ctx) })
		}
	}
	work.Wait()
	<-time.After(3 * time.Second) // at the end there is less patience with who cannot be reached
	s.each(nodes, "drain", func(n *simNode) error { return n.Drain(ctx, true) })
	for _, n := range nodes {
		for k, ch := range n.ch {
			st := ch.Stats()
			if sum := st.Consumed + st.Dropped + st.Lost + uint64(st.Queued); !restart && sum != 2*st.Sent {
				s.faultf("node.%d %s: of 2 x %d sent, %d are accounted for: %+v", n.id, simEvents[k].Name, st.Sent, sum, st)
			}
		}
	}
	s.each(nodes, "close", func(n *simNode) error { return n.Close() })
	for _, n := range all {
		n.consumers.Wait()
	}
	s.check(nodes, restart)
}

func (s *sim) each(nodes []*simNode, what string, fn func(*simNode) error) {
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			if err := fn(n); err != nil {
				s.faultf("%s node.%d/%d: %w", what, n.id, n.incarnation, err)
			}
		})
	}
	wg.Wait()
}

// check judges what was heard: versions ascend; what is reliable is whole between
// nodes that lived throughout; the newest value has come.
func (s *sim) check(nodes []*simNode, restart bool) {
	for key, versions := range s.heard {
		for i, v := range versions[1:] {
			if v <= versions[i] {
				s.faultf("%s: version %d after %d", key, v, versions[i])
			}
		}
	}
	for _, to := range nodes {
		for _, from := range nodes {
			if to == from || restart && (to.id == 2 || from.id == 2) {
				continue
			}
			for _, spec := range simEvents {
				key := fmt.Sprintf("node.%d/%d heard node.%d/%d %s", to.id, to.incarnation, from.id, from.incarnation, spec.Name)
				got := s.heard[key]
				if spec.Delivery == router.Reliable && len(got) != simEach {
					s.faultf("%s: %d messages of %d", key, len(got), simEach)
				}
				if spec.Delivery == router.Latest && (len(got) == 0 || got[len(got)-1] != simEach) {
					s.faultf("%s: versions %v do not end with %d", key, got, simEach)
				}
			}
		}
	}
}

// TestR4SimulatedFaults runs many jobs in virtual time. A job's faults follow from
// its seed; what happens between them is up to the scheduler.
func TestR4SimulatedFaults(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			s := &sim{seed: seed, wire: routertest.NewWire(memory.New()), rnd: rand.New(rand.NewPCG(seed, 7)), heard: map[string][]uint64{}}
			s.run(t, seed%2 == 1)
			if len(s.errs) > 0 {
				t.Fatalf("seed %d: %v\n%s", seed, errors.Join(s.errs...), s.log.String())
			}
		})
	}
}
