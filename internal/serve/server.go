package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// Server answers requests with the actions of a policy. It is an http.Handler.
type Server struct {
	cfg      Config
	actor    actor
	sessions *sessions
	spare    sync.Pool     // of *exchange
	uploads  chan struct{} // large bodies that are being read
	jsonType []string

	codes    []string
	outcomes []atomic.Uint64 // by codes
	inFlight atomic.Int64
	conns    atomic.Int64
	refused  atomic.Uint64
	reloaded atomic.Uint64
	kept     atomic.Uint64
	ending   atomic.Bool
	latency  *histogram
	batches  *histogram
}

// New returns a server of a policy, which is the server's from then on. It starts nothing.
func New(cfg Config, policy policies.Policy) (*Server, error) {
	cfg.EnsureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	spec := policy.Spec()
	if cfg.dim() != spec.Obs.Dim() || cfg.Action.Dim() != spec.Action.Dim() {
		return nil, fmt.Errorf("serve: %d observed and %d action values, and the policy has %d and "+
			"%d", cfg.dim(), cfg.Action.Dim(), spec.Obs.Dim(), spec.Action.Dim())
	}
	s := &Server{
		cfg: cfg, codes: outcomes(), jsonType: []string{"application/json"}, uploads: make(chan struct{}, max(1, cfg.MaxInFlight/4)),
		latency: newHistogram(25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
		batches: newHistogram(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
	}
	s.outcomes = make([]atomic.Uint64, len(s.codes))
	s.sessions = newSessions(&s.cfg, spec.StateSize)
	s.actor.cfg, s.actor.dim, s.actor.rng = &s.cfg, cfg.dim(), rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	s.actor.counted = func(rows int) { s.batches.observe(float64(rows)) }
	if box, ok := cfg.Action.(envs.Box); ok && cfg.Clip {
		s.actor.box = &box
	}
	s.actor.policy.Store(&policy)
	return s, nil
}

// Version counts the updates behind the weights that act.
func (s *Server) Version() uint64 { return (*s.actor.policy.Load()).Version() }

// Swap exchanges the policy for another one of the same spaces and size of state. Calls that have begun end with the
// old one; sessions keep their states.
func (s *Server) Swap(policy policies.Policy) error {
	spec := policy.Spec()
	if s.cfg.dim() != spec.Obs.Dim() || s.cfg.Action.Dim() != spec.Action.Dim() || s.sessions.size != spec.StateSize {
		return errors.New("serve: the new policy has other spaces, or another size of state, than the one that is served")
	}
	s.actor.policy.Store(&policy)
	return nil
}

// Source is where new weights come from.
type Source struct {
	// Stamp changes when there are new weights, such as the time of a file. An error counts as no change.
	Stamp func() (string, error)
	// Load makes a policy with them.
	Load func(ctx context.Context) (policies.Policy, error)
}

// Follow looks for new weights at each tick and swaps them in, until ctx ends. Weights that cannot be loaded are logged
// once, and the old ones stay. stamp is that of the weights that are served.
func (s *Server) Follow(ctx context.Context, src Source, stamp string, tick <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		now, err := src.Stamp()
		if err != nil || now == stamp {
			continue
		}
		stamp = now
		policy, err := src.Load(ctx)
		if err == nil {
			err = s.Swap(policy)
		}
		if err != nil {
			s.kept.Add(1)
			s.cfg.Log.Warn("new weights are not used: the old ones stay", "error", err, "version", s.Version())
			continue
		}
		s.reloaded.Add(1)
		s.cfg.Log.Info("new weights", "version", s.Version())
	}
}

// Run serves on listeners, and closes them. When ctx ends it accepts no more, answers what is in progress for
// Config.Grace, and returns nil: the error is that of a listener that failed before. cut is the number of connections
// that were closed at the end of the grace.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) (cut int, err error) {
	server := &http.Server{
		Handler: s, ReadTimeout: s.cfg.Timeout, ReadHeaderTimeout: s.cfg.Timeout, WriteTimeout: 3 * s.cfg.Timeout,
		IdleTimeout:    max(2*time.Minute, s.cfg.Timeout),
		MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0), // what an unauthenticated client does wrong is no line of the log
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c.LocalAddr().Network() == "unix" {
				return context.WithValue(ctx, local{}, true)
			}
			if at, ok := c.LocalAddr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
				return context.WithValue(ctx, loopback{}, true)
			}
			return ctx
		},
	}
	var serving sync.WaitGroup
	failed := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() { failed <- server.Serve(l) })
	}
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.ending.Store(true)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
	defer cancel()
	if server.Shutdown(end) != nil {
		cut = int(s.conns.Load())
		_ = server.Close() // the grace period is over
	}
	serving.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return cut, err
}

// Bound returns listeners that accept Config.MaxConns connections in all. Of more, each is answered by a 503 if it
// speaks HTTP without TLS, and closed.
func (s *Server) Bound(listeners ...net.Listener) []net.Listener {
	out := slices.Clone(listeners)
	for i, l := range out {
		out[i] = &bounded{l, s}
	}
	return out
}

// bounded is a listener of a server.
type bounded struct {
	net.Listener
	s *Server
}

// Accept accepts a connection that there is room for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.s.conns.Add(1) <= int64(b.s.cfg.MaxConns) {
			return &counted{Conn: c, s: b.s}, nil
		}
		b.s.conns.Add(-1)
		b.s.refused.Add(1)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		f := &fault{http.StatusServiceUnavailable, codeBusy, "", fmt.Sprintf("there are %d connections: close some, keep one for many "+
			"requests, or start the server "+
			"with a greater --max-connections", b.s.cfg.MaxConns)}
		body := faultJSON(f)
		_, _ = fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(body), body) // it fits into the empty buffer of the socket
		_ = c.Close()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	s    *Server
	once sync.Once
}

// Close closes the connection.
func (c *counted) Close() error {
	c.once.Do(func() { c.s.conns.Add(-1) })
	return c.Conn.Close()
}
