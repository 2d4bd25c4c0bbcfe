//go:build unix

package gym

import (
	"os"
	"syscall"
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
