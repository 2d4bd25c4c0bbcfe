package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// streamOf is a stream of a session without a connection.
func streamOf(t *testing.T, spec Spec, cfg Config) *outStream {
	t.Helper()
	r := openRouter(t, cfg)
	s := newSession(r, Peer{ID: 1, Incarnation: 1}, nil)
	o := &outStream{s: s, ch: &channel{r: r, spec: spec}, listens: true}
	s.outs = []*outStream{o}
	return o
}

// A stream is open while it has room for a message and a byte, no large message is under way, and
// a reliable one is not too far ahead of the writer of a connection.
func TestWhetherAStreamIsOpen(t *testing.T) {
	windows := Config{WindowMessages: 8, WindowBytes: inlineBytes}
	for _, delivery := range []Delivery{Reliable, Latest, DropOldest, DropNewest} {
		most := map[Delivery]int{Reliable: 8, Latest: 1, DropOldest: 5, DropNewest: 5}[delivery]
		for name, c := range map[string]struct {
			edit func(o *outStream)
			want bool
		}{
			"empty":            {func(*outStream) {}, true},
			"the last message": {func(o *outStream) { o.messages = most - 1 }, true},
			"full":             {func(o *outStream) { o.messages = most }, false},
			"the last byte":    {func(o *outStream) { o.bytes = inlineBytes - 1 }, true},
			"full of bytes":    {func(o *outStream) { o.bytes = inlineBytes }, false},
			"a large one":      {func(o *outStream) { o.bulk = &bulk{} }, false},
			"near":             {func(o *outStream) { o.s.link, o.s.log.todo = &link{}, aheadBytes-1 }, true},
			"ahead":            {func(o *outStream) { o.s.link, o.s.log.todo = &link{}, aheadBytes }, delivery != Reliable},
			"no connection":    {func(o *outStream) { o.s.log.todo = aheadBytes }, true},
		} {
			o := streamOf(t, Spec{Delivery: delivery, Queue: 5}, windows)
			if c.edit(o); o.open() != c.want {
				t.Errorf("%s, %s: open %v", delivery, name, !c.want)
			}
		}
	}
	o := streamOf(t, Spec{Delivery: DropOldest, Queue: 100}, windows)
	if m, b := o.windows(); m != 8 || b != inlineBytes {
		t.Errorf("%d messages, %d bytes", m, b)
	}
}

// The messages that a stream keeps when there is no room, drops, and gives up at its end.
func TestMessagesThatAStreamKeeps(t *testing.T) {
	for delivery, want := range map[Delivery]struct {
		kept    string // versions
		dropped uint64
	}{Latest: {"5", 3}, DropOldest: {"4 5", 1}, DropNewest: {"3 4", 1}} {
		o := streamOf(t, Spec{Delivery: delivery, Queue: 2}, Config{})
		if o.newest() != 0 {
			t.Errorf("%s: newest %d", delivery, o.newest())
		}
		payload := &counted{b: []byte("x")}
		for v := uint64(1); v <= 5; v++ {
			if was := o.post(v, payload); was != sent {
				t.Errorf("%s: message %d: %d", delivery, v, was)
			}
		}
		var kept []string
		for _, p := range o.queue {
			kept = append(kept, fmt.Sprint(p.version))
		}
		if got := strings.Join(kept, " "); got != want.kept || o.dropped != want.dropped || payload.refs.Load() != int64(len(kept)) {
			t.Errorf("%s: kept %s, dropped %d, %d references", delivery, got, o.dropped, payload.refs.Load())
		}
		if last := o.queue[len(o.queue)-1].version; o.newest() != last {
			t.Errorf("%s: newest %d, want %d", delivery, o.newest(), last)
		}
		n := uint64(len(kept))
		st := o.stats()
		if st.Sent != 5 || st.Queued != int(n) || st.Dropped() != want.dropped || st.Abandoned != 0 || st.InFlight != o.messages {
			t.Errorf("%s: %+v", delivery, st)
		}
		perr, _ := o.s.end(ErrLost)
		st = o.stats()
		if st.Sent != 5 || st.Queued != 0 || st.Abandoned != n || st.Dropped() != want.dropped+n || st.Lost != 5-n-want.dropped ||
			st.InFlight != 0 {
			t.Errorf("%s, at the end: %+v", delivery, st)
		}
		if perr.Undelivered != o.messages || payload.refs.Load() != 0 {
			t.Errorf("%s, at the end: %v, %d references", delivery, perr, payload.refs.Load())
		}
	}
}

