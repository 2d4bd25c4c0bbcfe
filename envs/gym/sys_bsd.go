//go:build unix && !linux

package gym

import "syscall"

// sysProcAttr makes a process the leader of its own group. It looks itself whether its parent
// is still there.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
