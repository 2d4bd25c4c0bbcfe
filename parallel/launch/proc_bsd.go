//go:build unix && !linux

package launch

import "syscall"

// sysProcAttr makes a node the leader of its own process group.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
