package redisbus

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// These tests have both ends of a connection and no server: they carry the entries.

const window = 64 << 10

// loose is one end of a connection, which has been answered by the other.
func loose(id uint64, inbox string, peer hello) *conn {
	e := &endpoint{Carrier: &Carrier{cfg: Config{WindowBytes: window}}, server: "host:1", inbox: inbox, refs: 100, conns: map[uint64]*conn{}, callers: map[caller]*conn{}}
	e.wake.L = &e.mu
	e.nextID.Store(id - 1)
	c := e.newConn("here", "there")
	e.conns[id] = c
	c.answer, c.peer = true, peer
	close(c.up)
	return c
}

func pairOf() (a, b *conn) {
	one, two := strings.Repeat("1", inboxBytes), strings.Repeat("2", inboxBytes)
	return loose(1, one, hello{2, window, two}), loose(2, two, hello{1, window, one})
}

// carry brings what one end has to send to the other, and returns the entries.
func carry(t *testing.T, from, to *conn) (entries []string) {
	t.Helper()
	batch, size := from.take(nil)
	for _, e := range batch {
		if e.inbox != to.e.inbox {
			t.Errorf("an entry for inbox %s", e.inbox)
		}
		size -= len(e.bytes)
		entries = append(entries, string(e.bytes))
		hand(t, to, string(e.bytes))
	}
	if size != 0 {
		t.Errorf("the size of the entries is wrong by %d", size)
	}
	return entries
}

// hand gives one entry to an end.
func hand(t *testing.T, to *conn, entry string) {
	t.Helper()
	h, body, err := parseEntry(entry)
	if err != nil || h.to != to.id {
		t.Fatalf("%+v, %v", h, err)
	}
	to.receive(h, body)
}

// say is an entry to an end, by hand.
func say(k kind, to *conn, offset, consumed uint64, body string) string {
	return string(appendHead(nil, head{k, to.id, offset, consumed})) + body
}

// Bytes arrive in order and once, though every entry comes twice, and no more of them are under
// way than the window.
func TestStateBytesArriveInOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	a, b := pairOf()
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(rnd.Uint32())
	}
	var got []byte
	for sent := 0; len(got) < len(want); {
		n, err := a.TryWrite(want[sent:min(len(want), sent+rnd.IntN(window))])
		if sent += n; err != nil || sent-len(got) > window {
			t.Fatalf("%d bytes ahead, %v", sent-len(got), err)
		}
		for _, e := range carry(t, a, b) {
			hand(t, b, e) // again
		}
		if len(b.in) > 0 {
			part := make([]byte, 1+rnd.IntN(window))
			n, err := b.Read(part)
			if n == 0 || err != nil {
				t.Fatal(n, err)
			}
			got = append(got, part[:n]...)
		}
		carry(t, b, a)
	}
	if !bytes.Equal(got, want) {
		t.Error("other bytes have come than were sent")
	}
}

// An end learns of a quarter of the window that was read, and with other entries of all that was.
func TestStateRoomIsGivenBack(t *testing.T) {
	a, b := pairOf()
	bufs := net.Buffers{make([]byte, window/2), nil, make([]byte, window/2)}
	if n, err := a.WriteBuffers(&bufs); n != window || err != nil {
		t.Fatal(n, err)
	}
	if n, err := a.TryWrite([]byte("x")); n != 0 || err != nil {
		t.Errorf("over the window: %d, %v", n, err)
	}
	carry(t, a, b)
	if n, err := b.Read(make([]byte, window/4-1)); n != window/4-1 || err != nil || b.queued {
		t.Errorf("%d, %v, something is to be sent: %v", n, err, b.queued)
	}
	if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil || !b.queued {
		t.Errorf("%d, %v, something is to be sent: %v", n, err, b.queued)
	}
	if e := carry(t, b, a); len(e) != 1 || kind(e[0][0]) != kindAck || a.acked != window/4 {
		t.Errorf("%d entries, %d bytes acknowledged", len(e), a.acked)
	}
	if e := carry(t, b, a); len(e) != 0 {
		t.Errorf("said again: %d entries", len(e))
	}
	if n, err := a.TryWrite(make([]byte, window)); n != window/4 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	_, _ = b.Read(make([]byte, 10))
	_, _ = b.Write([]byte("y"))
	if e := carry(t, b, a); len(e) != 1 || kind(e[0][0]) != kindData || a.acked != window/4+10 {
		t.Errorf("%d entries, %d bytes acknowledged", len(e), a.acked)
	}
}

