package router

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// ending is a listener that ends with a given error.
type ending struct {
	lame
	end chan struct{}
	err error
}

func (l ending) Accept() (net.Conn, error) { <-l.end; return nil, l.err }

// A listener that ends with its node, or that was closed, is not logged; any other end is.
func TestLogOfAListenerThatEnds(t *testing.T) {
	for name, c := range map[string]struct {
		closes bool // the node is closed first
		err    error
		lines  int
	}{"with its node": {true, io.EOF, 0}, "closed": {false, net.ErrClosed, 0}, "by itself": {false, io.EOF, 3}} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Buffer
			l := ending{end: make(chan struct{}), err: c.err}
			r, err := New(Config{Transport: noTransport{}, Listener: l, Advertise: "a", Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.listen(t.Context()); err != nil || r.Addr() != "a" {
				t.Error(r.Addr(), err)
			}
			if c.closes {
				r.cancel()
			}
			close(l.end)
			<-time.After(149 * time.Millisecond) // it is tried again every 50 ms
			if n := strings.Count(log.String(), `msg="cannot accept" err=EOF`); n != c.lines || strings.Count(log.String(), "\n") != n {
				t.Errorf("%s: the log:\n%s", name, log.String())
			}
			_ = r.Close()
		})
	}
}

// A node without a listener has no address. A node that would serve too many unauthenticated
// connections refuses the next one, and counts it.
func TestListenerOfANode(t *testing.T) {
	r := openRouter(t, Config{})
	if err := r.listen(t.Context()); err != nil || r.Addr() != "" {
		t.Error(r.Addr(), err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := &crowdedListener{conns: make(chan net.Conn), end: make(chan struct{})}
		r := openRouter(t, Config{Listener: l, Advertise: "a", MaxHandshakes: 1})
		if err := r.listen(t.Context()); err != nil {
			t.Error(err)
		}
		var theirs [2]net.Conn
		for i := range theirs {
			ours, other := net.Pipe()
			theirs[i] = other
			l.conns <- ours
			synctest.Wait()
		}
		if _, err := theirs[1].Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // as a pipe says it
			t.Error(err)
		}
		if n := r.Refused()["crowd"]; n != 1 || r.Stats().Accepted != 2 {
			t.Errorf("%d of %d are refused", n, r.Stats().Accepted)
		}
		_ = theirs[0].Close()
	})
}

// crowdedListener is a listener with the connections that a test makes.
type crowdedListener struct {
	lame
	conns chan net.Conn
	end   chan struct{}
}

func (l *crowdedListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}
func (l *crowdedListener) Close() error { close(l.end); return nil }
