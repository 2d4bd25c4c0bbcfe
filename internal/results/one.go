package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/task"
	"github.com/ditask/ditask/train"
)

// window is the number of episodes whose mean return counts.
const window = 100

// reached begins the line with the result of one run: its mean return, and the env steps until the threshold.
const reached = "reached: "

// lone is a node without others that logs nothing.
type lone struct {
	task.Node

	dir string
}

func (lone) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }
func (lone) Size() int            { return 1 }
func (lone) Seed() uint64         { return 0 }
func (n lone) Dir() string        { return n.dir }
func (lone) Resume() bool         { return false }
func (lone) MustResume() bool     { return false }

// config returns the config of a preset, with further settings.
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

// full returns the config of a run of all env steps.
func full(p *train.Preset, seed uint64) (*train.Config, error) {
	settings := []string{fmt.Sprint("seed=", seed), "eval_every=0", "tensorboard=false", "checkpoint_data=false"}
	if p.Greedy {
		settings = append(settings, "eval_every=100%", fmt.Sprint("eval_episodes=", window))
	}
	return config(p, settings...)
}

// one trains in this process for all env steps of a preset, and prints the result. It stops when stdin ends: the program
// that started it has died.
func one(ctx context.Context, all []train.Preset, o options, stdin io.Reader, stdout io.Writer) error {
	if len(o.prefixes) != 1 {
		return fmt.Errorf("-one: want the name of one preset, not %d", len(o.prefixes))
	}
	p, err := train.PresetOf(all, o.prefixes[0])
	if err != nil {
		return err
	}
	c, err := full(p, o.one)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // it ends with the process: a read cannot be interrupted
		_, _ = io.Copy(io.Discard, stdin)
		cancel(errors.New("the program that started the run has ended"))
	}()
	w := watch{threshold: p.Threshold}
	if err := c.Run(ctx, lone{task.Alone(), o.out}, train.Output{Step: w.step}); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	mean := w.mean()
	if p.Greedy {
		mean = w.eval.Mean
	}
	if len(w.returns) == 0 && !p.Greedy || p.Greedy && w.eval.Episodes == 0 {
		return errors.New("no episode has ended")
	}
	_, err = fmt.Fprintln(stdout, reached, mean, w.solved)
	return err
}

// watch records the returns of the newest episodes.
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
