package router_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// victim is a node that waits for others.
func victim(t testing.TB, edit func(*router.Config)) (*router.Router, *memory.Network, *logtest.Buffer) {
	t.Helper()
	network := memory.New()
	log := &logtest.Buffer{}
	cfg := router.Config{
		Job: "j", Token: []byte("secret"), Expect: 1, Transport: network, Listen: "mem://victim",
		Logger: slog.New(slog.NewTextHandler(log, nil)), HandshakeTimeout: 50 * time.Millisecond,
	}
	if edit != nil {
		edit(&cfg)
	}
	r, err := router.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, network, log
}

func dial(t testing.TB, n *memory.Network) net.Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), "mem://victim")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gone waits until the victim has closed the connection.
func gone(c net.Conn) {
	_, _ = io.Copy(io.Discard, c)
	_ = c.Close()
}

func TestR7UnauthenticatedClientsAreRefusedCountedAndLoggedOnce(t *testing.T) {
	r, network, log := victim(t, nil)
	long := binary.LittleEndian.AppendUint32([]byte("ditask\x00\x01"), 1<<32-1)
	for range 20 {
		for _, b := range [][]byte{
			[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
			long,
			append(binary.LittleEndian.AppendUint32([]byte("ditask\x00\x01"), 4), "{{{{"...),
			{},
		} {
			c := dial(t, network)
			_, _ = c.Write(b)
			gone(c) // for the last one, which is silent, this takes the handshake's time
			if len(b) == 0 {
				break
			}
		}
	}
	got := r.Refused()
	if got["garbage"] != 60 || got["silence"] != 20 {
		t.Errorf("refused: %v", got)
	}
	if n := strings.Count(log.String(), "refused a connection"); n != 2 {
		t.Errorf("%d lines are logged for two reasons:\n%s", n, log)
	}
}

// An unauthenticated client that speaks TLS to a node without a certificate is counted under that
// reason.
func TestR7UnauthenticatedClientsThatSpeakTLS(t *testing.T) {
	r, network, log := victim(t, nil)
	for _, first := range []string{
		"\x16\x03\x01\x00\xc8\x01\x00\x00", "\x15\x03\x03\x00\x02\x02\x28\x00", "\x16\x02\x01\x00\xc8\x01\x00\x00",
	} {
		c := dial(t, network)
		_, _ = c.Write([]byte(first))
		gone(c)
	}
	if got := r.Refused(); got["tls"] != 2 || got["garbage"] != 1 {
		t.Errorf("refused: %v", got)
	}
	if !strings.Contains(log.String(), "the other side speaks TLS, and this node has no certificate") {
		t.Error(log.String())
	}
}

func TestR7SilentUnauthenticatedClientsDoNotKeepANodeOut(t *testing.T) {
	_, network, _ := victim(t, func(c *router.Config) { c.MaxHandshakes = 4; c.HandshakeTimeout = 50 * time.Millisecond })
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() { gone(dial(t, network)) })
	}
	honest, err := router.New(router.Config{
		Job: "j", Token: []byte("secret"), Node: 1, Transport: network,
		Attach: []string{"mem://victim"}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := honest.Start(t.Context(), nil); err != nil {
		t.Error(err)
	}
	_ = honest.Close()
	wg.Wait()
}

func TestR7HostileLengthsTakeNoMemory(t *testing.T) {
	_, network, _ := victim(t, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 200 {
		c := dial(t, network)
		_, _ = c.Write(binary.LittleEndian.AppendUint32([]byte("ditask\x00\x01"), 1<<31))
		gone(c)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 200*256<<10 {
		t.Errorf("%d bytes were taken for 200 unauthenticated connections", grown)
	}
}

func TestStartNamesTheNodesItWaitsFor(t *testing.T) {
	network := memory.New()
	r, err := router.New(router.Config{
		Node: 2, Expect: 3, Transport: network, Listen: "mem://2",
		Attach: []string{"mem://0", "mem://1"}, JoinTimeout: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Start(t.Context(), nil)
	for _, want := range []string{"node.0", "node.1", "mem://0: connection refused", "join timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
	_ = r.Close()
}

func TestConfigReportsAllFaults(t *testing.T) {
	_, err := router.New(router.Config{Node: -1, WindowMessages: 1, Heartbeat: time.Hour})
	for _, want := range []string{"Transport", "Node -1", "window of 1", "Heartbeat"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in: %v", want, err)
		}
	}
}

func TestSendNeedsStart(t *testing.T) {
	r, err := router.New(router.Config{Transport: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	ch, err := r.Channel(router.Spec{Name: "x"}, func(*router.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Send(context.Background(), router.Bytes("x"), nil); !errors.Is(err, router.ErrNotStarted) {
		t.Error(err)
	}
	if _, err := r.Channel(router.Spec{Name: "x"}, nil); err == nil {
		t.Error("an event is declared twice")
	}
	_ = r.Close()
	if _, err := r.Channel(router.Spec{Name: "y"}, nil); !errors.Is(err, router.ErrClosed) {
		t.Error(err)
	}
}

// TestL3OtherNodeIDs starts a job whose node ids do not count from 0.
func TestL3OtherNodeIDs(t *testing.T) {
	network := memory.New()
	ids := []int{10, 12, 3}
	var wg sync.WaitGroup
	for i, id := range ids {
		cfg := router.Config{
			Node: id, Expect: len(ids), Transport: network, Listen: fmt.Sprint("mem://", id),
			Logger: slog.New(slog.DiscardHandler),
		}
		for _, k := range ids[:i] {
			cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
		}
		wg.Go(func() {
			r, err := router.New(cfg)
			if err != nil {
				t.Error(err)
				return
			}
			if err := r.Start(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if err := r.Barrier(t.Context(), "b"); err != nil {
				t.Error(err)
			}
			if err := errors.Join(r.Drain(t.Context(), true), r.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// FuzzUnauthenticated sends bytes to a node in place of a handshake.
func FuzzUnauthenticated(f *testing.F) {
	_, network, _ := victim(f, func(c *router.Config) {
		c.HandshakeTimeout = time.Second
		c.Logger = slog.New(slog.DiscardHandler)
	})
	f.Add([]byte("ditask\x00\x01\x02\x00\x00\x00{}"))
	f.Add([]byte("ditask\x00\x01\xff\xff\xff\xff"))
	f.Add([]byte(`ditask` + "\x00\x01" + "\x2e\x00\x00\x00" + `{"protocol":1,"job":"j","node":1,"nonce":"AA=="`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := dial(t, network)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		go func() { _, _ = c.Write(b); _ = c.(interface{ CloseWrite() error }).CloseWrite() }()
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatalf("the node does not close the connection: %v", err)
		}
	})
}
