package broker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Addr is an address on a broker, bus://word.
type Addr string

// Network returns "bus".
func (Addr) Network() string { return "bus" }

// String returns the address.
func (a Addr) String() string { return string(a) }

// deadline wakes the waiters of a direction when it passes.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// conn is one end of a connection. The other end can read bytes that were written before this end was closed.
type conn struct {
	hub           *Hub
	id            uint64
	own           string // of this end
	local, remote Addr
	from          Peer          // the peer of a connection that the other side has dialled
	up            chan struct{} // closed when the other side has answered, or cannot answer any more

	sending sync.Mutex // held while messages are published directly, in their order
	one     [1]*Message

	mu         sync.Mutex
	readable   sync.Cond
	writable   sync.Cond
	place      string // of the other end
	peer       hello
	piece      int         // largest body to send
	answer     bool        // the other side has answered
	closed     bool        // by this side
	ended      bool        // by the other side
	err        error       // why the connection broke
	resetSent  bool        // the other side has been notified
	unwritable error       // why nothing can be written; data that has arrived can still be read
	probe      *time.Timer // while the connection is young

	queued  bool       // is in the hub's list of connections with something to send
	out     []*Message // waiting to be sent
	due     bool       // consumed must be sent to the other side
	sent    uint64     // bytes taken from Write
	used    uint64     // of the other side's window, in all
	acked   uint64     // of used, returned
	writeBy deadline

	in           [][]byte // data to be read
	off          int      // bytes read of in[0]
	got          uint64   // bytes received
	arrived      uint64   // of this side's window, in all
	consumed     uint64   // of arrived, returned
	acknowledged uint64   // of consumed, sent to the other side
	readBy       deadline
}

func (h *Hub) newConn(local, remote Addr) *conn {
	id := h.nextID.Add(1)
	c := &conn{hub: h, id: id, own: h.cfg.Broker.Place(Peer{h.cfg.Inbox, id}), local: local, remote: remote, up: make(chan struct{})}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	return c
}

func (c *conn) hello() hello { return hello{Peer{c.hub.cfg.Inbox, c.id}, c.hub.cfg.Window} }

// setPeer records the other end. The mutex is held, or no other goroutine has a reference to the
// connection.
func (c *conn) setPeer(peer hello) {
	c.answer, c.peer, c.place = true, peer, c.hub.cfg.Broker.Place(peer.Peer)
	c.piece = min(c.hub.cfg.BodyBytes, peer.window/4-CostBytes)
	if c.hub.cfg.Most != nil {
		c.piece = min(c.piece, c.hub.cfg.Most()-HeadBytes)
	}
	c.answered()
}

// answered ends the wait of a dial. The mutex is held, or no other goroutine has a reference to the connection.
func (c *conn) answered() {
	select {
	case <-c.up:
	default:
		close(c.up)
	}
}

// accept answers a dial. No other goroutine has a reference to the connection yet.
func (c *conn) accept(peer hello) {
	c.setPeer(peer)
	c.out = append(c.out, c.hub.control(head{kind: kindAccept, to: peer.ID, consumed: Version}, c, c.hello(), ""))
}

// probeIn sends a message after d, then after twice d, and so on up to a few seconds: if the last
// message was lost, the offset of this one shows that to the other side. Later the heartbeats of the
// session have this effect. The mutex is held.
func (c *conn) probeIn(d time.Duration) {
	if c.closed || c.err != nil || c.ended || d > 4*time.Second {
		return
	}
	c.probe = time.AfterFunc(d, func() {
		c.mu.Lock()
		c.due = true
		c.probeIn(2 * d)
		c.mu.Unlock()
		c.push()
	})
}

