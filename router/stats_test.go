package router_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

// stream is what r has counted of one event with one peer.
func stream(r *router.Router, event string, peer int) router.StreamStats {
	for _, s := range r.Stats().Streams {
		if s.Event == event && s.Peer == peer {
			return s
		}
	}
	return router.StreamStats{}
}

// adds reports whether everything that was sent is accounted for.
func adds(s router.StreamStats) bool {
	return s.Sent == s.Delivered+s.Replaced+s.Oldest+s.Newest+s.Abandoned+s.Lost+uint64(s.Queued)+uint64(s.InFlight)
}

// duo are two routers that have not started, node.1 with its deliver function.
type duo struct {
	t       *testing.T
	nodes   [2]*router.Router
	deliver func(m *router.Message) error
}

func newDuo(t *testing.T, c router.Transport, edit func(*router.Config)) *duo {
	t.Helper()
	d := &duo{t: t}
	for id := range d.nodes {
		cfg := router.Config{Job: "j", Node: id, Expect: 2, Incarnation: 1, Transport: c, Logger: slog.New(slog.DiscardHandler)}
		if id == 0 {
			cfg.Listen = "mem://0"
		} else {
			cfg.Attach = []string{"mem://0"}
		}
		if edit != nil {
			edit(&cfg)
		}
		r, err := router.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		d.nodes[id] = r
	}
	return d
}

// event declares an event on both; node.1 listens.
func (d *duo) event(spec router.Spec) *router.Channel {
	d.t.Helper()
	out, err := d.nodes[0].Channel(spec, func(*router.Message) error { return nil })
	if err != nil {
		d.t.Fatal(err)
	}
	in, err := d.nodes[1].Channel(spec, func(m *router.Message) error { return d.deliver(m) })
	if err != nil {
		d.t.Fatal(err)
	}
	in.Listen(true)
	return out
}

func (d *duo) start() {
	d.t.Helper()
	if err := both(func(id int) error { return d.nodes[id].Start(d.t.Context(), nil) }); err != nil {
		d.t.Fatal(err)
	}
}

func (d *duo) close() { _, _ = d.nodes[0].Close(), d.nodes[1].Close() }

// TestStatsAddUpUnderEveryPolicy sends under each policy to a listener that first consumes nothing, then
// everything.
func TestStatsAddUpUnderEveryPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, memory.New(), nil)
		var mu sync.Mutex
		var held []func()
		release := func() {
			mu.Lock()
			defer mu.Unlock()
			for _, give := range held {
				give()
			}
			held = nil
		}
		d.deliver = func(m *router.Message) error {
			mu.Lock()
			defer mu.Unlock()
			n, credit := len(m.Payload), m.Credit
			held = append(held, func() { credit.Return(1, n) })
			return nil
		}
		const n = 100
		specs := map[router.Delivery]func(router.StreamStats) uint64{
			router.Reliable:   func(router.StreamStats) uint64 { return 0 },
			router.Latest:     func(s router.StreamStats) uint64 { return s.Replaced },
			router.DropOldest: func(s router.StreamStats) uint64 { return s.Oldest },
			router.DropNewest: func(s router.StreamStats) uint64 { return s.Newest },
		}
		events := map[router.Delivery]*router.Channel{}
		for delivery := range specs {
			events[delivery] = d.event(router.Spec{Name: delivery.String(), Delivery: delivery, Queue: 10})
		}
		d.start()
		for delivery, out := range events {
			for range n {
				if _, err := out.Send(t.Context(), router.Bytes("12345678"), nil); err != nil {
					t.Fatal(err)
				}
			}
			s := stream(d.nodes[0], delivery.String(), 1)
			if !adds(s) || s.Sent != n || s.Delivered != 0 || s.InFlight == 0 || s.InFlightBytes != 8*s.InFlight {
				t.Errorf("%v, nothing taken: %+v", delivery, s)
			}
			if dropped := specs[delivery](s); dropped != s.Dropped() || (dropped == 0) != (delivery == router.Reliable) {
				t.Errorf("%v: dropped for another reason: %+v", delivery, s)
			}
		}
		for range 50 { // each round lets more out
			synctest.Wait()
			release()
			<-time.After(2 * time.Second)
		}
		for delivery := range events {
			s, received := stream(d.nodes[0], delivery.String(), 1), stream(d.nodes[1], delivery.String(), 0)
			if !adds(s) || s.Queued != 0 || s.InFlight != 0 || s.Delivered != s.Sent-s.Dropped() || s.SentBytes != s.DeliveredBytes {
				t.Errorf("%v, all taken: %+v", delivery, s)
			}
			if received.Consumed != s.Delivered || received.ConsumedBytes != s.DeliveredBytes || received.Sent != 0 {
				t.Errorf("%v at the other end: %+v, want %d", delivery, received, s.Delivered)
			}
		}
		d.close()
	})
}

// TestStatsKnowDeliveryWithinASecond sends one message, far less than a quarter of
// the window.
func TestStatsKnowDeliveryWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDuo(t, memory.New(), nil)
		d.deliver = func(m *router.Message) error { m.Credit.Return(1, len(m.Payload)); return nil }
		out := d.event(router.Spec{Name: "n"})
		d.start()
		_, _ = out.Send(t.Context(), router.Bytes("x"), nil)
		synctest.Wait()
		if s := stream(d.nodes[0], "n", 1); s.InFlight != 1 || !adds(s) {
			t.Errorf("at once: %+v", s)
		}
		<-time.After(1100 * time.Millisecond)
		if s := stream(d.nodes[0], "n", 1); s.InFlight != 0 || s.Delivered != 1 || !adds(s) {
			t.Errorf("a second later: %+v", s)
		}
		d.close()
	})
}

func TestStatsOfPeersFollowTheirConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		d := newDuo(t, wire, nil)
		d.deliver = func(*router.Message) error { return nil }
		out := d.event(router.Spec{Name: "n"})
		d.start()
		peer := func() router.PeerStats {
			p := d.nodes[0].Stats().Peers
			if len(p) != 1 || p[0].Node != 1 {
				t.Fatalf("peers: %+v", p)
			}
			return p[0]
		}
		_, _ = out.Send(t.Context(), router.Bytes(strings.Repeat("x", 1000)), nil)
		<-time.After(5 * time.Second)
		if p := peer(); p.State != router.LinkUp || p.RTT <= 0 || p.Reconnects != 0 || p.Joins != 1 || p.WireOut < 1000 || p.WireIn == 0 {
			t.Errorf("connected: %+v", p)
		}
		wire.Cut()
		synctest.Wait()
		if p := peer(); p.State != router.LinkDown {
			t.Errorf("cut: %+v", p)
		}
		<-time.After(2 * time.Second)
		wire.Heal()
		<-time.After(3 * time.Second)
		if p := peer(); p.State != router.LinkUp || p.Reconnects != 1 {
			t.Errorf("healed: %+v", p)
		}
		before := peer()
		wire.Cut()
		<-time.After(20 * time.Second)
		p, s := peer(), stream(d.nodes[0], "n", 1)
		if p.State != router.LinkLost || p.RTT != 0 || p.WireOut < before.WireOut || s.Lost != 1 || !adds(s) {
			t.Errorf("given up: %+v, %+v", p, s)
		}
		if st := d.nodes[1].Stats(); st.Dialed < 2 || st.DialsFailed == 0 || d.nodes[0].Stats().Accepted < 2 {
			t.Errorf("calls: %+v", st)
		}
		wire.Heal()
		d.close()
	})
}

// withHeader is a payload with a header.
type withHeader struct {
	router.Buffer
	header string
}

func (b withHeader) Header() []byte { return []byte(b.header) }

// TestHeadersArriveWithTheirMessages sends messages of all sizes, some with a
// header, over a connection that is cut.
func TestHeadersArriveWithTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := routertest.NewWire(memory.New())
		d := newDuo(t, wire, nil)
		type got struct {
			size   int
			header string
		}
		var mu sync.Mutex
		var received []got
		d.deliver = func(m *router.Message) error {
			mu.Lock()
			defer mu.Unlock()
			received = append(received, got{len(m.Payload), string(m.Header)})
			if bytes.IndexFunc(m.Payload, func(r rune) bool { return r != 'x' }) >= 0 {
				t.Error("the header is in the payload")
			}
			m.Credit.Return(1, len(m.Payload))
			return nil
		}
		out := d.event(router.Spec{Name: "n", Headers: true})
		d.start()
		var want []got
		for i, size := range []int{0, 1, 1000, 40 << 10, 200 << 10, 300 << 10, 2 << 20, 3, 1 << 20, 5} {
			g := got{size, fmt.Sprintf("trace %d", i)}
			switch i % 4 {
			case 2:
				g.header = ""
			case 3:
				g.header = strings.Repeat("y", router.MaxHeaderBytes)
			}
			if i == 5 {
				wire.Cut()
				wire.Heal()
			}
			if _, err := out.Send(t.Context(), withHeader{router.Bytes(bytes.Repeat([]byte("x"), size)), g.header}, nil); err != nil {
				t.Fatal(err)
			}
			want = append(want, g)
		}
		if _, err := out.Send(t.Context(), withHeader{router.Bytes("x"), strings.Repeat("y", router.MaxHeaderBytes+1)}, nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, got{1, ""}) // too long, and left out
		<-time.After(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if fmt.Sprint(received) != fmt.Sprint(want) {
			t.Errorf("got %.200v\nwant %.200v", fmt.Sprint(received), fmt.Sprint(want))
		}
		d.close()
	})
}

// record is a Tap that keeps lines.
type record struct {
	mu    sync.Mutex
	lines []string
}

func (r *record) Sent(event string, peer int, version uint64, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s %d to %d: %s", event, version, peer, payload))
}

func (r *record) Received(event string, m *router.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%s %d from %d: %s", event, m.Version, m.From, m.Payload))
}

func TestTapRecordsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var taps [2]record
		d := newDuo(t, memory.New(), func(c *router.Config) { c.Tap = &taps[c.Node] })
		d.deliver = func(m *router.Message) error { m.Credit.Return(1, len(m.Payload)); return nil }
		out := d.event(router.Spec{Name: "n"})
		late := d.event(router.Spec{Name: "l", Delivery: router.Latest})
		d.start()
		for _, s := range []string{"a", "b"} {
			_, _ = out.Send(t.Context(), router.Bytes(s), nil)
		}
		_, _ = late.Send(t.Context(), router.Bytes("c"), nil)
		synctest.Wait()
		for id, want := range []string{"n 1 to 1: a,n 2 to 1: b,l 1 to 1: c", "n 1 from 0: a,n 2 from 0: b,l 1 from 0: c"} {
			if got := strings.Join(taps[id].lines, ","); got != want {
				t.Errorf("node.%d: %s", id, got)
			}
		}
		d.close()
	})
}
