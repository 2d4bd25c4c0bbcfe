package embedded_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router/natsbus/embedded"
	"github.com/ditask/ditask/router/natsbus/internal/proof"
)

// from is a connection from an address, silent until it is closed.
type from struct {
	net.Conn
	addr net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.addr }

// street is a listener that accepts connections from chosen addresses.
type street struct {
	come chan net.Conn
	done chan struct{}
}

func (s *street) Accept() (net.Conn, error) {
	select {
	case c := <-s.come:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

func (s *street) Close() error   { close(s.done); return nil }
func (s *street) Addr() net.Addr { return &net.TCPAddr{} }

// visit makes a connection from ip.
func (s *street) visit(t *testing.T, ip string) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _ = far.Close() })
	s.come <- from{near, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("timeout: " + what)
		}
	}
}

// TestUnauthenticatedClientsMakeWayForOtherAddresses: connections of one address are closed for newer ones of the same address,
// and of others, and never instead of one of an address with more connections.
func TestUnauthenticatedClientsMakeWayForOtherAddresses(t *testing.T) {
	s := &street{make(chan net.Conn), make(chan struct{})}
	g := embedded.NewGate(s, embedded.Config{Key: "key", Logger: slog.New(slog.DiscardHandler)}, 4, time.Hour)
	defer g.End()
	for range 10 {
		s.visit(t, "10.0.0.1")
	}
	s.visit(t, "10.0.0.2")
	s.visit(t, "2001:db8::1")
	for i := range 50 {
		s.visit(t, "10.0.0.1")
		s.visit(t, fmt.Sprintf("2001:db8::%x", i)) // of one network
	}
	want := "map[10.0.0.1:1 10.0.0.2:1 2001:db8::/64:2]"
	until(t, want, func() bool {
		got := g.Unauthenticated()
		if got["10.0.0.2"] != 1 || len(got) != 3 {
			t.Fatalf("%v", got)
		}
		return g.Refused()["crowd"] == 108
	})
}

// TestUnauthenticatedClientsAreRefusedCountedAndLoggedOnce, and their total at the end.
func TestUnauthenticatedClientsAreRefusedCountedAndLoggedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Buffer
	g := embedded.NewGate(l, embedded.Config{Key: "key", Logger: slog.New(slog.NewTextHandler(&log, nil))}, 100, 3*time.Second)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 3 {
		silent := dial()
		defer silent.Close()
		for _, words := range []string{"CONNECT {\"auth_token\":\"x\"}\r\n", "\x16\x03\x01\x00\xc8\x01\x00\x00"} {
			c := dial()
			_, _ = io.WriteString(c, words)
			_, _ = io.Copy(io.Discard, c) // until it is refused
			_ = c.Close()
		}
		c := dial()
		if err := proof.Client(c, []byte("guess")); err == nil {
			t.Error("a guess is accepted")
		}
		_ = c.Close()
		_ = dial().Close()
	}
	want := "map[garbage:3 hung up:3 silence:3 tls:3 token:3]"
	until(t, want, func() bool { return fmt.Sprint(g.Refused()) == want })
	for _, reason := range []string{"garbage", "silence", "tls", "token"} {
		if n := strings.Count(log.String(), ": "+reason+": "); n != 1 {
			t.Errorf("%s is logged %d times:\n%s", reason, n, log.String())
		}
	}
	g.End()
	const refused = "NATS server: 15 connections were refused: garbage 3, hung up 3, silence 3, tls 3, token 3"
	if text := log.String(); !strings.Contains(text, refused) || strings.Count(text, "\n") != 5 {
		t.Errorf("log:\n%s", text)
	}
}

// last is a connection whose gate closes as soon as it has refused it.
type last struct {
	net.Conn
	closing func()
}

func (l last) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1} }

func (l last) Close() error {
	l.closing()
	return l.Conn.Close()
}

// TestRefusalsBeforeTheEndAreCounted, and the connections that the end closes are not.
func TestRefusalsBeforeTheEndAreCounted(t *testing.T) {
	s := &street{make(chan net.Conn), make(chan struct{})}
	g := embedded.NewGate(s, embedded.Config{Key: "key", Logger: slog.New(slog.DiscardHandler)}, 4, time.Hour)
	s.visit(t, "10.0.0.2") // is silent
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	s.come <- last{near, sync.OnceFunc(func() { _ = g.Close(); close(closed) })}
	if err := proof.Client(far, []byte("guess")); err == nil {
		t.Error("a guess is accepted")
	}
	<-closed // the refusal is read before the gate has closed the connection
	g.End()
	if got := fmt.Sprint(g.Refused()); got != "map[token:1]" {
		t.Error(got)
	}
}

// failing is a listener that the system gives no connection at first.
type failing struct {
	net.Listener
	errs chan error
}

func (f failing) Accept() (net.Conn, error) {
	select {
	case err := <-f.errs:
		return nil, err
	default:
		return f.Listener.Accept()
	}
}

// TestListenerWithoutConnectionsGoesOn: all file descriptors may be in use for a while.
func TestListenerWithoutConnectionsGoesOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := failing{l, make(chan error, 2)}
	f.errs <- fmt.Errorf("accept: too many open files")
	f.errs <- fmt.Errorf("accept: too many open files")
	g := embedded.NewGate(f, embedded.Config{Key: "key", Logger: slog.New(slog.DiscardHandler)}, 100, 20*time.Second)
	defer g.End()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := proof.Client(c, []byte("key")); err != nil {
		t.Fatal(err)
	}
	served, err := g.Accept()
	if err != nil || served.RemoteAddr().String() != c.LocalAddr().String() {
		t.Errorf("%v, %v", served, err)
	}
	_ = served.Close()
	if n := g.Refused()["accept"]; n != 2 {
		t.Errorf("%d failures are counted, want 2", n)
	}
}

// TestServerUsesTheListener: the server accepts from the listener that holds the port
// from the first moment to the last, and from no other.
func TestServerUsesTheListener(t *testing.T) {
	s := start(t, embedded.Config{Key: "key"})
	at := fmt.Sprintf("127.0.0.1:%d", s.Port())
	if l, err := net.Listen("tcp", at); err == nil {
		_ = l.Close()
		t.Error("another listener can listen on the server's port")
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := proof.Client(c, []byte("key")); err != nil {
		t.Fatal(err)
	}
	info := make([]byte, 5)
	if _, err := io.ReadFull(c, info); err != nil || string(info) != "INFO " {
		t.Errorf("after the proofs: %q, %v", info, err)
	}
}
