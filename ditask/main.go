// Command ditask runs a program as the nodes of one job: it starts them, files
// their logs, restarts them if asked, and ends the job when one fails.
//
//	ditask --package ./examples/hello --parallel-workers 4
//	ditask plan --parallel-workers 4 --topology star
//	ditask doctor
//
// "ditask --help" describes all commands, flags and exit codes.
package main

import (
	"os"

	"github.com/ditask/ditask/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}
