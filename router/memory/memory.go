// Package memory connects nodes within one process, through buffers: for tests,
// for debugging a whole job in one process, and for testing/synctest, which sees
// every wait in it.
//
//	network := memory.New()
//	a := router.Config{Transport: network, Listen: "mem://a"}
//	b := router.Config{Transport: network, Listen: "mem://b", Attach: []string{"mem://a"}}
//
// A connection has a buffer of 64 KiB for each direction; a writer waits while it
// is full. Addresses are arbitrary words; a dial without a listener is refused at
// once. A Network is safe for concurrent use.
package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Network is a set of addresses. It satisfies router.Transport.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*listener
}

// New returns a network without listeners.
func New() *Network { return &Network{listeners: map[string]*listener{}} }

type addr string

func (addr) Network() string  { return "mem" }
func (a addr) String() string { return string(a) }

// Listen takes address for the caller.
func (n *Network) Listen(_ context.Context, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("%s: address in use", address)
	}
	l := &listener{n: n, addr: addr(address), conns: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Advertise returns the address that l was created with.
func (n *Network) Advertise(l net.Listener) string { return l.Addr().String() }

// Dial connects to the listener at address, and waits until it accepts.
func (n *Network) Dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	ab, ba := newHalf(), newHalf()
	mine := &conn{in: ba, out: ab, remote: l.addr, local: "mem://dialer"}
	theirs := &conn{in: ab, out: ba, remote: "mem://dialer", local: l.addr}
	select {
	case l.conns <- theirs:
		return mine, nil
	case <-l.done:
		return nil, fmt.Errorf("%s: connection refused", address)
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", address, context.Cause(ctx))
	}
}

type listener struct {
	n     *Network
	addr  addr
	conns chan net.Conn // a hand-over
	once  sync.Once
	done  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.n.mu.Lock()
		defer l.n.mu.Unlock()
		if l.n.listeners[l.addr.String()] == l {
			delete(l.n.listeners, l.addr.String())
		}
	})
	return nil
}

const bufferBytes = 64 << 10

// half is one direction of a connection: a ring of bytes.
type half struct {
	mu      sync.Mutex
	change  sync.Cond
	buf     []byte
	r, n    int
	closed  bool // by the writer, or by the reader
	readBy  deadline
	writeBy deadline
}

func newHalf() *half {
	h := &half{}
	h.change.L = &h.mu
	return h
}

// deadline wakes the waiters of a half when it passes.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func (h *half) setDeadline(d *deadline, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
	if t.IsZero() {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(t), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if d.timer == timer {
			d.passed = true
			h.change.Broadcast()
		}
	})
	d.timer = timer
}

func (h *half) read(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.n == 0 && !h.closed && !h.readBy.passed {
		h.change.Wait()
	}
	switch {
	case h.readBy.passed:
		return 0, os.ErrDeadlineExceeded
	case h.n == 0:
		return 0, io.EOF
	}
	total := 0
	for total < len(b) && h.n > 0 {
		k := copy(b[total:], h.buf[h.r:min(h.r+h.n, len(h.buf))])
		h.r = (h.r + k) % len(h.buf)
		h.n -= k
		total += k
	}
	h.change.Broadcast()
	return total, nil
}

func (h *half) write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	total := 0
	for total < len(b) {
		for h.n == bufferBytes && !h.closed && !h.writeBy.passed {
			h.change.Wait()
		}
		k, err := h.put(b[total:])
		if total += k; err != nil {
			return total, err
		}
	}
	return total, nil
}

// put writes the bytes for which there is room. The mutex is held.
func (h *half) put(b []byte) (int, error) {
	if h.closed {
		return 0, errors.New("connection reset by peer")
	}
	if h.writeBy.passed {
		return 0, os.ErrDeadlineExceeded
	}
	if h.buf == nil {
		h.buf = make([]byte, bufferBytes)
	}
	total := 0
	for total < len(b) && h.n < len(h.buf) {
		w := (h.r + h.n) % len(h.buf)
		end := len(h.buf)
		if w < h.r {
			end = h.r
		}
		k := copy(h.buf[w:end], b[total:])
		h.n += k
		total += k
	}
	h.change.Broadcast()
	return total, nil
}

func (h *half) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.change.Broadcast()
}

// tryWrite writes the bytes for which there is room.
func (h *half) tryWrite(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.put(b)
}

// forget drops the bytes under way.
func (h *half) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.n = 0
}

// conn is one end of a connection. Bytes that were written before it was closed
// can still be read at the other end, as with a socket.
type conn struct {
	in, out       *half
	local, remote addr
}

func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

func (c *conn) Close() error {
	c.in.close()
	c.out.close()
	return c.SetDeadline(time.Time{})
}

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.readBy, t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writeBy, t)
	return nil
}

// TryWrite writes the bytes for which there is room, without waiting. It returns their number, which
// may be 0.
func (c *conn) TryWrite(b []byte) (int, error) { return c.out.tryWrite(b) }

// Break closes both ends and drops the bytes under way, as when a cable is cut.
func (c *conn) Break() {
	c.in.close()
	c.out.close()
	c.in.forget()
	c.out.forget()
}

// CloseWrite ends this end's direction only.
func (c *conn) CloseWrite() error {
	c.out.close()
	return nil
}
