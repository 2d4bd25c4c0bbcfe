package router_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// slowToClose is a network whose listeners take a long time to close.
type slowToClose struct {
	*memory.Network
	gone atomic.Bool
}

type slowListener struct {
	net.Listener
	n *slowToClose
}

func (n *slowToClose) Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := n.Network.Listen(ctx, addr)
	return slowListener{l, n}, err
}

func (l slowListener) Close() error {
	err := l.Listener.Close() // Accept ends
	<-time.After(time.Second)
	l.n.gone.Store(true)
	return err
}

func TestCloseWaitsUntilTheAddressIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &slowToClose{Network: memory.New()}
		r, err := router.New(router.Config{Job: "j", Expect: 1, Transport: network, Listen: "mem://0", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if !network.gone.Load() {
			t.Error("Close has returned, and the listener is still there")
		}
	})
}
