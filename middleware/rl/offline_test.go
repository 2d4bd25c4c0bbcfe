package rl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// offline is a lone run that learns from files in paths. It evaluates every 20 updates and logs every 10.
func offline(dir string, paths []string, cfg rl.Config, learn rl.LearnConfig, updates int, node task.Node,
	more ...task.Middleware[rl.Online]) (*task.Task[rl.Online], error) {
	tk := task.New[rl.Online](node)
	q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}})
	d, err := data.OpenDataset(data.DatasetConfig{Paths: paths, Columns: q.Spec().Learns, Batch: 16, Seed: 5})
	if err != nil {
		return nil, err
	}
	cfg.Dir, cfg.Seed = dir, 3
	r := rl.New(tk, q, cfg)
	tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Learn(d, learn), r.Stop(rl.StopConfig{Updates: updates}),
		r.Evaluate(envs.CartPole(2), rl.EvalConfig{EveryUpdates: 20, Episodes: 4}))
	tk.Use(more...)
	tk.Use(r.Checkpoint(rl.CheckpointConfig{EveryUpdates: 29, Every: -1}), // at 30, where a row of the log ends
		r.Log(rl.LogConfig{EveryUpdates: 10, CSV: filepath.Join(dir, "progress.csv"), JSON: filepath.Join(dir, "metrics.jsonl"), Untimed: true}))
	return tk, nil
}

// recorded is a folder with dataset files.
func recorded(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	if err := recording(t, rl.Config{Dir: dir}, 60, 0, quiet{task.Alone()}); err != nil {
		t.Fatal(err)
	}
	return []string{filepath.Join(dir, "data")}
}

// TestOfflineRunGoesByUpdates: it makes one in each step, evaluates and logs by them, and ends after that many.
func TestOfflineRunGoesByUpdates(t *testing.T) {
	dir, evaluated := t.TempDir(), []uint64{}
	rates := []int{}
	node, log := logging()
	tk, err := offline(dir, recorded(t), rl.Config{}, rl.LearnConfig{Rate: func(count int) float64 {
		rates = append(rates,
			count)
		return 1e-3
	}}, 65, node,
		func(ctx context.Context, c *rl.Online, next task.Next) error {
			if v := c.Eval.Version; v > 0 && !slices.Contains(evaluated, v) {
				evaluated = append(evaluated, v)
			}
			return next(ctx)
		})
	if err := errors.Join(err, tk.Run(t.Context())); err != nil {
		t.Fatal(err)
	}
	c := tk.Context()
	if c.Updates != 65 || c.EnvSteps != 0 || tk.Steps() != 65 || !slices.Equal(evaluated, []uint64{20, 40, 60}) || rates[0] != 0 ||
		rates[64] != 64 {
		t.Errorf("%d updates and %d env steps in %d steps, evaluations of the versions %v, rates at %v", c.Updates, c.EnvSteps, tk.Steps(),
			evaluated, rates)
	}
	if strings.Count(log.String(), "msg=dataset rows=120 bytes=6120\n") != 1 || !strings.Contains(log.String(),
		`msg=finished reason="65 updates reached 65"`) {
		t.Errorf("log %s\nwant what it learns from, once, and why it ended", log)
	}
	text, err := os.ReadFile(filepath.Join(dir, "progress.csv"))
	var at []string
	for line := range strings.Lines(string(text)) {
		first, _, _ := strings.Cut(line, ",")
		at = append(at, first)
	}
	if want := []string{"time/total_timesteps", "10", "20", "30", "40", "50", "60", "65"}; err != nil || !slices.Equal(at, want) {
		t.Errorf("rows at %v, want %v: %v", at, want, err)
	}
}

