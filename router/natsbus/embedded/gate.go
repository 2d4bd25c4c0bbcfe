package embedded

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ditask/ditask/router/natsbus/internal/proof"
)

const (
	// maxUnauthenticated is the number of connections, over all addresses, that may be accepted and
	// not yet authenticated, as at a node: all nodes of a large job may connect at once, and so many
	// connections take some MiB.
	maxUnauthenticated = 256
	// proofTime is the time in which a connection has to prove that it knows the key. A client
	// bounds an attempt to 2 s.
	proofTime = 2 * time.Second
	// acceptPause is the pause of the listener after a failed accept, for example because all file
	// descriptors are in use.
	acceptPause = 50 * time.Millisecond
)

// gate is the listener of the server. With a key it passes on only connections that have proved that
// they know it: the server's code reads no bytes of others. It owns its accept loop and one goroutine
// for each unauthenticated connection; they end with Close, and wait waits for them.
type gate struct {
	net.Listener
	key   []byte // empty: all connections are passed on
	tls   *tls.Config
	log   *slog.Logger
	most  int           // unauthenticated connections at once
	time  time.Duration // for a proof
	ready chan net.Conn // proved; capacity 0: the server takes them at once
	taken chan struct{} // closed when the server accepts from the gate
	once  sync.Once     // closes taken
	done  chan struct{}
	wg    sync.WaitGroup

	mu              sync.Mutex
	closed          bool
	unauthenticated []*unauthenticatedConn
	refused         map[string]int
}

// unauthenticatedConn is a connection without a valid proof yet.
type unauthenticatedConn struct {
	conn net.Conn
	from string
	put  bool          // replaced by a newer connection
	gone chan struct{} // closed when it has authenticated or was closed
}

func newGate(l net.Listener, cfg Config, most int, time time.Duration) *gate {
	g := &gate{
		Listener: l, key: []byte(cfg.Key), tls: cfg.TLS, log: cfg.Logger, most: most, time: time,
		ready: make(chan net.Conn), taken: make(chan struct{}), done: make(chan struct{}), refused: map[string]int{},
	}
	if len(g.key) > 0 {
		g.wg.Go(g.serve)
	}
	return g
}

// Accept returns the next connection for the server.
func (g *gate) Accept() (net.Conn, error) {
	g.once.Do(func() { close(g.taken) })
	if len(g.key) == 0 {
		return g.Listener.Accept()
	}
	select {
	case conn := <-g.ready:
		return conn, nil
	case <-g.done:
		return nil, net.ErrClosed
	}
}

// Close closes the listener and all unauthenticated connections. It does not wait.
func (g *gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return net.ErrClosed
	}
	g.closed = true
	close(g.done)
	for _, s := range g.unauthenticated {
		_ = s.conn.Close()
	}
	return g.Listener.Close()
}

// wait returns after Close, when all goroutines of the gate have ended. It logs how many
// connections were refused, except those closed by the other side, if the log does not have all of
// them yet.
func (g *gate) wait() {
	g.wg.Wait()
	counts := g.counts()
	total, unsaid, parts := 0, 0, []string(nil)
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		total += counts[reason]
		if reason != hungUp {
			unsaid += counts[reason] - 1
		}
		parts = append(parts, fmt.Sprintf("%s %d", reason, counts[reason]))
	}
	if unsaid > 0 {
		g.log.Warn(fmt.Sprintf("NATS server: %d connections were refused: %s", total, strings.Join(parts, ", ")))
	}
}

// counts returns the number of refused connections, by reason.
func (g *gate) counts() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.refused)
}

// serve accepts connections, and authenticates each in a goroutine, so that none delays the next.
func (g *gate) serve() {
	for {
		conn, err := g.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			g.refuse(g.Addr(), "accept", err)
			select {
			case <-time.After(acceptPause):
			case <-g.done:
				return
			}
			continue
		}
		s := g.enter(conn)
		if s == nil {
			_ = conn.Close()
			return
		}
		g.wg.Go(func() { g.authenticate(s) })
	}
}

