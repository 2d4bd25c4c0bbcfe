package redisbus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// backlog is how many connections may wait to be accepted.
const backlog = 1024

// lookAgain is how long who dials waits for an answer before it looks whether the
// one it has called is still there.
const lookAgain = 500 * time.Millisecond

var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection closed by the other side")
)

// listener is one word.
type listener struct {
	e     *endpoint
	word  string
	taken atomic.Bool // by somebody else, and that has been told
	conns chan *conn  // see backlog
	once  sync.Once
	done  chan struct{} // closed by Close
	gone  chan struct{} // closed when Close has done its work
}

// Accept returns the next connection. After Close it also waits for the end of
// that: who closes the listener while another one accepts waits for both so.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	case c := <-l.conns:
		return c, nil
	}
	<-l.gone
	return nil, net.ErrClosed
}

func (l *listener) Addr() net.Addr { return addr(scheme + l.word) }

// Close also closes the connections that nobody has accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.e.unlisten(l) // after it nothing more comes into conns
		l.e.forgetWord(l)
		for len(l.conns) > 0 {
			_ = (<-l.conns).Close()
		}
		l.e.release()
		close(l.gone)
	})
	return nil
}

// deadline wakes who waits on a connection when it passes.
type deadline struct {
	timer  *time.Timer
	passed bool
}

// conn is one end of a connection. Bytes that were written before it was closed
// can still be read at the other end, as with a socket.
type conn struct {
	e             *endpoint
	id            uint64
	local, remote addr
	from          caller        // of a connection that was dialled by the other side
	up            chan struct{} // closed when the other side has answered, or will not

	mu      sync.Mutex
	change  sync.Cond
	answer  bool  // the other side has answered
	peer    hello // the other side
	closed  bool  // by this side
	ended   bool  // by the other side
	err     error // what broke it
	unheard error // why nothing can be written, while what has come can be read to its end

	queued  bool     // is among those that have something to send
	out     [][]byte // entries to be sent
	sent    uint64   // bytes taken from Write
	acked   uint64   // of them, consumed by the other side
	writeBy deadline

	in       []string // data to be read
	got      uint64   // bytes received
	consumed uint64   // of them, read
	told     uint64   // of them, told of
	readBy   deadline
}

func (e *endpoint) newConn(local, remote addr) *conn {
	c := &conn{e: e, id: e.nextID.Add(1), local: local, remote: remote, up: make(chan struct{})}
	c.change.L = &c.mu
	return c
}

func (c *conn) hello() hello {
	return hello{c.id, uint32(c.e.cfg.WindowBytes), c.e.inbox} //nolint:gosec // New bounds it
}

// dial makes a connection; it takes over the caller's use of the endpoint.
func (e *endpoint) dial(ctx context.Context, w string) (*conn, error) {
	inbox, err := e.find(ctx, w)
	if err != nil {
		return nil, err
	}
	c := e.newConn(addr(scheme+"inbox."+e.inbox), addr(scheme+w))
	c.peer.inbox = inbox
	syn := appendHello(appendHead(nil, head{kind: kindSyn}), c.hello())
	c.out = append(c.out, append(syn, w...))
	e.mu.Lock()
	e.conns[c.id] = c
	e.mu.Unlock()
	c.mu.Lock()
	c.schedule()
	c.mu.Unlock()
	if err := e.awaitAnswer(ctx, c, w, inbox); err != nil {
		c.fail(err)
		e.forget(c)
		return nil, err
	}
	return c, nil
}

// find is the inbox of who listens on a word.
func (e *endpoint) find(ctx context.Context, w string) (string, error) {
	inbox, err := e.rdb.Get(ctx, e.key("at", w)).Result()
	if errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("%w: no node of job %q has this address: start the node, with the same Redis server", errRefused, e.cfg.Job)
	}
	if err != nil {
		return "", explain(e.server, err)
	}
	return inbox, nil
}

// awaitAnswer waits until the other side has answered. While it does not, it may
// have crashed, and another one may have come in its place.
func (e *endpoint) awaitAnswer(ctx context.Context, c *conn, w, called string) error {
	for {
		t := time.NewTimer(lookAgain)
		select {
		case <-c.up:
			t.Stop()
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case c.err != nil:
				return c.err
			case !c.answer:
				return fmt.Errorf("%w: the node there has ended: start it again", errRefused)
			}
			return nil
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
		switch inbox, err := e.find(ctx, w); {
		case err != nil:
			return err
		case inbox != called:
			return fmt.Errorf("%w: the node there has ended: start it again", errRefused)
		}
	}
}

