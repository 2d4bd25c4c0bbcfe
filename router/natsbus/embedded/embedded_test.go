package embedded_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

func start(t *testing.T, cfg embedded.Config) *embedded.Server {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) })
	return s
}

func TestOnlyClientsWithTheTokenAreServed(t *testing.T) {
	const word = "word"
	s := start(t, embedded.Config{Token: word})
	nc, err := nats.Connect(s.URL(), nats.Token(word))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	for _, opts := range [][]nats.Option{{nats.Token("guess")}, nil} {
		if _, err := nats.Connect(s.URL(), opts...); err == nil {
			t.Error("an unauthenticated client is served")
		}
	}
	if s.URL() != "nats://127.0.0.1:"+strconv.Itoa(s.Port()) || s.Port() == 0 {
		t.Errorf("listens at %s", s.URL())
	}
}

func TestBusyPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	_, err = embedded.Start(t.Context(), embedded.Config{Port: port})
	want := "NATS server: listen tcp 127.0.0.1:" + strconv.Itoa(port) + ": bind: address already in use"
	if err == nil || err.Error() != want || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := embedded.Start(t.Context(), embedded.Config{Host: "no.such.host.invalid"}); err == nil {
		t.Error("Start succeeds without an address to listen on")
	}
}

func TestCloseWaitsForClientsAndForItsContext(t *testing.T) {
	s := start(t, embedded.Config{})
	nc, err := nats.Connect(s.URL(), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	s.Close(short)
	if short.Err() == nil {
		t.Error("it did not wait for its client")
	}

	again := start(t, embedded.Config{})
	other, err := nats.Connect(again.URL())
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		again.Close(context.Background()) // without a deadline
		close(closed)
	}()
	other.Close()
	<-closed
}

func TestServerListensOnTheGivenAddress(t *testing.T) {
	dial := func(host string, port int) error {
		var d net.Dialer
		c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	s := start(t, embedded.Config{})
	if err := dial("127.0.0.1", s.Port()); err != nil {
		t.Error(err)
	}
	if err := dial("127.0.0.2", s.Port()); err == nil && runtime.GOOS == "linux" {
		t.Error("it listens on more than the given address")
	}
	all := start(t, embedded.Config{Host: "0.0.0.0"})
	if want := "nats://127.0.0.1:" + strconv.Itoa(all.Port()); all.URL() != want {
		t.Errorf("URL %s, want %s", all.URL(), want)
	}
	fixed := freeport.Get(t, 1)
	if s := start(t, embedded.Config{Port: fixed}); s.Port() != fixed {
		t.Errorf("port %d, want %d", s.Port(), fixed)
	}
}

func TestClientsWithoutACertificateAreNotServed(t *testing.T) {
	f := certtest.New(t)
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	s := start(t, embedded.Config{TLS: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}})
	client := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13, ServerName: "localhost"}
	if nc, err := nats.Connect(s.URL(), nats.Secure(client)); err == nil {
		nc.Close()
		t.Error("a client without a certificate is served")
	}
	client.Certificates = []tls.Certificate{pair}
	nc, err := nats.Connect(s.URL(), nats.Secure(client))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

// TestWarningsAndErrorsAreLogged, and nothing else, at those levels.
func TestWarningsAndErrorsAreLogged(t *testing.T) {
	var log logtest.Buffer
	s, err := embedded.Start(t.Context(), embedded.Config{Token: "word", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(s.URL()); err == nil {
		nc.Close()
	}
	s.Close(t.Context())
	got := log.String()
	if !strings.HasPrefix(strings.SplitN(got, "level=", 2)[1], "ERROR msg=\"NATS server: ") ||
		!strings.Contains(got, "authentication error") || strings.Count(got, "\n") != 1 {
		t.Errorf("log:\n%s", got)
	}
}

func TestLevelsOfTheServersLog(t *testing.T) {
	var log logtest.Buffer
	l := embedded.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	l.Noticef("a %d", 1)
	l.Warnf("b %d", 2)
	l.Errorf("c %d", 3)
	got := log.String()
	for _, want := range []string{
		`level=DEBUG msg="NATS server: a 1"`, `level=WARN msg="NATS server: b 2"`,
		`level=ERROR msg="NATS server: c 3"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %s in:\n%s", want, got)
		}
	}
}

func TestClientsAreCounted(t *testing.T) {
	s := start(t, embedded.Config{})
	if n := s.Clients(); n != 0 {
		t.Errorf("%d clients", n)
	}
	nc, err := nats.Connect(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if n := s.Clients(); n != 1 {
		t.Errorf("%d clients, want 1", n)
	}
}

// The server's lines quote its clients, which can send any text before they are authenticated.
func TestLinesOfTheServerArePrintable(t *testing.T) {
	var log logtest.Buffer
	embedded.Logger(slog.New(logtest.Raw(&log))).Errorf("client %s: %s", logtest.Hostile, strings.Repeat("x", 4<<10))
	if got := log.String(); logtest.Faults(got) != "" || !strings.Contains(got, `NATS server: client \x1b[2J`) || len(got) > 1<<10 {
		t.Errorf("%d bytes: %s", len(got), logtest.Faults(got))
	}
}
