//go:build !unix

package job

import "os"

// warnings returns the signals by which Slurm can announce the end of a job: none, as
// Slurm does not run on this system.
func warnings() []os.Signal { return nil }
