package redisbus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Config describes the server to use. URL and Job are required; the zero value of the rest works.
type Config struct {
	// URL is redis://user:password@host:port/database, or rediss:// for TLS. Only the host is
	// required.
	URL string
	// Job is the job's id: all nodes of a job have the same, and no other node has it.
	Job string
	// TLS is used for a rediss:// URL: authorities other than the system's, and a certificate if
	// the server requires one. Nil means the system's authorities.
	TLS *tls.Config
	// WindowBytes is the number of bytes that may be under way in each direction of a connection; 0
	// means 1 MiB. The reader's value applies.
	WindowBytes int
	Logger      *slog.Logger // slog.Default() if nil
}

// Transport satisfies router.Transport.
type Transport struct {
	cfg     Config
	opt     *redis.Options
	opening chan struct{} // held while the endpoint is opened
	e       *endpoint     // the open one, or nil
}

// New returns a transport. It does not connect: Listen and Dial do.
func New(cfg Config) (*Transport, error) {
	if cfg.WindowBytes == 0 {
		cfg.WindowBytes = 1 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	var errs []error
	if cfg.Job == "" {
		errs = append(errs, errors.New("the job's id is missing"))
	}
	if cfg.WindowBytes < minWindow || cfg.WindowBytes > maxWindow {
		errs = append(errs, fmt.Errorf("WindowBytes %d is not in %d..%d", cfg.WindowBytes, minWindow, maxWindow))
	}
	opt, err := options(cfg)
	if err != nil {
		errs = append(errs, fmt.Errorf("the URL of the server: %w", err))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("redisbus config: %w", errors.Join(errs...))
	}
	return &Transport{cfg: cfg, opt: opt, opening: make(chan struct{}, 1)}, nil
}

const (
	minWindow = 4 << 10
	maxWindow = 1 << 30
)

const scheme = "bus://"

// word is the part of an address after the scheme.
func word(address string) (string, error) {
	w, ok := strings.CutPrefix(address, scheme)
	if !ok || w == "" {
		return "", fmt.Errorf("address %q: want %sword, as in %snode.0", address, scheme, scheme)
	}
	return w, nil
}

// key is the name of a key of the job.
func (c *Transport) key(sort, name string) string {
	return "ditask:{" + url.QueryEscape(c.cfg.Job) + "}:" + sort + ":" + url.QueryEscape(name)
}

// Listen takes address for the caller. Another node that listens on it can no longer be found
// there.
func (c *Transport) Listen(ctx context.Context, address string) (net.Listener, error) {
	w, err := word(address)
	if err != nil {
		return nil, err
	}
	e, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer e.hub.Release()
	return e.hub.Listen(ctx, w)
}

// Advertise returns the address that l was created with.
func (c *Transport) Advertise(l net.Listener) string { return l.Addr().String() }

// Dial connects to the node that listens on address, and waits until it answers.
func (c *Transport) Dial(ctx context.Context, address string) (net.Conn, error) {
	w, err := word(address)
	if err != nil {
		return nil, err
	}
	e, err := c.acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	defer e.hub.Release()
	conn, err := e.hub.Dial(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return conn, nil
}

// acquire returns an open endpoint; the caller releases it.
func (c *Transport) acquire(ctx context.Context) (*endpoint, error) {
	select {
	case c.opening <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.opening }()
	if c.e != nil && c.e.hub.Retain() {
		return c.e, nil
	}
	e, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	c.e = e
	return e, nil
}
