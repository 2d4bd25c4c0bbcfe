package slurm

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/cli/quote"
)

// scriptFlags returns the flags of a batch script: those of Slurm, under Slurm's names,
// and those of the job.
func scriptFlags() []urfave.Flag {
	return append([]urfave.Flag{
		&urfave.IntFlag{Category: groupSlurm, Name: "nodes",
			Usage: "number of hosts, which Slurm calls nodes (default: the number that the tasks need)", DefaultText: "none"},
		&urfave.IntFlag{Category: groupSlurm, Name: "ntasks", Value: 1, Usage: "number of tasks, each of which runs a launcher"},
		&urfave.IntFlag{Category: groupSlurm, Name: "ntasks-per-node", Usage: "number of tasks on each host", DefaultText: "none"},
		&urfave.IntFlag{Category: groupSlurm, Name: "cpus-per-task", Usage: "number of processors for each task", DefaultText: "none"},
		flags.Text(groupSlurm, "time", "", "`LIMIT` of time, such as 30 (minutes), 2:00:00 or 1-12 (days-hours)"),
		flags.Text(groupSlurm, "partition", "", "`PARTITION` to run in"),
		flags.Text(groupSlurm, "account", "", "`ACCOUNT` to charge"),
		flags.Text(groupSlurm, "gres", "", "`RESOURCES` on each host, such as gpu:2"),
		flags.Text(groupSlurm, "array", "", "`NUMBERS` of an array of such jobs, such as 1-4"),
		flags.Text(groupSlurm, "job-name", "", "`NAME` of the job (default: that of the package)"),
		&urfave.BoolFlag{Category: groupSlurm, Name: "requeue",
			Usage: "queue the job again after preemption or the failure of a host; it then resumes"},
		flags.Text(groupSlurm, "signal", "",
			"`SIGNAL` on which the nodes save and end, and the number of seconds before the time limit (default: USR1@60 with --time)"),
		&urfave.PathFlag{Category: groupSlurm, Name: "slurm-logs", Value: "logs", Usage: "`FOLDER` for the output of the job"},
		&urfave.StringSliceFlag{Category: groupSlurm, Name: "sbatch",
			Usage: "further `OPTION` of sbatch, such as --sbatch=--exclusive; may be given several times"},
	}, flags.Job()...)
}

// script prints a batch script.
func (c command) script(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	script, err := c.batchScript(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.Stdout, script)
	return err
}

// batch is the data of a batch script.
type batch struct {
	name       string
	directives []string // without #SBATCH
	srun       []string // options of srun
	build      []string // the command that builds the program, without the file
	ditask     []string // the command in each task, without program and folder
	dir        string   // the folder of the job's files, in shell; empty: one for each job
	args       []string // of the program
	trap       string   // the signal that Slurm sends only to the batch script; empty: none
	requeue    bool
	array      bool
	ownToken   bool     // the user provides the token
	variables  []string // that must be set for sbatch, as their values may be secrets
}

// batchScript returns the script that the flags describe.
func (c command) batchScript(ctx *urfave.Context) (string, error) {
	if err := checkScript(ctx); err != nil {
		return "", call.UsageError{Err: err}
	}
	pkg := ctx.String("package")
	b := batch{
		name: cmp.Or(ctx.String("job-name"), nameOf(pkg)), dir: ctx.Path("dir"), args: c.Args, requeue: ctx.Bool("requeue"),
		array:    ctx.String("array") != "",
		ownToken: ctx.IsSet("token-file"),
	}
	for _, g := range flags.GuardedOf(ctx) {
		if !g.ByFlag && g.Name != "token" { // the script inherits a token, or makes one
			b.variables = append(b.variables, g.Variable)
		}
	}
	self := ownCommand()
	if info, err := os.Stat(pkg); err == nil && !info.IsDir() {
		b.ditask = []string{self, "--package", pkg}
	} else {
		b.build = []string{self, "build", "--package", pkg}
		if m := ctx.String("main"); m != "" {
			b.build = append(b.build, "--main", m)
		}
		b.ditask = []string{self}
	}
	b.ditask = append(b.ditask, "--platform", "slurm")
	b.slurmOptions(ctx)
	b.jobOptions(ctx)
	return b.text(), nil
}

// checkScript joins all faults of the flags.
func checkScript(ctx *urfave.Context) error {
	var faults []error
	if ctx.String("package") == "" {
		faults = append(faults, errors.New("--package is missing: give a folder or import path, the word main, or a built program"))
	}
	for _, name := range []string{"nodes", "ntasks", "ntasks-per-node", "cpus-per-task"} {
		if ctx.IsSet(name) && ctx.Int(name) < 1 {
			faults = append(faults, fmt.Errorf("--%s %d: want at least 1", name, ctx.Int(name)))
		}
	}
	faults = append(faults, checkDirectives(ctx)...)
	if s := ctx.String("signal"); s != "" && !regexp.MustCompile(`^(B:)?USR[12]@\d+$`).MatchString(s) {
		faults = append(faults,
			fmt.Errorf("--signal %q: want USR1@60, or B:USR1@60 to signal only the script: USR1 or USR2, and how many seconds before the end", s))
	}
	faults = append(faults, flags.Idle(ctx)...)
	if ctx.IsSet("local_rank") {
		faults = append(faults, errors.New("--local_rank: Slurm gives each task its number: leave --local_rank out"))
	}
	if p := flags.Platform(ctx); p != "" && p != "slurm" {
		faults = append(faults, fmt.Errorf("--platform %q: want slurm, or leave it out", p))
	}
	for _, g := range flags.GuardedOf(ctx) {
		if !g.Secret || !g.ByFlag {
			continue
		}
		what := "set " + g.Variable + " for sbatch instead, which passes it to the job"
		switch {
		case g.Name == "token":
			what = "leave it out, and the script makes a token for each job; or give --token-file"
		case !strings.HasSuffix(g.Name, "-url"):
			what = "give the path of a file"
		}
		faults = append(faults, fmt.Errorf("%v: a script must not contain a secret: %s", g, what))
	}
	return errors.Join(faults...)
}

// jobName matches the names of jobs: the folder and the output file of a job contain its name.
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// nameOf returns the default name of a job that runs a package.
func nameOf(pkg string) string {
	if abs, err := filepath.Abs(pkg); err == nil {
		pkg = abs
	}
	name := regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(filepath.Base(pkg), "-")
	if !jobName.MatchString(name) {
		name = "job-" + name[:min(len(name), 96)]
	}
	return name
}

// checkDirectives checks the texts of the #SBATCH lines.
func checkDirectives(ctx *urfave.Context) (faults []error) {
	for _, name := range []string{"time", "partition", "account", "gres", "array", "slurm-logs"} {
		if err := quote.CheckDirective(ctx.String(name)); err != nil {
			faults = append(faults, fmt.Errorf("--%s %w", name, err))
		}
	}
	if name := ctx.String("job-name"); name != "" && !jobName.MatchString(name) {
		faults = append(faults,
			fmt.Errorf("--job-name %q: want at most 100 letters, digits, dots, underscores and hyphens, the first a letter or digit", name))
	}
	for _, v := range ctx.StringSlice("sbatch") {
		if err := quote.CheckDirective(v); err != nil {
			faults = append(faults, fmt.Errorf("--sbatch %w; several options need one --sbatch each", err))
		} else if !strings.HasPrefix(v, "-") {
			faults = append(faults, fmt.Errorf("--sbatch %q: want an option of sbatch, such as --exclusive", v))
		}
	}
	return faults
}

// ownCommand returns the command of ditask in the script: its name if PATH finds this
// program, or else its path.
func ownCommand() string {
	self, err := os.Executable()
	if err != nil {
		return "ditask"
	}
	if found, err := exec.LookPath("ditask"); err == nil {
		a, err1 := os.Stat(found)
		b, err2 := os.Stat(self)
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			return "ditask"
		}
	}
	return self
}