// TestP4OfflineRunGoesOnToTheBit, also from a checkpoint that is older than the last rows of the log.
func TestP4OfflineRunGoesOnToTheBit(t *testing.T) {
	paths := recorded(t)
	read := func(dir string) (all [][]byte) {
		for _, name := range []string{rl.CheckpointFile, "progress.csv", "metrics.jsonl", rl.BestFile} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return all
	}
	run := func(dir string, cfg rl.Config, updates, failIn int) error {
		steps := 0
		tk, err := offline(dir, paths, cfg, rl.LearnConfig{}, updates, quiet{task.Alone()}, task.Step(func(context.Context,
			*rl.Online) error {
			if steps++; steps == failIn {
				return errBroken
			}
			return nil
		}))
		if err != nil {
			return err
		}
		return tk.Run(t.Context())
	}
	straight := t.TempDir()
	if err := run(straight, rl.Config{}, 100, 0); err != nil {
		t.Fatal(err)
	}
	want := read(straight)
	for name, c := range map[string]struct{ first, failIn int }{"in order": {50, 0}, "failed": {100, 55}, "already at the end": {100, 0}} {
		dir := t.TempDir()
		if err := run(dir, rl.Config{}, c.first, c.failIn); err != nil && !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		if err := run(dir, rl.Config{MustResume: true}, 100, 0); err != nil {
			t.Fatal(err)
		}
		for i, got := range read(dir) {
			if !bytes.Equal(got, want[i]) {
				t.Errorf("%s: file %d differs:\n%.1000s\nwant\n%.1000s", name, i, got, want[i])
			}
		}
	}
	paths = []string{filepath.Join(paths[0], "part-000001.safetensors")}
	if err := run(straight, rl.Config{MustResume: true}, 200, 0); err == nil || !strings.Contains(err.Error(),
		"restore dataset: it was saved with other files") {
		t.Errorf("other files: %v", err)
	}
}

// TestOfflineRunsAreChecked: the unit that a run does not go by, a collector beside a dataset, and several nodes.
func TestOfflineRunsAreChecked(t *testing.T) {
	paths := recorded(t)
	open := func() *data.Dataset {
		d, err := data.OpenDataset(data.DatasetConfig{Paths: paths})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, c := range []struct {
		use  func(r *rl.Run) task.Middleware[rl.Online]
		src  data.Source
		want string
	}{
		{func(r *rl.Run) task.Middleware[rl.Online] {
			return r.Evaluate(envs.CartPole(1), rl.EvalConfig{EverySteps: 5})
		}, open(), "node 0: eval config: EverySteps is 5, but an offline run takes no env steps: set EveryUpdates"},
		{func(r *rl.Run) task.Middleware[rl.Online] { return r.Log(rl.LogConfig{EverySteps: 5}) }, open(), "log config: EverySteps is 5"},
		{func(r *rl.Run) task.Middleware[rl.Online] { return r.Log(rl.LogConfig{EveryUpdates: 5}) }, new(spy),
			"log config: EveryUpdates is 5, which is for offline runs: set EverySteps"},
		{func(r *rl.Run) task.Middleware[rl.Online] {
			return r.Evaluate(envs.CartPole(1), rl.EvalConfig{EveryUpdates: 5})
		}, new(spy), "eval config: EveryUpdates is 5"},
		{func(r *rl.Run) task.Middleware[rl.Online] { return r.Collect(envs.CartPole(1), rl.CollectConfig{}) }, open(),
			"add to dataset: it learns from its files alone: leave out what collects"},
	} {
		tk := task.New[rl.Online](quiet{task.Alone()})
		r := rl.New(tk, dqn.New(dqn.Config{Obs: box(4), Action: two, Hidden: []int{8}}), rl.Config{})
		tk.Use(r.Exchange(rl.ExchangeConfig{}), c.use(r), r.Learn(c.src, rl.LearnConfig{}))
		if err := tk.Run(t.Context(), task.MaxSteps(3)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	nodes, release := nodesOf(2)
	ended := make(chan error, len(nodes))
	for _, node := range nodes {
		go func() {
			tk := task.New[rl.Online](quiet{node}, rl.Roles(2)...)
			r := rl.New(tk, dqn.New(dqn.Config{Obs: box(4), Action: two, Hidden: []int{8}}), rl.Config{})
			tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Learn(open(), rl.LearnConfig{}))
			ended <- tk.Run(t.Context())
		}()
	}
	for range nodes {
		if err := <-ended; err == nil || !strings.Contains(err.Error(),
			"an offline run has nothing to pass between nodes: start it with one process") {
			t.Errorf("several nodes: %v", err)
		}
	}
	_ = release() // a node that failed is an error of the job
}

// TestOfflineEvaluationsGoOnAfterTheLast, also where the environments cannot be saved.
func TestOfflineEvaluationsGoOnAfterTheLast(t *testing.T) {
	dir, files := t.TempDir(), t.TempDir()
	tk := task.New[rl.Online](quiet{task.Alone()})
	r := runOf(tk, tiny(1), "")
	tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{}),
		r.Record(rl.RecordConfig{Dir: files}))
	if err := tk.Run(t.Context(), task.MaxSteps(20)); err != nil {
		t.Fatal(err)
	}
	var evaluated []uint64
	for _, updates := range []int{30, 70} {
		d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{files}, Batch: 8})
		if err != nil {
			t.Fatal(err)
		}
		tk := task.New[rl.Online](quiet{task.Alone()})
		r := rl.New(tk, tiny(1), rl.Config{Seed: 1, Dir: dir, Resume: true})
		tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Learn(d, rl.LearnConfig{}), r.Stop(rl.StopConfig{Updates: updates}),
			r.Evaluate(walks(envs.SameStep, &walk{length: 3}), rl.EvalConfig{EveryUpdates: 20}), task.Step(func(_ context.Context,
				c *rl.Online) error {
				if v := c.Eval.Version; v > 0 && !slices.Contains(evaluated, v) {
					evaluated = append(evaluated, v)
				}
				return nil
			}), r.Checkpoint(rl.CheckpointConfig{Every: -1}))
		if err := tk.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(evaluated, []uint64{20, 40, 60}) {
		t.Errorf("evaluations of the versions %v, want 20, 40 and 60", evaluated)
	}
}

