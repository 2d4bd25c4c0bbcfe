package router

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// strangers are the connections whose other side has proved nothing yet. There
// are never more than limit of them, and who connects from one address does not
// keep out who connects from another: when all places are taken, the address
// that has most of them gives one up. On its own address a newcomer takes the
// place of one that has had its time, or is turned away, so that nodes that come
// all at once from one host do not put each other out.
type strangers struct {
	limit    int
	patience time.Duration // how long one keeps its place against newcomers from its own address

	mu  sync.Mutex
	all []*stranger // oldest first
}

// stranger is one of them.
type stranger struct {
	conn  net.Conn
	from  string // the host, or the network that it is in
	since time.Time
	put   bool          // out, by a newcomer
	gone  chan struct{} // closed when it is no stranger any more
}

// source is what connections are counted by: the address without the port, and
// of an IPv6 address the network, all of which one host may have.
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

// enter gives conn a place, and returns nil if there is none for it. It waits
// until whom it has put out is gone, so that the limit holds.
func (s *strangers) enter(conn net.Conn, now time.Time) *stranger {
	n := &stranger{conn: conn, from: source(conn.RemoteAddr()), since: now, gone: make(chan struct{})}
	s.mu.Lock()
	var out *stranger
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
		hangUp(out.conn)
		<-out.gone
	}
	return n
}

// surplus chooses who makes way for n, or nobody. The mutex is held.
func (s *strangers) surplus(n *stranger) *stranger {
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

// errCrowd is how it ends for who is put out or turned away.
var errCrowd = errors.New("too many strangers at once from there")

// leave frees n's place, once. It reports whether n has been put out. A nil n has
// none.
func (s *strangers) leave(n *stranger) bool {
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

// remove takes n off the list. The mutex is held.
func (s *strangers) remove(n *stranger) {
	for i, o := range s.all {
		if o == n {
			s.all = append(s.all[:i], s.all[i+1:]...)
			return
		}
	}
}

// hangUp closes a connection without another word: to take leave in TLS can take
// seconds.
func hangUp(conn net.Conn) {
	if c, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = c.NetConn()
	}
	_ = conn.Close()
}