// A large message that is under way when its session ends is undelivered once, and kept no more.
func TestLargeMessageAtTheEndOfItsSession(t *testing.T) {
	for chunks := range 3 {
		o := streamOf(t, Spec{}, Config{ChunkBytes: inlineBytes})
		payload := &counted{b: make([]byte, 3*inlineBytes)}
		o.put(1, payload)
		for range chunks {
			o.chunkOut()
		}
		if !o.s.log.unwritten() != (chunks == 0) || o.s.messagesSent() || o.s.drained() || o.s.finSeq != 0 {
			t.Errorf("after %d chunks: drained", chunks)
		}
		perr, first := o.s.end(ErrLost)
		if !first || perr.Undelivered != 1 || payload.refs.Load() != 0 || o.bulk != nil {
			t.Errorf("after %d chunks: %v, %d references", chunks, perr, payload.refs.Load())
		}
		if l := &o.s.log; l.segs != nil || l.unwritten() || l.next != 0 || l.off != 0 {
			t.Errorf("after %d chunks the log has %d segments", chunks, len(l.segs))
		}
		if _, again := o.s.end(ErrLost); again {
			t.Error("it has ended twice")
		}
		o.s.control(frameReady, 0, 0, nil)
		if o.s.declare(&channel{spec: Spec{Name: "late"}}); o.s.log.sent != uint64(chunks) || len(o.s.outs) != 2 {
			t.Errorf("after the end: %d frames", o.s.log.sent)
		}
		o.s.link = &link{}
		if err := o.s.receiveTotals(o.s.link, header{typ: frameCredit}, make([]byte, 16)); err != nil {
			t.Error(err)
		}
	}
}

// The receiver reports a quarter of its window to the sender of an event at once, by messages or
// bytes, and once.
func TestRoomIsGivenBackByTheQuarter(t *testing.T) {
	for name, c := range map[string]struct {
		messages, bytes int
		due             bool
	}{
		"less": {24, inlineBytes - 1, false}, "messages": {25, 0, true}, "bytes": {1, inlineBytes, true},
	} {
		o := streamOf(t, Spec{}, Config{WindowMessages: 100, WindowBytes: 4 * inlineBytes})
		in := &inStream{s: o.s, decl: declaration{Delivery: Reliable.String()}}
		in.consumed[0].Store(1000) // reported
		in.consumed[1].Store(1 << 20)
		in.reported[0].Store(1000)
		in.reported[1].Store(1 << 20)
		for range 2 {
			in.Return(c.messages, c.bytes)
			if in.due != c.due || (len(o.s.credits) == 1) != c.due {
				t.Errorf("%s: due %v, %d times", name, in.due, len(o.s.credits))
			}
			if !c.due {
				in.consumed[0].Store(1000)
				in.consumed[1].Store(1 << 20)
			}
		}
		in.due, o.s.credits, o.s.err = false, nil, ErrLost
		if in.Return(100, 0); in.due {
			t.Errorf("%s: a session that has ended has a frame to send", name)
		}
	}
}

// A peer has room for a message while less than a window is on its way.
func TestRoomOfAPeer(t *testing.T) {
	for _, c := range []struct {
		received, consumed [2]uint64
		want               bool
	}{
		{[2]uint64{0, 0}, [2]uint64{0, 0}, true}, {[2]uint64{12, 9}, [2]uint64{9, 9}, true}, {[2]uint64{13, 9}, [2]uint64{9, 9}, false},
		{[2]uint64{9, inlineBytes + 6}, [2]uint64{9, 7}, true}, {[2]uint64{9, inlineBytes + 7}, [2]uint64{9, 7}, false},
	} {
		in := &inStream{s: newSession(openRouter(t, Config{WindowMessages: 4, WindowBytes: inlineBytes}), Peer{ID: 1}, nil), received: c.received}
		in.consumed[0].Store(c.consumed[0])
		in.consumed[1].Store(c.consumed[1])
		if got := in.arrive(3); got != c.want || in.received != [2]uint64{c.received[0] + 1, c.received[1] + 3} {
			t.Errorf("%+v: %v, %v", c, got, in.received)
		}
	}
}

