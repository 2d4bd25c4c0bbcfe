package router

import (
	"net"
	"strconv"
	"testing"
	"time"
)

// caller is one end of a connection from an address.
type caller struct {
	net.Conn
	from net.Addr
	hang func() // called at the end of the connection
}

func (c *caller) RemoteAddr() net.Addr { return c.from }
func (c *caller) Close() error         { c.hang(); return nil }

// crowd is a set of unauthenticated connections under test.
type crowd struct {
	unauthenticated
	t   *testing.T
	now time.Time
}

// call adds a connection from an address. It leaves when it is closed.
func (c *crowd) call(from string) *unauthenticatedConn {
	conn := &caller{from: &net.TCPAddr{IP: net.ParseIP(from), Port: 1}}
	n := c.enter(conn, c.now)
	conn.hang = func() { c.leave(n) }
	if len(c.all) > c.limit {
		c.t.Errorf("%d unauthenticated connections, of %d at most", len(c.all), c.limit)
	}
	return n
}

func (c *crowd) count(from string) (n int) {
	for _, o := range c.all {
		if o.from == from {
			n++
		}
	}
	return n
}

func newCrowd(t *testing.T) *crowd {
	return &crowd{unauthenticated: unauthenticated{limit: 8, patience: time.Second}, t: t, now: time.Unix(0, 0)}
}

func TestR7UnauthenticatedClientsFromOneAddressMakeWayForOthers(t *testing.T) {
	c := newCrowd(t)
	var flood []*unauthenticatedConn
	for range 100 {
		if n := c.call("10.0.0.1"); n != nil {
			flood = append(flood, n)
		}
	}
	if len(flood) != 8 {
		t.Fatalf("%d of 100 have a place at once", len(flood))
	}
	for i := range 4 {
		if c.call("10.0.0."+strconv.Itoa(i+2)) == nil {
			t.Errorf("10.0.0.%d is kept out", i+2)
		}
	}
	if !flood[0].put || flood[7].put {
		t.Error("the oldest makes way")
	}
	if n := c.call("10.0.0.1"); n != nil {
		t.Error("the flood takes the place of another address")
	}
	if c.count("10.0.0.1") != 4 {
		t.Errorf("%d places", c.count("10.0.0.1"))
	}
}

func TestR7UnauthenticatedClientsFromOneAddressHaveTheirTime(t *testing.T) {
	c := newCrowd(t)
	var first []*unauthenticatedConn
	for range 8 {
		first = append(first, c.call("10.0.0.1"))
	}
	if c.now = c.now.Add(time.Second - 1); c.call("10.0.0.1") != nil {
		t.Error("a new connection replaces one that has just been accepted")
	}
	if c.now = c.now.Add(1); c.call("10.0.0.1") == nil || !first[0].put {
		t.Error("one that has had its time keeps its place")
	}
	if c.leave(first[1]) {
		t.Error("a connection that ended by itself was closed for another")
	}
	if c.call("10.0.0.1") == nil || first[2].put {
		t.Error("a place that is free is not given")
	}
}

func TestSourceOfAnUnauthenticatedClient(t *testing.T) {
	for ip, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "::1": "::/64",
	} {
		if got := source(&net.TCPAddr{IP: net.ParseIP(ip)}); got != want {
			t.Errorf("%s counts as %s, want %s", ip, got, want)
		}
	}
	if got := source(&net.UnixAddr{Name: "/run/x", Net: "unix"}); got != "unix" {
		t.Error(got)
	}
}
