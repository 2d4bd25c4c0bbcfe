//go:build amd64 || arm64

package socket_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/socket"
)

// cutter is a transport whose connections a test closes.
type cutter struct {
	router.Transport
	mu    sync.Mutex
	conns []net.Conn
}

func (c *cutter) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := c.Transport.Dial(ctx, addr)
	if err == nil {
		c.mu.Lock()
		c.conns = append(c.conns, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// lent is a payload in memory that a channel has lent, or not.
type lent struct {
	b    []byte
	mem  router.Memory
	refs atomic.Int32
}

func (l *lent) Bytes() []byte         { return l.b }
func (l *lent) Header() []byte        { return nil }
func (l *lent) Memory() router.Memory { return l.mem }
func (l *lent) Retain()               { l.refs.Add(1) }
func (l *lent) Release() {
	if l.refs.Add(-1) == 0 && l.mem != nil {
		l.mem.Release()
	}
}

// pattern is the content of message number i, which has a size of its own.
func pattern(i int) []byte {
	return bytes.Repeat([]byte{byte(i), byte(i >> 8), 7}, []int{10, 30_000, 100_000, 1_000_000}[i%4])
}

// post sends message number i, in memory if there is any. It reports whether there was.
func post(ctx context.Context, t *testing.T, ch *router.Channel, i int) bool {
	t.Helper()
	want := pattern(i)
	l := &lent{b: want}
	l.refs.Store(1)
	if l.mem = ch.Lend(len(want) + 5000); l.mem != nil {
		l.b = l.mem.Bytes()[:copy(l.mem.Bytes(), want)]
		l.mem.Fit(len(want))
	}
	defer l.Release()
	if _, err := ch.Send(ctx, l, nil); err != nil {
		t.Error(err)
	}
	return l.mem != nil
}

// receiver checks that all messages come once each, in order. It returns half of those that are lent
// later.
type receiver struct {
	t     *testing.T
	name  string
	mu    sync.Mutex
	next  int
	lent  int
	later []func()
	all   chan struct{}
	total int
}

func (h *receiver) deliver(m *router.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if want := pattern(h.next); !bytes.Equal(m.Payload, want) {
		h.t.Errorf("%s: message %d has %d bytes that are not those of %d", h.name, m.Version, len(m.Payload), h.next)
	}
	credit, payload, lent := m.Credit, m.Payload, m.Lent
	m.Taken = m.Takable
	h.next++
	if lent {
		h.lent++
	}
	back := func() {
		if lent {
			credit.Recycle(payload)
		}
		credit.Return(1, len(payload))
	}
	if h.later = append(h.later, back); len(h.later) == 2 || h.next == h.total {
		for _, back := range h.later {
			back()
		}
		h.later = nil
	}
	if h.next == h.total {
		close(h.all)
	}
	return nil
}

// group makes routers that listen on unix sockets, each of which dials those before it.
func group(t *testing.T, n int, edit func(id int, c *router.Config)) []*router.Router {
	t.Helper()
	return groupAt(t, n, sockets(), edit)
}

// groupAt is group with other addresses.
func groupAt(t *testing.T, n int, addr func(testing.TB, int) string, edit func(id int, c *router.Config)) []*router.Router {
	t.Helper()
	var all []*router.Router
	for id := range n {
		cfg := router.Config{
			Job: "j", Node: id, Expect: n, Transport: socket.New(socket.Config{}), Listen: addr(t, id),
			Logger: slog.New(slog.DiscardHandler), SharedBytes: 256 << 20,
		}
		for other := range id {
			cfg.Attach = append(cfg.Attach, addr(t, other))
		}
		if edit != nil {
			edit(id, &cfg)
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

func startAll(t *testing.T, all []*router.Router) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			if err := r.Start(t.Context(), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// finish drains all routers, and closes them.
func finish(t *testing.T, all []*router.Router) {
	t.Helper()
	var wg sync.WaitGroup
	for _, r := range all {
		wg.Go(func() {
			if err := r.Drain(t.Context(), true); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range all {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// exchange sends messages from node 0 to all others, of which node 1 borrows, and cuts the connections now and then.
// It returns how many were in memory, and how many lent.
func exchange(t *testing.T, all []*router.Router, total int, cut func()) (inMemory, lent int) {
	t.Helper()
	spec := router.Spec{Name: "e"}
	var receivers []*receiver
	for id, r := range all[1:] {
		h := &receiver{t: t, name: fmt.Sprint("node.", id+1), all: make(chan struct{}), total: total}
		ch, err := r.Channel(spec, h.deliver)
		if err != nil {
			t.Fatal(err)
		}
		ch.Borrow(id == 0)
		ch.Listen(true)
		receivers = append(receivers, h)
	}
	out, err := all[0].Channel(spec, func(*router.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	startAll(t, all)
	for cut != nil { // the peers announce a little later that they have mapped the memory
		if m := out.Lend(64 << 10); m != nil {
			m.Release()
			break
		}
		<-time.After(time.Millisecond)
	}
	for i := range total {
		if post(t.Context(), t, out, i) {
			inMemory++
		}
		if cut != nil && i%10 == 9 {
			cut()
		}
	}
	for _, h := range receivers {
		<-h.all
		lent += h.lent
	}
	return inMemory, lent
}

// Every message comes once, whole and in order, while connections are cut: to a node that borrows and
// to one that keeps. All memory is returned.
func TestMessagesInMemoryOverCuts(t *testing.T) {
	encrypted, _ := secure(t, certtest.New(t))
	for name, test := range map[string]struct {
		addr      func(testing.TB, int) string
		transport *socket.Transport
	}{
		"unix": {sockets(), socket.New(socket.Config{})},
		"tcp":  {ports(), socket.New(socket.Config{})},
		"tls":  {ports(), encrypted},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cutter{Transport: test.transport}
			all := groupAt(t, 3, test.addr, func(_ int, cfg *router.Config) { cfg.Transport = c })
			const total = 60
			inMemory, lent := exchange(t, all, total, c.cut)
			if inMemory != total*3/4 || lent == 0 {
				t.Errorf("%d of %d messages were in memory, %d lent", inMemory, total, lent)
			}
			st := all[0].Stats().Shared
			if st.Sent < uint64(inMemory) || st.Sent > uint64(2*inMemory) || st.Full != 0 {
				t.Errorf("%+v", st)
			}
			for all[0].Stats().Shared.Segments > 0 { // until the peers have announced it
				<-time.After(10 * time.Millisecond)
			}
			if got := all[1].Stats().Shared.Received + all[2].Stats().Shared.Received; got != st.Sent {
				t.Errorf("%d of %d messages came in memory", got, st.Sent)
			}
			finish(t, all)
		})
	}
}

// Where one side shares no memory, messages go by the socket.
func TestMessagesWithoutMemory(t *testing.T) {
	for name, edit := range map[string]func(id int, c *router.Config){
		"the sender shares none":   func(id int, c *router.Config) { c.SharedBytes *= min(id, 1) },
		"the receivers share none": func(id int, c *router.Config) { c.SharedBytes *= 1 - min(id, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			all := group(t, 3, edit)
			if inMemory, lent := exchange(t, all, 12, nil); inMemory != 0 || lent != 0 {
				t.Errorf("%d messages in memory, %d lent", inMemory, lent)
			}
			finish(t, all)
		})
	}
}

// A payload for which there is no room goes by the socket, and is counted.
func TestMessagesBeyondTheMemory(t *testing.T) {
	all := group(t, 2, func(_ int, c *router.Config) { c.SharedBytes = 128 << 10 })
	inMemory, _ := exchange(t, all, 40, func() {})
	if full := all[0].Stats().Shared.Full; full < 20 || inMemory > 20 {
		t.Errorf("%d messages in memory, %d without room", inMemory, full)
	}
	finish(t, all)
}

// While a payload of 64 MiB is copied, small events are delivered: each of them is sent when the one
// before has been received, and many are received before the large one.
func TestSmallEventsBesideALargeOne(t *testing.T) {
	const size, many = 64 << 20, 20
	all := group(t, 2, nil)
	none := func(*router.Message) error { return nil }
	big, err := all[0].Channel(router.Spec{Name: "big"}, none)
	if err != nil {
		t.Fatal(err)
	}
	small, err := all[0].Channel(router.Spec{Name: "small"}, none)
	if err != nil {
		t.Fatal(err)
	}
	heard, before := 0, make(chan int, 1)
	hears := func(name string, deliver func(*router.Message)) {
		ch, err := all[1].Channel(router.Spec{Name: name}, func(m *router.Message) error {
			deliver(m)
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		ch.Listen(true)
	}
	tell := func() {
		if _, err := small.Send(t.Context(), &lent{b: []byte{1}}, nil); err != nil {
			t.Error(err)
		}
	}
	hears("big", func(m *router.Message) {
		if m.Lent || len(m.Payload) != size || m.Payload[0] != 1 || m.Payload[size-1] != 2 {
			t.Errorf("%d bytes, lent %v", len(m.Payload), m.Lent)
		}
		before <- heard
	})
	hears("small", func(*router.Message) {
		if heard++; heard < many {
			tell()
		}
	})
	startAll(t, all)
	l := &lent{}
	l.refs.Store(1)
	for l.mem == nil { // the peer announces a little later that it has mapped the memory
		<-time.After(time.Millisecond)
		l.mem = big.Lend(size)
	}
	l.b = l.mem.Bytes()
	l.b[0], l.b[size-1] = 1, 2
	if _, err := big.Send(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
	tell()
	l.Release()
	if n := <-before; n < 3 {
		t.Errorf("%d small events were heard before the large one", n)
	}
	if st := all[1].Stats().Shared; st.Received != 1 || st.ReceivedBytes != size {
		t.Errorf("%+v", st)
	}
	finish(t, all)
}
