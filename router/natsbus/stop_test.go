//go:build unix

package natsbus_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/routertest"
)

// TestLossIsReportedWhileTheServerIsGone ends the server's process, or stops it, so
// that its connections stay and take nothing more.
func TestLossIsReportedWhileTheServerIsGone(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			s := startProcess(t)
			routertest.RunOutage(t, setup(natsbus.Config{URL: s.url}, router.Mesh), func() { _ = s.Process.Signal(sig) })
		})
	}
}

// TestCloseDoesNotWaitForAServerThatTakesNothing stops the server's process, and
// closes a connection while a write through it, and all of package nats, is blocked.
func TestCloseDoesNotWaitForAServerThatTakesNothing(t *testing.T) {
	s := startProcess(t)
	l, err := open(t, natsbus.Config{URL: s.url}).Listen(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, natsbus.Config{URL: s.url})
	c.SetWriteTime(time.Hour)
	k, err := c.Dial(soon(t), "bus://node.0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	_ = s.Process.Signal(syscall.SIGSTOP)
	blocked := c.Block(t.Context())
	select {
	case err := <-blocked:
		t.Fatalf("the written data are not held back: %v", err)
	default:
	}
	wrote, closed := make(chan error, 1), make(chan struct{}) // one result
	go func() { _, err := k.Write([]byte("x")); wrote <- err }()
	go func() { _ = k.Close(); close(closed) }()
	select {
	case <-closed:
	case <-soon(t).Done():
		t.Error("Close waits")
	}
	_ = s.Process.Kill()
	if err := <-blocked; err == nil {
		t.Error("a write to a killed server succeeds")
	}
	if err := <-wrote; err == nil {
		t.Log("the write ended before Close")
	}
}
