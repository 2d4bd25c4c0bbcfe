//go:build !unix

package job

import "os"

// warnings are the signals by which Slurm can announce the end of a job: there
// is no Slurm here.
func warnings() []os.Signal { return nil }
