package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/printable"
)

// Message is a message from one end of a connection to the other.
type Message struct {
	To    string // place of the receiver
	From  string // place of the sender; empty in a reset
	Bytes []byte // only until Publish returns
	// Err is set by Publish: nil if the broker has the message, ErrInboxGone if the place has ended, ErrAgain if that is not known
	// and the message must be published again. Any other error breaks the connection.
	Err error

	c *conn // nil in a reset
}

var (
	// ErrInboxGone is the error of a message whose place has ended.
	ErrInboxGone = errors.New("the other side's inbox is gone")
	// ErrAgain is the error of a message that must be published again.
	ErrAgain = errors.New("not sent")
	// ErrRefused is the error of a dial that is not accepted.
	ErrRefused = errors.New("connection refused")

	errReset = errors.New("connection closed by the other side")
)

// Broker is a server that carries messages between inboxes. Messages for this inbox are given to
// [Hub.Deliver].
type Broker interface {
	// Publish sends messages in their order and sets the Err of each. A hub with Direct calls it from many goroutines.
	Publish(messages []*Message)
	// Claim lets others find this inbox under a word, until release is called.
	Claim(ctx context.Context, word string) (release func(), err error)
	// Find returns the place to which a dial of a word is sent, or ErrRefused if there is none.
	Find(ctx context.Context, word string) (place string, err error)
	// Place returns the inbox of an end of a connection.
	Place(end Peer) string
	// Close ends the connection with the server, after wrote is closed or ctx has ended.
	Close(ctx context.Context, wrote <-chan struct{})
}

// Config describes a broker to its hub. All fields except Most, Name and Broken are required.
type Config struct {
	Broker    Broker
	Inbox     string     // its name, of NewInbox
	Window    int        // bytes that may be under way to an end of this hub
	MinWindow int        // the smallest accepted window of another hub, in bytes
	MaxWindow int        // the largest
	BodyBytes int        // the largest body of a message
	Most      func() int // bytes of the largest message that the server takes now; nil: it takes any
	Direct    bool       // Write publishes directly; else one goroutine publishes for all
	Lossy     bool       // the broker may lose messages while it runs: a dial is sent again
	Loss      string     // why bytes may be missing, and what to do
	Name      string     // of this node, for the addresses that others see; empty: that of the inbox
	// Broken, if not nil, is called for each connection that broke because of a fault.
	Broken func(with net.Addr, err error)
}

// NewInbox returns a random name.
func NewInbox() string {
	var id [InboxBytes / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

const (
	backlog    = 1024                   // connections waiting for Accept: all nodes of a large job may dial at once
	patience   = 500 * time.Millisecond // the wait of a dial before it is sent, or the place is looked up, again
	batchBytes = 1 << 20                // a batch of at least this size is published
	maxUnbound = 16 << 10               // waiting resets; more are dropped, against a hostile flood of dials
	lingerTime = 2 * time.Second        // the last Close waits for the server
)

// Hub is one inbox: its listeners, its connections, and the goroutine that sends for them. It ends when all its users
// have released it; the caller of New is the first.
type Hub struct {
	cfg    Config
	nextID atomic.Uint64
	bodies sync.Pool     // of *Message, with a buffer for a whole body
	wrote  chan struct{} // closed when the writer has ended
	ahead  int           // of ready, connections that the writer takes before the first behind unbound:
	behind int           // the reset for a connection that was closed comes after its end
	end    chan struct{} // closed after the last use of the hub

	mu        sync.Mutex
	wake      sync.Cond
	refs      int // listeners, connections, and calls that make one
	ended     bool
	ready     []*conn    // have something to send
	unbound   []*Message // of no connection
	conns     map[uint64]*conn
	callers   map[Peer]*conn // those that dialled this hub
	listeners map[string]*listener
}

// New returns a hub. Run sends what its connections have to send.
func New(cfg Config) *Hub {
	h := &Hub{
		cfg: cfg, refs: 1, wrote: make(chan struct{}), end: make(chan struct{}),
		conns: map[uint64]*conn{}, callers: map[Peer]*conn{}, listeners: map[string]*listener{},
	}
	h.bodies.New = func() any { return &Message{Bytes: make([]byte, 0, HeadBytes+cfg.BodyBytes)} }
	h.wake.L = &h.mu
	h.nextID.Store(mrand.Uint64() >> 1)
	return h
}

// Done is closed after the last use of the hub.
func (h *Hub) Done() <-chan struct{} { return h.end }

// Retain counts one more user, unless the last one has released the hub.
func (h *Hub) Retain() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs == 0 {
		return false
	}
	h.refs++
	return true
}

// Release takes back what Retain or New counted. The last one closes the broker, and waits for it.
func (h *Hub) Release() {
	h.mu.Lock()
	h.refs--
	last := h.refs == 0
	if last {
		h.ended = true
		close(h.end)
		h.wake.Broadcast()
	}
	h.mu.Unlock()
	if last {
		ctx, cancel := context.WithTimeout(context.Background(), lingerTime)
		defer cancel()
		h.cfg.Broker.Close(ctx, h.wrote)
	}
}

// CloseAll closes all listeners and connections.
func (h *Hub) CloseAll() {
	h.mu.Lock()
	var all []interface{ Close() error }
	for _, l := range h.listeners {
		all = append(all, l)
	}
	for _, c := range h.conns {
		all = append(all, c)
	}
	h.mu.Unlock()
	for _, c := range all {
		_ = c.Close()
	}
}

// BreakAll breaks every connection, and sends the reason to the other sides.
func (h *Hub) BreakAll(err error, why string) {
	h.mu.Lock()
	all := make([]*conn, 0, len(h.conns))
	for _, c := range h.conns {
		all = append(all, c)
	}
	h.mu.Unlock()
	for _, c := range all {
		c.fail(err, why)
	}
}

// Words returns the words on which the hub listens.
func (h *Hub) Words() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	words := make([]string, 0, len(h.listeners))
	for w := range h.listeners {
		words = append(words, w)
	}
	return words
}

