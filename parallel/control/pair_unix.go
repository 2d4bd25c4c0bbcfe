//go:build unix

package control

import (
	"os"
	"syscall"
)

// Pair makes a control socket. The launcher keeps one file, and hands the
// other to the node in exec.Cmd.ExtraFiles, closing its own copy once the node
// has started. Neither is inherited by any other process. The launcher's file
// has deadlines and can be closed while it is read.
func Pair() (launcher, node *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	for _, fd := range fds {
		if err := syscall.SetNonblock(fd, true); err != nil {
			_ = syscall.Close(fds[0])
			_ = syscall.Close(fds[1])
			return nil, nil, os.NewSyscallError("setnonblock", err)
		}
	}
	return os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control"), nil
}

// inherit makes a file with deadlines of a descriptor that was inherited, and
// keeps it from processes that this one starts.
func inherit(fd int, name string) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("setnonblock", err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}

// shutdownWrite ends what is written to a socket; reading continues.
func shutdownWrite(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var shut error
	if err := conn.Control(func(fd uintptr) { shut = syscall.Shutdown(int(fd), syscall.SHUT_WR) }); err != nil {
		return err
	}
	return shut
}

// KillGroup kills the process group of this process, if it leads one, as every
// node does that a launcher started: the last act of a node whose launcher was
// killed, so that nothing that the node started outlives it. Otherwise it
// returns.
func KillGroup() {
	if pid := os.Getpid(); pid == syscall.Getpgrp() {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
}
