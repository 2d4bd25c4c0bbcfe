package train

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/train"
)

// maxSeeds bounds the runs of one command.
const maxSeeds = 1000

// oneRun is a run of --seeds.
type oneRun struct {
	seed   int
	dir    string
	took   time.Duration
	err    error
	output []byte // the end of the output
	best   *rl.Best

	reports reports
	mu      sync.Mutex // guards the fields below
	phase   phase
	began   time.Time
}

// phase is the progress of a run of --seeds.
type phase uint8

const (
	waiting phase = iota
	running
	done
	failed
)

// note records the phase of the run, for the live picture.
func (r *oneRun) note(p phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase = p; p == running {
		r.began = time.Now()
	}
}

// seeds trains with n successive seeds, each in a separate process and folder, and prints a table at the end.
func (c command) seeds(ctx *urfave.Context, cfg *train.Config, n int, viewing view) error {
	switch {
	case n < 1 || n > maxSeeds:
		return call.Usage("--seeds %d: want 1 to %d", n, maxSeeds)
	case ctx.String("resume") != "":
		return call.Usage("--seeds: --resume continues one run: resume the runs one by one")
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the program of ditask: %w", err)
	}
	dir := c.folder(ctx, cfg)
	if dir == "" {
		return call.Usage("--seeds: this job has several launchers: start one for each seed")
	}
	dir = strings.TrimSuffix(dir, string(filepath.Separator))
	signals, stop := signal.NotifyContext(ctx.Context, os.Interrupt, syscall.SIGTERM)
	defer stop()
	runs, args := make([]oneRun, n), make([][]string, n)
	for i := range runs {
		r := &runs[i]
		r.seed = cfg.Seed() + i
		r.dir = filepath.Join(dir, fmt.Sprintf("seed-%d", r.seed))
		if args[i], err = c.seedArgs(ctx, cfg, r); err != nil {
			return err
		}
	}
	stdout, unwatch := c.Stdout, func() {}
	if viewing.mode == viewLive {
		if stdout, unwatch, err = c.watchSeeds(cfg, runs, args); err != nil {
			return err
		}
	}
	atOnce := max(1, runtime.GOMAXPROCS(0)/max(ctx.Int("parallel-workers"), 1))
	places := make(chan struct{}, atOnce)
	var said sync.Mutex
	var all sync.WaitGroup
	for i := range runs {
		r := &runs[i]
		all.Go(func() {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-signals.Done():
				r.err = context.Cause(signals)
				return
			}
			r.run(signals, self, args[i])
			said.Lock()
			defer said.Unlock()
			_, _ = fmt.Fprintln(stdout, r.line()) // the table repeats it
		})
	}
	all.Wait()
	unwatch()
	return c.report(runs, signals.Err() != nil)
}

// seedArgs returns the arguments of one run.
func (c command) seedArgs(ctx *urfave.Context, cfg *train.Config, r *oneRun) ([]string, error) {
	args, err := c.nodeArgs(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for i := range args {
		if args[i] == "--seed" {
			args[i+1] = strconv.Itoa(r.seed)
			break
		}
	}
	args = append(args, "--dir", r.dir, "--no-table")
	if ctx.IsSet("parallel-workers") {
		args = append(args, "--parallel-workers", strconv.Itoa(ctx.Int("parallel-workers")))
	}
	if ctx.Bool("overwrite") {
		args = append(args, "--overwrite")
	}
	return args, nil
}

// endOfOutput is how much of a run's output is kept for an error.
const endOfOutput = 4 << 10

// run runs the training. It forwards the signals of this process; the run then ends within its grace period.
func (r *oneRun) run(ctx context.Context, self string, args []string) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	r.note(running)
	r.err = cmd.Run()
	defer func() {
		if r.err != nil {
			r.note(failed)
			return
		}
		r.note(done)
	}()
	r.took = time.Since(began)
	r.output = out.Bytes()[max(0, out.Len()-endOfOutput):]
	if r.err == nil {
		r.best, r.err = rl.LoadBest(r.dir)
	}
}

// line returns the row of the table.
func (r *oneRun) line() string {
	row := fmt.Sprintf("seed %-4d %8v  ", r.seed, r.took.Round(100*time.Millisecond))
	switch {
	case r.err != nil:
		return row + "failed: " + r.err.Error()
	case r.best == nil:
		return row + "no evaluation"
	}
	return row + fmt.Sprintf("best %8.1f ± %-6.1f at %d env steps  %s", r.best.Mean, r.best.Std, r.best.EnvSteps, r.dir)
}

// report prints the failures, and the mean over the other runs.
func (c command) report(runs []oneRun, stopped bool) error {
	w := bufio.NewWriter(c.Stdout)
	var sum, squares float64
	n, lost := 0.0, 0
	for i := range runs {
		r := &runs[i]
		if r.err != nil {
			lost++
			fmt.Fprintf(w, "\nseed %d failed: %v; its last output:\n%s", r.seed, r.err, r.output)
			continue
		}
		if r.best != nil {
			n++
			sum, squares = sum+r.best.Mean, squares+r.best.Mean*r.best.Mean
		}
	}
	if n > 0 {
		mean := sum / n
		fmt.Fprintf(w, "best evaluations of %.0f seeds: %.1f ± %.1f\n", n, mean, math.Sqrt(max(squares/n-mean*mean, 0)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	switch {
	case stopped:
		return call.ExitError(call.ExitPreempted)
	case lost > 0:
		return errors.New(strconv.Itoa(lost) + " of " + strconv.Itoa(len(runs)) + " seeds failed")
	}
	return nil
}