// forget ends the delivery of messages to the connection.
func (h *Hub) forget(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.conns, c.id)
	if h.callers[c.from] == c {
		delete(h.callers, c.from)
	}
}

// control returns a dial or an accept.
func (h *Hub) control(head head, c *conn, hi hello, rest string) *Message {
	return &Message{Bytes: append(appendHello(appendHead(nil, head), hi), rest...), c: c}
}

// data returns a message with room for a body.
func (h *Hub) data(c *conn) *Message {
	m := h.bodies.Get().(*Message)
	m.Bytes, m.Err, m.c = m.Bytes[:0], nil, c
	return m
}

// recycle puts an unused message back into the pool.
func (h *Hub) recycle(m *Message) {
	if cap(m.Bytes) >= HeadBytes+h.cfg.BodyBytes {
		m.c = nil
		h.bodies.Put(m)
	}
}

// Dial connects to the hub that has claimed a word, and waits for its answer.
func (h *Hub) Dial(ctx context.Context, word string) (net.Conn, error) {
	place, err := h.cfg.Broker.Find(ctx, word)
	if err != nil {
		return nil, err
	}
	if !h.Retain() {
		return nil, net.ErrClosed
	}
	name := h.cfg.Name
	if name == "" {
		name = "inbox." + h.cfg.Inbox
	}
	c := h.newConn(Addr("bus://"+name), Addr("bus://"+word))
	c.place = place
	h.mu.Lock()
	h.conns[c.id] = c
	h.mu.Unlock()
	if err := h.call(ctx, c, word); err != nil {
		c.fail(err, "")
		_ = c.Close()
		return nil, err
	}
	if h.cfg.Lossy {
		c.mu.Lock()
		c.probeIn(patience)
		c.mu.Unlock()
	}
	return c, nil
}

