package launch

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr makes a node the leader of its own process group. When the
// launcher dies it gets SIGCONT, so that a node that was stopped wakes up and
// reads end-of-file on its control socket.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGCONT}
}

// reap waits for cmd. It calls before when the process has ended and is not yet
// reaped: until then its pid, and the process group of that name, can be no
// other's.
func reap(cmd *exec.Cmd, before func()) error {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	before()
	return cmd.Wait()
}
