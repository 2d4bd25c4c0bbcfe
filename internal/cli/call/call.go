// Package call is one call of ditask: its outputs, the arguments for the program, and
// its exit code.
//
//	c := &call.Call{Stdout: os.Stdout, Stderr: os.Stderr, Args: afterTheDashes}
//	os.Exit(c.Exit(run(c)))
//
// A command returns an error. An error of [Usage] is a usage error, an [ExitError] is an
// exit code without a message, and any other error is a failure. [Call.Exit] prints the
// error and chooses the exit code.
//
// A Call may be used by several goroutines if its writers are safe for concurrent use.
package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/printable"
)

// The exit codes of the command. After a failure of a node its own code is
// used, if it has one.
const (
	ExitSuccess = 0
	ExitFailure = 1
	ExitUsage   = 2

	ExitPreempted   = 75
	ExitInterrupted = 130
)

// UsageError is an error in the flags, the arguments or the variables of a call.
type UsageError struct{ Err error }

// Error returns the text of Err.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e UsageError) Unwrap() error { return e.Err }

// Usage returns a UsageError whose text is formatted by [fmt.Errorf].
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ExitError is an exit code without a message: the job has reported the cause already.
type ExitError int

// Error returns a text with the code.
func (e ExitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// EndedBy returns the exit code for a signal that arrived before the job began, or
// while the command only followed the job.
func EndedBy(s os.Signal) ExitError {
	if s == os.Interrupt {
		return ExitInterrupted
	}
	return ExitPreempted
}

// UntilSignal calls fn with a context that ends when a signal arrives. The error is then
// the exit code for that signal.
func UntilSignal(ctx context.Context, signals <-chan os.Signal, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case s := <-signals:
			cancel(EndedBy(s))
		case <-done:
		}
	})
	err := fn(ctx)
	close(done)
	watch.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Call is one call of ditask.
type Call struct {
	Stdout io.Writer
	Stderr io.Writer
	Args   []string // the arguments after --, for the program
}

// Exit prints an error, one line for each fault, and returns the exit code.
func (c *Call) Exit(err error) int {
	if err == nil {
		return ExitSuccess
	}
	if code, ok := errors.AsType[ExitError](err); ok {
		return int(code)
	}
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		_, _ = fmt.Fprintf(c.Stderr, "ditask: %s\n", printable.Lines(line)) // there is no other place to report to
	}
	if _, ok := errors.AsType[UsageError](err); ok {
		return ExitUsage
	}
	return ExitFailure
}

// Warn writes a warning of the launcher, as a [Line].
func (c *Call) Warn(format, text string) {
	_, _ = c.Stderr.Write(Line(format, "WARN", text)) // there is no other place to report to
}

// Note writes information for the user, as a [Line].
func (c *Call) Note(format, text string, attrs ...slog.Attr) {
	_, _ = c.Stderr.Write(Line(format, "INFO", text, attrs...)) // there is no other place to report to
}

// maxLine bounds a Line in bytes: the last lines of a node that has failed, and more.
const maxLine = 64 << 10

// Line returns a line of the launcher, in the format of the job's log: text or json. With
// json it also has attrs, for programs; text must be complete without them. All lines of
// text but the first are indented.
func Line(format, level, text string, attrs ...slog.Attr) []byte {
	line := []byte("ditask: " + printable.Block(text, maxLine))
	if format == "json" {
		fields := map[string]any{"time": time.Now(), "level": level, "msg": text}
		for _, a := range attrs {
			fields[a.Key] = a.Value.Any()
		}
		b, err := json.Marshal(fields)
		if err != nil {
			return nil // texts, numbers and times have a form in JSON
		}
		line = printable.JSON(b)
	}
	return append(line, '\n')
}

// WriteJSON prints a value as indented JSON.
func (c *Call) WriteJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = c.Stdout.Write(append(printable.JSON(b), '\n'))
	return err
}

// NoArgs refuses arguments of a command that takes none.
func NoArgs(ctx *urfave.Context) error {
	if ctx.NArg() == 0 {
		return nil
	}
	return Usage("%s: unknown argument %q: see %s --help", ctx.Command.HelpName, ctx.Args().First(), ctx.Command.HelpName)
}
