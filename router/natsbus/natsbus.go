package natsbus

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/printable"
)

// Config says where the server is, and who is there. URL and Job are needed.
type Config struct {
	// URL of the server, nats://host:port or tls://host:port, with a user and a
	// password or a token if it wants them; several of one cluster with commas
	// between.
	URL string
	// Job is the job's id, a part of all subjects.
	Job string

	Key       string      // of a server of package embedded, which proves that it knows it, as this client does; empty: none
	Token     string      // for the server, which it is sent; empty: what the URL says
	CredsFile string      // file with a user's credentials (.creds); empty: none
	NKeyFile  string      // file with the seed of a user's nkey; empty: none
	TLS       *tls.Config // nil: TLS only if the server wants it, with the system's authorities

	Name           string        // of this client, as the server shows it; empty: the job
	Nodes          int           // how many nodes the job has, for the windows; 0: 64
	ConnectTimeout time.Duration // how long a server that is not there is tried at first; 0: 10 s
	Logger         *slog.Logger  // slog.Default() if nil
}

// The bounds of a window, and what all windows of a node may be together.
const (
	minWindow    = 256 << 10
	maxWindow    = 2 << 20
	windowBudget = 48 << 20
)

// Stats are what has gone wrong so far.
type Stats struct {
	Disconnects uint64 // how often the connection with the server was lost
	Broken      uint64 // connections between nodes that broke for a fault, most often a missing message
	Dropped     uint64 // how often this client was too slow and dropped messages
	Unproved    uint64 // how often what answered at the server's address did not prove that it knows Config.Key
}

// Carrier satisfies router.Carrier over a NATS server.
type Carrier struct {
	cfg    Config
	log    *slog.Logger
	prefix string // of the job's subjects
	inbox  string // of the subjects of this carrier's ends
	ctx    context.Context
	cancel context.CancelFunc
	gate   chan struct{} // held by who connects with the server

	writeTime time.Duration // for the server to take a piece of what is written

	mu        sync.Mutex
	nc        *nats.Conn // nil before the first use
	sub       *nats.Subscription
	closed    bool
	gone      chan struct{} // closed when nc has ended
	conns     map[string]*conn
	listeners map[int]*listener
	owed      []string // other ends that are to be told, once there is a server, that a connection is broken
	closing   []*conn  // closed, and the other end does not know it yet
	stats     Stats

	fins   sync.WaitGroup // sendFins
	finDue chan struct{}  // closing has something; capacity 1: a signal is enough for all
	finEnd chan struct{}  // closed when nothing is added to closing any more
}

