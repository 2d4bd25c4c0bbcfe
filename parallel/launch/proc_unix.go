//go:build unix

package launch

import (
	"os"
	"syscall"
)

// killGroup kills the process group that p leads. The caller makes sure that p
// was not reaped, or has been a moment ago.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// wake continues a process that was stopped.
func wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
