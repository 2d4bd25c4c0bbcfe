//go:build unix

package socket_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/router/socket"
)

// tryConn is the interface of a connection of this package beyond that of package net.
type tryConn interface {
	net.Conn
	io.ReaderFrom
	TryWrite(b []byte) (int, error)
	WriteBuffers(bufs *net.Buffers) (int64, error)
}

// pair is a connection by way of a listener at addr.
func pair(t *testing.T, addr string) (dialed, accepted tryConn) {
	t.Helper()
	return connect(t, socket.New(socket.Config{}), addr)
}

func connect(t *testing.T, c *socket.Transport, addr string) (dialed, accepted tryConn) {
	t.Helper()
	l, err := c.Listen(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		net.Conn
		error
	}
	got := make(chan result, 1) // one connection
	go func() { conn, err := l.Accept(); got <- result{conn, err} }()
	conn, err := c.Dial(t.Context(), c.Advertise(l))
	if err != nil {
		t.Fatal(err)
	}
	other := <-got
	if other.error != nil {
		t.Fatal(other.error)
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
	return conn.(tryConn), other.Conn.(tryConn)
}

// addresses are one of each kind.
func addresses(t *testing.T) map[string]string {
	return map[string]string{"tcp": "tcp://127.0.0.1:0", "unix": "unix://" + filepath.Join(t.TempDir(), "s")}
}

// TryWrite writes what the system takes, and no byte of it is lost or written twice.
func TestTryWriteDoesNotWait(t *testing.T) {
	for name, addr := range addresses(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, addr)
			rnd := rand.New(rand.NewPCG(1, 2))
			data := make([]byte, 64<<10)
			for i := range data {
				data[i] = byte(rnd.Uint32())
			}
			var sent bytes.Buffer
			for {
				n, err := a.TryWrite(data)
				if err != nil || n < 0 || n > len(data) {
					t.Fatal(n, err)
				}
				sent.Write(data[:n])
				if n == 0 { // the buffers are full
					break
				}
			}
			if sent.Len() < 64<<10 {
				t.Errorf("full after %d bytes", sent.Len())
			}
			if name == "unix" && sent.Len() < 256<<10 { // as a whole chunk
				t.Errorf("a unix socket takes %d bytes", sent.Len())
			}
			got := make([]byte, sent.Len())
			if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent.Bytes()) {
				t.Errorf("other bytes have come than were sent: %v", err)
			}
			if n, err := a.TryWrite([]byte("x")); n != 1 || err != nil {
				t.Errorf("with room again: %d, %v", n, err)
			}
			_ = a.Close()
			if n, err := a.TryWrite([]byte("x")); n != 0 || err == nil {
				t.Errorf("after Close: %d, %v", n, err)
			}
			if got, err := io.ReadAll(b); string(got) != "x" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// A connection keeps no buffer that TryWrite has had.
func TestTryWriteKeepsNothing(t *testing.T) {
	for name, addr := range addresses(t) {
		a, b := pair(t, addr)
		buf := new([4096]byte)
		kept := weak.Make(buf)
		n, err := a.TryWrite(buf[:])
		if _, readErr := io.ReadFull(b, make([]byte, n)); n == 0 || err != nil || readErr != nil {
			t.Errorf("%s: %d, %v, %v", name, n, err, readErr)
		}
		runtime.GC() // nothing else refers to buf
		if kept.Value() != nil {
			t.Errorf("%s: the buffer is still referred to", name)
		}
		runtime.KeepAlive(a)
	}
}

// A write to a connection that the other side has closed fails in the end.
func TestTryWriteToTheEnd(t *testing.T) {
	for name, addr := range addresses(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, addr)
			_ = b.Close()
			if name == "tcp" { // the first write is answered by a reset, which a read waits for
				_, _ = a.TryWrite([]byte("x"))
				_, _ = io.ReadAll(a)
			}
			if n, err := a.TryWrite([]byte("x")); n != 0 || err == nil {
				t.Errorf("%d, %v", n, err)
			}
		})
	}
}

