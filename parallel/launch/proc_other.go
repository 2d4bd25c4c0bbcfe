//go:build !unix

package launch

import (
	"os"
	"syscall"
)

func sysProcAttr() *syscall.SysProcAttr { return nil }

func killGroup(p *os.Process) { _ = p.Kill() }

// awaitGroup does nothing: this system has no process groups.
func awaitGroup(*os.Process) {}

func killGroupOf(int) {}

func groupIsThere(int) bool { return false }

func watcherAttr() *syscall.SysProcAttr { return nil }

func wake(*os.Process) {}
