package slurm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/internal/cli/flags"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
)

// The answers to an interrupt.
const (
	onInterruptAsk    = "ask"
	onInterruptCancel = "cancel"
	onInterruptLeave  = "leave"
)

// submitFlags returns the flags of a script, and those for following the job.
func submitFlags() []urfave.Flag {
	return append([]urfave.Flag{
		&urfave.PathFlag{Category: groupSlurm, Name: "script", Usage: "batch script `FILE` to submit, instead of a script from the flags"},
		&urfave.BoolFlag{Category: groupSlurm, Name: "no-follow", Usage: "print the job's number and do not wait for it"},
		flags.Text(groupSlurm, "on-interrupt", onInterruptAsk,
			"effect of Ctrl-C: ask (a second Ctrl-C within 3s cancels the job), cancel or leave"),
	}, scriptFlags()...)
}

// submit submits a batch script and follows the job to its end.
func (c command) submit(ctx *urfave.Context) error {
	if err := call.NoArgs(ctx); err != nil {
		return err
	}
	mode := ctx.String("on-interrupt")
	if !slices.Contains([]string{onInterruptAsk, onInterruptCancel, onInterruptLeave}, mode) {
		return call.Usage("--on-interrupt %q: want ask, cancel or leave", mode)
	}
	script, err := c.scriptToSubmit(ctx)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 4) // as many as a person sends before looking
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	job, err := submit(ctx.Context, script)
	if err != nil {
		return err
	}
	if ctx.Bool("no-follow") {
		_, err := fmt.Fprintln(c.Stdout, job)
		return err
	}
	f := &follower{c: c.Call, job: job, mode: mode, signals: signals, tails: map[string]*tail{}, last: map[string]jobState{}}
	defer f.close()
	return f.follow(ctx.Context)
}

// scriptToSubmit returns the given file, or a script from the flags. For the latter it
// makes the folder of the output.
func (c command) scriptToSubmit(ctx *urfave.Context) (string, error) {
	file := ctx.Path("script")
	if file == "" {
		script, err := c.batchScript(ctx)
		if err != nil {
			return "", err
		}
		if err := safefile.MkdirAll(ctx.Path("slurm-logs"), 0o755); err != nil {
			return "", fmt.Errorf("--slurm-logs: %w", err)
		}
		return script, nil
	}
	if ctx.String("package") != "" || len(c.Args) > 0 {
		return "", call.Usage("--script and --package: give one of them")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", call.Usage("--script: %w", err)
	}
	return string(b), nil
}

// maxSaid bounds in bytes the message of sbatch about a script that it refuses: some lines.
const maxSaid = 4 << 10

// submit gives the script to sbatch, and returns the number of the job.
func submit(ctx context.Context, script string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "sbatch", "--parsable")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(script), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("sbatch: %w: %s", err, printable.Block(strings.TrimSpace(stderr.String()), maxSaid))
	}
	job, _, _ := strings.Cut(strings.TrimSpace(stdout.String()), ";") // "12;cluster"
	if _, err := strconv.Atoi(job); err != nil {
		return "", fmt.Errorf("sbatch: no job number in %q", printable.Text(stdout.String()))
	}
	return job, nil
}
