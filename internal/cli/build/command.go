package build

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
)

// Command returns the command "ditask build".
func Command(of *call.Call) *urfave.Command {
	action := func(ctx *urfave.Context) error { return toFile(of, ctx) }
	return &urfave.Command{Name: "build", Usage: "build the program of a job into a file", Action: action, Flags: []urfave.Flag{
		flags.Text("", "package", "", "`PACKAGE` to build: a folder or import path, or the word main", "p"),
		flags.Text("", "main", "", "`FUNC` of a library package to build a program from", "m"),
		&urfave.PathFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write"},
	}}
}

// toFile builds the program that a job would run, for batch scripts and
// images of containers.
func toFile(c *call.Call, ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	to := ctx.Path("output")
	if to == "" {
		return call.Usage("ditask build: --output is missing: give the file to write")
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	prog, err := FromFlags(ctx, signals)
	if err != nil {
		return err
	}
	defer prog.Release()
	if prog.Main != "" { // the program generated for a library contains its function
		c.Warn("text", fmt.Sprintf("--main %s: %s is a main package, which reads --main when it starts: give --main to the job too",
			prog.Main, ctx.String("package")))
	}
	if err := copyProgram(prog.Path, to); err != nil {
		if path, ok := errors.AsType[*fs.PathError](err); ok {
			err = path.Err // the path is that of a temporary file
		}
		return fmt.Errorf("--output %s: %w: give a file in a folder in which you can write", to, err)
	}
	return nil
}

// copyProgram copies a program to a temporary file next to the file to, and renames it. So to is
// always complete, even while an old program of this name runs.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	out, err := os.CreateTemp(filepath.Dir(to), "."+filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
	if err == nil {
		err = os.Rename(out.Name(), to)
	}
	if err != nil {
		_ = os.Remove(out.Name()) // the other error counts
	}
	return err
}
