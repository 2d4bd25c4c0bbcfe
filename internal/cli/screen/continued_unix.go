//go:build unix

package screen

import (
	"os"
	"os/signal"
	"syscall"
)

// continued is told when the process goes on after it was stopped.
func continued() (again <-chan os.Signal, forget func()) {
	c := make(chan os.Signal, 1) // one is as good as several
	signal.Notify(c, syscall.SIGCONT)
	return c, func() { signal.Stop(c) }
}
