package router_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// tap is a transport that records both directions of every dialled connection.
type tap struct {
	router.Transport
	mu    sync.Mutex
	calls []*call
}

type call struct {
	net.Conn
	tap        *tap
	said, read bytes.Buffer
}

func (c *tap) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := c.Transport.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, &call{Conn: conn, tap: c})
	return c.calls[len(c.calls)-1], nil
}

func (c *call) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	c.said.Write(b)
	c.tap.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *call) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.read.Write(b[:n])
	return n, err
}

// quiet is the configuration of node 1 of the victim's job.
func quiet(c router.Transport, edit func(*router.Config)) router.Config {
	cfg := router.Config{
		Job: "j", Token: []byte("secret"), Node: 1, Expect: 2, Transport: c, Attach: []string{"mem://victim"},
		Logger: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&cfg)
	}
	return cfg
}

// recordHandshake lets node 1 join the victim and leave, and returns the bytes of its handshake,
// those of either side. The victim knows then that the node has left.
func recordHandshake(t *testing.T, victim *router.Router, network *memory.Network) (dialler, listener []byte) {
	t.Helper()
	c := &tap{Transport: network}
	r, err := router.New(quiet(c, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); len(victim.Peers()) > 0; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the victim still has the peers %v", victim.Peers())
		}
	}
	said, read := c.calls[0].said.Bytes(), c.calls[0].read.Bytes()
	return said[:8+messages(said[8:], 2)], read[:messages(read, 2)]
}

// messages is the length of the first n messages of a handshake.
func messages(b []byte, n int) int {
	size := 0
	for range n {
		size += 4 + int(binary.LittleEndian.Uint32(b[size:]))
	}
	return size
}

// joins starts node 1 and returns the reason why it does not join.
func joins(t *testing.T, network *memory.Network, edit func(*router.Config)) error {
	t.Helper()
	r, err := router.New(quiet(network, edit))
	if err != nil {
		t.Fatal(err)
	}
	err = r.Start(t.Context(), nil)
	_ = r.Close()
	return err
}

// refusedWith checks that a node does not join for a reason.
func refusedWith(t *testing.T, err error, code string) {
	t.Helper()
	no, ok := errors.AsType[*router.RefusedError](err)
	if !ok || no.Code != code {
		t.Errorf("want %q, not: %v", code, err)
	}
}

func TestR7RecordedHandshakeOfADiallerIsRefused(t *testing.T) {
	r, network, _ := victim(t, nil)
	said, _ := recordHandshake(t, r, network)
	c := dial(t, network)
	if _, err := c.Write(said); err != nil {
		t.Fatal(err)
	}
	received, _ := io.ReadAll(c)
	_ = c.Close()
	last := received[messages(received, 1):]
	if !strings.Contains(string(last), `"code":"token"`) || len(last) != messages(last, 1) {
		t.Errorf("the victim has sent %q", last)
	}
	if got := r.Refused()[router.RefuseToken]; got != 1 {
		t.Errorf("refused: %v", r.Refused())
	}
	if len(r.Peers()) != 0 {
		t.Error("it is a peer")
	}
}

// impostor listens in the victim's place, and answers the first message of a
// caller with what it makes of it.
func impostor(t *testing.T, network *memory.Network, say func(hello []byte) []byte) {
	t.Helper()
	l, err := network.Listen(t.Context(), "mem://impostor")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 12)
			if _, err := io.ReadFull(c, head); err == nil {
				hello := make([]byte, binary.LittleEndian.Uint32(head[8:]))
				_, _ = io.ReadFull(c, hello)
				_, _ = c.Write(say(hello))
				_, _ = io.Copy(io.Discard, c)
			}
			_ = c.Close()
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
}

func toImpostor(c *router.Config) { c.Attach = []string{"mem://impostor"} }

func TestR7RecordedHandshakeOfAListenerIsRefused(t *testing.T) {
	r, network, _ := victim(t, nil)
	_, read := recordHandshake(t, r, network)
	impostor(t, network, func([]byte) []byte { return read })
	refusedWith(t, joins(t, network, toImpostor), router.RefuseToken)
}

// message is a handshake message.
func message(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func TestR7ReflectedHandshakeIsRefused(t *testing.T) {
	r, network, _ := victim(t, nil)
	_, read := recordHandshake(t, r, network)
	var a struct{ Proof []byte }
	if err := json.Unmarshal(read[4:messages(read, 1)], &a); err != nil || len(a.Proof) != 32 {
		t.Fatal(err)
	}
	impostor(t, network, func(hello []byte) []byte { // our own hello, as if it were the other side's
		return message(t, map[string]any{"hello": json.RawMessage(hello), "proof": a.Proof})
	})
	refusedWith(t, joins(t, network, toImpostor), router.RefuseToken)
}

// TestR7ProofOfTheOtherSideIsRefused hands the victim its own proof back: the two
// differ in nothing but the side.
func TestR7ProofOfTheOtherSideIsRefused(t *testing.T) {
	r, network, _ := victim(t, nil)
	said, _ := recordHandshake(t, r, network)
	c := dial(t, network)
	defer c.Close()
	if _, err := c.Write(said[:8+messages(said[8:], 1)]); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(c, body); err != nil {
		t.Fatal(err)
	}
	var a struct{ Proof []byte }
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(message(t, map[string]any{"proof": a.Proof, "got": "0"})); err != nil {
		t.Fatal(err)
	}
	if received, _ := io.ReadAll(c); !strings.Contains(string(received), `"code":"token"`) {
		t.Errorf("the victim has sent %q", received)
	}
	if r.Refused()[router.RefuseToken] != 1 {
		t.Errorf("refused: %v", r.Refused())
	}
}

func TestR7TokenOfAnotherJobIsRefused(t *testing.T) {
	_, network, log := victim(t, nil)
	refusedWith(t, joins(t, network, func(c *router.Config) { c.Token = []byte("the secret of another job") }), router.RefuseToken)
	refusedWith(t, joins(t, network, func(c *router.Config) { c.Job = "k" }), router.RefuseJob)
	refusedWith(t, joins(t, network, func(c *router.Config) { c.Node = 0 }), router.RefuseID)
	if err := joins(t, network, nil); err != nil {
		t.Errorf("the right one: %v", err)
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the token is in the log:\n%s", log)
	}
}
