//go:build unix

package job

import (
	"os"
	"syscall"
)

// warnings returns the signals by which Slurm can announce the end of a job, with
// --signal of sbatch.
func warnings() []os.Signal { return []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2} }
