package natsbus

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/printable"
)

// addr is a name on the bus.
type addr string

func (addr) Network() string  { return "bus" }
func (a addr) String() string { return string(a) }

// conn is one end of a connection. The carrier's subscription feeds it; it has no
// goroutine of its own.
type conn struct {
	bus           *Carrier
	nc            *nats.Conn
	id, own       string // the name of this end, and its subject
	local, remote addr
	grant         int           // this side's window
	answered      chan struct{} // closed when the other side has answered a dial, or the conn has failed

	sending sync.Mutex // one message at a time: its number is its place
	number  uint64     // of the newest message
	buf     []byte

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	peer     string   // subject of the other end; empty until it is known
	piece    int      // largest body to send
	in       [][]byte // bodies that were not read
	off      int      // what was read of in[0]
	next     uint64   // number of the message that is due
	window   uint64   // the other side's
	sent     uint64   // totals of what messages take of a window
	acked    uint64
	came     uint64
	consumed uint64
	told     uint64
	err      error // why nothing more comes or goes; io.EOF after fin
	closed   bool
	probe    *time.Timer // while the connection is young
	readBy   deadline
	writeBy  deadline
}

func (c *Carrier) newConn(nc *nats.Conn, id string, local, remote addr) *conn {
	k := &conn{bus: c, nc: nc, id: id, own: c.inbox + id, local: local, remote: remote, grant: c.window(), answered: make(chan struct{}), next: 1}
	k.readable.L, k.writable.L = &k.mu, &k.mu
	return k
}

// meet takes note of where the other end is. The mutex is held.
func (k *conn) meet(peer string, window int) {
	k.peer, k.window = peer, uint64(window) //nolint:gosec // positive
	k.piece = min(pieceBytes, window/4-costBytes, int(k.nc.MaxPayload())-headBytes)
}

// probeIn sends a message after a while, and then after twice that, and so on up
// to a few seconds: if the last message was lost, the other side sees it by the
// number of the next one, and a handshake need not wait for its end. Later the
// heartbeats of the session do that. The mutex is held.
func (k *conn) probeIn(d time.Duration) {
	if k.closed || k.err != nil || d > 4*time.Second {
		return
	}
	k.probe = time.AfterFunc(d, func() {
		if k.send(kindAck, nil) == nil {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.probeIn(2 * d)
		}
	})
}

// deadline wakes the waiters of a direction when it passes.
type deadline struct {
	timer  *time.Timer
	passed bool
}

func (k *conn) setDeadline(d *deadline, wake *sync.Cond, t time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
	if t.IsZero() || k.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(t), func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if d.timer == timer {
			d.passed = true
			wake.Broadcast()
		}
	})
	d.timer = timer
}

// Read reads what has come. What came before the connection broke can be read
// after it.
func (k *conn) Read(b []byte) (int, error) {
	k.mu.Lock()
	for len(k.in) == 0 && k.err == nil && !k.closed && !k.readBy.passed {
		k.readable.Wait()
	}
	if err := k.readErr(); err != nil {
		k.mu.Unlock()
		return 0, err
	}
	n := 0
	for n < len(b) && len(k.in) > 0 {
		m := copy(b[n:], k.in[0][k.off:])
		n += m
		if k.off += m; k.off == len(k.in[0]) {
			k.consumed += uint64(k.off + costBytes) //nolint:gosec // positive
			k.in[0], k.off = nil, 0
			if k.in = k.in[1:]; len(k.in) == 0 {
				k.in = k.in[:0:0]
			}
		}
	}
	due := k.ackDue()
	if due {
		k.told = k.consumed
	}
	k.mu.Unlock()
	if due {
		_ = k.send(kindAck, nil) // the next call says what it failed with
	}
	return n, nil
}

// ackDue reports whether the other side needs to hear what was read. The mutex is
// held.
func (k *conn) ackDue() bool {
	return k.err == nil && k.consumed-k.told >= uint64(k.grant/4) //nolint:gosec // positive
}

// readErr is why a read reads nothing. The mutex is held.
func (k *conn) readErr() error {
	switch {
	case k.closed:
		return net.ErrClosed
	case k.readBy.passed:
		return os.ErrDeadlineExceeded
	case len(k.in) == 0:
		return k.err
	}
	return nil
}

