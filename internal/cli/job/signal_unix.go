//go:build unix

package job

import (
	"os"
	"syscall"
)

// warnings are the signals by which Slurm can announce the end of a job, as
// --signal of sbatch asks for.
func warnings() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }
