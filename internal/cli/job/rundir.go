package job

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/parallel/rundir"
)

// again reports whether the platform may start this job more than once: Slurm has
// requeued it, or Kubernetes may replace its pod.
func (p place) again() bool {
	return p.restarts > 0 || p.pod != nil || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// runFolder chooses the folder of the run, the same on all launchers of the job. The
// launcher of node 0 refuses a folder that holds another run.
func runFolder(ctx *urfave.Context, at place, plan placement.Plan) (string, error) {
	local := plan.Local()
	decides := slices.ContainsFunc(local, func(n placement.Node) bool { return n.ID == 0 })
	r := rundir.Request{
		Dir: ctx.Path("dir"), Program: cmp.Or(ctx.String("run-name"), programName(ctx.String("package"))), Job: plan.Job, Now: time.Now(),
		Derived:   at.step != nil || at.pod != nil || plan.Expected != len(local),
		Resume:    ctx.Bool("resume"),
		Overwrite: ctx.Bool("overwrite"),
		Continued: !decides || at.again(),
	}
	if at.step != nil { // a requeued job writes to the same folder
		step := *at.step
		step.Restarts = 0
		r.Job = step.Job()
	}
	if r.Overwrite && at.restarts == 0 && at.again() {
		return "", call.Usage("--overwrite: a replaced pod would remove its own checkpoints: give another --dir")
	}
	dir, err := rundir.Choose(r)
	if err != nil {
		return "", call.UsageError{Err: err}
	}
	return filepath.Abs(dir)
}

// lockFolder locks the folder of the run against other jobs, until the lock is released. The
// launcher of node 0 locks it for the whole job. A restarted launcher may find a lock that a
// network file system has not freed yet; it prints a warning then.
func (c command) lockFolder(a assignment) (*rundir.Lock, error) {
	dir := a.cfg.Env.Dir
	if !slices.ContainsFunc(a.plan.Local(), func(n placement.Node) bool { return n.ID == 0 }) {
		return nil, nil
	}
	l, err := rundir.Take(dir, rundir.Self(a.plan.Job))
	_, held := errors.AsType[*rundir.HeldError](err)
	switch {
	case held && !a.at.again():
		return nil, call.UsageError{Err: err}
	case err != nil && writable(dir) == nil: // preflight reports a folder that is not writable
		c.Warn(a.cfg.Env.LogFormat, fmt.Sprintf("the run folder is not locked: %v: do not start another job in it", err))
	}
	return l, nil
}

// clearFolder removes the run that --overwrite replaces. A requeued job keeps its run.
func clearFolder(ctx *urfave.Context, a assignment) error {
	if !ctx.Bool("overwrite") || a.at.again() || !slices.ContainsFunc(a.plan.Local(), func(n placement.Node) bool { return n.ID == 0 }) {
		return nil
	}
	return rundir.Clear(a.cfg.Env.Dir)
}

// logResumed prints the run that is resumed, unless the user has named it.
func (c command) logResumed(ctx *urfave.Context, a assignment) {
	if dir := a.cfg.Env.Dir; a.cfg.Env.Resume && ctx.Path("dir") == "" && a.at.first() {
		c.Note(a.cfg.Env.LogFormat, "resuming the newest run, "+printable.Cut(dir, 4<<10), slog.String("dir", dir))
	}
}

// programName returns the name of --package in the folder of its runs.
func programName(pkg string) string {
	if pkg == "main" {
		pkg = "."
	}
	if _, err := os.Stat(pkg); err == nil {
		if abs, err := filepath.Abs(pkg); err == nil {
			return strings.TrimSuffix(filepath.Base(abs), ".exe")
		}
	}
	return path.Base(pkg)
}