// No message waits for room any more when its sender drains; the log of a long wait names only those
// that still wait.
func TestSendThatWaitsWhenItsNodeDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logtest.Buffer
		r := openRouter(t, Config{WindowMessages: 4})
		r.log = slog.New(slog.NewTextHandler(&log, nil))
		r.started.Store(true)
		ch := event(t, r, Spec{Name: "e"})
		for node := 1; node <= 3; node++ {
			listener(t, r, node, 1)
		}
		for range 4 {
			if n, err := ch.Send(t.Context(), Bytes("x"), nil); n != 3 || err != nil {
				t.Error(n, err)
			}
		}
		done := make(chan error, 1) // one result
		go func() {
			n, err := ch.Send(context.Background(), Bytes("x"), nil)
			if n != 3 { // one has received it, and the error names two
				t.Errorf("%d peers are addressed", n)
			}
			done <- err
		}()
		<-time.After(time.Second)
		s := r.peers[2]
		s.mu.Lock()
		err := s.outs[0].credit(1, 1)
		s.mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		<-time.After(10 * time.Second)
		for node, want := range []int{0, 1, 0, 1} {
			if n := strings.Count(log.String(), fmt.Sprintf("peer=node.%d waited=10s", node)); n != want {
				t.Errorf("node.%d is named %d times:\n%s", node, n, log.String())
			}
		}
		r.inDrain.Store(true)
		close(r.draining)
		err = <-done
		for node := 1; node <= 3; node += 2 {
			if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), fmt.Sprintf(`event "e" is not sent to node.%d: `, node)) {
				t.Error(err)
			}
		}
		if _, err := ch.Send(t.Context(), Bytes("x"), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// The newest value is offered once to a peer that begins to listen, but not if it waits for it
// already; a Tap records it.
func TestNewestValueIsOfferedOnce(t *testing.T) {
	tap := &sentTap{}
	r := openRouter(t, Config{Tap: tap})
	r.started.Store(true)
	ch := event(t, r, Spec{Name: "e", Delivery: Latest})
	first := listener(t, r, 7, 1)
	if o := first.outs[0]; o.version != 0 || o.sent[0] != 0 {
		t.Errorf("sent %d messages, newest %d", o.sent[0], o.version)
	}
	listens(t, first, false)
	if _, err := ch.Send(t.Context(), Bytes("a"), nil); err != nil {
		t.Error(err)
	}
	listens(t, first, true) // and takes it
	if o := first.outs[0]; o.version != 1 || o.sent[0] != 1 {
		t.Errorf("sent %d messages, newest %d", o.sent[0], o.version)
	}
	if _, err := ch.Send(t.Context(), Bytes("b"), nil); err != nil { // waits for room
		t.Error(err)
	}
	listener(t, r, 8, 1) // a listener joins
	listens(t, first, false)
	listens(t, first, true)
	if o := first.outs[0]; o.version != 1 || len(o.queue) != 1 || o.queue[0].version != 2 || o.dropped != 0 {
		t.Errorf("sent up to %d, %d wait, %d dropped", o.version, len(o.queue), o.dropped)
	}
	if want := "7:1:a 7:2:b 8:2:b"; strings.Join(tap.told, " ") != want {
		t.Errorf("%v, want %s", tap.told, want)
	}
}

// sentTap keeps what is sent.
type sentTap struct{ told []string }

func (s *sentTap) Sent(_ string, peer int, version uint64, payload []byte) {
	s.told = append(s.told, fmt.Sprintf("%d:%d:%s", peer, version, payload))
}
func (*sentTap) Received(string, *Message) {}