// reserve takes room in the window for n bytes, or for a piece of them. It
// returns how many; 0 without an error only if it must not wait.
func (k *conn) reserve(n int, wait bool) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n = min(n, k.piece)
	cost := uint64(n + costBytes) //nolint:gosec // positive
	for {
		switch {
		case k.closed:
			return 0, net.ErrClosed
		case k.err == io.EOF: //nolint:errorlint // ours, and not wrapped on its way
			return 0, errors.New("closed by the other side")
		case k.err != nil:
			return 0, k.err
		case k.writeBy.passed:
			return 0, os.ErrDeadlineExceeded
		case k.sent-k.acked+cost <= k.window:
			k.sent += cost
			return n, nil
		case !wait:
			return 0, nil
		}
		k.writable.Wait()
	}
}

// Write writes all of b.
func (k *conn) Write(b []byte) (int, error) {
	bufs := net.Buffers{b}
	n, err := k.WriteBuffers(&bufs)
	return int(n), err
}

// WriteBuffers writes all of bufs in as few messages as it can.
func (k *conn) WriteBuffers(bufs *net.Buffers) (int64, error) {
	left := 0
	for _, b := range *bufs {
		left += len(b)
	}
	total := int64(0)
	for left > 0 {
		n, err := k.reserve(left, true)
		if err == nil {
			err = k.sendData(bufs, n)
		}
		if err != nil {
			return total, err
		}
		total += int64(n)
		left -= n
	}
	return total, nil
}

// TryWrite writes what the window has room for, without waiting for more. It
// returns the bytes written, which may be 0.
func (k *conn) TryWrite(b []byte) (int, error) {
	total := 0
	for total < len(b) {
		n, err := k.reserve(len(b)-total, false)
		if n == 0 || err != nil {
			return total, err
		}
		bufs := net.Buffers{b[total : total+n]}
		if err := k.sendData(&bufs, n); err != nil {
			return total, err
		}
		total += n
	}
	return total, nil
}

// sendData sends the first n bytes of bufs as one message, and takes them off.
func (k *conn) sendData(bufs *net.Buffers, n int) error {
	return k.send(kindData, func(b []byte) []byte {
		for n > 0 {
			m := min(n, len((*bufs)[0]))
			b = append(b, (*bufs)[0][:m]...)
			n -= m
			if (*bufs)[0] = (*bufs)[0][m:]; len((*bufs)[0]) == 0 {
				*bufs = (*bufs)[1:]
			}
		}
		return b
	})
}

// send numbers and publishes a message; body appends its body.
func (k *conn) send(kind byte, body func(b []byte) []byte) error {
	k.sending.Lock()
	defer k.sending.Unlock()
	k.mu.Lock()
	peer, consumed := k.peer, k.consumed
	k.told = consumed
	k.mu.Unlock()
	k.number++
	k.buf = appendHead(k.buf[:0], head{kind, k.number, consumed})
	if body != nil {
		k.buf = body(k.buf)
	}
	if err := k.nc.PublishRequest(peer, k.own, k.buf); err != nil {
		// Whether it left is not known, and its number will not come again.
		k.bus.reset(k.nc, peer, "the other side cannot send")
		return k.fail(err)
	}
	return nil
}

// fail breaks the connection, if it is not broken yet, and returns why it is.
func (k *conn) fail(err error) error {
	k.bus.forget(k)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
		k.answeredNow()
	}
	k.readable.Broadcast()
	k.writable.Broadcast()
	return k.err
}

// unheard is the error of a connection of which the server says that nobody is at its other
// end: a dial, or one whose other end is gone.
func (k *conn) unheard() error {
	if k.other() == "" {
		return errors.New("connection refused: no node has this address: start the node, with the same job id and NATS server")
	}
	return errors.New("the node at the other end has ended, or is no longer connected with the server")
}

// answeredNow ends the wait of a dial. The mutex is held.
func (k *conn) answeredNow() {
	select {
	case <-k.answered:
	default:
		close(k.answered)
	}
}

