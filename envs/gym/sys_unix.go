//go:build unix

package gym

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supported reports that processes can inherit pipes and share memory here.
const supported = true

// killGroup kills the process group that a process leads, which was not reaped, or a moment ago.
func killGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// mapFile maps a file of that many bytes for reading and writing.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmap(b []byte) error { return syscall.Munmap(b) }

// signaled returns the name of the signal that has ended a process.
func signaled(s *os.ProcessState) (name string, ok bool) {
	w, ok := s.Sys().(syscall.WaitStatus)
	if !ok || !w.Signaled() {
		return "", false
	}
	return w.Signal().String(), true
}

// unpolled returns a pipe's file in place of f, which it closes. The runtime does not watch it, so
// data that arrives wakes only the thread that waits for it.
func unpolled(f *os.File) (*os.File, syscall.RawConn, error) {
	defer func() { _ = f.Close() }()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var fd int
	controlled := raw.Control(func(from uintptr) {
		if fd, err = unix.FcntlInt(from, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false)
		}
	})
	if err = errors.Join(controlled, err); err != nil {
		return nil, nil, err
	}
	g := os.NewFile(uintptr(fd), f.Name())
	raw, err = g.SyscallConn()
	return g, raw, err
}

// readable waits until a file has something to read, or has ended. It does not wait if limit is negative.
func readable(fd uintptr, limit time.Duration) bool {
	set := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, _ := unix.Poll(set[:], max(0, int((limit+time.Millisecond-1).Milliseconds()))) // interrupted: nothing, so far
	return n > 0
}
