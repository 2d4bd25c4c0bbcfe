package natsbus

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/router/broker"
)

// Config describes the server and this node. URL and Job are required.
type Config struct {
	// URL of the server, nats://host:port or tls://host:port, with a user and a password or a token
	// if the server requires them; several servers of one cluster are separated by commas.
	URL string
	// Job is the job's id, a part of all subjects.
	Job string

	Key       string      // for a server of package embedded with the same key: both sides prove that they know it; empty: none
	Token     string      // for the server, which receives it; empty: as in the URL
	CredsFile string      // file with a user's credentials (.creds); empty: none
	NKeyFile  string      // file with the seed of a user's nkey; empty: none
	TLS       *tls.Config // nil: TLS only if the server requires it, with the system's authorities

	Name           string        // of this client, in the server's lists; empty: the job
	Nodes          int           // how many nodes the job has, for the windows; 0: 64
	ConnectTimeout time.Duration // how long an unreachable server is tried at first; 0: 10 s
	Logger         *slog.Logger  // slog.Default() if nil
}

// The bounds of a window, and of the sum of a node's windows.
const (
	minWindow    = 256 << 10
	maxWindow    = 2 << 20
	windowBudget = 48 << 20
)

// Stats counts the faults so far.
type Stats struct {
	Disconnects uint64 // how often the connection with the server was lost
	Broken      uint64 // connections between nodes that broke because of a fault, most often a missing message
	Dropped     uint64 // how often this client was too slow and dropped messages
	Unproved    uint64 // how often a process at the server's address did not prove that it knows Config.Key
}

// Transport satisfies router.Transport over a NATS server.
type Transport struct {
	cfg    Config
	log    *slog.Logger
	prefix string // of the job's subjects
	inbox  string // name of this transport's
	ctx    context.Context
	cancel context.CancelFunc
	gate   chan struct{} // held while one goroutine connects with the server

	writeTime time.Duration // for the server to take a piece of what is written

	mu     sync.Mutex
	nc     *nats.Conn // nil before the first use
	sub    *nats.Subscription
	hub    *broker.Hub
	closed bool
	gone   chan struct{} // closed when nc has ended
	stats  Stats
}

// New returns a transport that has done nothing yet. The error joins all faults.
func New(cfg Config) (*Transport, error) {
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
		faults = append(faults, fmt.Errorf("%s: with a Key, want nats://host:port: Config.TLS turns TLS on", Public(cfg.URL)))
	}
	if cfg.Nodes < 0 || cfg.ConnectTimeout < 0 {
		faults = append(faults, fmt.Errorf("%d nodes, %v to connect: want at least 0", cfg.Nodes, cfg.ConnectTimeout))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("natsbus: %w", errors.Join(faults...))
	}
	c := &Transport{
		cfg: cfg, log: cfg.Logger, prefix: "ditask." + token(cfg.Job) + ".", inbox: broker.NewInbox(),
		gate:      make(chan struct{}, 1), // a lock that can be waited for together with a context
		writeTime: writeTime,
		gone:      make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// window returns this side's window of each connection.
func (c *Transport) window() int {
	return min(max(windowBudget/max(c.cfg.Nodes, 1), minWindow), maxWindow)
}

// Stats returns the faults so far.
func (c *Transport) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close ends the connection with the server, and all connections through it.
func (c *Transport) Close() error {
	c.cancel()
	c.mu.Lock()
	nc, hub, closed := c.nc, c.hub, c.closed
	c.closed = true
	c.mu.Unlock()
	if nc == nil {
		return nil
	}
	if !closed {
		hub.CloseAll()
		hub.Release()
	}
	<-c.gone
	return nil
}

// JobKey is the [Config.Key] of a job's nodes and of the server that their launcher runs. It follows
// from the job's token and does not reveal it. Without a token it is empty.
func JobKey(token string) string {
	if token == "" {
		return ""
	}
	m := hmac.New(sha256.New, []byte(token))
	m.Write([]byte("ditask nats server"))
	return hex.EncodeToString(m.Sum(nil))
}

// broken counts a connection that broke because of a fault, and logs the first.
func (c *Transport) broken(with net.Addr, err error) {
	c.mu.Lock()
	c.stats.Broken++
	first := c.stats.Broken == 1
	c.mu.Unlock()
	if first {
		c.log.Warn("a connection over NATS broke, and is made again; further ones are counted only", "with", with, "err", err)
	}
}

// Advertise returns the address that l was created with.
func (c *Transport) Advertise(l net.Listener) string { return l.Addr().String() }

// Dial connects to the node at address. If no node listens there, the error is immediate.
func (c *Transport) Dial(ctx context.Context, address string) (net.Conn, error) {
	id, err := Node(address)
	if err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
	}
	hub, nc, err := c.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	k, err := hub.Dial(ctx, word(id))
	if err == nil {
		return k, nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("no answer over %s: %w", Public(c.cfg.URL), err)
		if last := nc.LastError(); last != nil {
			err = fmt.Errorf("%w; NATS says: %w", err, printable.Error(last))
		}
	}
	return nil, fmt.Errorf("%s: %w", address, err)
}

func word(id int) string { return fmt.Sprintf("node.%d", id) }

// Listen takes a node's address for the caller. It connects with the server if needed.
func (c *Transport) Listen(ctx context.Context, address string) (net.Listener, error) {
	id, err := Node(address)
	if err != nil {
		return nil, err
	}
	hub, _, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	l, err := hub.Listen(ctx, word(id))
	if err != nil {
		return nil, c.fault(fmt.Errorf("%s: %w", address, err))
	}
	return l, nil
}

// token makes s a part of a subject.
func token(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "~%02x", c)
		}
	}
	return b.String()
}

// Node is the id in an address of the form "bus://node.<id>".
func Node(addr string) (int, error) {
	if digits, ok := strings.CutPrefix(addr, "bus://node."); ok {
		if id, err := strconv.Atoi(digits); err == nil && id >= 0 && strconv.Itoa(id) == digits {
			return id, nil
		}
	}
	return 0, fmt.Errorf("address %q: want bus://node.<id>", addr)
}