// push sends the waiting messages, or schedules the writer to send them.
func (c *conn) push() {
	if c.hub.cfg.Direct {
		c.flush()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schedule()
}

// schedule adds the connection to those that the writer sends for. The mutex is held.
func (c *conn) schedule() {
	if !c.queued {
		c.queued = true
		c.hub.enqueue(c)
	}
}

// next removes and returns the next message to be sent, nil if there is none. The mutex is held.
func (c *conn) next() *Message {
	var m *Message
	switch {
	case len(c.out) > 0:
		m = c.out[0]
		n := copy(c.out, c.out[1:])
		c.out[n] = nil
		c.out = c.out[:n]
	case c.due && !c.closed && c.answer:
		m = &Message{Bytes: appendHead(nil, head{kind: kindAck, offset: c.sent}), c: c}
	default:
		return nil
	}
	if k := m.Bytes[0]; k != kindDial && k != kindAccept {
		le.PutUint64(m.Bytes[1:], c.peer.ID)
		setConsumed(m.Bytes, c.consumed)
		c.acknowledged, c.due = c.consumed, false
	}
	m.To, m.From = c.place, c.own
	return m
}

// take appends the waiting messages of the connection to the writer's batch, and returns their number of bytes.
func (c *conn) take(batch []*Message) ([]*Message, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = false
	size := 0
	for m := c.next(); m != nil; m = c.next() {
		batch = append(batch, m)
		size += len(m.Bytes)
	}
	return batch, size
}

// flush publishes the waiting messages of the connection.
func (c *conn) flush() {
	c.sending.Lock()
	defer c.sending.Unlock()
	for {
		c.mu.Lock()
		c.queued = false
		m := c.next()
		c.mu.Unlock()
		if m == nil {
			return
		}
		c.one[0] = m
		c.hub.cfg.Broker.Publish(c.one[:])
		if !c.hub.settle(m) {
			c.fail(m.Err, cannotSend)
			c.hub.recycle(m)
		}
	}
}

const cannotSend = "the other side cannot send"

// receive handles a message of the other end. It returns an error for a message that the protocol
// does not allow.
func (c *conn) receive(h head, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil
	case c.err != nil:
		return errReset
	case h.kind == kindAccept:
		return c.accepted(h, body)
	case h.kind == kindReset:
		c.resetSent = true
		c.failLocked(errors.New(printable.Text(string(body))), "")
		return nil
	case !c.answer && h.kind != kindFin:
		return nil // the answer was lost and will be sent again; these bytes are then missing
	case h.consumed > c.used:
		return fmt.Errorf("%w: %d bytes consumed of %d", ErrMalformed, h.consumed, c.used)
	}
	if h.consumed > c.acked {
		c.acked = h.consumed
		c.writable.Broadcast()
	}
	end := h.offset + uint64(len(body))
	switch {
	case h.offset > c.got, h.offset < c.got && end > c.got:
		return fmt.Errorf("bytes %d to %d are missing: %s", c.got, h.offset, c.hub.cfg.Loss)
	case h.kind == kindFin:
		c.ended = true
		c.answered()
		c.readable.Broadcast()
		c.writable.Broadcast()
	case h.kind == kindData && end > c.got && !c.ended:
		c.arrived += uint64(len(body) + CostBytes)
		if c.arrived-c.consumed > uint64(c.hub.cfg.Window) { //nolint:gosec // positive
			return fmt.Errorf("%w: %d bytes over the window", ErrMalformed, c.arrived-c.consumed-uint64(c.hub.cfg.Window)) //nolint:gosec // positive
		}
		c.in, c.got = append(c.in, body), end
		c.readable.Broadcast()
	}
	return nil
}

// accepted handles the answer to a dial. The mutex is held.
func (c *conn) accepted(h head, body []byte) error {
	if c.answer {
		return nil // the same message again
	}
	if err := checkVersion(h); err != nil {
		return err
	}
	peer, _, err := parseHello(body)
	if err == nil {
		err = c.hub.checkWindow(peer)
	}
	if err == nil && !c.hub.cfg.Lossy && c.hub.cfg.Broker.Place(peer.Peer) != c.place { // Find leads to an inbox there
		err = fmt.Errorf("%w: an answer of inbox %s", ErrMalformed, peer.Inbox)
	}
	if err == nil {
		c.setPeer(peer)
	}
	return err
}

// fail breaks the connection, if it is not broken yet, and sends the reason to the other side. Data
// that has arrived can still be read.
func (c *conn) fail(err error, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err, why)
}

func (c *conn) failLocked(err error, why string) {
	if c.err != nil || c.closed {
		return
	}
	c.err = err
	c.stopProbe()
	c.answered()
	c.readable.Broadcast()
	c.writable.Broadcast()
	if c.answer && !c.resetSent && why != "" {
		c.hub.reset(c.peer.Peer, why)
	}
}

// gone records that the other side has no inbox any more. If it has closed the connection in order,
// the end has arrived or will arrive.
func (c *conn) gone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answer {
		c.failLocked(err, "")
	} else if c.unwritable == nil {
		c.unwritable = err
		c.writable.Broadcast()
	}
}

// broken reports whether nothing more can be sent.
func (c *conn) broken() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.ended || c.unwritable != nil
}

// why returns the error of a connection that this side has closed.
func (c *conn) why() error {
	switch {
	case c.err != nil:
		return c.err
	case c.unwritable != nil:
		return c.unwritable
	}
	return net.ErrClosed
}

// Read reads as much of the arrived data as fits. Data that arrived before the connection broke
// can still be read.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	for len(c.in) == 0 && !c.closed && c.err == nil && !c.ended && !c.readBy.passed && len(b) > 0 {
		c.readable.Wait()
	}
	if err := c.readErr(); err != nil && (len(b) > 0 || c.closed) {
		c.mu.Unlock()
		return 0, err
	}
	total, whole := 0, 0
	for total < len(b) && whole < len(c.in) {
		n := copy(b[total:], c.in[whole][c.off:])
		total += n
		if c.off += n; c.off == len(c.in[whole]) {
			c.consumed += uint64(c.off + CostBytes) //nolint:gosec // positive
			c.off = 0
			whole++
		}
	}
	rest := copy(c.in, c.in[whole:])
	clear(c.in[rest:])
	c.in = c.in[:rest]
	quarter := uint64(c.hub.cfg.Window) / 4 //nolint:gosec // positive
	ack := c.consumed-c.acknowledged >= quarter && !c.due && !c.ended && c.unwritable == nil && c.err == nil
	c.due = c.due || ack
	c.mu.Unlock()
	if ack {
		c.push()
	}
	return total, nil
}