// New returns a carrier that has done nothing yet. The error joins all faults.
func New(cfg Config) (*Carrier, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Nodes == 0 {
		cfg.Nodes = 64
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 10 * time.Second
	}
	if cfg.Name == "" {
		cfg.Name = "ditask " + cfg.Job
	}
	var faults []error
	if cfg.Job == "" {
		faults = append(faults, errors.New("the job's id is missing"))
	}
	if err := CheckURL(cfg.URL); err != nil {
		faults = append(faults, err)
	}
	if cfg.Key != "" && strings.Contains(cfg.URL, "tls://") {
		faults = append(faults, fmt.Errorf("%s: with a Key, want nats://host:port: TLS follows from TLS", Public(cfg.URL)))
	}
	if cfg.Nodes < 0 || cfg.ConnectTimeout < 0 {
		faults = append(faults, fmt.Errorf("%d nodes, %v to connect: want at least 0", cfg.Nodes, cfg.ConnectTimeout))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("natsbus: %w", errors.Join(faults...))
	}
	prefix := "ditask." + token(cfg.Job) + "."
	c := &Carrier{
		cfg: cfg, log: cfg.Logger, prefix: prefix, inbox: prefix + "conn." + rand.Text() + ".",
		gate:      make(chan struct{}, 1), // a lock that can be waited for together with a context
		writeTime: writeTime,
		gone:      make(chan struct{}), finDue: make(chan struct{}, 1), finEnd: make(chan struct{}),
		conns: map[string]*conn{}, listeners: map[int]*listener{},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// window is this side's window of each connection.
func (c *Carrier) window() int {
	return min(max(windowBudget/max(c.cfg.Nodes, 1), minWindow), maxWindow)
}

// Stats returns what has gone wrong so far.
func (c *Carrier) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close ends the connection with the server, and all that go through it.
func (c *Carrier) Close() error {
	c.cancel()
	c.mu.Lock()
	nc, closed, conns := c.nc, c.closed, c.take()
	c.closed = true
	var listeners []*listener
	for _, l := range c.listeners {
		listeners = append(listeners, l)
	}
	c.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	for _, k := range conns {
		_ = k.Close()
	}
	if nc == nil {
		return nil
	}
	if !closed {
		close(c.finEnd)
		c.fins.Wait()
		nc.Close()
	}
	<-c.gone
	return nil
}

// sayFin lets the other end of k know that k is closed. It does not wait, since the
// server may be stopped.
func (c *Carrier) sayFin(k *conn) {
	c.mu.Lock()
	c.closing = append(c.closing, k)
	c.mu.Unlock()
	select {
	case c.finDue <- struct{}{}:
	default:
	}
}

// sendFins says fin for the connections that are closed, until the carrier is.
func (c *Carrier) sendFins() {
	for open := true; open; {
		select {
		case <-c.finDue:
		case <-c.finEnd:
			open = false
		}
		c.mu.Lock()
		closing := c.closing
		c.closing = nil
		c.mu.Unlock()
		for _, k := range closing {
			_ = k.send(kindFin, nil) // without it the other side is told when it writes
		}
	}
}

// take removes all connections. The mutex is held.
func (c *Carrier) take() []*conn {
	out := make([]*conn, 0, len(c.conns))
	for _, k := range c.conns {
		out = append(out, k)
	}
	clear(c.conns)
	return out
}

// JobKey is the [Config.Key] of a job's nodes and of the server that their launcher runs. It
// follows from the job's token, which it does not tell. Without one there is none.
func JobKey(token string) string {
	if token == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("ditask nats server"))
	return hex.EncodeToString(m.Sum(nil))
}

// dialSubject is where node id hears who wants to connect with it.
func (c *Carrier) dialSubject(id int) string { return fmt.Sprintf("%sdial.%d", c.prefix, id) }

// mine reports whether a subject is an end of a connection of this job.
func (c *Carrier) mine(subject string) bool {
	rest, ok := strings.CutPrefix(subject, c.prefix+"conn.")
	return ok && strings.Count(rest, ".") == 1 && !strings.ContainsAny(rest, "*>")
}

// add registers a connection, unless the carrier is closed.
func (c *Carrier) add(k *conn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.conns[k.id] = k
	return nil
}

func (c *Carrier) forget(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, k.id)
}

// broken counts a connection that broke for a fault, and logs the first.
func (c *Carrier) broken(with addr, err error) {
	c.mu.Lock()
	c.stats.Broken++
	first := c.stats.Broken == 1
	c.mu.Unlock()
	if first {
		c.log.Warn("a connection over NATS broke, and is made again; further ones are counted only", "with", with, "err", err)
	}
}

// Advertise is the address that l was given.
func (c *Carrier) Advertise(l net.Listener) string { return l.Addr().String() }

// Dial connects to the node at address. Nobody there is an error at once.
func (c *Carrier) Dial(ctx context.Context, address string) (net.Conn, error) {
	id, err := Node(address)
	if err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
	}
	nc, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	for patience := firstPatience; ; patience *= 2 {
		k, err := c.call(ctx, nc, id, patience)
		if err == nil {
			return k, nil
		}
		if !errors.Is(err, errSilent) || ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", address, err)
		}
	}
}

// firstPatience is how long the other side has to answer before it is asked
// again: the servers of a cluster that changes may lose a message.
const firstPatience = 500 * time.Millisecond

var errSilent = errors.New("no answer")

// call asks node id once for a connection.
func (c *Carrier) call(ctx context.Context, nc *nats.Conn, id int, patience time.Duration) (*conn, error) {
	k := c.newConn(nc, rand.Text(), addr("bus://"+c.cfg.Name), addr(fmt.Sprintf("bus://node.%d", id)))
	if err := c.add(k); err != nil {
		return nil, err
	}
	msg := appendHello(appendHead(nil, head{kind: kindDial}), k.grant, c.cfg.Name)
	if err := nc.PublishRequest(c.dialSubject(id), k.own, msg); err != nil {
		return nil, k.fail(err)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-k.answered:
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.err != nil && k.peer == "" {
			return nil, k.err
		}
		k.probeIn(firstPatience)
		return k, nil
	case <-t.C:
		return nil, k.fail(c.silent(nc, errSilent))
	case <-ctx.Done():
		return nil, k.fail(c.silent(nc, context.Cause(ctx)))
	}
}

