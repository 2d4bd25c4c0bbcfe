// Package embedded runs a NATS server within this process, for the nodes of one job.
// The launcher of a job runs it where no server is there already.
//
//	s, err := embedded.Start(ctx, embedded.Config{Host: "127.0.0.1", Port: 4222, Token: natsbus.JobToken(jobToken)})
//	defer s.Close(ctx)
//	c, err := natsbus.New(natsbus.Config{URL: s.URL(), Token: natsbus.JobToken(jobToken), Job: job})
//
// It is a package apart from natsbus so that a program that connects with a server
// does not link one.
//
// It listens on the loopback address unless told otherwise, takes only clients
// that know its token, and keeps nothing on disk. Its warnings and errors are
// logged as such, all else at debug level.
//
// A [Server] is safe for concurrent use. Its goroutines are those of the NATS
// server; Close returns when they have ended.
package embedded

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/ditask/ditask/internal/printable"
)

// Config says where the server listens. The zero value is a free port of the
// loopback address, open to every process of this machine.
type Config struct {
	Host   string       // address to listen on; empty: 127.0.0.1
	Port   int          // 0: a free one
	Token  string       // what a client must know; empty: nothing
	TLS    *tls.Config  // what clients are to be spoken to with; nil: none
	Logger *slog.Logger // slog.Default() if nil
}

// The limits of the server. A message is at most what natsbus makes of 256 KiB; the
// rest is for bursts of many nodes to one that does not read for a while.
const (
	maxPayload = 1 << 20
	maxPending = 256 << 20
	startTime  = 10 * time.Second
)

// Server is a NATS server that runs.
type Server struct {
	s    *server.Server
	url  string
	port int
	once sync.Once
}

// Start starts a server, and returns when clients can connect with it. An address that
// cannot be listened on is a [net.OpError].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Host == "" {
		cfg.Host = "127.0.0.1"
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	if err := probe(ctx, address); err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	port := cfg.Port
	if port == 0 {
		port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&server.Options{
		Host: cfg.Host, Port: port, NoSigs: true, Authorization: cfg.Token,
		TLSConfig: cfg.TLS, TLS: cfg.TLS != nil, TLSVerify: cfg.TLS != nil, TLSTimeout: 5,
		MaxPayload: maxPayload, MaxPending: maxPending,
		Cluster: server.ClusterOpts{NoAdvertise: true}, // clients know the one address that they need
	})
	if err != nil {
		return nil, fmt.Errorf("NATS server: %w", err)
	}
	log := &logger{log: cfg.Logger}
	s.SetLogger(log, false, false)
	s.Start()
	if !s.ReadyForConnections(startTime) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("NATS server on %s: not ready: %s", address, log.fatal())
	}
	bound, ok := s.Addr().(*net.TCPAddr)
	if !ok {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fmt.Errorf("NATS server on %s: %v is no address of tcp", address, s.Addr())
	}
	host := cfg.Host
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return &Server{s: s, url: "nats://" + net.JoinHostPort(host, strconv.Itoa(bound.Port)), port: bound.Port}, nil
}

// probe reports why the server could not listen: the server itself only logs that, and
// takes no listener from outside.
func probe(ctx context.Context, address string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// URL is where clients on this machine connect.
func (s *Server) URL() string { return s.url }

// Port is where it listens.
func (s *Server) Port() int { return s.port }

// Clients is how many clients are connected.
func (s *Server) Clients() int { return s.s.NumClients() }

// Close waits until all clients have gone, or ctx ends, and ends the server: the
// other nodes of a job may still have to take leave of each other.
func (s *Server) Close(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond) // the server does not say when a client goes
	defer t.Stop()
	for s.s.NumClients() > 0 && ctx.Err() == nil {
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	s.once.Do(s.s.Shutdown)
	s.s.WaitForShutdown()
}

// logger hands the server's log to slog.
type logger struct {
	log *slog.Logger
	mu  sync.Mutex
	why string
}

func (l *logger) Noticef(format string, v ...any) { l.say(slog.LevelDebug, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.say(slog.LevelDebug, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.say(slog.LevelWarn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.say(slog.LevelError, format, v) }

// Fatalf keeps why the server cannot go on, for the error of Start.
func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = printable.Text(fmt.Sprintf(format, v...))
}

func (l *logger) fatal() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.why == "" {
		return "no reason given"
	}
	return l.why
}

func (l *logger) say(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "NATS server: "+printable.Text(fmt.Sprintf(format, v...))) // it quotes clients
	}
}