// call sends a dial and waits for the answer. It fails if the other side has crashed meanwhile, or another hub has claimed the
// word.
func (h *Hub) call(ctx context.Context, c *conn, word string) error {
	place, text := c.place, word
	if h.cfg.Name != "" {
		text += "\x00" + h.cfg.Name[:min(len(h.cfg.Name), nameBytes)]
	}
	for first := true; ; first = false {
		if first || h.cfg.Lossy {
			c.mu.Lock()
			c.out = append(c.out, h.control(head{kind: kindDial, consumed: Version}, c, c.hello(), text))
			c.mu.Unlock()
			c.push()
		}
		t := time.NewTimer(patience)
		select {
		case <-c.up:
			t.Stop()
			c.mu.Lock()
			defer c.mu.Unlock()
			switch {
			case c.answer:
				return nil
			case c.err != nil:
				return c.err
			case c.closed:
				return net.ErrClosed
			}
			return fmt.Errorf("%w: the node there has ended: start it again", ErrRefused)
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
		switch now, err := h.cfg.Broker.Find(ctx, word); {
		case err != nil:
			return err
		case now != place:
			return fmt.Errorf("%w: the node there has ended: start it again", ErrRefused)
		}
	}
}

// Listen takes a word for the caller.
func (h *Hub) Listen(ctx context.Context, word string) (net.Listener, error) {
	l := &listener{hub: h, word: word, conns: make(chan *conn, backlog), done: make(chan struct{}), gone: make(chan struct{})}
	h.mu.Lock()
	taken, ended := h.listeners[word] != nil, h.refs == 0
	if !taken && !ended {
		h.refs++
		h.listeners[word] = l
	}
	h.mu.Unlock()
	switch {
	case ended:
		return nil, net.ErrClosed
	case taken:
		return nil, errors.New("address in use")
	}
	release, err := h.cfg.Broker.Claim(ctx, word)
	if err != nil {
		release = func() {}
	}
	l.release = release
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// Deliver handles a message of the inbox. id is the connection that it came to, or 0 if only the message has it. A message
// is not known if no connection here belongs to it, and the caller must answer it with a reset. Deliver does not wait.
func (h *Hub) Deliver(id uint64, b []byte) (known bool, err error) {
	m, body, err := parse(b)
	if err == nil && m.kind == kindDial && id == 0 {
		return true, h.called(m, body)
	}
	if err == nil && id != 0 && m.to != id {
		err = fmt.Errorf("%w: it is for connection %d", ErrMalformed, m.to)
	}
	if id == 0 {
		if err != nil {
			return true, err
		}
		id = m.to
	}
	h.mu.Lock()
	c := h.conns[id]
	h.mu.Unlock()
	switch {
	case c == nil && err == nil && m.kind == kindAccept: // the dial was given up
		var peer hello
		if peer, _, err = parseHello(body); err == nil {
			h.reset(peer.Peer, "there is no such connection any more")
		}
		return true, err
	case c == nil:
		return err != nil || m.kind == kindReset || m.kind == kindFin, nil //nolint:nilerr // no connection here is concerned
	}
	if err == nil {
		err = c.receive(m, body)
	}
	if errors.Is(err, errReset) {
		return m.kind == kindReset || m.kind == kindFin, nil
	}
	if err != nil {
		c.fail(err, err.Error())
		if h.cfg.Broken != nil {
			h.cfg.Broken(c.remote, err)
		}
	}
	return true, nil
}

// Lost breaks a connection, with the error absent if it was not accepted yet, and else with ended.
func (h *Hub) Lost(id uint64, absent, ended error) {
	h.mu.Lock()
	c := h.conns[id]
	h.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resetSent = true
	if !c.answer {
		ended = absent
	}
	c.failLocked(ended, "")
}

func (h *Hub) checkWindow(peer hello) error {
	if peer.window < h.cfg.MinWindow || peer.window > h.cfg.MaxWindow {
		return fmt.Errorf("%w: a window of %d bytes", ErrMalformed, peer.window)
	}
	return nil
}

// called answers a dial.
func (h *Hub) called(m head, body []byte) error {
	peer, rest, err := parseHello(body)
	if v := checkVersion(m); v != nil {
		if err == nil { // version 1 over Redis has a fin
			h.queue(peer.Peer, appendHead(nil, head{kind: kindFin, to: peer.ID}))
		}
		return v
	}
	if err == nil {
		err = h.checkWindow(peer)
	}
	if err != nil {
		return err
	}
	word, name, _ := strings.Cut(string(rest), "\x00")
	if name == "" {
		name = "inbox." + peer.Inbox
	}
	h.mu.Lock()
	l, again := h.listeners[word], h.callers[peer.Peer]
	if l == nil || h.ended || again == nil && len(l.conns) == cap(l.conns) {
		h.mu.Unlock()
		why := ErrRefused.Error() + ": too many wait to be accepted"
		if l == nil {
			why = ErrRefused.Error() + ": the node there has ended: start it again"
		}
		h.reset(peer.Peer, why)
		return nil
	}
	defer h.mu.Unlock()
	if again != nil { // the same message again, or its answer was lost
		if h.cfg.Lossy {
			h.queueLocked(&Message{To: again.place, From: again.own,
				Bytes: h.control(head{kind: kindAccept, to: peer.ID, consumed: Version}, nil, again.hello(), "").Bytes})
		}
		return nil
	}
	c := h.newConn(Addr("bus://"+word), Addr("bus://"+printable.Cut(name, 2*nameBytes)))
	c.from = peer.Peer
	c.accept(peer) // before the caller of Accept can close it
	if h.cfg.Lossy {
		c.probeIn(patience)
	}
	h.refs++
	h.conns[c.id], h.callers[c.from] = c, c
	c.queued = true
	h.ready = append(h.ready, c)
	h.wake.Signal()
	l.conns <- c // nothing else fills it
	return nil
}

// reset sends to a place that it has no connection here, and the reason.
func (h *Hub) reset(peer Peer, why string) {
	h.queue(peer, append(appendHead(nil, head{kind: kindReset, to: peer.ID}), why...))
}

// Reset sends to an end that it has no connection here.
func (h *Hub) Reset(peer Peer) { h.reset(peer, "there is no such connection any more") }

func (h *Hub) queue(peer Peer, b []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queueLocked(&Message{To: h.cfg.Broker.Place(peer), Bytes: b})
}

func (h *Hub) queueLocked(m *Message) {
	if len(h.unbound) < maxUnbound {
		h.unbound = append(h.unbound, m)
		h.wake.Signal()
	}
}

// enqueue adds a connection to those that the writer sends for.
func (h *Hub) enqueue(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = append(h.ready, c)
	h.wake.Signal()
}

// Run publishes what connections have to send, many messages at once, until the hub is unused and nothing is left.
func (h *Hub) Run() {
	defer close(h.wrote)
	var batch []*Message
	for {
		batch = h.gather(batch[:0])
		if len(batch) == 0 {
			return
		}
		h.send(batch)
		clear(batch)
	}
}

// gather waits for messages to send. There are none at the end.
func (h *Hub) gather(batch []*Message) []*Message {
	for size := 0; len(batch) == 0; {
		h.mu.Lock()
		for len(h.ready) == 0 && len(h.unbound) == 0 && !h.ended {
			h.wake.Wait()
		}
		over := len(h.ready) == 0 && len(h.unbound) == 0
		if h.ahead == 0 {
			h.ahead, h.behind = len(h.ready), len(h.unbound)
		}
		h.mu.Unlock()
		if over {
			return nil
		}
		for ; h.ahead > 0 && size < batchBytes; h.ahead-- {
			c := h.nextReady()
			if h.cfg.Direct {
				c.flush()
				continue
			}
			var n int
			batch, n = c.take(batch)
			size += n
		}
		if h.ahead == 0 {
			batch = h.takeStrays(batch)
		}
	}
	return batch
}

// takeStrays appends the due messages that have no connection.
func (h *Hub) takeStrays(batch []*Message) []*Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	batch = append(batch, h.unbound[:h.behind]...)
	rest := copy(h.unbound, h.unbound[h.behind:])
	clear(h.unbound[rest:])
	h.unbound = h.unbound[:rest]
	return batch
}

// nextReady removes and returns the connection that has waited longest. At least one waits.
func (h *Hub) nextReady() *conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.ready[0]
	n := copy(h.ready, h.ready[1:])
	h.ready[n] = nil
	h.ready = h.ready[:n]
	return c
}

