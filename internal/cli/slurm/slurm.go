// Package slurm is the command "ditask slurm", which runs jobs under Slurm: it writes
// batch scripts, submits them, and follows the job to its end.
//
//	app.Commands = append(app.Commands, slurm.Command(c))
//
// It calls sbatch, scontrol, sacct and scancel. Packages job and parallel/slurm read Slurm's
// variables for the launcher in each task of a step.
package slurm

import (
	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// groupSlurm is the group of Slurm's flags.
const groupSlurm = "Slurm"

// command has the actions of one call.
type command struct{ *call.Call }

// Command returns the command "ditask slurm".
func Command(of *call.Call) *urfave.Command {
	c := command{of}
	return &urfave.Command{
		Name: "slurm", Usage: "write or submit batch scripts of Slurm",
		Action: func(*urfave.Context) error {
			return call.Usage("ditask slurm: want script or submit: see ditask slurm --help")
		},
		Subcommands: []*urfave.Command{
			{Name: "script", Usage: "print a batch script that runs the job in the tasks of a step", Flags: scriptFlags(), Action: c.script},
			{Name: "submit", Usage: "submit such a script, and follow the job to its end; the exit code is the job's", Flags: submitFlags(),
				Action: c.submit},
		},
	}
}
