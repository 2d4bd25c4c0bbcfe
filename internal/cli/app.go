package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/build"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/job"
	"github.com/ditask/ditask/internal/cli/k8s"
	"github.com/ditask/ditask/internal/cli/slurm"
	"github.com/ditask/ditask/internal/cli/train"
	"github.com/ditask/ditask/internal/nearest"
	"github.com/ditask/ditask/parallel/connect"
	"github.com/ditask/ditask/parallel/launch"
)

// description is the last part of the help.
const description = `ditask runs PACKAGE in N processes of one job: the nodes. Each reads its id and
the addresses of the others from its environment; the program's main calls
parallel.Main.

PACKAGE is a folder or an import path of a main package, or of a library package
together with --main Func; the word main, for the main package in the current
folder or in ./main; or a program that is already built. The arguments after
-- are those of the program.

   ditask --package ./examples/hello --parallel-workers 4
   ditask --package ./agents --main Play --topology star -- --lr 1e-3

Exit codes:
   0    success
   1    failure; or the exit code of the node that failed first, if it has one
   2    usage error
   75   preempted by SIGTERM, or in Slurm SIGUSR1: drained and checkpointed, run again with --resume
   130  interrupted: the same after SIGINT (Ctrl-C); a second one kills at once`

// command has the actions of one call of ditask.
type command struct{ *call.Call }

// Main runs the command with the arguments after its name, and returns its
// exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	c := command{&call.Call{Stdout: stdout, Stderr: stderr}}
	switch {
	case slices.Equal(args, job.WatchArgs()):
		launch.Watch(os.Stdin)
		return call.ExitSuccess
	case slices.Equal(args, job.FarewellArgs()):
		return c.Exit(connect.Farewell(context.Background(), os.LookupEnv, os.Stdin))
	}
	if at := slices.Index(args, "--"); at >= 0 {
		args, c.Args = args[:at], args[at+1:]
	}
	if err := forgetEmpty(); err != nil {
		return c.Exit(err)
	}
	app := c.app()
	err := app.Run(append([]string{"ditask"}, flagsFirst(app.Commands, args)...))
	return c.Exit(err)
}

// forgetEmpty unsets the empty variables of ditask, which the flags would count as set.
func forgetEmpty() error {
	var faults []error
	for _, kv := range os.Environ() {
		if name, value, _ := strings.Cut(kv, "="); value == "" && strings.HasPrefix(name, "DITASK_") {
			faults = append(faults, os.Unsetenv(name))
		}
	}
	return errors.Join(faults...)
}

// app declares the commands.
func (c command) app() *urfave.App {
	return &urfave.App{
		Name:  "ditask",
		Usage: "run a program as the nodes of one job",
		UsageText: strings.Join([]string{
			"ditask --package PACKAGE [flags] [-- arguments of the program]",
			"ditask train ALGO --env ENV [flags]",
			"ditask eval|export|serve RUN [flags]",
			"ditask render [RUN] [flags]",
			"ditask plot RUN... [flags]",
			"ditask runs [FOLDER] [flags]",
			"ditask env list|check|bench [NAME] [flags]",
			"ditask plan|doctor|build|slurm|k8s|tls|trace|version|completion [flags]",
		}, "\n"),
		Description:     description,
		HideHelpCommand: true,
		HideVersion:     true, // its own flag, so that it can be -v and say more
		Writer:          c.Stdout,
		ErrWriter:       c.Stderr,
		Flags:           append(flags.Job(), &urfave.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the version"}),
		OnUsageError:    c.flagFault,
		ExitErrHandler:  func(*urfave.Context, error) {},
		Action:          c.root,
		Commands:        c.commands(),
	}
}

func (c command) commands() []*urfave.Command {
	cmds := []*urfave.Command{
		job.PlanCommand(c.Call),
		{Name: "doctor", Usage: "check whether this machine can run jobs, and print advice",
			Flags: slices.Concat(flags.Certs(), flags.Servers(), []urfave.Flag{flags.JSON()}), Action: c.doctor},
		{Name: "tls", Usage: "make an authority and a certificate for a job's connections", ArgsUsage: "DIR",
			Flags: append(tlsFlags(), flags.JSON()), Action: c.tls},
		{Name: "version", Usage: "print the version", Flags: []urfave.Flag{flags.JSON()}, Action: c.version},
		{Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: strings.Join(shells(), "|"), Action: c.completion},
		c.traceCommand(),
		build.Command(c.Call),
		slurm.Command(c.Call),
		k8s.Command(c.Call),
		train.Command(c.Call, binaryOf(debug.ReadBuildInfo()).String()),
		train.EvalCommand(c.Call),
		train.ExportCommand(c.Call),
		train.ServeCommand(c.Call),
		train.RenderCommand(c.Call),
		train.PlotCommand(c.Call),
		train.RunsCommand(c.Call),
		train.EnvCommand(c.Call),
	}
	for _, cmd := range cmds {
		for _, cmd := range slices.Concat([]*urfave.Command{cmd}, cmd.Subcommands) {
			cmd.OnUsageError, cmd.HideHelpCommand = c.flagFault, true
			cmd.Before = c.noFlagsBefore
		}
	}
	return cmds
}

// noFlagsBefore refuses flags that stand before the name of the command,
// where they would be lost.
func (c command) noFlagsBefore(ctx *urfave.Context) error {
	if parents := ctx.Lineage(); len(parents) > 1 && parents[1].NumFlags() > 0 {
		return call.Usage("flags come after the command: %s --...", ctx.Command.HelpName)
	}
	return nil
}

// root is ditask without a command.
func (c command) root(ctx *urfave.Context) error {
	if ctx.Bool("version") {
		return c.version(ctx)
	}
	if ctx.NArg() > 0 {
		return unknownCommand(ctx)
	}
	return job.Run(c.Call, ctx)
}

// unknownCommand returns the error for a first word that is not a command.
func unknownCommand(ctx *urfave.Context) error {
	word := ctx.Args().First()
	return call.Usage("unknown command %q%s: see ditask --help; arguments of the program come after --", word,
		nearest.Hint(word, commandNames(ctx.App)))
}

func commandNames(app *urfave.App) []string {
	var names []string
	for _, cmd := range app.VisibleCommands() {
		names = append(names, cmd.Name)
	}
	return names
}

// flagsFirst moves the arguments of a command behind its flags, where the parser
// expects them: ditask trace show FOLDER --node 2. A help flag prints the help of the command, with any arguments.
func flagsFirst(cmds []*urfave.Command, args []string) []string {
	at := 0
	single := map[string]bool{"help": true, "h": true} // flags without a value
	for at < len(args) {
		i := slices.IndexFunc(cmds, func(cmd *urfave.Command) bool { return cmd.HasName(args[at]) })
		if i < 0 {
			break
		}
		for _, f := range cmds[i].Flags {
			if _, ok := f.(*urfave.BoolFlag); ok {
				for _, name := range f.Names() {
					single[name] = true
				}
			}
		}
		cmds = cmds[i].Subcommands
		at++
	}
	if at == 0 {
		return args
	}
	var flags, words []string
	for i := at; i < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		if name == args[i] || name == "" {
			words = append(words, args[i])
			continue
		}
		if name == "help" || name == "h" {
			if len(words) > 0 && len(cmds) > 0 {
				continue // the word is not a command and has no help
			}
			return append(slices.Clone(args[:at]), "--help")
		}
		flags = append(flags, args[i])
		if !single[name] && !strings.Contains(name, "=") && i+1 < len(args) {
			i++
			flags = append(flags, args[i])
		}
	}
	return slices.Concat(args[:at], flags, words)
}