// slurmOptions adds the flags of Slurm.
func (b *batch) slurmOptions(ctx *urfave.Context) {
	add := func(format string, args ...any) { b.directives = append(b.directives, fmt.Sprintf(format, args...)) }
	add("--job-name=%s", b.name)
	for _, name := range []string{"nodes", "ntasks", "ntasks-per-node", "cpus-per-task"} {
		if n := ctx.Int(name); n > 0 {
			add("--%s=%d", name, n)
		}
	}
	for _, name := range []string{"time", "partition", "account", "gres", "array"} {
		if v := ctx.String(name); v != "" {
			add("--%s=%s", name, v)
		}
	}
	file := "%x-%j.out"
	if ctx.String("array") != "" {
		file = "%x-%A_%a.out"
	}
	add("--output=%s", filepath.Join(ctx.Path("slurm-logs"), file))
	if b.requeue {
		add("--requeue")
		add("--open-mode=append")
	}
	signal := ctx.String("signal")
	if signal == "" && ctx.String("time") != "" {
		signal = "USR1@60"
	}
	if signal != "" {
		add("--signal=%s", signal)
		if s, shell := strings.CutPrefix(signal, "B:"); shell {
			b.trap, _, _ = strings.Cut(s, "@")
		}
	}
	b.directives = append(b.directives, ctx.StringSlice("sbatch")...)
	// Nodes end together: a task that still runs long after the first has ended hangs.
	if ctx.String("topology") != "alone" {
		b.srun = append(b.srun, fmt.Sprintf("--wait=%d", int((ctx.Duration("grace")+20*time.Second)/time.Second)))
	}
	if ctx.Int("cpus-per-task") > 0 { // srun does not inherit it from sbatch
		b.srun = append(b.srun, "--cpus-per-task="+strconv.Itoa(ctx.Int("cpus-per-task")))
	}
}

// jobOptions adds the given flags of the job.
func (b *batch) jobOptions(ctx *urfave.Context) {
	b.ditask = append(b.ditask, flags.Given(ctx, "package", "dir", "platform", "token")...)
}

// text returns the script.
func (b *batch) text() string {
	var s strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&s, format+"\n", args...) }
	line("#!/bin/bash")
	line("# Written by ditask slurm script. sbatch submits it; Slurm does not make the folder of --output.")
	for _, d := range b.directives {
		line("#SBATCH %s", d)
	}
	line("set -euo pipefail")
	for i, name := range b.variables {
		if i == 0 {
			line("\n# Secrets, which a script must not contain: sbatch and srun pass them on.")
		}
		line(`: "${%s:?was set when this script was written: set it for sbatch}"`, name)
	}
	if !b.ownToken {
		line("\n# The secret of this job's tasks; srun passes it on to them.")
		line(`export DITASK_TOKEN="${DITASK_TOKEN:-$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')}"`)
	}
	line("\n# The folder of the job's files. A requeued job finds its checkpoints there.")
	switch {
	case b.dir != "" && b.array:
		line(`dir=%s/"$SLURM_ARRAY_TASK_ID"`, quote.Shell(strings.TrimSuffix(b.dir, "/")))
	case b.dir != "":
		line("dir=%s", quote.Shell(b.dir))
	default:
		line(`dir=%s"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"`, quote.Shell("runs/"+b.name+"-"))
	}
	line(`mkdir -p -- "$dir"`)
	command := quote.Shell(b.ditask...)
	if b.build != nil {
		line("\n# Built once, before the tasks start; a requeued job runs the same program again.")
		line(`[ -x "$dir/program" ] || %s --output "$dir/program"`, quote.Shell(b.build...))
		command = quote.Shell(b.ditask[0]) + ` --package "$dir/program" ` + quote.Shell(b.ditask[1:]...)
	}
	command += ` --dir "$dir"`
	if len(b.args) > 0 {
		command += " -- " + quote.Shell(b.args...)
	}
	b.steps(line, strings.Join(append([]string{"srun", "--export=ALL"}, b.srun...), " ")+" \\\n  "+command)
	if b.requeue {
		line("\n# 75: the nodes were preempted and have saved. The job is queued again and resumes. Slurm then")
		line("# kills this script, which waits for that: if it exited first, the job would be over.")
		line(`if [ "$code" = 75 ] && scontrol requeue "$SLURM_JOB_ID"; then sleep 60; fi`)
	}
	line(`exit "$code"`)
	return s.String()
}

// steps writes the call of srun.
func (b *batch) steps(line func(string, ...any), srun string) {
	if b.trap == "" {
		line("\ncode=0\n%s || code=$?", srun)
		return
	}
	line("\n# Slurm signals only this script; srun forwards the signal to the tasks.")
	line("%s &", srun)
	line("tasks=$!")
	line(`trap 'kill -%[1]s "$tasks"' %[1]s`, b.trap)
	line("# A signal ends wait with 128 plus its number, while the tasks still run.")
	line(`while code=0; wait "$tasks" || code=$?; [ "$code" -gt 128 ] && kill -0 "$tasks" 2>/dev/null; do :; done`)
}