// readErr returns the reason why a read returns no bytes. The mutex is held.
func (c *conn) readErr() error {
	switch {
	case c.closed:
		return c.why()
	case c.readBy.passed:
		return os.ErrDeadlineExceeded
	case len(c.in) > 0:
		return nil
	case c.ended: // all data has arrived
		return io.EOF
	}
	return c.err
}

// Write writes all of b, and waits for room in the other side's window.
func (c *conn) Write(b []byte) (int, error) {
	bufs := net.Buffers{b}
	n, err := c.write(&bufs, true)
	return int(n), err
}

// WriteBuffers writes all of bufs in as few messages as it can.
func (c *conn) WriteBuffers(bufs *net.Buffers) (int64, error) { return c.write(bufs, true) }

// TryWrite writes what the other side has room for, without waiting for more. It returns the bytes written, which may be 0.
func (c *conn) TryWrite(b []byte) (int, error) {
	bufs := net.Buffers{b}
	n, err := c.write(&bufs, false)
	return int(n), err
}

func (c *conn) write(bufs *net.Buffers, wait bool) (total int64, err error) {
	left := 0
	for _, b := range *bufs {
		left += len(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		n, err := c.put(bufs, left)
		total, left = total+int64(n), left-n
		switch {
		case err != nil:
			return total, err
		case n > 0 && c.hub.cfg.Direct:
			c.mu.Unlock()
			c.flush()
			c.mu.Lock()
			if c.err != nil && left == 0 {
				return total, c.err
			}
		case n > 0:
			c.schedule()
		}
		if left == 0 || n == 0 && !wait {
			return total, nil
		}
		if n == 0 {
			c.writable.Wait()
		}
	}
}

// put takes at most one message of the remaining bytes of bufs, if there is room. The mutex is held.
func (c *conn) put(bufs *net.Buffers, left int) (int, error) {
	switch {
	case c.closed:
		return 0, c.why()
	case c.err != nil:
		return 0, c.err
	case c.ended:
		return 0, errReset
	case c.unwritable != nil:
		return 0, c.unwritable
	case c.writeBy.passed:
		return 0, os.ErrDeadlineExceeded
	case left == 0:
		return 0, nil
	}
	room, n := c.peer.window-int(c.used-c.acked), 0 //nolint:gosec // at most a window
	var m *Message
	if last := len(c.out) - 1; last >= 0 && c.out[last].Bytes[0] == kindData {
		m = c.out[last]
		n = min(left, HeadBytes+c.piece-len(m.Bytes), room)
	}
	if n <= 0 {
		if n = min(left, c.piece); n+CostBytes > room {
			return 0, nil
		}
		m = c.hub.data(c)
		m.Bytes = appendHead(m.Bytes, head{kind: kindData, offset: c.sent})
		c.out = append(c.out, m)
		c.used += CostBytes
	}
	c.sent += uint64(n)
	c.used += uint64(n)
	for left = n; left > 0; {
		k := min(left, len((*bufs)[0]))
		m.Bytes = append(m.Bytes, (*bufs)[0][:k]...)
		left -= k
		if (*bufs)[0] = (*bufs)[0][k:]; len((*bufs)[0]) == 0 {
			*bufs = (*bufs)[1:]
		}
	}
	return n, nil
}

// Close ends both directions. It waits only if it releases the hub's last use.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	if c.ended || c.unwritable != nil || c.resetSent || !c.answer {
		c.dropOut() // nothing reads it
	} else {
		c.out = append(c.out, &Message{Bytes: appendHead(nil, head{kind: kindFin, offset: c.sent}), c: c})
		c.schedule()
	}
	c.closed = true
	c.in = nil
	c.answered()
	c.stopProbe()
	c.readBy.stop()
	c.writeBy.stop()
	c.readable.Broadcast()
	c.writable.Broadcast()
	c.mu.Unlock()
	c.hub.forget(c)
	c.hub.Release()
	return nil
}

func (c *conn) dropOut() {
	for _, m := range c.out {
		c.hub.recycle(m)
	}
	c.out = nil
}

func (c *conn) stopProbe() {
	if c.probe != nil {
		c.probe.Stop()
	}
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline bounds the wait of Read.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, &c.readable, t) }

// SetWriteDeadline bounds the wait of Write for room in the window.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeBy, &c.writable, t) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
}

func (c *conn) setDeadline(d *deadline, wake *sync.Cond, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	d.stop()
	if t.IsZero() {
		return nil
	}
	if wait := time.Until(t); wait > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if d.timer == timer {
				d.passed = true
				wake.Broadcast()
			}
		})
		d.timer = timer
		return nil
	}
	d.passed = true
	wake.Broadcast()
	return nil
}
