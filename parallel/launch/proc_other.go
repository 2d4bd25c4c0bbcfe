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

func wake(*os.Process) {}
