// Results trains with published settings and prints what was reached, as rows of docs/results.md.
//
//	go run ./internal/results                          every preset with seeds 1 to 5
//	go run ./internal/results -seeds 2 ppo/CartPole    those whose names begin so
//	go run ./internal/results -at-once 2               two runs at a time
//	go run ./internal/results -nodes 4 ppo/CartPole    until the threshold, with a learner, an evaluator and two collectors;
//	                                                   without those that others have not solved either
//
// With more than one node it runs itself through ditask, one job for each seed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
	"github.com/ditask/ditask/train"
)

// window is the number of episodes whose mean return counts.
const window = 100

func main() {
	if os.Getenv(control.VarNodeID) != "" { // a process of a job
		parallel.Main(play)
	}
	seeds := flag.Uint64("seeds", 5, "runs of each preset")
	nodes := flag.Int("nodes", 1, "processes of a run")
	atOnce := flag.Int("at-once", 1, "runs at a time")
	one := flag.Uint64("one", 0, "train once with this seed, and print the result alone")
	flag.Parse()
	prefixes := flag.Args()
	if len(prefixes) == 0 {
		prefixes = []string{""}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *one > 0 {
		err = alone(ctx, prefixes[0], *one)
	} else {
		err = all(ctx, prefixes, *seeds, *nodes, max(*atOnce, 1))
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func all(ctx context.Context, prefixes []string, seeds uint64, nodes, atOnce int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := func(ctx context.Context, p *train.Preset, seed uint64) (result, error) {
		return resultOf(exec.CommandContext(ctx, self, "-one", strconv.FormatUint(seed, 10), p.Name))
	}
	if nodes > 1 {
		dir, err := os.MkdirTemp("", "results-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		for _, pkg := range []string{"ditask", "internal/results"} {
			out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, filepath.Base(pkg)), "./"+pkg).CombinedOutput()
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
			}
		}
		run = func(ctx context.Context, p *train.Preset, seed uint64) (result, error) {
			return resultOf(exec.CommandContext(ctx, filepath.Join(dir, "ditask"), "--package", filepath.Join(dir, "results"),
				"--parallel-workers", strconv.Itoa(nodes), "--seed", strconv.FormatUint(seed, 10), "--dir", filepath.Join(dir, "run"), "--overwrite", "--", p.Name))
		}
	}
	places := make(chan struct{}, atOnce)
	fmt.Println("| preset | published | mean ± deviation | each seed | env steps until the mean of 100 episodes is the threshold | CPU seconds of a run |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, prefix := range prefixes {
		found, err := train.FindPresets(prefix)
		if err != nil {
			return err
		}
		for i := range found {
			if nodes > 1 && found[i].Unsolved {
				continue
			}
			if err := row(ctx, run, &found[i], seeds, places); err != nil {
				return err
			}
		}
	}
	return nil
}

// result is what one run has reached.
type result struct {
	mean   float64
	solved int           // env steps until the threshold; 0: it was not reached
	took   time.Duration // of processors
}

// resultOf runs a command that trains once.
func resultOf(cmd *exec.Cmd) (r result, err error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, out)
	}
	r.took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	for line := range strings.Lines(string(out)) {
		if _, text, ok := strings.Cut(line, reached); ok {
			_, err = fmt.Sscan(text, &r.mean, &r.solved)
			return r, err
		}
	}
	return r, fmt.Errorf("no result was printed\n%s", out)
}

// reached begins the line with the result of one run: its mean return, and the env steps until the threshold.
const reached = "reached: "

// row prints what all seeds of a preset have reached. As many runs go on at a time as places has room for.
func row(ctx context.Context, run func(context.Context, *train.Preset, uint64) (result, error), p *train.Preset, seeds uint64, places chan struct{}) error {
	results, faults := make([]result, seeds), make([]error, seeds)
	var running sync.WaitGroup
	for i := range results {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			if results[i], faults[i] = run(ctx, p, uint64(i)+1); faults[i] != nil { //nolint:gosec // not negative
				faults[i] = fmt.Errorf("%s, seed %d: %w", p.Name, i+1, faults[i])
			}
		})
	}
	running.Wait()
	if err := errors.Join(faults...); err != nil {
		return err
	}
	var sum, squares float64
	var each, solved, took []string
	for _, r := range results {
		sum, squares = sum+r.mean, squares+r.mean*r.mean
		each, took = append(each, number(r.mean)), append(took, fmt.Sprintf("%.1f", r.took.Seconds()))
		steps := "-"
		if r.solved > 0 {
			steps = strconv.Itoa(r.solved)
		}
		solved = append(solved, steps)
	}
	n := float64(seeds)
	mean := sum / n
	published := p.Published
	if published == "" {
		published = "-"
	}
	fmt.Printf("| `%s` | %s | %s ± %s | %s | %v: %s | %s |\n", p.Name, published, number(mean), number(math.Sqrt(max(squares/n-mean*mean, 0))),
		strings.Join(each, ", "), p.Threshold, strings.Join(solved, ", "), strings.Join(took, ", "))
	return nil
}

// number has three digits, or one behind the point.
func number(v float64) string {
	if math.Abs(v) < 10 {
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// quiet is a lone node that logs and saves nothing.
type quiet struct{ task.Node }

func (quiet) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }
func (quiet) Size() int            { return 1 }
func (quiet) Seed() uint64         { return 0 }
func (quiet) Dir() string          { return "" }
func (quiet) Resume() bool         { return false }
func (quiet) MustResume() bool     { return false }

// config is that of a preset, with further settings.
func config(p *train.Preset, settings ...string) (*train.Config, error) {
	c, err := train.New(train.Algorithms(), p.Algorithm())
	if err == nil {
		err = c.Use(p)
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err == nil {
			err = c.Set(key, value, "results")
		}
	}
	return c, err
}

// alone trains in this process for all env steps of a preset, and prints the result.
func alone(ctx context.Context, name string, seed uint64) error {
	p, err := train.FindPreset(name)
	if err != nil {
		return err
	}
	settings := []string{fmt.Sprint("seed=", seed), "eval_every=0"}
	if p.Greedy {
		settings = append(settings, "eval_every=100%", fmt.Sprint("eval_episodes=", window))
	}
	c, err := config(p, settings...)
	if err != nil {
		return err
	}
	w := watch{threshold: p.Threshold}
	if err := c.Run(ctx, quiet{task.Alone()}, train.Output{Step: w.step}); err != nil {
		return err
	}
	mean := w.mean()
	if p.Greedy {
		mean = w.eval.Mean
	}
	fmt.Println(reached, mean, w.solved)
	return nil
}

// watch takes down the returns of the newest episodes.
type watch struct {
	threshold float64
	returns   []float64
	solved    int // env steps when their mean was first the threshold
	eval      rl.Evaluation
}

func (w *watch) step(c *rl.Online) {
	w.eval = c.Eval
	if c.Collected == nil {
		return
	}
	for _, e := range c.Collected.Episodes {
		w.returns = append(w.returns, e.Return)
	}
	w.returns = w.returns[max(0, len(w.returns)-window):]
	if w.solved == 0 && len(w.returns) == window && w.mean() >= w.threshold {
		w.solved = c.EnvSteps
	}
}

func (w *watch) mean() (m float64) {
	for _, v := range w.returns {
		m += v / float64(len(w.returns))
	}
	return m
}

// play is what the processes of a job do, until 100 greedy episodes reach the threshold.
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
