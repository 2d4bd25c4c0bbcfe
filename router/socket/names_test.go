package socket_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/socket"
)

// names is a server of DNS whose answers a test changes.
type names struct {
	conn  net.PacketConn
	asked chan struct{} // one for each question, as far as there is room
	mu    sync.Mutex
	v4    map[string][4]byte // by name with the last dot
}

// nameServer is the address of the server that Go's resolver asks, or a nil one.
var nameServer atomic.Value

// useNameServer lets Go's resolver ask nameServer, for the life of the process: a
// lookup can outlive its test.
func useNameServer() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		var d net.Dialer
		if a, _ := nameServer.Load().(*net.UDPAddr); a != nil {
			network, address = "udp", a.String()
		}
		return d.DialContext(ctx, network, address)
	}}
}

// serveNames makes Go's resolver ask such a server until the end of the test.
func serveNames(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, asked: make(chan struct{}, 3), v4: map[string][4]byte{}}
	var serving sync.WaitGroup
	serving.Go(n.serve)
	nameServer.Store(conn.LocalAddr())
	t.Cleanup(func() {
		nameServer.Store((*net.UDPAddr)(nil))
		_ = conn.Close()
		serving.Wait()
	})
	return n
}

func (n *names) set(name string, ip [4]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.v4[name+"."] = ip
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var m dnsmessage.Message
		if err != nil || m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		select {
		case n.asked <- struct{}{}:
		default:
		}
		n.mu.Lock()
		ip, known := n.v4[q.Name.String()]
		n.mu.Unlock()
		answer := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true},
			Questions: m.Questions,
		}
		if !known {
			answer.RCode = dnsmessage.RCodeNameError
		} else if q.Type == dnsmessage.TypeA {
			answer.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 30}, Body: &dnsmessage.AResource{A: ip},
			}}
		}
		if b, err := answer.Pack(); err == nil {
			_, _ = n.conn.WriteTo(b, from)
		}
	}
}

// A pod has a name before it has an address, and another address when it comes back: every dial
// resolves it again, and the error of a wait has the name that does not resolve.
func TestNamesAreResolvedAtEachDial(t *testing.T) {
	dns := serveNames(t)
	port := freeport.Get(t, 1)
	open := func(node int, incarnation uint64, listen string, attach ...string) *router.Router {
		r, err := router.New(router.Config{
			Job: "j", Token: []byte("secret"), Node: node, Incarnation: incarnation, Expect: 2,
			Transport: socket.New(socket.Config{}), Listen: listen, Attach: attach, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	peer := fmt.Sprintf("tcp://dqn-0.dqn.test.:%d", port)

	// No host has the name: the error of the wait has the name and the reason.
	early := open(1, 1, "tcp://127.0.0.1:0", peer)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- early.Start(ctx, nil) }()
	for range 3 { // a dial asks for addresses of both kinds: the third question is of the second dial
		select {
		case <-dns.asked:
		case err := <-ended:
			t.Fatalf("gave up: %v", err)
		}
	}
	cancel(errors.New("enough"))
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "node.0 (tcp://dqn-0.dqn.test.:") ||
		!strings.Contains(err.Error(), "lookup dqn-0.dqn.test.") || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("the wait ended with %v, want the name and that there is no such host", err)
	}
	_ = early.Close()

	// The name comes while another waits, then moves to another address.
	late := open(1, 2, "tcp://127.0.0.1:0", peer)
	joined := make(chan uint64, 4)
	late.Watch(func(c router.Change) {
		if c.Kind == router.Joined {
			joined <- c.Peer.Incarnation
		}
	})
	go func() { ended <- late.Start(t.Context(), nil) }()
	for i, ip := range [][4]byte{{127, 0, 0, 1}, {127, 0, 0, 2}} {
		hub := open(0, uint64(i+1), "tcp://"+net.JoinHostPort(net.IP(ip[:]).String(), fmt.Sprint(port)))
		dns.set("dqn-0.dqn.test", ip)
		if err := hub.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if got := <-joined; got != uint64(i+1) {
			t.Fatalf("incarnation %d has joined, want %d", got, i+1)
		}
		if i == 0 {
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			_ = hub.Abandon()
		}
	}
}