// silent is why a dial has had no answer.
func (c *Carrier) silent(nc *nats.Conn, err error) error {
	err = fmt.Errorf("no answer over %s: %w", Public(c.cfg.URL), err)
	if last := nc.LastError(); last != nil {
		err = fmt.Errorf("%w; NATS says: %w", err, printable.Error(last))
	}
	return err
}

// deliver takes in a message to one end of a connection. It must not wait.
func (c *Carrier) deliver(m *nats.Msg) {
	c.mu.Lock()
	k := c.conns[m.Subject[min(len(c.inbox), len(m.Subject)):]]
	nc := c.nc
	c.mu.Unlock()
	switch {
	case m.Header.Get("Status") == "503":
		if k != nil {
			_ = k.fail(k.unheard())
		}
	case k != nil:
		k.receive(m)
	case c.mine(m.Reply):
		if h, _, err := parse(m.Data); err == nil && h.kind != kindReset {
			c.reset(nc, m.Reply, "there is no such connection any more")
		}
	}
}

// reset tells the other end that there is no connection, now or when there is a
// server again: it may have nothing to say for long, and then not find out.
func (c *Carrier) reset(nc *nats.Conn, peer, why string) {
	msg := append(appendHead(nil, head{kind: kindReset}), why...)
	if err := nc.Publish(peer, msg); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owed = append(c.owed, peer)
	}
}

// Listen takes a node's address for the caller. It connects with the server if
// need be.
func (c *Carrier) Listen(ctx context.Context, address string) (net.Listener, error) {
	id, err := Node(address)
	if err != nil {
		return nil, err
	}
	nc, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	l := &listener{bus: c, id: id, addr: addr(address), done: make(chan struct{})}
	l.conns = make(chan *conn, backlog)
	c.mu.Lock()
	if c.closed || c.listeners[id] != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("%s: address in use, or the carrier is closed", address)
	}
	c.listeners[id] = l
	c.mu.Unlock()
	sub, err := nc.Subscribe(c.dialSubject(id), l.hear)
	if err == nil {
		l.mu.Lock()
		l.sub = sub
		l.mu.Unlock()
		err = settled(ctx, nc)
	}
	if err != nil {
		_ = l.Close()
		return nil, c.fault(err)
	}
	return l, nil
}

// backlog is how many connections wait for Accept: all other nodes of a large job
// may come at once.
const backlog = 1024

// listener hears who dials one node.
type listener struct {
	bus   *Carrier
	id    int
	addr  addr
	conns chan *conn
	done  chan struct{}

	mu     sync.Mutex
	sub    *nats.Subscription
	closed bool
}

// hear answers a dial. It must not wait.
func (l *listener) hear(m *nats.Msg) {
	c := l.bus
	h, body, err := parse(m.Data)
	if err != nil || h.kind != kindDial || !c.mine(m.Reply) {
		return // no node of ours
	}
	c.mu.Lock()
	nc := c.nc
	c.mu.Unlock()
	window, name, err := parseHello(body)
	if err != nil {
		c.reset(nc, m.Reply, "refused: "+err.Error())
		return
	}
	k := c.newConn(nc, rand.Text(), l.addr, addr("bus://"+name))
	k.mu.Lock()
	k.meet(m.Reply, window)
	k.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || c.add(k) != nil {
		c.reset(nc, m.Reply, "connection refused: the listener is closed")
		return
	}
	if len(l.conns) == backlog { // nobody else fills it
		c.forget(k)
		c.reset(nc, m.Reply, "connection refused: too many wait to be accepted")
		return
	}
	msg := appendHello(appendHead(nil, head{kind: kindAccept}), k.grant, "")
	if err := nc.PublishRequest(m.Reply, k.own, msg); err != nil {
		_ = k.fail(err)
		c.reset(nc, m.Reply, lostServer)
		return
	}
	k.mu.Lock()
	k.probeIn(firstPatience)
	k.mu.Unlock()
	l.conns <- k
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case k := <-l.conns:
		return k, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

// Close gives the address back, and refuses who waits.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.done)
	sub := l.sub
	l.mu.Unlock()
	if sub != nil {
		_ = sub.Unsubscribe() // it ends with the connection
	}
	for len(l.conns) > 0 {
		_ = (<-l.conns).Close()
	}
	l.bus.mu.Lock()
	defer l.bus.mu.Unlock()
	if l.bus.listeners[l.id] == l {
		delete(l.bus.listeners, l.id)
	}
	return nil
}
