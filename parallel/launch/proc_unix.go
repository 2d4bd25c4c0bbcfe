//go:build unix

package launch

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// killGroup kills the process group that p leads. The caller makes sure that p
// was not reaped, or has been a moment ago.
func killGroup(p *os.Process) { killGroupOf(p.Pid) }

// killGroupOf kills the process group with a number.
func killGroupOf(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// groupIsThere reports whether a process group has a process, be it a zombie.
func groupIsThere(pid int) bool { return !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) }

// watcherAttr gives a watcher a separate session: no key of the terminal reaches it.
func watcherAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// groupTime is the time that the killed are waited for. A killed process takes a
// moment to end; one that is not reaped stays a zombie, which holds nothing.
const groupTime = 100 * time.Millisecond

// awaitGroup returns when nothing is left of the process group that p led. There
// is nothing to wait on for processes that are not our children, so it looks.
func awaitGroup(p *os.Process) {
	for deadline := time.Now().Add(groupTime); syscall.Kill(-p.Pid, 0) == nil && time.Now().Before(deadline); {
		<-time.After(time.Millisecond)
	}
}

// wake continues a process that was stopped.
func wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
