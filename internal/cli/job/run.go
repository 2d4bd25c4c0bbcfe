// Package job runs a job: it computes a plan of nodes and hosts from flags and from the
// variables of Slurm and Kubernetes, and starts the nodes of the plan. It also has
// "ditask plan", which only prints the plan.
//
//	err := job.Run(c, ctx) // ctx has the values of flags.Job
//	cmd := job.PlanCommand(c)
//
// Run handles the process's signals while it runs, and returns when all nodes of this
// launcher have ended. It returns a [call.ExitError] if they were started: it has printed
// the report on them then. It reports wrong flags before it builds or starts anything.
package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/build"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/screen"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/slurm"
)

// How often nodes report their status, and how often the table of the nodes is drawn.
const (
	statusInterval = time.Second
	tableInterval  = 250 * time.Millisecond
)

// assignment is the work of this launcher, computed from flags and variables.
type assignment struct {
	at      place
	job     string
	cfg     launch.Config
	plan    placement.Plan // with a folder for sockets that does not exist yet
	metrics string         // the address to serve metrics on; empty: none
}

// assign reads the flags. The error joins all their faults, before anything is built
// or made.
func assign(ctx *urfave.Context) (a assignment, err error) {
	if a.at, err = placeOf(ctx); err != nil {
		return a, err
	}
	var faults [4]error
	a.cfg, faults[0] = configOf(ctx, &a.at)
	a.job, faults[1] = jobID(ctx, a.at)
	a.plan, faults[2] = planOf(ctx, a.at.site, a.job, launch.RunDirPattern(a.job))
	a.metrics, faults[3] = metricsAddress(ctx)
	if err := errors.Join(faults[:]...); err != nil {
		return a, err
	}
	if err := errors.Join(idle(ctx, a.plan), joined(ctx, a.at, a.plan)); err != nil {
		return a, err
	}
	if a.cfg.Env.SharedMemory, err = sharedMemory(ctx, a.plan, availableMemory); err != nil {
		return a, err
	}
	a.cfg.Env.Dir, err = runFolder(ctx, a.at, a.plan)
	return a, err
}

// caution writes the warnings of a job. Only the first launcher writes them.
func (c command) caution(a assignment) {
	if !a.at.first() {
		return
	}
	texts := cautions(a.cfg.Env, a.plan)
	if a.at.hint != "" {
		texts = append(texts, a.at.hint)
	}
	for _, text := range texts {
		c.Warn(a.cfg.Env.LogFormat, text)
	}
}

// command has the actions of one call.
type command struct {
	*call.Call
	view View // nil: a table of the nodes
}

// View returns the rows of a picture of a job, for a terminal of the given size: see [screen.Rows].
type View func(nodes []launch.State, columns, lines int) []string

// Run runs the job that the flags of ctx ask for.
func Run(of *call.Call, ctx *urfave.Context) error { return command{of, nil}.run(ctx) }

// RunView is Run with a picture of the job instead of the table of its nodes. The picture stays on the terminal at the end.
func RunView(of *call.Call, ctx *urfave.Context, view View) error { return command{of, view}.run(ctx) }

func (c command) run(ctx *urfave.Context) error {
	a, err := assign(ctx)
	if err != nil {
		return err
	}
	lock, err := c.lockFolder(a)
	if err != nil {
		return err
	}
	defer lock.Release()
	// A closed output pipe must not end the job: without this, a write to it would kill the
	// process. Nodes start with the signal's default action.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c.caution(a)
	c.logResumed(ctx, a)
	signals := make(chan os.Signal, 4) // as many as a person sends before looking
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if a.at.slurm != slurm.Outside {
		signal.Notify(signals, warnings()...)
	}
	// Until the end of the process: a late signal does not change its exit code.
	if a.at, err = a.at.located(ctx.Context); err != nil {
		return err
	}
	return c.start(ctx, a, signals)
}

