package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router/broker"
	"github.com/ditask/ditask/router/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// The kinds of messages, as the package doc has them.
const (
	kindDial   = 1
	kindAccept = 2
	kindData   = 3
	kindAck    = 4
	kindFin    = 5
	kindReset  = 6
)

// kinds are servers like NATS and like Redis.
var kinds = map[string]brokertest.Kind{"direct": {Direct: true, Lossy: true}, "queued": {}}

// each runs a test under synctest over both kinds of servers, with a connection.
func each(t *testing.T, run func(t *testing.T, n *brokertest.Network, a, b net.Conn)) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := brokertest.New()
				here, there := n.Hub(kind), n.Hub(kind)
				l, err := there.Listen(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				a, err := here.Dial(t.Context(), "x")
				if err != nil {
					t.Fatal(err)
				}
				b, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				run(t, n, a, b)
				n.Edit(nil)
				n.Cut(false)
				n.Delay(0)
				_, _, _ = a.Close(), b.Close(), l.Close()
				here.Release()
				there.Release()
			})
		})
	}
}

// only calls fn for messages of a kind.
func only(kind byte, fn func(m *broker.Message) int) func(m *broker.Message) int {
	return func(m *broker.Message) int {
		if m.Bytes[0] != kind {
			return 1
		}
		return fn(m)
	}
}

// Bytes arrive in order and once, even if all messages come twice, late, and not at all for a while.
func TestBytesArriveInOrder(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		rnd := rand.New(rand.NewPCG(1, 2))
		want := make([]byte, 1<<20)
		for i := range want {
			want[i] = byte(rnd.Uint32())
		}
		n.Edit(func(*broker.Message) int { return 2 })
		n.Delay(time.Millisecond)
		sizes := make([]int, 0, 1000) // more than there are pieces
		for left := len(want); left > 0; left -= sizes[len(sizes)-1] {
			sizes = append(sizes, min(left, 1+rnd.IntN(brokertest.Window)))
		}
		go func() {
			for at, i := 0, 0; i < len(sizes); i++ {
				part := net.Buffers{want[at : at+sizes[i]/2], nil, want[at+sizes[i]/2 : at+sizes[i]]}
				n, err := a.(interface {
					WriteBuffers(bufs *net.Buffers) (int64, error)
				}).WriteBuffers(&part)
				if int(n) != sizes[i] || err != nil {
					t.Error(n, err)
				}
				at += sizes[i]
			}
			_ = a.Close()
		}()
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
		}
	})
}

// A server that is unreachable for a while loses no bytes of a hub that queues, and breaks both ends
// of one that does not.
func TestServerIsAwayForAWhile(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		n.Cut(true)
		_, err := a.Write([]byte("hello"))
		time.AfterFunc(3*time.Second, func() { n.Cut(false) })
		_ = b.SetReadDeadline(time.Now().Add(10 * time.Second))
		got := make([]byte, 5)
		_, rerr := io.ReadFull(b, got)
		if direct := err != nil; !direct && (string(got) != "hello" || rerr != nil) {
			t.Errorf("queued: %q, %v", got, rerr)
		} else if direct && (!errors.Is(err, broker.ErrAgain) || rerr == nil || errors.Is(rerr, os.ErrDeadlineExceeded)) {
			t.Errorf("direct: %v, the other side: %v", err, rerr)
		}
	})
}

// A lost message of data breaks both ends, with the number of missing bytes; the bytes before it can
// be read.
func TestLostData(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		_, _ = a.Write([]byte("abc"))
		synctest.Wait()
		n.Edit(only(kindData, func(*broker.Message) int { return 0 }))
		_, _ = a.Write([]byte("lost"))
		synctest.Wait()
		n.Edit(nil)
		_, _ = a.Write([]byte("later"))
		got, err := io.ReadAll(b)
		const want = "bytes 3 to 7 are missing: the network is a test"
		if string(got) != "abc" || err == nil || err.Error() != want {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := a.Read(make([]byte, 1)); err == nil || err.Error() != want {
			t.Errorf("the sender: %v", err)
		}
		if _, err := b.Write([]byte("x")); err == nil || err.Error() != want {
			t.Errorf("a write: %v", err)
		}
	})
}

