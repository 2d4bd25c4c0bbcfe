// Package routertest is the suite that every transport of package router passes.
//
//	func TestUnix(t *testing.T) {
//		routertest.Run(t, routertest.Setup{
//			Transport: func(t *testing.T) router.Transport { return socket.New(socket.Config{}) },
//			Addr:    func(t *testing.T, node int) string { return "unix://" + filepath.Join(dir, strconv.Itoa(node)) },
//		})
//	}
//
// It runs N routers in one process, over connections that it can cut. A test that
// waits fails after a minute: only a deadlock takes that long.
package routertest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
)

// Setup describes a transport to the suite.
type Setup struct {
	// Transport makes the transport of one test.
	Transport func(t testing.TB) router.Transport
	// Addr is the address for a node to listen on.
	Addr func(t testing.TB, node int) string
	// Topology of all tests: mesh or star.
	Topology router.Topology
}

// Total adds up a router's counts of one event over all peers.
func Total(r *router.Router, event string) router.StreamStats {
	sum := router.StreamStats{Event: event}
	for _, s := range r.Stats().Streams {
		if s.Event == event {
			sum.Add(s)
		}
	}
	return sum
}

// lab is one job of N nodes in one process.
type lab struct {
	t      testing.TB
	setup  Setup
	ctx    context.Context
	cancel context.CancelFunc
	wire   *Wire
	nodes  []*node
	edit   func(*router.Config)
}

// node is one router of a lab, with what it has received.
type node struct {
	*router.Router
	lab *lab
	id  int
	log testLog
}

// testLog keeps the log, to be shown when the test fails.
type testLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *testLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(b))
	return len(b), nil
}

func (s Setup) lab(t testing.TB, n int, edit func(*router.Config)) *lab {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l := &lab{t: t, setup: s, ctx: ctx, cancel: cancel, wire: NewWire(s.Transport(t)), edit: edit}
	for id := range n {
		l.nodes = append(l.nodes, l.node(id, n))
	}
	return l
}

// node makes the router of node id; edit may change its Config.
func (l *lab) node(id, expect int) *node {
	l.t.Helper()
	n := &node{lab: l, id: id}
	cfg := l.config(id, expect)
	cfg.Logger = slog.New(slog.NewTextHandler(&n.log, nil))
	if l.edit != nil {
		l.edit(&cfg)
	}
	r, err := router.New(cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	n.Router = r
	l.t.Cleanup(func() {
		_ = r.Close()
		if l.t.Failed() {
			n.log.mu.Lock()
			defer n.log.mu.Unlock()
			for _, line := range n.log.lines {
				l.t.Logf("node.%d: %s", id, line)
			}
		}
	})
	return n
}

// config is the configuration of node id.
func (l *lab) config(id, expect int) router.Config {
	cfg := router.Config{
		Job: "lab", Token: []byte("secret"), Node: id, Expect: expect, Topology: l.setup.Topology,
		Transport: l.wire, Listen: l.setup.Addr(l.t, id), Logger: slog.New(slog.DiscardHandler),
	}
	lower := id
	if l.setup.Topology == router.Star {
		lower = min(id, 1)
	}
	for k := range lower {
		cfg.Attach = append(cfg.Attach, l.setup.Addr(l.t, k))
	}
	return cfg
}

// start starts all nodes at once and waits until they are ready.
func (l *lab) start() {
	l.t.Helper()
	l.each(l.nodes, func(n *node) error { return n.Start(l.ctx, []string{fmt.Sprintf("node.%d", n.id)}) })
}

// each calls fn for all nodes at once. The first error ends the others and fails
// the test.
func (l *lab) each(nodes []*node, fn func(n *node) error) {
	l.t.Helper()
	var first error
	var once sync.Once
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() {
			if err := fn(n); err != nil {
				once.Do(func() { first = fmt.Errorf("node.%d: %w", n.id, err); l.cancel() })
			}
		})
	}
	wg.Wait()
	if first != nil {
		l.t.Fatal(first)
	}
}

// finish drains and closes all nodes, and fails the test if anything was lost.
func (l *lab) finish() {
	l.t.Helper()
	l.each(l.nodes, func(n *node) error { return n.Drain(l.ctx, true) })
	l.each(l.nodes, func(n *node) error { return n.Close() })
}

// inbox has the messages of one event that one node has received.
type inbox struct {
	ch   *router.Channel
	mu   sync.Mutex
	more chan struct{}
	got  []received
	hold chan struct{} // closed or nil: messages are consumed when they arrive
}

type received struct {
	from    int
	version uint64
	payload []byte
	credit  router.Credit
	bytes   int
}

// listen declares an event on the node and listens to it. With hold, nothing is
// consumed before release is called.
func (n *node) listen(spec router.Spec, hold bool) *inbox {
	n.lab.t.Helper()
	in := n.declare(spec, hold)
	in.ch.Listen(true)
	return in
}

func (n *node) declare(spec router.Spec, hold bool) *inbox {
	n.lab.t.Helper()
	in := &inbox{more: make(chan struct{}, 1)}
	if hold {
		in.hold = make(chan struct{})
	}
	ch, err := n.Channel(spec, in.deliver)
	if err != nil {
		n.lab.t.Fatal(err)
	}
	in.ch = ch
	return in
}

func (in *inbox) deliver(m *router.Message) error {
	rec := received{m.From, m.Version, append([]byte(nil), m.Payload...), m.Credit, len(m.Payload)}
	in.mu.Lock()
	in.got = append(in.got, rec)
	held := in.hold != nil
	in.mu.Unlock()
	if !held {
		m.Credit.Return(1, len(m.Payload))
	}
	select {
	case in.more <- struct{}{}:
	default:
	}
	return nil
}

// release consumes the held messages and all later ones.
func (in *inbox) release() {
	in.mu.Lock()
	in.hold = nil
	got := in.got
	in.mu.Unlock()
	for _, r := range got {
		r.credit.Return(1, r.bytes)
	}
}

// wait returns when n messages were received.
func (in *inbox) wait(ctx context.Context, t testing.TB, n int) []received {
	t.Helper()
	for {
		in.mu.Lock()
		got := in.got
		in.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-in.more:
		case <-ctx.Done():
			t.Fatalf("%d of %d messages were received", len(got), n)
		}
	}
}

func (in *inbox) count() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.got)
}

// Wire is a transport around another one whose connections can be cut.
type Wire struct {
	router.Transport
	mu    sync.Mutex
	down  bool
	conns map[net.Conn]struct{}
}

// NewWire returns a wire that is not cut.
func NewWire(c router.Transport) *Wire { return &Wire{Transport: c, conns: map[net.Conn]struct{}{}} }

// Dial connects, unless the wire is cut.
func (w *Wire) Dial(ctx context.Context, addr string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down {
		return nil, fmt.Errorf("%s: the wire is cut", addr)
	}
	w.mu.Unlock()
	c, err := w.Transport.Dial(ctx, addr)
	w.mu.Lock()
	if err != nil {
		return nil, err
	}
	if w.down {
		_ = c.Close()
		return nil, fmt.Errorf("%s: the wire is cut", addr)
	}
	w.conns[c] = struct{}{}
	return c, nil
}

// Cut breaks every connection. Messages under way are lost if the transport can lose them. Until Heal,
// no connection can be made.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for c := range w.conns {
		if b, ok := c.(interface{ Break() }); ok {
			b.Break()
		}
		_ = c.Close()
	}
	clear(w.conns)
}

// Heal lets connections be made again.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}
