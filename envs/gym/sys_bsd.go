//go:build unix && !linux

package gym

import "syscall"

// sysProcAttr makes a process the leader of a group of its own. It looks itself whether its parent
// is still there.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
