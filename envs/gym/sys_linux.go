package gym

import "syscall"

// sysProcAttr makes a process the leader of its own group, which no key of the terminal
// reaches, and that is killed when the thread ends that has started it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