// send publishes messages in their order. A message that may or may not have arrived is sent again:
// the receiver recognises it by its offset.
func (h *Hub) send(batch []*Message) {
	for wait := time.Duration(0); ; {
		h.cfg.Broker.Publish(batch)
		batch = h.unsettled(batch)
		if len(batch) == 0 {
			return
		}
		more := h.Pause(&wait)
		rest := batch[:0]
		for _, m := range batch {
			switch {
			case !more && m.c != nil:
				m.c.fail(m.Err, "")
			case more && !m.c.broken():
				rest = append(rest, m)
			}
		}
		if batch = rest; len(batch) == 0 {
			return
		}
	}
}

// unsettled returns the messages that must be sent again.
func (h *Hub) unsettled(batch []*Message) []*Message {
	rest := batch[:0]
	for _, m := range batch {
		if !h.settle(m) {
			rest = append(rest, m)
		}
	}
	return rest
}

// settle records the result of a message. It reports whether the result is known.
func (h *Hub) settle(m *Message) bool {
	switch {
	case errors.Is(m.Err, ErrAgain):
		return false
	case m.Err == nil || m.c == nil:
	case errors.Is(m.Err, ErrInboxGone):
		m.c.gone(m.Err)
	default:
		m.c.fail(m.Err, cannotSend)
	}
	h.recycle(m)
	return true
}

// Pause waits before a retry, longer each time. It reports false when the hub has ended.
func (h *Hub) Pause(wait *time.Duration) bool {
	*wait = min(max(2**wait, 10*time.Millisecond), 250*time.Millisecond)
	t := time.NewTimer(*wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-h.end:
		return false
	}
}

// listener is one word.
type listener struct {
	hub     *Hub
	word    string
	release func()
	conns   chan *conn // see backlog
	once    sync.Once
	done    chan struct{} // closed by Close
	gone    chan struct{} // closed when Close has done its work
}

// Accept returns the next connection. After Close it also waits for the end of Close.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	case c := <-l.conns:
		return c, nil
	}
	<-l.gone
	return nil, net.ErrClosed
}

func (l *listener) Addr() net.Addr { return Addr("bus://" + l.word) }

// Close also closes the connections that were not accepted.
func (l *listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.hub.mu.Lock()
		delete(l.hub.listeners, l.word) // after this no more connections are sent to conns
		l.hub.mu.Unlock()
		l.release()
		for len(l.conns) > 0 {
			_ = (<-l.conns).Close()
		}
		l.hub.Release()
		close(l.gone)
	})
	return nil
}