// Close lets the other side know that nothing more comes, and unblocks Read and
// Write. It does not wait.
func (k *conn) Close() error {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil
	}
	k.closed = true
	tell := k.err == nil && k.peer != ""
	for _, d := range []*deadline{&k.readBy, &k.writeBy} {
		if d.timer != nil {
			d.timer.Stop()
			d.timer = nil
		}
	}
	if k.probe != nil {
		k.probe.Stop()
	}
	k.in = nil
	k.readable.Broadcast()
	k.writable.Broadcast()
	k.mu.Unlock()
	k.bus.forget(k)
	if tell {
		k.bus.sayFin(k)
	}
	return nil
}

func (k *conn) LocalAddr() net.Addr  { return k.local }
func (k *conn) RemoteAddr() net.Addr { return k.remote }

// SetDeadline sets both deadlines.
func (k *conn) SetDeadline(t time.Time) error {
	_ = k.SetReadDeadline(t)
	return k.SetWriteDeadline(t)
}

// SetReadDeadline bounds the waiting of Read.
func (k *conn) SetReadDeadline(t time.Time) error {
	k.setDeadline(&k.readBy, &k.readable, t)
	return nil
}

// SetWriteDeadline bounds the waiting of Write for room in the window.
func (k *conn) SetWriteDeadline(t time.Time) error {
	k.setDeadline(&k.writeBy, &k.writable, t)
	return nil
}

// other is the other end's subject, empty if it is not known.
func (k *conn) other() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.peer
}

// receive takes in a message of the other end. It must not wait.
func (k *conn) receive(m *nats.Msg) {
	h, body, err := parse(m.Data)
	if err != nil {
		k.breakOff(err)
		return
	}
	k.mu.Lock()
	switch {
	case k.err != nil || k.closed:
	case h.kind == kindReset:
		err = errors.New(printable.Text(string(body)))
	case k.peer == "":
		err = k.accepted(h, body, m.Reply)
	case h.number != k.next:
		err = &gapError{k.next, h.number}
	default:
		err = k.take(h, body)
	}
	k.mu.Unlock()
	switch {
	case err == nil:
	case h.kind == kindReset:
		_ = k.fail(err)
	default:
		k.breakOff(err)
	}
}

// accepted takes in the answer to a dial. The mutex is held.
func (k *conn) accepted(h head, body []byte, reply string) error {
	if h.kind != kindAccept {
		return fmt.Errorf("%w: kind %d before the connection was accepted", errMalformed, h.kind)
	}
	window, _, err := parseHello(body)
	if err == nil && !k.bus.mine(reply) {
		err = fmt.Errorf("%w: accepted by %q", errMalformed, reply)
	}
	if err == nil {
		k.meet(reply, window)
		k.answeredNow()
	}
	return err
}

// take takes in a numbered message that is the next one. The mutex is held.
func (k *conn) take(h head, body []byte) error {
	k.next++
	if h.consumed > k.sent {
		return fmt.Errorf("%w: %d consumed of %d", errMalformed, h.consumed, k.sent)
	}
	if h.consumed > k.acked {
		k.acked = h.consumed
		k.writable.Broadcast()
	}
	switch {
	case h.kind == kindFin:
		k.err = io.EOF
		k.writable.Broadcast()
	case len(body) > 0:
		k.came += uint64(len(body) + costBytes)
		if k.came-k.consumed > uint64(k.grant) { //nolint:gosec // positive
			return fmt.Errorf("%w: %d bytes over the window", errMalformed, k.came-k.consumed)
		}
		k.in = append(k.in, body)
	}
	k.readable.Broadcast()
	return nil
}

// gapError says that messages are missing between two others.
type gapError struct{ due, got uint64 }

// Error names both numbers.
func (e *gapError) Error() string {
	return fmt.Sprintf("message %d came where %d was due: NATS has dropped what is between, for a client that was too slow or a server that went away", e.got, e.due)
}

// breakOff breaks the connection and tells the other side why.
func (k *conn) breakOff(err error) {
	k.mu.Lock()
	peer, fresh := k.peer, k.err == nil
	k.mu.Unlock()
	_ = k.fail(err)
	if fresh {
		k.bus.broken(k.remote, err)
	}
	if peer != "" {
		k.bus.reset(k.nc, peer, err.Error())
	}
}