// greet answers the one who has dialled. Nobody else knows the connection yet.
func (c *conn) greet(peer hello) {
	c.answer, c.peer = true, peer
	close(c.up)
	c.out = append(c.out, appendHello(appendHead(nil, head{kind: kindAccept, to: peer.id}), c.hello()))
	c.queued = true
}

// schedule has the writer look at the connection. The mutex is held.
func (c *conn) schedule() {
	if c.queued {
		return
	}
	c.queued = true
	c.e.mu.Lock()
	c.e.ready = append(c.e.ready, c)
	c.e.mu.Unlock()
	c.e.wake.Signal()
}

// take gives the writer what the connection has to send, and how many bytes that
// is.
func (c *conn) take(batch []entry) ([]entry, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = false
	if len(c.out) == 0 && c.consumed > c.told && !c.closed {
		c.out = append(c.out, appendHead(nil, head{kind: kindAck, to: c.peer.id}))
	}
	size := 0
	for i, b := range c.out {
		setConsumed(b, c.consumed)
		batch = append(batch, entry{c.peer.inbox, b, c})
		size += len(b)
		c.out[i] = nil
	}
	c.out = c.out[:0]
	c.told = c.consumed
	return batch, size
}

// receive takes an entry that has come for the connection.
func (c *conn) receive(h head, body string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.err != nil {
		return
	}
	if h.consumed > c.sent {
		c.failLocked(fmt.Errorf("%w: %d bytes read of %d sent", errBadEntry, h.consumed, c.sent))
		return
	}
	c.acked = max(c.acked, h.consumed)
	switch h.kind {
	case kindAccept:
		c.accepted(body)
	case kindData:
		c.data(h, body)
	case kindFin:
		if h.offset > c.got {
			c.failLocked(c.gap(h.offset))
		} else if !c.ended {
			c.ended = true
			c.answered()
		}
	}
	c.change.Broadcast()
}

// answered lets the dialling side go on. The mutex is held.
func (c *conn) answered() {
	select {
	case <-c.up:
	default:
		close(c.up)
	}
}

// accepted takes the answer of the side that was dialled. The mutex is held.
func (c *conn) accepted(body string) {
	if c.answer {
		return // the same entry again
	}
	peer, _, err := parseHello(body)
	if err == nil && (peer.inbox != c.peer.inbox || peer.window < minWindow || peer.window > maxWindow) {
		err = fmt.Errorf("%w: an answer of inbox %s with a window of %d bytes", errBadEntry, peer.inbox, peer.window)
	}
	if err != nil {
		c.failLocked(err)
		return
	}
	c.answer, c.peer = true, peer
	c.answered()
}

// data takes bytes. The mutex is held.
func (c *conn) data(h head, body string) {
	end := h.offset + uint64(len(body))
	switch {
	case end <= c.got:
		return // the same entry again
	case h.offset != c.got:
		c.failLocked(c.gap(h.offset))
	case end-c.consumed > uint64(c.e.cfg.WindowBytes): //nolint:gosec // positive
		c.failLocked(fmt.Errorf("%w: more than the window of %d bytes", errBadEntry, c.e.cfg.WindowBytes))
	default:
		c.in = append(c.in, body)
		c.got = end
	}
}

func (c *conn) gap(offset uint64) error {
	return fmt.Errorf("redis at %s has lost bytes %d to %d: it was restarted, flushed or replaced, or it evicts keys", c.e.server, c.got, offset)
}

// fail breaks the connection. What has come can still be read.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *conn) failLocked(err error) {
	if c.err == nil && !c.closed {
		c.err = err
		c.answered()
		c.change.Broadcast()
	}
}

// lost is fail for the writer, to which an answer to a stranger is no connection.
func (c *conn) lost(err error) {
	if c != nil {
		c.fail(err)
	}
}

// gone takes note that the other side has no inbox any more. If it has closed the
// connection in order, that has come or will.
func (c *conn) gone(err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answer {
		c.failLocked(err)
	} else if c.unheard == nil {
		c.unheard = err
		c.change.Broadcast()
	}
}

// broken reports whether there is no use in sending.
func (c *conn) broken() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil || c.ended || c.unheard != nil
}

