//go:build unix

package connect

import (
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/ditask/ditask/parallel/control"
)

// A node takes over the socket that its launcher has bound.
func TestSocketOfTheLauncherIsTakenOver(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConnector(control.Env{Listen: "tcp://" + l.Addr().String(), ListenFD: fd}, "", slog.New(slog.DiscardHandler))
	if err != nil || c.listener == nil {
		t.Fatalf("%v, %v", c, err)
	}
	if got := c.listener.Addr().String(); got != l.Addr().String() {
		t.Errorf("it listens at %s, want %s", got, l.Addr())
	}
	_ = c.listener.Close()
	c.close()
}