// The last message is lost: a young connection of a lossy server detects it by probing, an end by its offset.
func TestLostLastMessage(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		n.Edit(only(kindData, func(*broker.Message) int { return 0 }))
		_, _ = a.Write([]byte("lost"))
		synctest.Wait()
		n.Edit(nil)
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { _ = a.Close() })
		_, err := b.Read(make([]byte, 1))
		if err == nil || !strings.Contains(err.Error(), "bytes 0 to 4 are missing") {
			t.Error(err)
		}
		if took := time.Since(began); took > 5*time.Second { // of virtual time
			t.Error(took)
		}
	})
}

// A message that the protocol does not allow breaks the connection.
func TestMessagesThatBreak(t *testing.T) {
	for name, c := range map[string]struct {
		kind, as byte
		at       int // of the changed byte
		to       byte
		want     string
	}{
		"overlap":           {kindData, kindData, 9, 2, "bytes 3 to 2 are missing"},
		"gap":               {kindData, kindData, 9, 4, "bytes 3 to 4 are missing"},
		"end after a gap":   {kindData, kindFin, 9, 4, "bytes 3 to 4 are missing"},
		"ack after a gap":   {kindData, kindAck, 9, 4, "bytes 3 to 4 are missing"},
		"consumed too much": {kindData, kindData, 22, 1, "bytes consumed of"},
		"reset":             {kindData, kindReset, 0, kindReset, "xyz"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
				_, _ = a.Write([]byte("abc"))
				synctest.Wait()
				n.Edit(only(c.kind, func(m *broker.Message) int {
					m.Bytes[0] = c.as
					m.Bytes[c.at] = c.to
					return 1
				}))
				_, _ = a.Write([]byte("xyz"))
				got, err := io.ReadAll(b)
				if string(got) != "abc" || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

// A peer that sends more than the window is lost, and one that stays within it waits.
func TestWindow(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		try := a.(interface{ TryWrite(b []byte) (int, error) })
		const room = brokertest.Window - 4*broker.CostBytes // four messages of a quarter each
		total := 0
		for k := 1; k > 0; total += k {
			var err error
			if k, err = try.TryWrite(make([]byte, 2*brokertest.Window)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if total != room {
			t.Errorf("%d bytes, want %d", total, room)
		}
		_ = a.SetWriteDeadline(time.Now().Add(time.Second))
		if k, err := a.Write([]byte("x")); k != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d, %v", k, err)
		}
		_ = a.SetWriteDeadline(time.Time{})
		wrote := make(chan int, 1) // one result
		go func() { k, _ := a.Write(make([]byte, 3*room)); wrote <- k }()
		if _, err := io.CopyN(io.Discard, b, 4*room); err != nil {
			t.Error(err)
		}
		if k := <-wrote; k != 3*room {
			t.Errorf("%d bytes written", k)
		}
		n.Edit(only(kindData, func(m *broker.Message) int {
			m.Bytes = append(m.Bytes, make([]byte, brokertest.Window)...)
			return 1
		}))
		_, _ = a.Write([]byte("x"))
		if _, err := b.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "257 bytes over the window") {
			t.Error(err)
		}
	})
}

// Close ends both directions: the other side reads what was written, and then the end.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		n.Edit(func(*broker.Message) int { return 2 })
		last := strings.Repeat("x", brokertest.Window/2)
		_, _ = a.Write([]byte(last))
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if _, err := b.Write([]byte("x")); err == nil {
			t.Error("a write of the other side succeeds")
		}
		if got, err := io.ReadAll(b); string(got) != last || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = b.Close()
		for _, c := range []net.Conn{a, b} {
			_, rerr := c.Read(make([]byte, 1))
			_, werr := c.Write([]byte("x"))
			for _, err := range []error{rerr, werr, c.SetDeadline(time.Now())} {
				if !errors.Is(err, net.ErrClosed) {
					t.Error(err)
				}
			}
		}
	})
}

// A message for a connection that was closed in order is answered by a reset. The reset follows the
// end and does not hide it.
func TestResetAfterTheEnd(t *testing.T) {
	each(t, func(t *testing.T, n *brokertest.Network, a, b net.Conn) {
		_, _ = a.Write([]byte("abc"))
		synctest.Wait()
		n.Delay(time.Millisecond)
		_ = a.Close()
		if _, err := b.Write([]byte("x")); err != nil { // before the end has come
			t.Error(err)
		}
		<-time.After(time.Second) // of virtual time
		if got, err := io.ReadAll(b); string(got) != "abc" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := b.Write([]byte("x")); err == nil {
			t.Error("a write to a closed connection succeeds")
		}
	})
}

