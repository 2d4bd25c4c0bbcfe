package router

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// unauthenticated is the set of connections that have not authenticated yet, at most limit of
// them. When it is full, a new connection replaces one of the address that has the most, so
// that one address cannot keep out another. A connection is replaced by one of its own address
// only after patience; before that the new one is refused, so that nodes that all dial at once
// from one host do not close each other's connections.
type unauthenticated struct {
	limit    int
	patience time.Duration // for which a connection is not replaced by one of its own address

	mu  sync.Mutex
	all []*unauthenticatedConn // oldest first
}

// unauthenticatedConn is a member of the set.
type unauthenticatedConn struct {
	conn  net.Conn
	from  string // the host, or the network that it is in
	since time.Time
	put   bool          // out: replaced by another connection
	gone  chan struct{} // closed when it has authenticated or was closed
}

// source returns the key by which connections are counted: the address without the port, and
// for IPv6 the /64 network, because one host may have all of its addresses.
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

// enter adds conn, or returns nil if the set is full. It waits until a connection that it
// replaces has left, so that the limit holds.
func (s *unauthenticated) enter(conn net.Conn, now time.Time) *unauthenticatedConn {
	n := &unauthenticatedConn{conn: conn, from: source(conn.RemoteAddr()), since: now, gone: make(chan struct{})}
	s.mu.Lock()
	var out *unauthenticatedConn
	if len(s.all) >= s.limit {
		if out = s.surplus(n); out == nil {
			s.mu.Unlock()
			return nil
		}
		out.put = true
		s.remove(out)
	}
	s.all = append(s.all, n)
	s.mu.Unlock()
	if out != nil {
		closeNow(out.conn)
		<-out.gone
	}
	return n
}

// surplus returns the connection that n replaces, or nil. The mutex is held.
func (s *unauthenticated) surplus(n *unauthenticatedConn) *unauthenticatedConn {
	count := map[string]int{n.from: 1}
	most := n.from
	for _, o := range s.all {
		if count[o.from]++; count[o.from] > count[most] {
			most = o.from
		}
	}
	for _, o := range s.all {
		if o.from == most {
			if most == n.from && n.since.Sub(o.since) < s.patience {
				return nil
			}
			return o
		}
	}
	return nil
}

// errCrowd is the error of a connection that was replaced or refused.
var errCrowd = errors.New("too many unauthenticated connections from this address")

// leave removes n, once, and reports whether n was replaced. n may be nil.
func (s *unauthenticated) leave(n *unauthenticatedConn) bool {
	if n == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-n.gone:
	default:
		s.remove(n)
		close(n.gone)
	}
	return n.put
}

// remove deletes n from the list. The mutex is held.
func (s *unauthenticated) remove(n *unauthenticatedConn) {
	for i, o := range s.all {
		if o == n {
			s.all = append(s.all[:i], s.all[i+1:]...)
			return
		}
	}
}

// closeNow closes a connection without TLS's close alert, which can take seconds.
func closeNow(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn()
	}
	_ = conn.Close()
}
