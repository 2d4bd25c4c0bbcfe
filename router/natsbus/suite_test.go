package natsbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
	"github.com/ditask/ditask/router/routertest"
)

func TestMain(m *testing.M) {
	if token := os.Getenv(varServer); token != "" {
		if err := serveAlone(token); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// soon returns a context with a deadline for calls that must not block.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// plain starts a server as an administrator would: with opts, and without the settings of package
// embedded.
func plain(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	opts.NoSigs, opts.NoLog = true, true
	if opts.Host == "" {
		opts.Host = "127.0.0.1"
	}
	if opts.Port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	s, err := server.NewServer(&opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server is not ready")
	}
	t.Cleanup(func() { stop(s) })
	return s
}

// stop ends a server at once; it may be called again.
func stop(s *server.Server) {
	if s.Running() {
		s.Shutdown()
	}
	s.WaitForShutdown()
}

// ours starts the embedded server.
func ours(t testing.TB, cfg embedded.Config) *embedded.Server {
	t.Helper()
	cfg.Logger = quiet()
	s, err := embedded.Start(soon(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	t.Cleanup(func() { s.Close(now) }) // without waiting for clients
	return s
}

func open(t testing.TB, cfg natsbus.Config) *natsbus.Transport {
	t.Helper()
	if cfg.Job == "" {
		cfg.Job = "job"
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	c, err := natsbus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fleet is a transport for all nodes of a test: each that listens has a connection
// with the server, as in a separate process, and those that dial
// have one together.
type fleet struct {
	router.Transport
	t    testing.TB
	cfg  func() natsbus.Config
	mu   sync.Mutex
	own  map[string]*natsbus.Transport
	dial *natsbus.Transport
}

func newFleet(t testing.TB, cfg func() natsbus.Config) *fleet {
	t.Helper()
	f := &fleet{t: t, cfg: cfg, own: map[string]*natsbus.Transport{}, dial: open(t, cfg())}
	f.Transport = f.dial
	return f
}

func (f *fleet) Listen(ctx context.Context, addr string) (net.Listener, error) {
	f.mu.Lock()
	c := f.own[addr]
	if c == nil {
		c = open(f.t, f.cfg())
		f.own[addr] = c
	}
	f.mu.Unlock()
	return c.Listen(ctx, addr)
}

func address(_ testing.TB, node int) string { return fmt.Sprintf("bus://node.%d", node) }

// setup is the suite over servers that all of its tests share. Each test is a separate job.
func setup(cfg natsbus.Config, topology router.Topology) routertest.Setup {
	return routertest.Setup{
		Transport: func(t testing.TB) router.Transport {
			cfg.Job = t.Name()
			return newFleet(t, func() natsbus.Config { return cfg })
		},
		Addr: address, Topology: topology,
	}
}

func TestEmbedded(t *testing.T) {
	token := natsbus.JobKey("secret")
	s := ours(t, embedded.Config{Key: token})
	routertest.Run(t, setup(natsbus.Config{URL: s.URL(), Key: token}, router.Mesh))
}

func TestStar(t *testing.T) {
	s := ours(t, embedded.Config{})
	routertest.Run(t, setup(natsbus.Config{URL: s.URL()}, router.Star))
}
