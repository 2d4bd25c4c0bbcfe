package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/train"
)

// withProcesses trains with several processes until the threshold, one job after the other, and prints the rows. Presets
// whose published runs do not reach the threshold are left out.
func withProcesses(ctx context.Context, presets []train.Preset, seeds uint64, nodes int, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "results-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, pkg := range []string{"ditask", "internal/results"} {
		out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, filepath.Base(pkg)), "./"+pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	fmt.Fprint(stdout, "| preset | mean ± deviation of the returns that ended the runs | each seed | threshold: env steps behind these "+
		"weights | "+
		"CPU seconds of a run |\n|---|---|---|---|---|\n")
	for i := range presets {
		p := &presets[i]
		if p.Unsolved {
			continue
		}
		var all []record
		for seed := uint64(1); seed <= seeds; seed++ {
			cmd := exec.CommandContext(ctx, filepath.Join(dir, "ditask"), "--package", filepath.Join(dir, "results"),
				"--parallel-workers", strconv.Itoa(nodes), "--seed", strconv.FormatUint(seed, 10), "--dir", filepath.Join(dir,
					"run"), "--overwrite", "--", p.Name)
			r, err := resultOf(cmd)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", p.Name, seed, err)
			}
			all = append(all, r)
		}
		row := rowOf(p, all)
		fmt.Fprintf(stdout, "| `%s` | %s | %s | %s: %s | %s |\n", p.Name, row.Ours, row.Each, row.Threshold, row.EachSteps, row.CPU)
	}
	return nil
}

// resultOf runs a command that trains once.
func resultOf(cmd *exec.Cmd) (r record, err error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, tail(out))
	}
	r.CPUSeconds = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	for line := range strings.Lines(string(out)) {
		if _, text, ok := strings.Cut(line, reached); ok {
			_, err = fmt.Sscan(text, &r.Return, &r.EnvSteps)
			return r, err
		}
	}
	return r, fmt.Errorf("no result was printed\n%s", tail(out))
}

// tail returns the end of an output, for an error.
func tail(out []byte) []byte { return out[max(0, len(out)-4000):] }

// play runs in each process of a job, until 100 greedy episodes reach the threshold.
func play(ctx context.Context, node *parallel.Node) error {
	p, err := train.FindPreset(os.Args[1])
	if err != nil {
		return err
	}
	c, err := config(p, fmt.Sprint("seed=", node.JobSeed()), fmt.Sprint("until=", p.Threshold))
	if err == nil {
		err = c.Set("eval_every", strconv.Itoa(max(1000, c.Steps()/50)), "results")
	}
	if err != nil {
		return err
	}
	c.Extend(2 * c.Steps()) // other processes are at times behind
	var best *rl.Best
	if err := c.Run(ctx, node, train.Output{Done: func(c *rl.Online) { best = c.Best }}); err != nil || node.ID() != 0 {
		return err
	}
	if best == nil || !best.Reached {
		return errors.New("the threshold was not reached")
	}
	fmt.Println(reached, best.Mean, best.EnvSteps)
	return nil
}
