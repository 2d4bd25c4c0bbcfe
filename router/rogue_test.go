package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// rogue is the other end of a session: a node that has the token and breaks the protocol.
type rogue struct {
	net.Conn
	r    *Router
	link *link
}

// meet makes a router, with an event whose messages are taken without credit, and a rogue that has
// declared the same event.
func meet(t *testing.T, edit func(*Config)) *rogue {
	t.Helper()
	return meetWith(t, io.Discard, edit)
}

// meetWith is meet with a rogue that receives what the router sends.
func meetWith(t *testing.T, received io.Writer, edit func(*Config)) *rogue {
	t.Helper()
	cfg := Config{Node: 5, Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ch, err := r.Channel(Spec{Name: "e"}, func(*Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ch.Listen(true)
	s, err := r.admit(hello{Node: 7, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	mine, theirs := net.Pipe()
	l, err := s.attach(mine, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	var read sync.WaitGroup
	read.Go(func() { _, _ = io.Copy(received, theirs) })
	t.Cleanup(func() { _ = theirs.Close(); read.Wait(); _ = r.Close() })
	g := &rogue{theirs, r, l}
	g.say(t, appendFrame(nil, frameDeclare, flagOn, 0, []byte(`{"name":"e","delivery":"reliable","fingerprint":"0"}`)))
	return g
}

func (g *rogue) say(t *testing.T, frame []byte) {
	t.Helper()
	if _, err := g.Write(frame); err != nil {
		t.Fatal(err)
	}
}

// lost waits until the node has lost the rogue, and returns the reason.
func (g *rogue) lost() string {
	select {
	case <-g.link.ended:
	case <-time.After(10 * time.Second): // only a fault takes that long
		return "it is not given up"
	}
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	return fmt.Sprint(g.r.was[7].err)
}

func data(version uint64) []byte {
	return appendFrame(nil, frameData, 0, 0, append(le.AppendUint64(nil, version), "hello"...))
}

func chunk(version, total, off uint64, piece []byte) []byte {
	head := le.AppendUint64(le.AppendUint64(le.AppendUint64(nil, version), total), off)
	return appendFrame(nil, frameChunk, 0, 0, append(head, piece...))
}

func TestR7MemoryIsTakenForReceivedBytesOnly(t *testing.T) {
	g := meet(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const total = 1 << 30
	for i := range uint64(1000) {
		g.say(t, chunk(1, total, i, []byte{1}))
	}
	g.say(t, data(0)[:4]) // read only when all before it has been taken
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes were taken for 1000 bytes of 1 GiB", grown)
	}
}

func TestR7PeerThatIgnoresItsWindowIsLost(t *testing.T) {
	g := meet(t, func(c *Config) { c.WindowMessages = 4 })
	for v := range uint64(4) {
		g.say(t, data(v+1))
	}
	select {
	case <-g.link.ended:
		t.Fatal("lost within its window:", g.lost())
	default:
	}
	g.say(t, data(5))
	if why := g.lost(); !strings.Contains(why, `event "e": more messages than there was room for`) {
		t.Error(why)
	}
}

func TestR7PeerThatIgnoresItsWindowOfBytesIsLost(t *testing.T) {
	g := meet(t, func(c *Config) { c.WindowBytes = inlineBytes })
	whole := make([]byte, inlineBytes)
	g.say(t, chunk(1, inlineBytes, 0, whole)) // the window is open: a message may be larger than what is left of it
	g.say(t, chunk(2, inlineBytes, 0, whole))
	if why := g.lost(); !strings.Contains(why, "more messages than there was room for") {
		t.Error(why)
	}
}

// TestR7ListsOfAPeerAreBounded fills each of the lists that a peer can make longer.
func TestR7ListsOfAPeerAreBounded(t *testing.T) {
	schema := strings.Repeat("x", 50<<10)
	for _, c := range []struct {
		name, why string
		frame     func(i int) []byte
	}{
		{"declarations", "declarations of more than 16777216 bytes", func(i int) []byte {
			return appendFrame(nil, frameDeclare, 0, uint16(i+1),
				fmt.Appendf(nil, `{"name":"e%d","delivery":"reliable","fingerprint":"0","schema":%q}`, i, schema))
		}},
		{"barriers", "want at most 65536 names of 255 bytes", func(i int) []byte {
			return appendFrame(nil, frameBarrier, 0, 0, fmt.Appendf(nil, `{"name":"b%d","round":1}`, i))
		}},
		{"a barrier's name", "want at most 65536 names of 255 bytes", func(i int) []byte {
			return appendFrame(nil, frameBarrier, 0, 0, fmt.Appendf(nil, `{"name":"%0*d","round":1}`, i, i))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := meet(t, nil)
			for i := range 1 << 17 {
				if _, err := g.Write(c.frame(i)); err != nil {
					break
				}
			}
			if why := g.lost(); !strings.Contains(why, c.why) {
				t.Error(why)
			}
		})
	}
}

func TestR7BarrierNamesAreBounded(t *testing.T) {
	r, err := New(Config{Transport: noTransport{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Barrier(t.Context(), strings.Repeat("x", maxName)); err != nil {
		t.Error(err)
	}
	for i := range maxBarriers - 1 {
		if err := r.Barrier(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Barrier(t.Context(), "0"); err != nil {
		t.Error(err)
	}
	if err := r.Barrier(t.Context(), strings.Repeat("x", maxName+1)); err == nil ||
		!strings.Contains(err.Error(), "a name of 256 bytes, want 255 at most") {
		t.Error(err)
	}
	if err := r.Barrier(t.Context(), "one more"); err == nil || !strings.Contains(err.Error(), "one name does for any number of rounds") {
		t.Error(err)
	}
}

// nowhere is a transport that counts the dials of each address.
type nowhere struct {
	Transport
	mu    sync.Mutex
	calls map[string]int
}

func (n *nowhere) Dial(_ context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls[addr]++
	return nil, errors.New("nobody there")
}

// TestR7MembersThatDoNotExistAreFew announces members to a node that no node has met: of each the node
// calls the newest incarnation only, and it remembers a bounded number.
func TestR7MembersThatDoNotExistAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r, err := New(Config{Node: maxNode, Transport: n, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			r.learn([]Member{{ID: 0, Incarnation: uint64(i) + 1, Addrs: []string{fmt.Sprint(i)}}}, 1)
		}
		for i := range 2 * maxPeers {
			r.learn([]Member{{ID: i + 1, Incarnation: 1}}, 1)
		}
		<-time.After(time.Minute)
		if len(r.known) > maxPeers {
			t.Errorf("%d members are remembered", len(r.known))
		}
		n.mu.Lock()
		if n.calls["0"] > 1 || n.calls["99"] < 10 {
			t.Errorf("calls: %v", n.calls)
		}
		n.mu.Unlock()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Of the announced nodes, one calls those with lower ids whose newest incarnation is not connected,
// and that have an address.
func TestNodesThatAreAnnouncedAndCalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &nowhere{calls: map[string]int{}}
		r, err := New(Config{Node: 5, Transport: n, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for id := range 3 {
			if _, err := r.admit(hello{Node: id, Incarnation: 2}); err != nil {
				t.Fatal(err)
			}
		}
		r.learn([]Member{
			{0, 1, []string{"older"}}, {1, 2, []string{"connected"}}, {2, 3, []string{"newer"}}, {3, 1, []string{"lower"}}, {4, 1, nil},
			{5, 9, []string{"itself"}}, {6, 1, []string{"higher"}}, {-1, 1, []string{"none"}}, {maxNode + 1, 1, []string{"none"}},
		}, 1)
		<-time.After(time.Second)
		n.mu.Lock()
		if len(n.calls) != 2 || n.calls["newer"] == 0 || n.calls["lower"] == 0 {
			t.Errorf("calls: %v", n.calls)
		}
		n.mu.Unlock()
		_ = r.Close()
	})
}
