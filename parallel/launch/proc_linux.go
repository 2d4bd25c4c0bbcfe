package launch

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// leadersWith returns the pids of the processes that lead their process groups and have
// the environment variable that is given as NAME=value, of those that this user may look
// at.
func leadersWith(variable string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is well-formed
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"\x00")) {
			continue // it may have ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file))) // its name is digits
		if group, err := unix.Getpgid(pid); err == nil && group == pid {
			pids = append(pids, pid)
		}
	}
	return pids
}