// What comes that cannot be breaks the connection. What had come before can still be read.
func TestStateEntriesThatBreak(t *testing.T) {
	for name, c := range map[string]struct {
		kind             kind
		offset, consumed uint64
		body, why        string
	}{
		"gap":             {kindData, 4, 0, "x", "redis at host:1 has lost bytes 3 to 4"},
		"overlap":         {kindData, 2, 0, "xy", "has lost bytes 3 to 2"},
		"lost end":        {kindFin, 4, 0, "", "has lost bytes 3 to 4"},
		"over the window": {kindData, 3, 0, strings.Repeat("x", window-2), "more than the window of 65536 bytes"},
		"never sent":      {kindAck, 0, 1, "", "1 bytes read of 0 sent"},
	} {
		t.Run(name, func(t *testing.T) {
			_, b := pairOf()
			hand(t, b, say(kindData, b, 0, 0, "abc"))
			hand(t, b, say(c.kind, b, c.offset, c.consumed, c.body))
			hand(t, b, say(kindData, b, 3, 0, "later"))
			got, err := io.ReadAll(b)
			if string(got) != "abc" || err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%q, %v", got, err)
			}
			if n, werr := b.TryWrite([]byte("x")); n != 0 || !errors.Is(werr, err) || !b.broken() {
				t.Errorf("%d, %v", n, werr)
			}
			_ = b.Close()
			if _, err := b.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
	_, b := pairOf()
	hand(t, b, say(kindData, b, 0, 0, strings.Repeat("x", window)))
	if b.broken() {
		t.Error("a whole window breaks it")
	}
}

// Close ends both directions: the other side reads what was written, and then the end.
func TestStateClose(t *testing.T) {
	a, b := pairOf()
	last := strings.Repeat("x", window/2)
	_, _ = a.Write([]byte(last))
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	if a.e.refs != 99 || len(a.e.conns) != 0 {
		t.Errorf("closed twice: %d uses, %d connections", a.e.refs, len(a.e.conns))
	}
	entries := carry(t, a, b)
	for _, e := range entries {
		hand(t, b, e) // again
	}
	if len(entries) != 2 {
		t.Errorf("%d entries", len(entries))
	}
	if n, err := b.Write([]byte("x")); n != 0 || !errors.Is(err, errReset) {
		t.Errorf("the other side writes: %d, %v", n, err)
	}
	if got, err := io.ReadAll(b); string(got) != last || err != nil || !b.broken() || b.queued {
		t.Errorf("%d bytes, %v, something is to be sent: %v", len(got), err, b.queued)
	}
	for _, c := range []*conn{a, b} {
		_ = c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := c.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	if e := carry(t, b, a); len(e) != 0 {
		t.Errorf("the end is answered with %d entries", len(e))
	}
}

// An end that is closed keeps nothing of what has come.
func TestStateClosedEndKeepsNothing(t *testing.T) {
	a, b := pairOf()
	_, _ = a.Write([]byte("x"))
	carry(t, a, b)
	if len(b.in) != 1 {
		t.Errorf("%d entries have come", len(b.in))
	}
	if err := b.Close(); err != nil || b.in != nil {
		t.Errorf("%v, %d entries are kept", err, len(b.in))
	}
}

// An end whose other side has no inbox cannot write, and reads what has come.
func TestStateOtherSideIsGone(t *testing.T) {
	_, b := pairOf()
	hand(t, b, say(kindData, b, 0, 0, "abc"))
	why := errors.New("nobody has that inbox")
	b.gone(why)
	b.gone(errors.New("again"))
	if _, err := b.Write([]byte("x")); !errors.Is(err, why) || !b.broken() {
		t.Error(err)
	}
	got := make([]byte, 5)
	if n, err := b.Read(got); string(got[:n]) != "abc" || err != nil {
		t.Errorf("%q, %v", got[:n], err)
	}
	_ = b.Close()
	if _, err := b.Read(got); !errors.Is(err, why) || len(b.out) != 0 {
		t.Errorf("after Close: %v, %d entries", err, len(b.out))
	}
	var nobody *conn
	nobody.gone(why)
	nobody.lost(why)
	if nobody.broken() {
		t.Error("no connection is broken")
	}
	early := loose(1, "x", hello{})
	early.answer, early.up = false, make(chan struct{})
	early.gone(why)
	<-early.up
	if !errors.Is(early.err, why) {
		t.Error(early.err)
	}
}

// The answer to a call must come from the one who was called, with a window within bounds.
func TestStateAnswers(t *testing.T) {
	inbox := strings.Repeat("2", inboxBytes)
	for name, c := range map[string]struct {
		body string
		ok   bool
	}{
		"good": {string(appendHello(nil, hello{2, minWindow, inbox})), true}, "largest": {string(appendHello(nil, hello{2, maxWindow, inbox})), true},
		"small": {string(appendHello(nil, hello{2, minWindow - 1, inbox})), false}, "large": {string(appendHello(nil, hello{2, maxWindow + 1, inbox})), false},
		"another": {string(appendHello(nil, hello{2, minWindow, strings.Repeat("3", inboxBytes)})), false}, "short": {"x", false},
	} {
		a := loose(1, "1", hello{inbox: inbox})
		a.answer, a.up = false, make(chan struct{})
		hand(t, a, say(kindAccept, a, 0, 0, c.body))
		<-a.up
		hand(t, a, say(kindAccept, a, 0, 0, string(appendHello(nil, hello{9, minWindow, inbox})))) // too late
		if a.peer.id == 9 || a.answer != c.ok || (a.err == nil) != c.ok || a.err != nil && !errors.Is(a.err, errBadEntry) {
			t.Errorf("%s: %v, %v", name, a.answer, a.err)
		}
	}
}

// Waits end with what they wait for, with a deadline, and with the connection.
func TestStateWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pairOf()
		began := time.Now()
		_ = a.SetDeadline(began.Add(time.Second))
		_ = a.SetReadDeadline(began.Add(2 * time.Second)) // in place of the first
		n, err := a.Write(make([]byte, window+1))
		if took := time.Since(began); n != window || took != time.Second || !errors.Is(err, os.ErrDeadlineExceeded) { // of virtual time
			t.Errorf("%d, %v after %v", n, err, took)
		}
		_, err = a.Read(make([]byte, 1))
		if took := time.Since(began); took != 2*time.Second || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v after %v", err, took)
		}
		_ = a.SetDeadline(began) // has passed
		if _, err := a.TryWrite([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		_ = a.SetDeadline(time.Now().Add(time.Second))
		_ = a.SetDeadline(time.Time{})
		<-time.After(2 * time.Second)
		wrote, read := make(chan int, 1), make(chan int, 1) // one result each
		go func() { n, _ := a.Write([]byte("yz")); wrote <- n }()
		go func() { n, _ := a.Read(make([]byte, 5)); read <- n }()
		synctest.Wait()
		if len(wrote)+len(read) != 0 {
			t.Error("a wait ends without a reason")
		}
		carry(t, a, b)
		_, _ = b.Read(make([]byte, window))
		_, _ = b.Write([]byte("abc"))
		carry(t, b, a)
		if n, m := <-wrote, <-read; n != 2 || m != 3 {
			t.Errorf("%d bytes written, %d read", n, m)
		}
		if n, err := a.Read(nil); n != 0 || err != nil {
			t.Errorf("nothing is to be read: %d, %v", n, err)
		}
		ended := make(chan error, 3) // one for each way
		for _, end := range []func(*conn){
			func(c *conn) { _ = c.Close() }, func(c *conn) { c.fail(io.ErrShortBuffer) }, func(c *conn) { c.receive(head{kind: kindFin}, "") },
		} {
			c, _ := pairOf()
			go func() { _, err := c.Read(make([]byte, 1)); ended <- err }()
			synctest.Wait()
			end(c)
			if err := <-ended; err == nil {
				t.Error("read without an error")
			}
		}
	})
}
