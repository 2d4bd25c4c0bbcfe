package router_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// fuse is a network whose first connection breaks after a number of bytes
// in one direction.
type fuse struct {
	*memory.Network
	inbound bool // bytes to the dialler are counted, else those from it
	mu      sync.Mutex
	left    int
	blown   bool
}

type fused struct {
	net.Conn
	f *fuse
}

func (f *fuse) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := f.Network.Dial(ctx, addr)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.blown {
		return c, err
	}
	return fused{c, f}, nil
}

// pass returns how many of n bytes pass, and breaks the connection after the last.
func (c fused) pass(inbound bool, n int) int {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.f.inbound != inbound {
		return n
	}
	n = min(n, c.f.left)
	c.f.left -= n
	return n
}

func (c fused) blow() error {
	c.f.mu.Lock()
	c.f.blown = true
	c.f.mu.Unlock()
	c.Conn.(interface{ Break() }).Break()
	return errors.New("the fuse has blown")
}

func (c fused) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if k := c.pass(true, n); k < n {
		return k, c.blow()
	}
	return n, err
}

func (c fused) Write(b []byte) (int, error) {
	k := c.pass(false, len(b))
	n, err := c.Conn.Write(b[:k])
	if k < len(b) && err == nil {
		<-time.After(time.Millisecond) // what has passed is received
		err = c.blow()
	}
	return n, err
}

// TestR4CutAtEveryByte breaks the first connection of two nodes at each of its
// bytes, from the handshake on: both become ready, and everything arrives once.
func TestR4CutAtEveryByte(t *testing.T) {
	step := 13
	if testing.Short() {
		step = 101
	}
	for _, inbound := range []bool{false, true} {
		for after := 0; after < 2200; after += step {
			synctest.Test(t, func(t *testing.T) {
				f := &fuse{Network: memory.New(), inbound: inbound, left: after}
				if err := oneEach(t, f); err != nil {
					t.Fatalf("cut after %d bytes, inbound %v: %v", after, inbound, err)
				}
			})
		}
	}
}

// oneEach starts two nodes that call each other, and lets each send ten messages.
func oneEach(t *testing.T, c router.Transport) error {
	var log logtest.Buffer
	var nodes [2]*router.Router
	var out [2]*router.Channel
	var mu sync.Mutex
	var got [2][]string
	for id := range nodes {
		r, err := router.New(router.Config{
			Job: "j", Token: []byte("secret"), Node: id, Expect: 2, Transport: c, Listen: fmt.Sprint("mem://", id),
			Attach: []string{fmt.Sprint("mem://", 1-id)}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			return err
		}
		nodes[id] = r
		defer r.Close()
		out[id], err = r.Channel(router.Spec{Name: "n"}, func(m *router.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[id] = append(got[id], string(m.Payload))
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			return err
		}
		out[id].Listen(true)
	}
	err := both(func(id int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := nodes[id].Start(ctx, nil); err != nil {
			return err
		}
		for i := range 10 {
			if _, err := out[id].Send(ctx, router.Bytes(fmt.Sprint(i)), nil); err != nil {
				return err
			}
		}
		return nodes[id].Drain(ctx, true)
	})
	if err == nil {
		err = both(func(id int) error { return errors.Join(nodes[id].Close(), nodes[id].Losses()) })
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log.String())
	}
	for id := range got {
		if s := strings.Join(got[id], ""); s != "0123456789" {
			return fmt.Errorf("node.%d has %q", id, s)
		}
	}
	return nil
}

func both(fn func(id int) error) error {
	var errs [2]error
	var wg sync.WaitGroup
	for id := range errs {
		wg.Go(func() { errs[id] = fn(id) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}