// enter gives a connection a place; it returns nil after Close. When all places are taken, it
// closes a connection of the address with most of them, so a flood from one address keeps out no
// other. It chooses the connection at random, so that a client on the same address, whose proof
// takes a millisecond, probably keeps its place for that time.
func (g *gate) enter(conn net.Conn) *unauthenticatedConn {
	s := &unauthenticatedConn{conn: conn, from: source(conn.RemoteAddr()), gone: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	var out *unauthenticatedConn
	if len(g.unauthenticated) >= g.most {
		out = g.surplus()
		out.put = true
		g.remove(out)
	}
	g.unauthenticated = append(g.unauthenticated, s)
	g.mu.Unlock()
	if out != nil {
		_ = out.conn.Close()
		<-out.gone // so that the bound holds
	}
	return s
}

// surplus chooses a connection of the address with most of them. The mutex is held.
func (g *gate) surplus() *unauthenticatedConn {
	from := map[string][]*unauthenticatedConn{}
	var most []*unauthenticatedConn
	for _, s := range g.unauthenticated {
		from[s.from] = append(from[s.from], s)
		if len(from[s.from]) > len(most) {
			most = from[s.from]
		}
	}
	return most[rand.IntN(len(most))]
}

// remove takes s off the list. The mutex is held.
func (g *gate) remove(s *unauthenticatedConn) {
	if i := slices.Index(g.unauthenticated, s); i >= 0 {
		g.unauthenticated = slices.Delete(g.unauthenticated, i, i+1)
	}
}

// authenticate checks the proof of a connection, and passes it on.
func (g *gate) authenticate(s *unauthenticatedConn) {
	conn := s.conn
	err := conn.SetDeadline(time.Now().Add(g.time))
	if err == nil && g.tls != nil {
		over := tls.Server(conn, g.tls)
		err = over.HandshakeContext(context.Background()) // the deadline bounds it
		if no, ok := errors.AsType[tls.RecordHeaderError](err); ok && no.Conn != nil {
			_, _ = conn.Write(wantsTLS) // package crypto/tls leaves the alert to its caller
		}
		conn = over
	}
	if err == nil {
		err = proof.Server(conn, g.key)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	g.mu.Lock()
	g.remove(s)
	if s.put {
		err = errCrowd
	}
	g.mu.Unlock()
	close(s.gone)
	if err == nil {
		select {
		case g.ready <- conn:
			return
		case <-g.done:
		}
	}
	_ = s.conn.Close() // without a close alert of TLS, which may take long
	if err != nil {
		g.refuse(s.conn.RemoteAddr(), reason(err), err)
	}
}

// wantsTLS is the alert handshake_failure, for a client that does not speak TLS.
var wantsTLS = []byte{0x15, 3, 3, 0, 2, 2, 40}

var errCrowd = errors.New("too many connections at once that have proved nothing")

// refuse counts a refusal, and logs the first for each reason. It does not count connections that Close has closed.
func (g *gate) refuse(from net.Addr, reason string, err error) {
	g.mu.Lock()
	if g.closed && (reason == hungUp || errors.Is(err, net.ErrClosed)) {
		g.mu.Unlock()
		return
	}
	g.refused[reason]++
	first := g.refused[reason] == 1
	g.mu.Unlock()
	if first && reason != hungUp {
		g.log.Warn(fmt.Sprintf("NATS server: refused a connection from %s: %s: %v; further ones for this reason are only counted", from,
			reason, err))
	}
}

// hungUp is the reason for a connection that the other side has closed.
const hungUp = "hung up"

// reason is the name under which a refusal is counted.
func reason(err error) string {
	text := err.Error()
	switch {
	case errors.Is(err, errCrowd):
		return "crowd"
	case errors.Is(err, proof.ErrKey):
		return "token"
	case errors.Is(err, proof.ErrForeign):
		return "garbage"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	case strings.Contains(text, "tls: "), strings.Contains(text, "x509: "): // package crypto/tls has no type for most of its errors
		return "tls"
	}
	return hungUp
}

// source returns the key by which connections are counted: the address without the port, and for an
// IPv6 address its network, since one host may have all addresses of it.
func source(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return a.Network()
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	if ip = ip.Unmap(); !ok || ip.Is4() {
		return ip.String()
	}
	network, _ := ip.WithZone("").Prefix(64) // of an IPv6 address that cannot fail
	return network.String()
}
