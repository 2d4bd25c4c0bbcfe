//go:build unix

package screen

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// continued returns a channel that receives when the process continues after it was stopped.
func continued() (again <-chan os.Signal, forget func()) {
	c := make(chan os.Signal, 1) // several signals count as one
	signal.Notify(c, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}

// background reports whether f is the terminal of this process's session, and belongs to another job of the shell.
func background(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP) // the number is of 32 bits: the rest of the int stays 0
	return err == nil && group != unix.Getpgrp()
}