// The end of a connection is sent before the reset that answers a later message, however much others have to send.
func TestResetIsSentAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const conns = 40 // with full windows, more than a batch
		n := brokertest.New()
		here, there := n.Hub(brokertest.Kind{}), n.Hub(brokertest.Kind{})
		l, err := there.Listen(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		var dialled, accepted []net.Conn
		for range conns {
			a, err := here.Dial(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			b, _ := l.Accept()
			dialled, accepted = append(dialled, a), append(accepted, b)
		}
		last := conns - 1
		var mu sync.Mutex
		var order []byte // kinds of messages to the last one
		n.Edit(func(m *broker.Message) int {
			mu.Lock()
			defer mu.Unlock()
			if m.Bytes[0] == kindFin || m.Bytes[0] == kindReset {
				order = append(order, m.Bytes[0])
			}
			return 1
		})
		n.Cut(true)
		for _, a := range dialled {
			if _, err := a.Write(make([]byte, brokertest.Window/2)); err != nil {
				t.Error(err)
			}
			<-time.After(time.Second) // of virtual time: the first message is tried again every 250 ms
		}
		_ = dialled[last].Close()
		if _, err := accepted[last].Write([]byte("x")); err != nil { // is tried again after 10 ms
			t.Error(err)
		}
		synctest.Wait()
		n.Cut(false)
		if got, err := io.ReadAll(accepted[last]); len(got) != brokertest.Window/2 || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		synctest.Wait()
		mu.Lock()
		if len(order) < 2 || order[0] != kindFin || bytes.Contains(order[1:], []byte{kindFin}) {
			t.Errorf("order %v", order)
		}
		mu.Unlock()
		for i := range conns {
			_, _ = dialled[i].Close(), accepted[i].Close()
		}
		_ = l.Close()
		here.Release()
		there.Release()
	})
}

// Waits end with what they wait for, with a deadline, and with the connection.
func TestWaits(t *testing.T) {
	each(t, func(t *testing.T, _ *brokertest.Network, a, b net.Conn) {
		began := time.Now()
		_ = a.SetReadDeadline(began.Add(time.Second))
		_ = a.SetReadDeadline(began.Add(2 * time.Second)) // in place of the first
		_, err := a.Read(make([]byte, 1))
		if took := time.Since(began); took != 2*time.Second || !errors.Is(err, os.ErrDeadlineExceeded) { // of virtual time
			t.Errorf("%v after %v", err, took)
		}
		_ = a.SetDeadline(began) // has passed
		if _, err := a.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		_ = a.SetDeadline(time.Time{})
		if n, err := a.Read(nil); n != 0 || err != nil {
			t.Errorf("nothing is to be read: %d, %v", n, err)
		}
		ended := make(chan error, 2)
		go func() { _, err := a.Read(make([]byte, 1)); ended <- err }()
		go func() { _, err := a.Write(make([]byte, 4*brokertest.Window)); ended <- err }()
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("a wait ends without an error")
		}
		_ = a.Close()
		for range 2 {
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
		_ = b
	})
}

