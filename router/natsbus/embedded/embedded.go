// Package embedded runs a NATS server within this process, for the nodes of one job. The launcher
// of a job runs it if the job has no other server.
//
//	s, err := embedded.Start(ctx, embedded.Config{Host: "127.0.0.1", Port: 4222, Key: natsbus.JobKey(jobToken)})
//	defer s.Close(ctx)
//	c, err := natsbus.New(natsbus.Config{URL: s.URL(), Key: natsbus.JobKey(jobToken), Job: job})
//
// It is separate from package natsbus so that a program that only connects with a server does not
// link one.
//
// It listens on the loopback address by default, and keeps nothing on disk. It logs the server's
// warnings and errors as such, and its other messages at debug level. It holds its port from Start
// to Close.
//
// With [Config.Key], server and client prove to each other that they know the key before the NATS
// protocol begins, and the server serves only clients of package natsbus. At most 256 connections
// may be in that state, each for 2 s. When all places are taken, a connection of the address (for
// IPv6, the /64) with most of them is closed for a new one. The gate logs the first refusal for
// each reason and counts all.
//
// The proofs do not encrypt what follows: a process that relays between a client and
// the server can read and change it, unless Config.TLS is set.
//
// A [Server] is safe for concurrent use. Its goroutines are those of the NATS server, one that
// accepts, and one for each unauthenticated connection; Close returns when they have ended.
package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/ditask/ditask/internal/printable"
)

// Config describes where the server listens. The zero value is a free port of the loopback address,
// which every process of this machine can reach.
type Config struct {
	Host   string       // address to listen on; empty: 127.0.0.1
	Port   int          // 0: a free one
	Token  string       // for clients of any kind: the token that they must send; empty: none
	Key    string       // for clients of package natsbus with the same key: both sides prove that they know it; empty: none
	TLS    *tls.Config  // the TLS for clients; nil: none
	Logger *slog.Logger // slog.Default() if nil
}

// The limits of the server. A message is at most a piece of natsbus with 256 KiB of data; the rest
// is for bursts of many nodes to one that does not read for a while.
const (
	maxPayload = 1 << 20
	maxPending = 256 << 20
	startTime  = 10 * time.Second
)

// Server is a running NATS server.
type Server struct {
	s    *server.Server
	gate *gate
	url  string
	port int
	once sync.Once

	ended sync.Once
}

// Start starts a server, and returns when clients can connect with it. If it cannot listen on the
// address, the error is a [net.OpError].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	lc := net.ListenConfig{KeepAlive: -1} // NATS has its own pings
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	g := newGate(l, cfg, maxUnauthenticated, proofTime)
	s, err := serve(ctx, g, cfg)
	if err != nil {
		_ = g.Close()
		g.wait()
		return nil, fmt.Errorf("NATS server on %s: %w", address, err)
	}
	host, port := cfg.Host, l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on tcp
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &Server{s: s, gate: g, url: "nats://" + net.JoinHostPort(host, strconv.Itoa(port)), port: port}, nil
}

// serve starts a server that accepts from g, and returns when it does.
func serve(ctx context.Context, g *gate, cfg Config) (*server.Server, error) {
	opts := &server.Options{
		Host: cfg.Host, Port: g.Addr().(*net.TCPAddr).Port, NoSigs: true, Authorization: cfg.Token, //nolint:forcetypeassert // it listens on tcp
		MaxPayload: maxPayload, MaxPending: maxPending,
		Cluster: server.ClusterOpts{NoAdvertise: true}, // clients know the one address that they need
	}
	if cfg.Key == "" { // else the gate speaks TLS
		opts.TLSConfig, opts.TLS, opts.TLSVerify, opts.TLSTimeout = cfg.TLS, cfg.TLS != nil, cfg.TLS != nil, 5
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	if err := give(s, g); err != nil {
		return nil, err
	}
	log := &logger{log: cfg.Logger, dead: make(chan struct{})}
	s.SetLogger(log, false, false)
	s.Start()
	t := time.NewTimer(startTime)
	defer t.Stop()
	select {
	case <-g.taken:
		return s, nil
	case <-log.dead:
		err = errors.New(log.fatal())
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-t.C:
		err = fmt.Errorf("it did not accept connections within %v", startTime)
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil, err
}

// give makes a server that has not started accept from l. The server has no public way to set a
// listener or a connection, other than a pipe within the process, which copies all data once more.
// But it accepts from the listener that it has, and listens itself only if it has none. give
// refuses a version of the server without that field, and [serve] one that ignores the field: then
// nothing accepts from l.
func give(s *server.Server, l net.Listener) error {
	field := reflect.ValueOf(s).Elem().FieldByName("listener")
	if !field.IsValid() || field.Type() != reflect.TypeFor[net.Listener]() {
		return fmt.Errorf("version %s takes no listener: use the version in ditask's go.mod", server.VERSION)
	}
	*(*net.Listener)(unsafe.Pointer(field.UnsafeAddr())) = l // the type has been checked
	return nil
}

// URL returns the address for clients on this machine.
func (s *Server) URL() string { return s.url }

// Port returns the port of the listener.
func (s *Server) Port() int { return s.port }

// Clients returns the number of connected clients.
func (s *Server) Clients() int { return s.s.NumClients() }

// Close waits until all clients have disconnected, or ctx ends, and ends the server: the other
// nodes of a job may still have to leave each other.
func (s *Server) Close(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond) // the server does not report when a client disconnects
	defer t.Stop()
	for s.s.NumClients() > 0 && ctx.Err() == nil {
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.once.Do(s.s.Shutdown)
	s.s.WaitForShutdown()
	s.ended.Do(s.gate.wait)
}

// Refused counts the connections that were refused before they had proved that they know
// [Config.Key], by reason: "token" (a wrong proof), "tls" (no TLS, or a certificate of another
// authority), "garbage" (another protocol), "silence" (no proof within 2 s), "crowd" (256
// unauthenticated connections, most of them from this address), "hung up" (closed by the other
// side), or "accept" (the system could not accept a connection).
func (s *Server) Refused() map[string]int { return s.gate.counts() }

// logger passes the server's log to slog.
type logger struct {
	log  *slog.Logger
	dead chan struct{} // closed when the server cannot continue
	mu   sync.Mutex
	why  string
}

func (l *logger) Noticef(format string, v ...any) { l.logAt(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.logAt(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.logAt(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.logAt(slog.LevelWarn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.logAt(slog.LevelError, format, v) }

// Fatalf keeps the reason why the server cannot continue, for the error of Start.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == "" {
		l.why = printable.Text(fmt.Sprintf(format, v...))
		close(l.dead)
	}
}

func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.why
}

func (l *logger) logAt(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "NATS server: "+printable.Text(fmt.Sprintf(format, v...))) // the server quotes clients
	}
}
