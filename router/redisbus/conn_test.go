package redisbus_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/net/nettest"
)

// ends are the two ends of a connection between two transports.
func ends(t testing.TB, dial, listen *redisbus.Transport) (net.Listener, net.Conn, net.Conn) {
	t.Helper()
	l, err := listen.Listen(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	a, err := dial.Dial(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return l, a, b
}

// two are two transports of one job.
func two(t testing.TB, s *redistest.Server, edit func(*redisbus.Config)) (*redisbus.Transport, *redisbus.Transport) {
	t.Helper()
	var job string
	a := transport(t, s, func(c *redisbus.Config) {
		job = c.Job
		if edit != nil {
			edit(c)
		}
	})
	b := transport(t, s, func(c *redisbus.Config) {
		c.Job = job
		if edit != nil {
			edit(c)
		}
	})
	return a, b
}

func TestConn(t *testing.T) {
	s := redistest.Start(t)
	nettest.TestConn(t, func() (a, b net.Conn, stop func(), err error) {
		dial, listen := two(t, s, func(c *redisbus.Config) { c.WindowBytes = 64 << 10 })
		l, err := listen.Listen(t.Context(), "bus://x")
		if err != nil {
			return nil, nil, nil, err
		}
		if a, err = dial.Dial(t.Context(), "bus://x"); err != nil {
			return nil, nil, nil, err
		}
		if b, err = l.Accept(); err != nil {
			return nil, nil, nil, err
		}
		return a, b, func() { _, _, _ = a.Close(), b.Close(), l.Close() }, nil
	})
}

func TestCloseDeliversWhatWasWritten(t *testing.T) {
	dial, listen := two(t, redistest.Start(t), nil)
	_, a, b := ends(t, dial, listen)
	sent := bytes.Repeat([]byte("0123456789"), 90_000) // less than a window
	if n, err := a.Write(sent); n != len(sent) || err != nil {
		t.Fatal(n, err)
	}
	_ = a.Close()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
	}
	if _, err := b.Write([]byte("x")); err == nil {
		t.Error("writing to a closed connection is no error")
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAWriterStopsAtTheWindow(t *testing.T) {
	const window = 256 << 10
	dial, listen := two(t, redistest.Start(t), func(c *redisbus.Config) { c.WindowBytes = window })
	_, a, b := ends(t, dial, listen)
	try := a.(interface{ TryWrite(b []byte) (int, error) })
	if n, err := try.TryWrite(make([]byte, 2*window)); n != window-4*256 || err != nil { // in four messages
		t.Errorf("%d bytes, %v, want a window of %d", n, err, window)
	}
	if n, err := try.TryWrite(make([]byte, 1)); n != 0 || err != nil {
		t.Errorf("%d bytes into a full window, %v", n, err)
	}
	if err := a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := a.Write([]byte("x")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v", n, err)
	}
	_ = a.SetWriteDeadline(time.Time{})
	more := make(chan error, 1)
	go func() {
		_, err := a.(interface {
			WriteBuffers(bufs *net.Buffers) (int64, error)
		}).WriteBuffers(&net.Buffers{make([]byte, window), make([]byte, window)})
		more <- err
	}()
	if n, err := io.CopyN(io.Discard, b, 3*window-4*256); err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := <-more; err != nil {
		t.Error(err)
	}
}

func TestDialWithoutAListener(t *testing.T) {
	s := redistest.Start(t)
	dial, listen := two(t, s, nil)
	refused := func(c *redisbus.Transport, address string) {
		t.Helper()
		if c, err := c.Dial(t.Context(), address); err == nil || !strings.Contains(err.Error(), "connection refused") ||
			!strings.Contains(err.Error(), address) {
			t.Errorf("%s: %v, %v", address, c, err)
		}
	}
	refused(dial, "bus://x")
	l, a, _ := ends(t, dial, listen)
	refused(dial, "bus://y")
	refused(transport(t, s, nil), "bus://x") // another job
	if _, err := listen.Listen(t.Context(), "bus://x"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the same address again: %v", err)
	}
	_ = l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	refused(dial, "bus://x")
	if _, err := a.Write([]byte("x")); err != nil {
		t.Errorf("the listener's end has ended a connection: %v", err)
	}
	for _, bad := range []string{"", "x", "bus://", "tcp://x:1"} {
		_, err1 := dial.Dial(t.Context(), bad)
		_, err2 := dial.Listen(t.Context(), bad)
		if err1 == nil || err2 == nil || !strings.Contains(err1.Error(), "bus://node.0") {
			t.Errorf("%q: %v, %v", bad, err1, err2)
		}
	}
}

func TestConnectionsThatWereNotAccepted(t *testing.T) {
	dial, listen := two(t, redistest.Start(t), nil)
	l, _, _ := ends(t, dial, listen)
	c, err := dial.Dial(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = l.Close()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the other end was closed: %v", err)
	}
}

// A run that crashed has left its keys, and the next one with the same id and
// addresses finds its own places.
func TestLeftoversOfACrash(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Admin(t)
	dial, listen := two(t, s, func(c *redisbus.Config) { c.Job = "again" })
	const dead = "00112233aabbccdd"
	admin.Set(t.Context(), "ditask:{again}:at:x", dead, time.Minute)
	admin.XAdd(t.Context(), &redis.XAddArgs{Stream: "ditask:{again}:in:" + dead, Values: []string{"f", "left"}})
	dialled := make(chan error, 1)
	go func() { // it dials the dead node at first
		c, err := dial.Dial(t.Context(), "bus://x")
		if err == nil {
			_ = c.Close()
		}
		dialled <- err
	}()
	for admin.XLen(t.Context(), "ditask:{again}:in:"+dead).Val() < 2 {
		if t.Context().Err() != nil {
			t.Fatal("no dial has reached the dead node")
		}
	}
	l, err := listen.Listen(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-dialled; err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a dial of a crashed node: %v", err)
	}
	a, err := dial.Dial(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Close()
}

// raw is an entry as the package doc describes it.
func raw(kind byte, to, offset uint64, body string) string {
	b := binary.LittleEndian.AppendUint64([]byte{kind}, to)
	b = binary.LittleEndian.AppendUint64(b, offset)
	consumed := uint64(0)
	if kind == 1 {
		consumed = 2 // the version
	}
	return string(binary.LittleEndian.AppendUint64(b, consumed)) + body
}

// TestEntriesByHand is the other side of a connection: entries that come twice are read once, a
// missing one breaks the connection, and anything else has no effect.
func TestEntriesByHand(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Admin(t)
	const mine = "00112233aabbccdd"
	c := transport(t, s, func(c *redisbus.Config) { c.Job = "hand" })
	l, err := c.Listen(t.Context(), "bus://x")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inbox := "ditask:{hand}:in:" + admin.Get(t.Context(), "ditask:{hand}:at:x").Val()
	if ttl := admin.PTTL(t.Context(), inbox).Val(); ttl <= 0 {
		t.Errorf("the inbox expires in %v", ttl)
	}
	say := func(entries ...string) {
		t.Helper()
		for _, e := range entries {
			if err := admin.XAdd(t.Context(), &redis.XAddArgs{Stream: inbox, NoMkStream: true, Values: []string{"f", e}}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// call makes connection id of ours and returns its number on the other side.
	call := func(id uint64) (uint64, net.Conn) {
		t.Helper()
		hello := string(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, id), 1<<20)) + mine
		syn := raw(1, 0, 0, hello+"x")
		say("", "x", raw(9, 1, 1, ""), raw(1, 0, 0, "short"), raw(3, 77, 0, "to none"), syn, syn)
		b, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		last := "0"
		for {
			got, err := admin.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"ditask:{hand}:in:" + mine, last}}).Result()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range got[0].Messages {
				last = m.ID
				v, _ := m.Values["f"].(string)
				if len(v) > 33 && v[0] == 2 && binary.LittleEndian.Uint64([]byte(v[1:])) == id {
					return binary.LittleEndian.Uint64([]byte(v[25:])), b
				}
			}
		}
	}
	admin.XAdd(t.Context(), &redis.XAddArgs{Stream: "ditask:{hand}:in:" + mine, Values: []string{"f", "x"}})

	id, b := call(1)
	first, second := raw(3, id, 0, "hello "), raw(3, id, 6, "world")
	say(first, first, second, first, second, raw(5, id, 11, ""))
	if got, err := io.ReadAll(b); string(got) != "hello world" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	_ = b.Close()

	for name, test := range map[string]struct{ entry, want string }{
		"lost data":    {raw(3, 0, 9, "world"), "bytes 6 to 9 are missing: redis at "},
		"lost end":     {raw(5, 0, 9, ""), "bytes 6 to 9 are missing: redis at "},
		"overlap":      {raw(3, 0, 3, "hello world"), "are missing"},
		"over window":  {raw(3, 0, 6, strings.Repeat("x", 1<<20+1)), "window"},
		"not consumed": {raw(4, 0, 0, "")[:17] + "\x05\x00\x00\x00\x00\x00\x00\x00", "5 bytes consumed of 0"},
	} {
		id, b := call(uint64(len(name)))
		say(raw(3, id, 0, "hello "))
		to := binary.LittleEndian.AppendUint64(nil, id)
		say(test.entry[:1] + string(to) + test.entry[9:])
		got, err := io.ReadAll(b)
		if string(got) != "hello " || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := b.Write([]byte("x")); err == nil {
			t.Errorf("%s: writing to a broken connection is no error", name)
		}
		_ = b.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Dial(ctx, "bus://x"); !errors.Is(err, context.Canceled) {
		t.Errorf("dial with an ended context: %v", err)
	}
}
