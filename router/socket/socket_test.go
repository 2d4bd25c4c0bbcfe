package socket_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/routertest"
	"github.com/ditask/ditask/router/socket"
)

func TestMain(m *testing.M) {
	if os.Getenv(varProcess) != "" {
		if err := otherProcess(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	useNameServer()
	goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute))
}

func transport(testing.TB) router.Transport { return socket.New(socket.Config{}) }

// sockets gives each test its own folder of sockets.
func sockets() func(testing.TB, int) string {
	dirs := map[string]string{}
	return func(t testing.TB, node int) string {
		if dirs[t.Name()] == "" {
			dirs[t.Name()] = t.TempDir()
		}
		p := filepath.Join(dirs[t.Name()], fmt.Sprint(node))
		if len(p) > 100 {
			t.Fatalf("socket path %s is too long", p)
		}
		return "unix://" + p
	}
}

// ports gives each node of each test a port.
func ports() func(testing.TB, int) string {
	got := map[string]string{}
	return func(t testing.TB, node int) string {
		key := fmt.Sprint(t.Name(), node)
		if got[key] == "" {
			got[key] = fmt.Sprint("tcp://127.0.0.1:", freeport.Get(t, 1))
		}
		return got[key]
	}
}

func TestUnix(t *testing.T) {
	routertest.Run(t, routertest.Setup{Transport: transport, Addr: sockets()})
}

func TestUnixStar(t *testing.T) {
	routertest.Run(t, routertest.Setup{Transport: transport, Addr: sockets(), Topology: router.Star})
}

func TestTCP(t *testing.T) {
	routertest.Run(t, routertest.Setup{Transport: transport, Addr: ports()})
}

func TestTCPWithTLS(t *testing.T) {
	f := certtest.New(t)
	cfg, err := socket.LoadTLS(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	secure := func(testing.TB) router.Transport { return socket.New(socket.Config{TLS: cfg}) }
	routertest.Run(t, routertest.Setup{Transport: secure, Addr: ports()})
}

func TestTLSRefusesAnotherAuthority(t *testing.T) {
	mine, theirs := certtest.New(t), certtest.New(t)
	server, err := socket.LoadTLS(mine.Cert, mine.Key, mine.CA)
	if err != nil {
		t.Fatal(err)
	}
	client, err := socket.LoadTLS(theirs.Cert, theirs.Key, theirs.CA)
	if err != nil {
		t.Fatal(err)
	}
	l, err := socket.New(socket.Config{TLS: server}).Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = c.Read(make([]byte, 1)); _ = c.Close() }()
		}
	}()
	_, err = socket.New(socket.Config{TLS: client}).Dial(t.Context(), "tcp://"+l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	if _, err := socket.LoadTLS(mine.Cert, "", mine.CA); err == nil {
		t.Error("a key is missing")
	}
}

func TestBusyAndStaleAddresses(t *testing.T) {
	c := socket.New(socket.Config{})
	for _, addr := range []string{"tcp://127.0.0.1:0", "unix://" + filepath.Join(t.TempDir(), "s")} {
		l, err := c.Listen(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Listen(t.Context(), c.Advertise(l)); err == nil || !strings.Contains(err.Error(), "in use") ||
			!strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("a busy address: %v", err)
		}
		_ = l.Close()
		again, err := c.Listen(t.Context(), c.Advertise(l))
		if err != nil {
			t.Fatalf("after it was closed: %v", err)
		}
		_ = again.Close()
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "unix://", "tcp://host", "http://x:1", "/run/x"} {
		if _, _, err := socket.Split(bad); err == nil {
			t.Errorf("%q is taken for an address", bad)
		}
	}
	c := socket.New(socket.Config{})
	if _, err := c.Listen(t.Context(), "unix:///"+strings.Repeat("x", 200)); err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("a long socket path: %v", err)
	}
}

func BenchmarkRecovery(b *testing.B) {
	b.Run("unix", func(b *testing.B) { routertest.Recovery(b, routertest.Setup{Transport: transport, Addr: sockets()}) })
	b.Run("tcp", func(b *testing.B) { routertest.Recovery(b, routertest.Setup{Transport: transport, Addr: ports()}) })
	b.Run("star", func(b *testing.B) {
		routertest.Recovery(b, routertest.Setup{Transport: transport, Addr: sockets(), Topology: router.Star})
	})
}