// A dial ends with the answer, and with each reason for which there will be none.
func TestDials(t *testing.T) {
	for name, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			n := brokertest.New()
			here, there := n.Hub(kind), n.Hub(kind)
			dial := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				c, err := here.Dial(ctx, "x")
				if err == nil {
					_ = c.Close()
				}
				return err
			}
			if err := dial(); !errors.Is(err, broker.ErrRefused) {
				t.Errorf("%s: no listener: %v", name, err)
			}
			l, err := there.Listen(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := there.Listen(t.Context(), "x"); err == nil {
				t.Errorf("%s: the word is taken twice", name)
			}
			for what, fault := range map[string]struct {
				edit func(m *broker.Message) int
				want string
			}{
				"answered": {nil, ""},
				"twice":    {func(*broker.Message) int { return 2 }, ""},
				"silent":   {only(kindDial, func(*broker.Message) int { return 0 }), "deadline exceeded"},
				"old listener": {only(kindAccept, func(m *broker.Message) int { m.Bytes[17] = 0; return 1 }),
					"speaks version 1 of the broker protocol, and this node version 2"},
				"small window": {only(kindAccept, func(m *broker.Message) int { binary.LittleEndian.PutUint32(m.Bytes[33:], 4095); return 1 }),
					"a window of 4095 bytes"},
				"foreign inbox": {only(kindAccept, func(m *broker.Message) int { m.Bytes[37] = '*'; return 1 }), "inbox"},
				"old dialler":   {only(kindDial, func(m *broker.Message) int { m.Bytes[17] = 0; return 1 }), "has ended: start it again"},
			} {
				n.Edit(fault.edit)
				if err := dial(); (err == nil) != (fault.want == "") || err != nil && !strings.Contains(err.Error(), fault.want) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
			lost := 0
			n.Edit(only(kindAccept, func(*broker.Message) int { lost++; return min(lost-1, 1) }))
			if err := dial(); kind.Lossy && err != nil {
				t.Errorf("%s: the first answer is lost: %v", name, err)
			}
			n.Edit(nil)
			n.Forget("x")
			if err := dial(); err == nil {
				t.Errorf("%s: a dial of a killed node succeeds", name)
			}
			_ = l.Close()
			here.Release()
			there.Release()
			if here.Retain() {
				t.Errorf("%s: a hub without users is used again", name)
			}
		})
	}
}

// Every connection of a hub breaks with the first reason, and the other ends receive it.
func TestBreakAll(t *testing.T) {
	for name, kind := range kinds {
		synctest.Test(t, func(t *testing.T) {
			n := brokertest.New()
			h := n.Hub(kind)
			l, err := h.Listen(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			other := n.Hub(kind)
			a, err := other.Dial(t.Context(), "x")
			if err != nil {
				t.Fatal(err)
			}
			b, _ := l.Accept()
			h.BreakAll(io.ErrShortBuffer, "told")
			h.BreakAll(io.ErrNoProgress, "again")
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.ErrShortBuffer) {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := a.Read(make([]byte, 1)); err == nil || err.Error() != "told" {
				t.Errorf("%s: the other end: %v", name, err)
			}
			_ = a.Close()
			h.CloseAll()
			h.Release()
			other.Release()
		})
	}
}

// The name of a dialler is printed escaped and cut, and its faults are counted.
func TestPrintedNameOfADialler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, broken := brokertest.New(), 0
		h, other := n.Hub(brokertest.Kind{Broken: func(net.Addr, error) { broken++ }}), n.Hub(brokertest.Kind{Name: logtest.Hostile})
		l, err := h.Listen(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		a, err := other.Dial(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := l.Accept()
		if name := b.RemoteAddr().String(); logtest.Faults(name) != "" || !strings.HasPrefix(name, "bus://") || strings.Contains(name, "inbox.") {
			t.Errorf("%q: %s", name, logtest.Faults(name))
		}
		n.Edit(only(kindData, func(m *broker.Message) int { m.Bytes[9] = 1; return 1 }))
		_, _ = a.Write([]byte("x"))
		synctest.Wait()
		if broken != 1 {
			t.Errorf("%d broken connections", broken)
		}
		_, _, _ = a.Close(), b.Close(), l.Close()
		h.Release()
		other.Release()
	})
}

// FuzzDeliver gives a hub arbitrary messages: a connection holds no more than its window.
func FuzzDeliver(f *testing.F) {
	f.Add([]byte("\x03garbage"), byte(0))
	for kind := byte(kindDial); kind <= kindReset; kind++ {
		f.Add(append(append([]byte{kind}, make([]byte, 24)...), "body"...), kind)
	}
	f.Fuzz(func(t *testing.T, raw []byte, as byte) {
		n := brokertest.New()
		h := n.Hub(brokertest.Kind{})
		l, err := h.Listen(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		a, err := h.Dial(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		b, _ := l.Accept()
		n.Edit(only(kindData, func(m *broker.Message) int { // it keeps the connection's number
			if len(raw) > 9 {
				m.Bytes = append(append([]byte{as}, m.Bytes[1:9]...), raw[9:]...)
			}
			return 3
		}))
		_, _ = a.Write([]byte("x"))
		_, _ = h.Deliver(0, raw)
		_ = a.Close()
		_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
		if got, _ := io.ReadAll(b); len(got) > brokertest.Window {
			t.Errorf("%d bytes", len(got))
		}
		_, _ = b.Close(), l.Close()
		h.Release()
	})
}
