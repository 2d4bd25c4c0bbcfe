//go:build unix

package control_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// endGroup is the variable that makes this program end its process group, see TestMain.
const endGroup = "CONTROL_TEST_END_GROUP"

// onExec reports whether a descriptor is closed in programs that this one starts.
func onExec(t *testing.T, fd uintptr) bool {
	t.Helper()
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFD, 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return flags&syscall.FD_CLOEXEC != 0
}

// inherited is the number of a descriptor of a file, which the callee owns.
func inherited(t *testing.T, file *os.File) int {
	t.Helper()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	return fd
}

// A process that leads its group ends the group. One that does not, continues.
func TestKillGroupEndsTheGroupOfALeader(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, leads := range []bool{true, false} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, self)
		cmd.Env, cmd.SysProcAttr = append(os.Environ(), endGroup+"=1"), &syscall.SysProcAttr{Setpgid: leads}
		out, err := cmd.Output()
		if killed := err != nil && err.Error() == "signal: killed"; killed != leads || leads == (string(out) == "it goes on\n") {
			t.Errorf("leads %v: %q, %v", leads, out, err)
		}
	}
}

// No other process inherits a control socket by accident.
func TestControlSocketsAreNotInherited(t *testing.T) {
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = launcher.Close(); _ = node.Close() }()
	for _, file := range []*os.File{launcher, node} {
		if !onExec(t, file.Fd()) {
			t.Error("it is inherited")
		}
	}
	_, node, err = control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	fd := inherited(t, node)
	if onExec(t, uintptr(fd)) {
		t.Fatal("the node has not inherited it")
	}
	c, err := control.Open(control.Env{ControlFD: fd})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if !onExec(t, uintptr(fd)) {
		t.Error("processes of the node inherit it")
	}
}

// A descriptor of another kind than a socket is a fault, and is closed.
func TestListenerOfAFileFails(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	fd := inherited(t, file)
	if l, err := control.Listener(control.Env{ListenFD: fd}); l != nil || err == nil ||
		!strings.HasPrefix(err.Error(), "open DITASK_LISTEN_FD=") {
		t.Errorf("%v, %v", l, err)
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); !errors.Is(errno, syscall.EBADF) {
		t.Errorf("it is open: %v", errno)
	}
}

// Only the sockets of unix addresses are removed.
func TestRemoveSocketTakesOnlyAddresses(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("s", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	control.RemoveSocket("s")
	if _, err := os.Stat("s"); err != nil {
		t.Error(err)
	}
}

// Sending to a launcher that has ended is an error, also where the launcher may be too slow to receive
// the message, and so is sending after Close.
func TestStatusToALauncherThatHasGoneIsAnError(t *testing.T) {
	launcher, c := pair(t)
	_ = launcher.Close()
	if err := c.Status(control.Status{}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%v", err)
	}
	_ = c.Close()
	if err := c.Status(control.Status{}); err == nil {
		t.Error("after Close: no error")
	}
}

// A launcher that runs and does not read delays a node for a second at most, and keeps the socket of
// the node.
func TestWaitForALauncherThatDoesNotReadIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "n0.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = launcher.Close() }()
	c := control.NewClient(node, "unix://"+path)
	for range 500 { // far more than the socket holds
		if err := c.Status(control.Status{Note: strings.Repeat("x", 900)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Ready(); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(err.Error(), "control socket: ") {
		t.Errorf("ready: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-c.Gone():
	default:
		t.Error("it is closed, and not gone")
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
