// Package slurm is the command "ditask slurm", for what surrounds a job under Slurm: it
// writes batch scripts, submits them, and follows the job to its end.
//
//	app.Commands = append(app.Commands, slurm.Command(c))
//
// It talks to Slurm by sbatch, scontrol, sacct and scancel. What the launcher in each task
// of a step makes of Slurm's variables is in packages job and parallel/slurm.
package slurm

import (
	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
)

// groupSlurm is the group of flags that are Slurm's.
const groupSlurm = "Slurm"

// command has the actions of one call.
type command struct{ *call.Call }

// Command is the command for what surrounds a job under Slurm.
func Command(of *call.Call) *urfave.Command {
	c := command{of}
	return &urfave.Command{
		Name: "slurm", Usage: "write or submit batch scripts of Slurm",
		Action: func(*urfave.Context) error {
			return call.Usage("ditask slurm: want script or submit: see ditask slurm --help")
		},
		Subcommands: []*urfave.Command{
			{Name: "script", Usage: "print a batch script that runs the job in the tasks of a step", Flags: scriptFlags(), Action: c.script},
			{Name: "submit", Usage: "submit such a script, and follow the job to its end; the exit code is the job's", Flags: submitFlags(), Action: c.submit},
		},
	}
}
