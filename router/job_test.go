package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

type job struct {
	t     *testing.T
	edit  func(*router.Config)
	gates *gates
	log   logtest.Buffer
	nodes []*router.Router // by node id, the newest incarnation
}

// newJob makes n nodes; edit changes the configuration of each.
func newJob(t *testing.T, n int, edit func(*router.Config)) *job {
	t.Helper()
	j := &job{t: t, edit: edit, gates: newGates(), nodes: make([]*router.Router, n)}
	for id := range j.nodes {
		j.make(id, 1)
	}
	return j
}

// make makes one incarnation of a node.
func (j *job) make(id int, incarnation uint64) *router.Router {
	j.t.Helper()
	cfg := router.Config{
		Job: "j", Token: []byte("secret"), Node: id, Incarnation: incarnation, Expect: len(j.nodes), Transport: gate{j.gates, id},
		Listen: fmt.Sprint("mem://", id), Logger: slog.New(slog.NewTextHandler(&j.log, nil)).With("at", id),
	}
	for k := range id {
		cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
	}
	if j.edit != nil {
		j.edit(&cfg)
	}
	r, err := router.New(cfg)
	if err != nil {
		j.t.Fatal(err)
	}
	j.nodes[id] = r
	return r
}

// each calls fn for the nodes, all at once, and reports its errors.
func (j *job) each(fn func(id int, r *router.Router) error, ids ...int) {
	j.t.Helper()
	if ids == nil {
		for id := range j.nodes {
			ids = append(ids, id)
		}
	}
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			if err := fn(id, j.nodes[id]); err != nil {
				j.t.Errorf("node.%d: %v", id, err)
			}
		})
	}
	all.Wait()
}

func (j *job) start(ids ...int) {
	j.t.Helper()
	j.each(func(_ int, r *router.Router) error { return r.Start(j.t.Context(), nil) }, ids...)
}

// close ends the remaining nodes.
func (j *job) close() { j.each(func(_ int, r *router.Router) error { _ = r.Abandon(); return nil }) }

// leave lets a node leave in order while the others continue.
func (j *job) leave(id int) {
	j.t.Helper()
	r := j.nodes[id]
	for _, fn := range []func() error{
		func() error { return r.Leave(j.t.Context()) },
		func() error { return r.Drain(j.t.Context(), false) },
		r.Close,
	} {
		if err := fn(); err != nil {
			j.t.Errorf("node.%d leaves: %v", id, err)
		}
	}
}

// gates are a network in memory that can hold back what one node writes to another.
type gates struct {
	hosts *memory.Network
	mu    sync.Mutex
	held  map[[2]int]chan struct{}
	conns []*gated
}

func newGates() *gates { return &gates{hosts: memory.New(), held: map[[2]int]chan struct{}{}} }

// hold keeps what from writes to the node to on its way, until the function that it
// returns is called.
func (g *gates) hold(from, to int) (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := make(chan struct{})
	g.held[[2]int{from, to}] = c
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, [2]int{from, to})
		close(c)
	}
}

// cut breaks the connections of a node.
func (g *gates) cut(id int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		if c.from == id || c.to == id {
			_ = c.Close()
		}
	}
}

// gate is the network as one node sees it.
type gate struct {
	*gates
	id int
}

func (g gate) Listen(ctx context.Context, addr string) (net.Listener, error) {
	return g.hosts.Listen(ctx, addr)
}

func (g gate) Advertise(l net.Listener) string { return g.hosts.Advertise(l) }

// Dial puts a relay between the two ends, which the node that is dialled does not see.
func (g gate) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := strconv.Atoi(strings.TrimPrefix(addr, "mem://"))
	if err != nil {
		return nil, err
	}
	c, err := g.hosts.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	conn := &gated{Conn: c, g: g.gates, from: g.id, to: to}
	g.conns = append(g.conns, conn)
	return conn, nil
}

// gated is the dialling end of a connection.
type gated struct {
	net.Conn
	g        *gates
	from, to int
}

func (c *gated) pass(from, to int) {
	c.g.mu.Lock()
	held := c.g.held[[2]int{from, to}]
	c.g.mu.Unlock()
	if held != nil {
		<-held
	}
}

func (c *gated) Write(b []byte) (int, error) {
	c.pass(c.from, c.to)
	return c.Conn.Write(b)
}

func (c *gated) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.pass(c.to, c.from)
	return n, err
}

// inbox keeps the received payloads.
type inbox struct {
	mu  sync.Mutex
	got []string
}

func (in *inbox) deliver(m *router.Message) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.got = append(in.got, string(m.Payload))
	m.Credit.Return(1, len(m.Payload))
	return nil
}

func (in *inbox) all() string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return strings.Join(in.got, " ")
}

// after ends when broken connections are restored.
func (j *job) after() <-chan time.Time { return time.After(time.Second) }

// channels declares one event on each node, which listens to it.
func (j *job) channels(spec router.Spec) (out []*router.Channel, in []*inbox) {
	j.t.Helper()
	for _, r := range j.nodes {
		box := &inbox{}
		ch, err := r.Channel(spec, box.deliver)
		if err != nil {
			j.t.Fatal(err)
		}
		ch.Listen(true)
		out, in = append(out, ch), append(in, box)
	}
	return out, in
}
