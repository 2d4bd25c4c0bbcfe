package socket_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/socket"
)

// start starts a node of a job.
func start(t *testing.T, cfg router.Config) (*router.Router, error) {
	t.Helper()
	cfg.Job, cfg.Token = "j", []byte("secret")
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, r.Start(t.Context(), nil)
}

// listening starts node 0.
func listening(t *testing.T, cfg router.Config) (r *router.Router, log *logtest.Buffer) {
	t.Helper()
	log = &logtest.Buffer{}
	cfg.Expect, cfg.Listen, cfg.Logger = 1, "tcp://127.0.0.1:0", slog.New(slog.NewTextHandler(log, nil))
	r, err := start(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, log
}

// secure is a transport with TLS by a job's files.
func secure(t *testing.T, f certtest.Files) (*socket.Transport, *tls.Config) {
	t.Helper()
	cfg, err := socket.LoadTLS(f.Cert, f.Key, f.CA)
	if err != nil {
		t.Fatal(err)
	}
	return socket.New(socket.Config{TLS: cfg}), cfg
}

// between listens, and passes the bytes of callers on to the node at target, and back. accept and dial
// make the two connections.
func between(t *testing.T, accept func(net.Conn) net.Conn, dial func() (net.Conn, error)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_, _ = dst.Close(), src.Close()
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			a := accept(c)
			b, err := dial()
			if err != nil {
				_ = a.Close()
				continue
			}
			wg.Go(func() { pass(a, b) })
			wg.Go(func() { pass(b, a) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return "tcp://" + l.Addr().String()
}

// TestManInTheMiddle has a job's certificate, stolen, but not its token. It ends the TLS of both sides
// and relays their proofs: these hold for their own connections only. Without TLS the relay cannot be
// detected.
func TestManInTheMiddle(t *testing.T) {
	transport, cfg := secure(t, certtest.New(t))
	r, _ := listening(t, router.Config{Transport: transport})
	target := strings.TrimPrefix(r.Addr(), "tcp://")
	addr := between(t, func(c net.Conn) net.Conn { return tls.Server(c, cfg) },
		func() (net.Conn, error) { return tls.Dial("tcp", target, cfg) })
	_, err := start(t, router.Config{Transport: transport, Node: 1, Attach: []string{addr}})
	no, ok := errors.AsType[*router.RefusedError](err)
	if !ok || no.Code != router.RefuseToken {
		t.Errorf("with TLS: %v", err)
	}
	if len(r.Peers()) != 0 {
		t.Error("with TLS: it has joined")
	}

	plain := socket.New(socket.Config{})
	r, _ = listening(t, router.Config{Transport: plain})
	target = strings.TrimPrefix(r.Addr(), "tcp://")
	addr = between(t, func(c net.Conn) net.Conn { return c }, func() (net.Conn, error) { return net.Dial("tcp", target) })
	if _, err := start(t, router.Config{Transport: plain, Node: 1, Attach: []string{addr}}); err != nil {
		t.Errorf("without TLS a proxy is no obstacle: %v", err)
	}
}

// TestTLSAndPlainPeersSayWhatIsWrong has each kind of node meet the other kinds.
func TestTLSAndPlainPeersSayWhatIsWrong(t *testing.T) {
	mine, _ := secure(t, certtest.New(t))
	other, _ := secure(t, certtest.New(t))
	plain := socket.New(socket.Config{})
	for _, c := range []struct {
		name              string
		listens, dials    router.Transport
		logged, complaint string
	}{
		{"a plain node meets TLS", mine, plain, "does not look like a TLS handshake", "if it wants TLS, give this node a certificate"},
		{"a node with TLS meets a plain one", plain, mine, "the other side speaks TLS", "perhaps does not use TLS"},
		{"another authority", mine, other, "bad certificate", "unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, log := listening(t, router.Config{Transport: c.listens})
			_, err := start(t, router.Config{Transport: c.dials, Node: 1, Attach: []string{r.Addr()}, JoinTimeout: 200 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), c.complaint) {
				t.Errorf("want %q in: %v", c.complaint, err)
			}
			_ = r.Close()
			if n := strings.Count(log.String(), c.logged); n != 1 || r.Refused()["tls"] == 0 {
				t.Errorf("%q is logged %d times, refused: %v\n%s", c.logged, n, r.Refused(), log)
			}
		})
	}
}

// flood keeps a node busy with connections from one address until ctx ends: most send nothing, some
// garbage, some a hello a byte at a time.
func flood(ctx context.Context, from, target string, n int) *sync.WaitGroup {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := d.DialContext(ctx, "tcp", target)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				switch i % 4 {
				case 1:
					_, _ = c.Write(bytes.Repeat([]byte("garbage "), 1000))
				case 2:
					slowly(ctx, c)
				}
				_, _ = io.Copy(io.Discard, c) // until the node hangs up
				stop()
				_ = c.Close()
			}
		})
	}
	return &wg
}

// slowly sends the beginning of a hello, and never its end.
func slowly(ctx context.Context, c net.Conn) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, b := range append([]byte("ditask\x00\x01\xff\x3f\x00\x00"), bytes.Repeat([]byte(" "), 1<<14)...) {
		if _, err := c.Write([]byte{b}); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// TestR7FloodKeepsNobodyOut holds 1,000 unauthenticated connections open to a node,
// all from one address, and has another one join meanwhile, with and without TLS.
func TestR7FloodKeepsNobodyOut(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have but one loopback address")
	}
	secured, _ := secure(t, certtest.New(t))
	for name, transport := range map[string]router.Transport{"plain": socket.New(socket.Config{}), "tls": secured} {
		t.Run(name, func(t *testing.T) {
			r, log := listening(t, router.Config{Transport: transport, MaxHandshakes: 64})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			clients := flood(ctx, "127.0.0.2", strings.TrimPrefix(r.Addr(), "tcp://"), 1000)
			turnedAway(r, 1000)
			before := heap()
			if _, err := start(t, router.Config{Transport: transport, Node: 1, Attach: []string{r.Addr()}}); err != nil {
				t.Errorf("an honest node: %v", err)
			}
			turnedAway(r, 6000)
			// 5,000 of them keep less than 2 KiB each, their own ends included. Those
			// that are received at the moment come and go.
			grown := heap() - before
			for range 50 {
				grown = min(grown, heap()-before)
			}
			if grown > 8<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			cancel()
			clients.Wait()
			if n := strings.Count(log.String(), "reason=crowd"); n != 1 {
				t.Errorf("the crowd is logged %d times", n)
			}
		})
	}
}

// turnedAway returns when that many unauthenticated connections have been closed or refused.
func turnedAway(r *router.Router, n int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for r.Refused()["crowd"] < n {
		<-tick.C
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
