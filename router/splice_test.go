package router

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeOf registers a pipe of the hub's.
func pipeOf(r *Router) *pipe {
	p := &pipe{key: pipeKey{1, 2}}
	p.ctx, p.end = context.WithCancel(r.ctx)
	r.pipes[p.key] = p
	return p
}

// The hub copies bytes between two calls, without a deadline, and ends both with either,
// or with the pipe.
func TestPipeEndsWithEitherCall(t *testing.T) {
	for _, ends := range []string{"one", "other", "pipe", "hub"} {
		synctest.Test(t, func(t *testing.T) {
			r := openRouter(t, Config{})
			oneHub, one := net.Pipe()
			otherHub, other := net.Pipe()
			for _, c := range []net.Conn{oneHub, otherHub} {
				_ = c.SetDeadline(time.Now().Add(time.Second)) // that of the handshake
			}
			for _, c := range []net.Conn{one, other} {
				go func() { _, _ = io.ReadFull(c, make([]byte, 4+len(`{"got":"0"}`))) }()
			}
			p := pipeOf(r)
			if kept, err := r.splice(p, oneHub, otherHub); !kept || err != nil {
				t.Fatal(kept, err)
			}
			<-time.After(time.Minute)
			for _, c := range [][2]net.Conn{{one, other}, {other, one}} {
				go func() { _, _ = c[0].Write([]byte("hello")) }()
				b := make([]byte, 5)
				if _, err := io.ReadFull(c[1], b); err != nil || string(b) != "hello" {
					t.Errorf("%q, %v", b, err)
				}
			}
			switch ends {
			case "one":
				_ = one.Close()
			case "other":
				_ = other.Close()
			case "pipe":
				p.end()
			case "hub":
				r.cancel()
			}
			synctest.Wait()
			for _, c := range []net.Conn{oneHub, otherHub} {
				if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("%s ends: %v", ends, err)
				}
			}
			if p.ctx.Err() == nil || r.pipeCount() != 0 {
				t.Errorf("%s ends: %v, %d pipes", ends, p.ctx.Err(), r.pipeCount())
			}
			_, _ = one.Close(), other.Close()
		})
	}
}

// A call that is gone when the hub would connect it takes the other one with it.
func TestPipeWithACallThatIsGone(t *testing.T) {
	for first, closed := range []bool{true, false} {
		r := openRouter(t, Config{})
		oneHub, one := net.Pipe()
		otherHub, other := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, one) }()
		go func() { _, _ = io.Copy(io.Discard, other) }()
		_ = []net.Conn{oneHub, otherHub}[first].Close()
		p := pipeOf(r)
		if kept, err := r.splice(p, oneHub, otherHub); kept || err == nil || p.ctx.Err() == nil || r.pipeCount() != 0 {
			t.Errorf("%v, %v, %v, %d pipes", kept, err, p.ctx.Err(), r.pipeCount())
		}
		if _, err := otherHub.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("first %v: %v", closed, err)
		}
		_, _ = oneHub.Close(), other.Close()
	}
}

// A call back that comes when no leaf waits for it any more is refused, and so is one that no leaf
// takes.
func TestCallBackThatIsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := openRouter(t, Config{})
		r.tickets["t"] = make(chan net.Conn)
		for _, ticket := range []string{"t", "u"} {
			ours, theirs := net.Pipe()
			said := make(chan string, 1) // one result
			go func() { b, _ := io.ReadAll(theirs); said <- string(b) }()
			began := time.Now()
			kept, err := r.relayed(ours, hello{Node: 1, Ticket: ticket})
			_ = ours.Close()
			if got := <-said; kept || err != nil || !strings.Contains(got, `"code":"relay","reason":"the ticket has expired"`) {
				t.Errorf("%v, %v, %q", kept, err, got)
			}
			if took := time.Since(began); (took == 40*time.Second) != (ticket == "t") {
				t.Errorf("refused after %v", took)
			}
		}
	})
}

// A leaf hangs up on a hub that does not answer in time, or refuses.
func TestLeafHangsUpOnTheHub(t *testing.T) {
	for name, say := range map[string]func(hub *Router, conn net.Conn){
		"deaf":    func(_ *Router, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"refuses": func(hub *Router, conn net.Conn) { welcomes(hub, hubConn{conn}, false, "\x02\x00\x00\x00[]") },
	} {
		synctest.Test(t, func(t *testing.T) {
			mine, theirs := net.Pipe()
			hub, ended := partner(t, 0), make(chan struct{})
			go func() { defer close(ended); say(hub, theirs) }()
			r := openRouter(t, Config{
				Job: "j", Token: []byte("secret"), Node: 1, Topology: Star, Attach: []string{"hub"},
				Transport: dialFunc(func(context.Context, string) (net.Conn, error) { return mine, nil }),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			began := time.Now()
			if conn, err := r.answerHub(ctx, relayMsg{Ticket: "t"}); conn != nil || err == nil || time.Since(began) > 3*time.Second {
				t.Errorf("%s: %v, %v after %v", name, conn, err, time.Since(began))
			}
			if _, err := mine.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%s: %v", name, err)
			}
			_ = theirs.Close()
			<-ended
		})
	}
}
