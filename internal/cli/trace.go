package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/build"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/internal/traceview"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/trace"
)

// pictured is the default number of messages in a picture.
const pictured = 400

// traceCommand returns the commands for records of --trace.
func (c command) traceCommand() *urfave.Command {
	filter := []urfave.Flag{
		&urfave.StringFlag{Name: "event", Usage: "only events whose name matches `GLOB`"},
		&urfave.IntSliceFlag{Name: "node", Usage: "only what node `N` sends or receives; may be given more than once"},
		&urfave.DurationFlag{Name: "since", Usage: "only messages from this time after the beginning, such as 1.5s"},
		&urfave.DurationFlag{Name: "until", DefaultText: "the end", Usage: "only messages up to this time after the beginning"},
	}
	const where = "FOLDER or FILES"
	cmds := []*urfave.Command{
		{Name: "show", Usage: "print the recorded messages: time, sender, receiver and event", ArgsUsage: where, Flags: filter,
			Action: c.traceShow},
		{
			Name: "svg", Usage: "draw the recorded messages as a picture for a browser", ArgsUsage: where, Action: c.traceSVG,
			Flags: slices.Concat(filter, []urfave.Flag{
				&urfave.PathFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` to write (default: standard output)"},
				&urfave.IntFlag{Name: "limit", Value: pictured, Usage: "number of messages to draw, the first ones"},
			}),
		},
		{
			Name: "replay", Usage: "run one node alone, with the messages that it had received", ArgsUsage: where, Action: c.traceReplay,
			Description: "The node receives the messages of its record, in the same order and with the same pauses. Its own\n" +
				"events are discarded. The replay does not reproduce the time, unseeded random numbers, checkpoints, and the\n" +
				"interleaving of steps and events. Arguments after -- are those of the program (default: the recorded ones).",
			Flags: []urfave.Flag{
				flags.Text("", "package", "", "`PACKAGE` to run: the program that was recorded", "p"),
				flags.Text("", "main", "", "`FUNC` to run (default: the one recorded)", "m"),
				&urfave.IntFlag{Name: "node", Value: -1, DefaultText: "the only one", Usage: "id of the node"},
				&urfave.IntFlag{Name: "attempt", Value: -1, DefaultText: "the last", Usage: "start of the node: 0 is the first"},
				&urfave.BoolFlag{Name: "fast", Usage: "without the pauses of the record"},
				&urfave.PathFlag{Name: "dir", Usage: "`FOLDER` for what the node writes (default: one that is removed)"},
				&urfave.BoolFlag{Name: "print-env", Usage: "print the environment for a debugger, and run nothing"},
			},
		},
	}
	return &urfave.Command{
		Name: "trace", Usage: "show, draw or replay the records of a job with --trace", Subcommands: cmds,
		Action: func(ctx *urfave.Context) error {
			return call.Usage("%s: want show, svg or replay: see ditask trace --help", strings.TrimSpace("ditask trace "+ctx.Args().First()))
		},
	}
}

// traceFiles returns the files that the arguments name.
func traceFiles(ctx *urfave.Context) ([]string, error) {
	if ctx.NArg() == 0 {
		return nil, call.Usage("ditask trace %s: no trace is given: give the folder of --trace, or files in it", ctx.Command.Name)
	}
	files, err := traceview.Files(ctx.Args().Slice())
	if err != nil {
		return nil, call.UsageError{Err: err}
	}
	return files, nil
}

func traceView(ctx *urfave.Context) (*traceview.View, error) {
	files, err := traceFiles(ctx)
	if err != nil {
		return nil, err
	}
	f := traceview.Filter{Event: ctx.String("event"), Since: ctx.Duration("since"), Until: ctx.Duration("until")}
	if ctx.IsSet("node") {
		f.Nodes = ctx.IntSlice("node")
	}
	return traceview.Load(files, f)
}

func (c command) traceShow(ctx *urfave.Context) error {
	v, err := traceView(ctx)
	if err != nil {
		return err
	}
	return v.Text(c.Stdout)
}

func (c command) traceSVG(ctx *urfave.Context) error {
	if n := ctx.Int("limit"); n < 1 {
		return call.Usage("--limit %d: want at least 1", n)
	}
	v, err := traceView(ctx)
	if err != nil {
		return err
	}
	out := ctx.Path("output")
	if out == "" {
		return v.SVG(c.Stdout, ctx.Int("limit"))
	}
	file, err := safefile.Truncate(out, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(v.SVG(file, ctx.Int("limit")), file.Close())
}

// recorded finds the file of the node that the flags select.
func recorded(ctx *urfave.Context) (string, trace.Head, error) {
	files, err := traceFiles(ctx)
	if err != nil {
		return "", trace.Head{}, err
	}
	var found string
	var head trace.Head
	var have []string
	for _, name := range files {
		h, err := headOf(name)
		if err != nil {
			return "", head, fmt.Errorf("%s: %w", printable.Text(name), printable.Error(err))
		}
		have = append(have, fmt.Sprintf("node %d, attempt %d", h.Node, h.Attempt))
		if n := ctx.Int("node"); n >= 0 && h.Node != n {
			continue
		}
		if n := ctx.Int("attempt"); n >= 0 && h.Attempt != n {
			continue
		}
		if found != "" && head.Node != h.Node {
			return "", head, call.Usage("--node is missing: give the node to replay; the trace has %s", strings.Join(have, "; "))
		}
		if found == "" || h.Attempt > head.Attempt {
			found, head = name, h
		}
	}
	if found == "" {
		return "", head, call.Usage("the trace has no such node: it has %s", strings.Join(have, "; "))
	}
	found, err = filepath.Abs(found)
	return found, head, err
}

func headOf(name string) (trace.Head, error) {
	file, err := os.Open(name)
	if err != nil {
		return trace.Head{}, err
	}
	defer func() { _ = file.Close() }()
	rec, err := trace.NewReader(file).Next()
	switch {
	case errors.Is(err, io.EOF), err == nil && rec.Head == nil:
		return trace.Head{}, errors.New("the trace is empty")
	case err != nil:
		return trace.Head{}, err
	}
	return *rec.Head, nil
}

// traceReplay runs one node alone.
func (c command) traceReplay(ctx *urfave.Context) error {
	name, head, err := recorded(ctx)
	if err != nil {
		return err
	}
	env := control.Env{
		JobID: head.Job, NodeID: head.Node, LocalID: head.LocalID, Nodes: head.Nodes, Topology: head.Topology, Labels: head.Labels,
		Attempt: head.Attempt, Incarnation: head.Incarnation, Seed: head.Seed, Continue: head.Resume, AutoRecover: head.Recover,
		Main: cmp.Or(ctx.String("main"), head.Main), Dir: ctx.Path("dir"), Replay: name, ReplayFast: ctx.Bool("fast"),
	}
	if ctx.Bool("print-env") {
		for _, kv := range env.Encode() {
			k, v, _ := strings.Cut(kv, "=")
			if !printable.Is(v) { // it could control the terminal
				return fmt.Errorf("--print-env: %s=%q of the trace is not printable", k, printable.Text(v))
			}
			_, _ = fmt.Fprintf(c.Stdout, "export %s='%s'\n", k, strings.ReplaceAll(v, "'", `'\''`)) // there is no other place to report to
		}
		return nil
	}
	signals := make(chan os.Signal, 4) // as many as a person sends before looking
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	prog, err := build.FromFlags(ctx, signals)
	if err != nil {
		return err
	}
	defer prog.Release()
	if env.Dir == "" {
		if env.Dir, err = os.MkdirTemp("", "ditask-replay-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(env.Dir) }()
	}
	if env.Dir, err = filepath.Abs(env.Dir); err != nil {
		return err
	}
	env.Main = cmp.Or(prog.Main, env.Main)
	args := c.Args
	if len(args) == 0 {
		args = head.Args
	}
	_, _ = fmt.Fprintf(c.Stderr, "ditask: replay of node %d, attempt %d, of job %s\n", // there is no other place to report to
		head.Node, head.Attempt, printable.Text(head.Job))
	cmd := exec.Command(prog.Path, args...) //nolint:noctx // it ends by itself, or by signals
	cmd.Env = slices.Concat(control.Strip(os.Environ()), env.Encode())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.Stdout, c.Stderr
	return runAlone(cmd, signals)
}

// runAlone runs cmd to its end and returns its exit code. A terminal interrupts both
// processes; runAlone forwards other signals.
func runAlone(cmd *exec.Cmd, signals <-chan os.Signal) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1) // one result
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != os.Interrupt {
				_ = cmd.Process.Signal(s) // it may have ended just now
			}
		case err := <-ended:
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok {
				return err
			}
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				return call.ExitError(128 + int(ws.Signal()))
			}
			return call.ExitError(exit.ExitCode())
		}
	}
}