// TestP4CutOfflineEvaluationIsMadeAgain preempts an offline run in the middle of an evaluation, also in the one after
// the last update: the resumed run begins with that evaluation, of the same weights.
func TestP4CutOfflineEvaluationIsMadeAgain(t *testing.T) {
	paths := recorded(t)
	play := func(ctx context.Context, dir string, resume bool, act func()) (string, error) {
		tk := task.New[rl.Online](quiet{task.Alone()})
		q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}})
		d, err := data.OpenDataset(data.DatasetConfig{Paths: paths, Columns: q.Spec().Learns, Batch: 16, Seed: 5})
		if err != nil {
			t.Fatal(err)
		}
		r := rl.New(tk, cutter{q, act}, rl.Config{Seed: 3, Dir: dir, MustResume: resume})
		tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Learn(d, rl.LearnConfig{}),
			r.Evaluate(envs.CartPole(2), rl.EvalConfig{EveryUpdates: 20, Episodes: 4}), r.Stop(rl.StopConfig{Updates: 60}),
			r.Checkpoint(rl.CheckpointConfig{Every: -1}))
		err = tk.Run(ctx)
		c := tk.Context()
		return fmt.Sprint(c.Updates, c.Eval, c.Best, q.Weights()), err
	}
	acts := 0
	want, err := play(t.Context(), t.TempDir(), false, func() { acts++ })
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, acts / 2, acts - 1} { // actions in evaluations before the preemption
		dir, at := t.TempDir(), 0
		for range 2 { // the first thing that the resumed run does is the evaluation: it is cut again
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := play(ctx, dir, at > 0, func() {
				if at++; at >= cut {
					cancel(&task.PreemptError{Reason: "test"})
				}
			})
			if !errors.Is(err, task.ErrPreempted) {
				t.Fatal(err)
			}
		}
		if got, err := play(t.Context(), dir, true, func() {}); err != nil || got != want {
			t.Errorf("cut at action %d of %d: %v, %.200s\nwant %.200s", cut, acts, err, got, want)
		}
	}
}
