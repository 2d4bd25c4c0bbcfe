package router

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// The wait between two calls is an eighth of the time for which they have failed, within bounds.
func TestWaitsBetweenCalls(t *testing.T) {
	for left, most := range map[bool]time.Duration{false: time.Second, true: 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := backoff{left: left}
			for _, c := range []struct{ failed, want time.Duration }{
				{0, 5 * time.Millisecond}, {40 * time.Millisecond, 5 * time.Millisecond}, {400 * time.Millisecond, 50 * time.Millisecond},
				{4 * time.Second, 500 * time.Millisecond}, {time.Hour, most},
			} {
				if !b.since.IsZero() {
					<-time.After(c.failed - time.Since(b.since))
				}
				if got := b.next(); got != c.want {
					t.Errorf("after %v: %v, want %v", c.failed, got, c.want)
				}
			}
		})
	}
}

// The action after a call depends on how the call has ended.
func TestActionAfterACall(t *testing.T) {
	refusal := func(code string) error { return &RefusedError{code, "why", "a"} }
	for name, c := range map[string]struct {
		err    error
		link   error // how the link ended: its session's error; errBye: there was no link
		closed bool
		edit   func(c *Config)
		again  bool
		left   bool
		fails  bool
		said   string        // the reason why the address cannot be reached
		paused time.Duration // before the next call
	}{
		"connected":               {nil, nil, false, nil, true, false, false, "", 0},
		"was connected":           {errConnected, nil, false, nil, true, false, false, "", 0},
		"lost":                    {nil, ErrLost, false, nil, true, false, false, "", 0},
		"left":                    {nil, errWentAway, false, nil, false, true, false, "", 0},
		"left an elastic job":     {nil, errWentAway, false, func(c *Config) { c.Elastic = true }, true, true, false, "", 0},
		"closed":                  {nil, nil, true, nil, false, false, false, "", 0},
		"left, closed":            {nil, errWentAway, true, func(c *Config) { c.Elastic = true }, false, false, false, "", 0},
		"nobody there":            {io.EOF, errBye, false, nil, true, false, false, "EOF", 5 * time.Millisecond},
		"another node":            {nil, errBye, false, nil, true, false, false, "", 5 * time.Millisecond},
		"refused for now":         {refusal(RefuseRelay), errBye, false, nil, true, false, false, "why", 5 * time.Millisecond},
		"refused as a second one": {refusal(RefuseDuplicate), errBye, false, nil, true, false, false, "why", 5 * time.Millisecond},
		"refused at the end":      {refusal(RefuseClosed), errBye, false, nil, true, false, false, "why", 5 * time.Millisecond},
		"refused":                 {refusal(RefuseLimits), errBye, false, nil, false, false, true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cfg Config
				if c.edit != nil {
					c.edit(&cfg)
				}
				r := openRouter(t, cfg)
				var l *link
				if c.link != errBye { //nolint:errorlint // a mark
					l = &link{s: newSession(r, Peer{ID: 1}, nil), ended: make(chan struct{})}
					l.s.err = c.link
					time.AfterFunc(time.Minute, func() { close(l.ended) })
				}
				r.closed = c.closed
				wait, began := backoff{}, time.Now()
				if l != nil {
					wait.since = began.Add(-time.Hour) // calls had failed before
				}
				again := r.afterCall(l, c.err, "a", &wait)
				if l != nil {
					c.paused = time.Minute
				}
				if took := time.Since(began); again != c.again || wait.left != c.left || took != c.paused {
					t.Errorf("again %v, left %v, after %v", again, wait.left, took)
				}
				if l != nil && !wait.since.IsZero() {
					t.Error("the wait is as long as after failed calls")
				}
				if (r.failure != nil) != c.fails || c.fails && r.failure.Error() != "join the job: a: refused (limits): why" {
					t.Error(r.failure)
				}
				if said := r.trouble["a"]; (said == "") != (c.said == "") || !strings.Contains(said, c.said) {
					t.Errorf("trouble: %q", said)
				}
				r.closed = false
			})
		})
	}
}

// A node at an attach address has left if it left in order, had that address, and has not returned.
func TestWhetherTheNodeAtAnAddressHasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		was  former
		back bool
		want bool
	}{
		"left":    {former{err: errWentAway, addrs: []string{"x", "a"}}, false, true},
		"back":    {former{err: errWentAway, addrs: []string{"a"}}, true, false},
		"lost":    {former{err: ErrLost, addrs: []string{"a"}}, false, false},
		"another": {former{err: errWentAway, addrs: []string{"x"}}, false, false},
	} {
		r := openRouter(t, Config{})
		r.was[3] = c.was
		if c.back {
			r.peers[3] = &session{}
		}
		if got := r.hasLeft("a"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		clear(r.peers)
	}
}

