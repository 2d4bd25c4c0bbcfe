//go:build unix

package launch

import (
	"os"
	"syscall"
	"time"
)

// killGroup kills the process group that p leads. The caller makes sure that p
// was not reaped, or has been a moment ago.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// groupTime is how long the killed are waited for. A killed process takes a
// moment to go; one that nobody reaps stays a zombie, which holds nothing.
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