func TestBuffersAndCopiesArriveWhole(t *testing.T) {
	for name, addr := range addresses(t) {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, addr)
			c, d := pair(t, strings.TrimSuffix(addr, "/s")+map[bool]string{true: "/t"}[name == "unix"])
			copied := make(chan error, 1) // one result
			go func() {                   // from a by b and c to d
				n, err := io.Copy(c, b)
				if n != 6 {
					t.Errorf("%d bytes were copied", n)
				}
				_ = c.Close()
				copied <- err
			}()
			bufs := net.Buffers{[]byte("ab"), nil, []byte("cd")}
			if n, err := a.WriteBuffers(&bufs); n != 4 || err != nil {
				t.Error(n, err)
			}
			if n, err := a.ReadFrom(strings.NewReader("ef")); n != 2 || err != nil { // from no socket
				t.Error(n, err)
			}
			_ = a.Close()
			if got, err := io.ReadAll(d); string(got) != "abcdef" || err != nil || <-copied != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// Unix sockets have no TLS, which their folder makes needless.
func TestUnixSocketsHaveNoTLS(t *testing.T) {
	c, _ := secure(t, certtest.New(t))
	a, b := connect(t, c, addresses(t)["unix"])
	if n, err := a.TryWrite([]byte("plain")); n != 5 || err != nil {
		t.Error(n, err)
	}
	_ = a.Close()
	if got, err := io.ReadAll(b); string(got) != "plain" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// The certificate of the listening side is for the host that was dialled, or for the name in the
// configuration.
func TestHostOfACertificate(t *testing.T) {
	files := certtest.New(t) // for 127.0.0.1 and localhost
	c, cfg := secure(t, files)
	text, err := os.ReadFile(files.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	l, err := c.Listen(t.Context(), "tcp://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.Close()
		}
	})
	for name, fits := range map[string]bool{"": true, "localhost": true, "example.com": false} {
		dials := socket.New(socket.Config{TLS: &tls.Config{
			RootCAs: pool, Certificates: cfg.Certificates, ServerName: name, MinVersion: tls.VersionTLS13,
		}})
		conn, err := dials.Dial(t.Context(), c.Advertise(l))
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != fits || err != nil &&
			(!strings.Contains(err.Error(), "tls with 127.0.0.1:") || strings.Contains(err.Error(), "hung up")) {
			t.Errorf("%q: %v", name, err)
		}
	}
	_ = l.Close()
	served.Wait()
}

// A node with TLS that dials one without returns an error with that reason, and leaves no connection
// behind.
func TestWhereNoTLSIsSpoken(t *testing.T) {
	c, _ := secure(t, certtest.New(t))
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, test := range map[string]struct {
		answer func(*net.TCPConn) error
		hungUp bool
	}{
		"end":     {(*net.TCPConn).CloseWrite, true},
		"reset":   {func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }, true},
		"garbage": {func(c *net.TCPConn) error { _, err := c.Write([]byte("what is it?")); return err }, false},
	} {
		answered := make(chan error, 1) // one connection
		go func() {
			conn, err := l.AcceptTCP()
			if err == nil {
				_, err = conn.Read(make([]byte, 1<<14)) // the first bytes of the other one
				err = errors.Join(err, test.answer(conn))
				_, _ = io.Copy(io.Discard, conn) // until the other one closes it
				_ = conn.Close()
			}
			answered <- err
		}()
		_, err := c.Dial(t.Context(), "tcp://"+l.Addr().String())
		if err == nil || strings.Contains(err.Error(), "perhaps does not use TLS") != test.hungUp ||
			!strings.Contains(err.Error(), "tls with 127.0.0.1:") {
			t.Errorf("%s: %v", name, err)
		}
		if err := <-answered; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// single is a listener to which one connection comes.
type single struct{ conn net.Conn }

func (s single) Accept() (net.Conn, error) { return s.conn, nil }
func (single) Close() error                { return nil }
func (single) Addr() net.Addr              { return &net.UnixAddr{Name: "x", Net: "unix"} }

// A connection of another package, or a value that is none, is passed on unchanged.
func TestOtherConnectionsAreWrapped(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, want := range []net.Conn{a, &net.UnixConn{}} {
		if got, err := socket.New(socket.Config{}).Wrap(single{want}).Accept(); got != want || err != nil {
			t.Errorf("%T became %T, %v", want, got, err)
		}
	}
}

// A socket file without a listener is replaced, and another file is left alone.
func TestWhatIsAtTheAddress(t *testing.T) {
	c, dir := socket.New(socket.Config{}), t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Listen(ended, "unix://"+stale); !errors.Is(err, context.Canceled) {
		t.Errorf("without time to look: %v", err)
	}
	if _, err := os.Lstat(stale); err != nil {
		t.Errorf("nobody knows whether it was stale: %v", err)
	}
	again, err := c.Listen(t.Context(), "unix://"+stale)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Listen(t.Context(), "unix://"+stale); err == nil || err.Error() != "socket "+stale+" is in use" {
		t.Error(err)
	}
	_ = again.Close()
	if _, err := os.Lstat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket file is left: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Listen(t.Context(), "unix://"+file); err == nil {
		t.Error("listens at a file")
	}
	if got, err := os.ReadFile(file); string(got) != "mine" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.Dial(t.Context(), "unix://"+file); err == nil {
		t.Error("connects to a file")
	}
}

func TestAddressesAreSplitAndTold(t *testing.T) {
	for addr, want := range map[string][2]string{
		"unix:///run/x": {"unix", "/run/x"}, "unix://x": {"unix", "x"}, "tcp://h:1": {"tcp", "h:1"},
		"tcp://[::1]:0": {"tcp", "[::1]:0"}, "tcp://:5": {"tcp", ":5"},
	} {
		if network, address, err := socket.Split(addr); network != want[0] || address != want[1] || err != nil {
			t.Errorf("%s: %s, %s, %v", addr, network, address, err)
		}
	}
	c := socket.New(socket.Config{})
	for _, bad := range []string{"tcp://host", "http://x:1", "tcp", "unix", "unix://"} {
		if _, err := c.Dial(t.Context(), bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("dial %s: %v", bad, err)
		}
		if _, err := c.Listen(t.Context(), bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("listen on %s: %v", bad, err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{"tcp://127.0.0.1:0": "tcp://127.0.0.1:", "tcp://0.0.0.0:0": "tcp://" + host + ":"} {
		l, err := c.Listen(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Advertise(l); !strings.HasPrefix(got, want) || strings.HasSuffix(got, ":0") {
			t.Errorf("%s is told as %s", addr, got)
		}
		_ = l.Close()
	}
	t.Chdir(t.TempDir())
	long := strings.Repeat("x", 100)
	for path, fits := range map[string]bool{long: true, long + "x": false} {
		l, err := c.Listen(t.Context(), "unix://"+path)
		if (err == nil) != fits {
			t.Errorf("%d bytes: %v", len(path), err)
		}
		if err == nil {
			_ = l.Close()
		}
	}
}