// A peer that is gone in an elastic mesh is called at its old address, unless it had no address, its
// attach address is called anyway, or a newer incarnation of it is known.
func TestPeersThatAreTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(r *Router)
		addrs []string
		want  reaching
	}{
		"called":            {func(*Router) {}, []string{"a"}, reaching{5, "a", false}},
		"an older one":      {func(r *Router) { r.reached[3] = reaching{4, "b", false} }, []string{"a"}, reaching{5, "a", false}},
		"a newer one":       {func(r *Router) { r.reached[3] = reaching{6, "b", false} }, []string{"a"}, reaching{6, "b", false}},
		"not elastic":       {func(r *Router) { r.cfg.Elastic = false }, []string{"a"}, reaching{}},
		"a star":            {func(r *Router) { r.cfg.Topology = Star }, []string{"a"}, reaching{}},
		"at the end":        {func(r *Router) { r.inDrain.Store(true) }, []string{"a"}, reaching{}},
		"without address":   {func(*Router) {}, nil, reaching{}},
		"attached":          {func(r *Router) { r.attached["x"] = 3 }, []string{"a"}, reaching{}},
		"another, attached": {func(r *Router) { r.attached["x"] = 4 }, []string{"a"}, reaching{5, "a", false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := New(Config{Elastic: true, Transport: &nowhere{calls: map[string]int{}}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			r.mu.Lock()
			c.edit(r)
			r.takeBack(newSession(r, Peer{ID: 3, Incarnation: 5}, c.addrs))
			if got := r.reached[3]; got != c.want {
				t.Errorf("%s: %+v, want %+v", name, got, c.want)
			}
			r.failure = io.EOF // ends the calls
			r.mu.Unlock()
			r.cancel()
			r.wg.Wait()
		})
	}
}

// A node that has failed no longer calls announced nodes.
func TestFailedNodeCallsNoOtherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r := openRouter(t, Config{Node: 5, Transport: n})
		r.learn([]Member{{1, 1, []string{"a"}}}, 2)
		<-time.After(time.Second)
		r.fail(io.EOF)
		<-time.After(2 * time.Second)
		n.mu.Lock()
		before := n.calls["a"]
		n.mu.Unlock()
		<-time.After(time.Minute)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.calls["a"] != before || before == 0 {
			t.Errorf("%d calls, then %d", before, n.calls["a"])
		}
	})
}

// An unauthenticated process at the address of a peer ends only a node that has not been ready; otherwise it is logged,
// once for each reason.
func TestUnauthenticatedAnswerAtTheAddressOfAPeer(t *testing.T) {
	refused := func(text string) error {
		return &unauthenticatedError{&RefusedError{RefuseToken, text, "a"}}
	}
	for _, ready := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var log logtest.Buffer
			r := openRouter(t, Config{})
			r.log = slog.New(slog.NewTextHandler(&log, nil))
			r.beenReady = ready
			for _, err := range []error{refused("x"), refused("x"), refused("y")} {
				if again := r.afterCall(nil, err, "a", &backoff{}); again != ready {
					t.Errorf("ready %v: again %v", ready, again)
				}
			}
			if (r.failure != nil) == ready {
				t.Error(r.failure)
			}
			const text = `level=WARN msg="an unauthenticated process answers at the address of a peer" addr=a err="a: refused (token): `
			if n := strings.Count(log.String(), text); n != map[bool]int{true: 2}[ready] {
				t.Errorf("ready %v: the log:\n%s", ready, log.String())
			}
		})
	}
}

// The side that dialled closes a connection on which no session begins: when the other side is silent,
// when the hub cannot reach the target, when the two are connected already.
func TestCallsThatFailAreHungUp(t *testing.T) {
	no := `{"refuse":{"code":"relay","reason":"no"}}`
	for name, c := range map[string]struct {
		target int
		other  func(hub *Router, conn net.Conn)
		want   string
	}{
		"deaf":    {-1, func(_ *Router, conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }, "no answer within 5s: "},
		"hung up": {-1, func(_ *Router, conn net.Conn) { _, _ = io.ReadFull(conn, make([]byte, len(magic))); _ = conn.Close() }, "closed pipe"},
		"the hub": {3, func(hub *Router, conn net.Conn) {
			welcomes(hub, hubConn{conn}, false, string(le.AppendUint32(nil, uint32(len(no))))+no)
		}, "refused (relay): no"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := net.Pipe()
				hub, ended := partner(t, 2), make(chan struct{})
				go func() { defer close(ended); c.other(hub, theirs) }()
				r := openRouter(t, Config{
					Job: "j", Token: []byte("secret"), Node: 1,
					Transport: dialFunc(func(context.Context, string) (net.Conn, error) { return mine, nil }),
				})
				l, err := r.call(t.Context(), "a", c.target, r.cfg.HandshakeTimeout)
				if l != nil || err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "within") != (name == "deaf") {
					t.Errorf("%v, %v", l, err)
				}
				if _, err := mine.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
					t.Errorf("the connection is open: %v", err)
				}
				_ = theirs.Close()
				<-ended
			})
		})
	}
}

// hubConn is a connection that only the other side closes.
type hubConn struct{ net.Conn }

func (hubConn) Close() error { return nil }