// why is what made this side close the connection, for who still uses it.
func (c *conn) why() error {
	switch {
	case c.err != nil:
		return c.err
	case c.unheard != nil:
		return c.unheard
	}
	return net.ErrClosed
}

// Read reads what has come, as much as fits.
func (c *conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.in) == 0 && !c.closed && c.err == nil && !c.ended && !c.readBy.passed && len(b) > 0 {
		c.change.Wait()
	}
	switch {
	case c.closed:
		return 0, c.why()
	case c.readBy.passed:
		return 0, os.ErrDeadlineExceeded
	case len(c.in) > 0 || len(b) == 0:
	case c.err != nil:
		return 0, c.err
	default:
		return 0, io.EOF
	}
	total, used := 0, 0
	for used < len(c.in) && total < len(b) {
		n := copy(b[total:], c.in[used])
		total += n
		if n == len(c.in[used]) {
			used++
		} else {
			c.in[used] = c.in[used][n:]
		}
	}
	rest := copy(c.in, c.in[used:])
	clear(c.in[rest:])
	c.in = c.in[:rest]
	c.consumed += uint64(total)
	if c.consumed-c.told >= uint64(c.e.cfg.WindowBytes)/4 && !c.ended && c.unheard == nil && c.err == nil { //nolint:gosec // positive
		c.schedule()
	}
	return total, nil
}

// Write writes all of b, and waits where the other side is behind.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writeAll(b)
}

// WriteBuffers writes all of bufs.
func (c *conn) WriteBuffers(bufs *net.Buffers) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var total int64
	for len(*bufs) > 0 {
		n, err := c.writeAll((*bufs)[0])
		total += int64(n)
		if err != nil {
			return total, err
		}
		*bufs = (*bufs)[1:]
	}
	return total, nil
}

// TryWrite writes what the other side has room for, without waiting. It returns
// the bytes written, which may be 0.
func (c *conn) TryWrite(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.put(b)
}

func (c *conn) writeAll(b []byte) (int, error) {
	total := 0
	for {
		n, err := c.put(b[total:])
		if total += n; err != nil || total == len(b) {
			return total, err
		}
		c.change.Wait()
	}
}

// put takes what there is room for. The mutex is held.
func (c *conn) put(b []byte) (int, error) {
	switch {
	case c.closed:
		return 0, c.why()
	case c.err != nil:
		return 0, c.err
	case c.ended:
		return 0, errReset
	case c.unheard != nil:
		return 0, c.unheard
	case c.writeBy.passed:
		return 0, os.ErrDeadlineExceeded
	}
	total := min(len(b), int(c.peer.window)-int(c.sent-c.acked)) //nolint:gosec // at most a window
	for b = b[:total]; len(b) > 0; {
		last := len(c.out) - 1
		if last < 0 || kind(c.out[last][0]) != kindData || len(c.out[last]) >= headBytes+entryBytes {
			c.out = append(c.out, newEntry(head{kind: kindData, to: c.peer.id, offset: c.sent}))
			last++
		}
		n := min(len(b), headBytes+entryBytes-len(c.out[last]))
		c.out[last] = append(c.out[last], b[:n]...)
		c.sent += uint64(n) //nolint:gosec // not negative
		b = b[n:]
	}
	if total > 0 {
		c.schedule()
	}
	return total, nil
}

// Close ends both directions. The other side can read what was written before.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	if c.ended || c.unheard != nil {
		c.out = nil // nobody reads it
	} else {
		c.out = append(c.out, appendHead(nil, head{kind: kindFin, to: c.peer.id, offset: c.sent}))
		c.schedule()
	}
	c.closed = true
	c.in = nil
	c.stop(&c.readBy)
	c.stop(&c.writeBy)
	c.change.Broadcast()
	c.mu.Unlock()
	c.e.forget(c)
	c.e.release()
	return nil
}

// forget lets nothing more come to the connection.
func (e *endpoint) forget(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.conns, c.id)
	if e.callers[c.from] == c {
		delete(e.callers, c.from)
	}
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.readBy, t) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.writeBy, t) }

func (c *conn) stop(d *deadline) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.passed = nil, false
}

func (c *conn) setDeadline(d *deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.stop(d)
	if t.IsZero() {
		return nil
	}
	wait := time.Until(t)
	if wait <= 0 {
		d.passed = true
		c.change.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if d.timer == timer {
			d.passed = true
			c.change.Broadcast()
		}
	})
	d.timer = timer
	return nil
}