// start builds the program, runs the checks that are common to all nodes, and launches.
func (c command) start(ctx *urfave.Context, a assignment, signals <-chan os.Signal) error {
	prog, err := build.FromFlags(ctx, signals)
	if err != nil {
		return err
	}
	defer prog.Release()
	runDir := launch.RunDirPattern(a.job)
	if needsRunDir(a.plan) {
		if runDir, err = launch.MakeRunDir(a.job); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(runDir) }()
	}
	cfg := a.cfg
	if cfg.Plan, err = planOf(ctx, a.at.site, a.job, runDir); err != nil {
		return err
	}
	cfg.Signals, cfg.Env.Main = signals, prog.Main
	cfg.Command = append([]string{prog.Path}, c.Args...)
	if cfg.Watcher, cfg.Farewell, err = helpers(); err != nil {
		return err
	}
	note := func(text string) { c.Warn(cfg.Env.LogFormat, text) }
	if err := call.UntilSignal(ctx.Context, signals, func(ctx context.Context) error { return preflight(ctx, cfg, note) }); err != nil {
		return err
	}
	if err := clearFolder(ctx, a); err != nil { // after all other checks: only starting can fail now
		return err
	}
	return c.launch(cfg, !ctx.Bool("no-table"), a.metrics, a.at.advice)
}

// WatchArgs returns the arguments of ditask as the watcher of a launcher: see
// [launch.Watch]. They are not a command for users.
func WatchArgs() []string { return []string{"watch-launcher"} }

// FarewellArgs returns the arguments of ditask as the process that announces the end of a node:
// see connect.Farewell in parallel/connect. They are not a command for users.
func FarewellArgs() []string { return []string{"say-farewell"} }

// helpers returns the command lines of this program as the watcher of a launcher, and as
// the process that announces the end of a node.
func helpers() (watcher, farewell []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find the program of ditask: %w", err)
	}
	return append([]string{self}, WatchArgs()...), append([]string{self}, FarewellArgs()...), nil
}

// needsRunDir reports whether a node of this launcher listens on a unix socket.
func needsRunDir(plan placement.Plan) bool {
	return slices.ContainsFunc(plan.Local(), func(n placement.Node) bool { return strings.HasPrefix(n.Listen, "unix://") })
}

// launch runs the nodes and reports the result. It serves metrics on metricsAddr, unless
// that is empty. advice returns a warning to print for a result, or "".
func (c command) launch(cfg launch.Config, table bool, metricsAddr string, advice func(launch.Result) string) error {
	s := screen.New(c.Stderr)
	size := screen.Terminal(c.Stderr)
	stdout, stderr := c.Stdout, s.Writer(c.Stderr)
	if screen.Terminal(c.Stdout) != nil { // a pipe or a file shows no table
		stdout = s.Writer(c.Stdout)
	}
	out := launch.NewStream(stderr, cfg.Env.LogFormat) // the launcher does not wait for a slow reader
	c = command{&call.Call{Stdout: c.Stdout, Stderr: out, Args: c.Args}, c.view}
	defer out.Flush(cfg.Signals)
	cfg.Stdout, cfg.Stderr, cfg.StatusInterval = launch.NewStream(stdout, cfg.Env.LogFormat), out, statusInterval
	table = table && size != nil && cfg.Env.LogFormat == "text"
	if table {
		cfg.StatusInterval = tableInterval
	}
	bus, err := serveBus(&cfg)
	if err != nil {
		return err
	}
	result := launch.Result{} // of a job that was not started
	defer func() { bus.close(result, cfg.Env.Grace, cfg.Signals) }()
	l, err := launch.New(cfg)
	if err != nil {
		return err
	}
	listener, err := listenMetrics(context.Background(), metricsAddr)
	if err != nil {
		return err
	}
	defer serveMetrics(listener, l, cfg.Stderr, cfg.Env.LogFormat)()
	stop := func() {}
	switch {
	case table && c.view != nil:
		stop = s.DrawRows(func(columns, lines int) []string { return c.view(l.Snapshot(), columns, lines) }, size, tableInterval, true)
	case table:
		stop = s.Draw(l.Snapshot, size, tableInterval)
	}
	result, err = l.Run(context.Background()) // ends by signals, which are forwarded
	stop()
	if err != nil {
		return err
	}
	return c.report(result, cfg.Env.LogFormat, advice)
}

// report writes the last line of the log of a job that has not succeeded.
func (c command) report(r launch.Result, format string, advice func(launch.Result) string) error {
	if text := advice(r); text != "" {
		c.Warn(format, text)
	}
	var text strings.Builder
	if err := r.Report(&text); err != nil {
		return err
	}
	if s := strings.TrimSpace(text.String()); s != "" {
		level, attrs := "INFO", []slog.Attr{slog.Int("code", r.ExitCode())}
		if r.First != nil {
			level, attrs = "ERROR", append(attrs, slog.Int("node", r.First.Cause))
		}
		_, _ = c.Stderr.Write(call.Line(format, level, s, attrs...)) // there is no other place to report to
	}
	return call.ExitError(r.ExitCode())
}
