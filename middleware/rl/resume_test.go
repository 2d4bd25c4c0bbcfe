package rl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// logging is a lone node and its log.
func logging() (task.Node, *bytes.Buffer) {
	var log bytes.Buffer
	return logged{task.Alone(), slog.New(slog.NewTextHandler(&log, nil))}, &log
}

// savingTrainer is a lone task that learns on walks with checkpoints in dir.
func savingTrainer(node task.Node, dir string, cfg rl.CheckpointConfig) *trainer {
	r := newTrainerOn(node, rl.Config{Seed: 1, Dir: dir}, walks(envs.SameStep, &walk{length: 5}))
	r.tk.Use(r.run.Checkpoint(cfg))
	return r
}

// TestResumeLogsItsCheckpoint, or that there is none, and the reason.
func TestResumeLogsItsCheckpoint(t *testing.T) {
	dir := t.TempDir()
	trainer := func(resume, must bool) (*trainer, *bytes.Buffer) {
		node, log := logging()
		r := newTrainerOn(node, rl.Config{Seed: 1, Dir: dir, Resume: resume, MustResume: must}, walks(envs.SameStep, &walk{length: 5}))
		r.tk.Use(r.run.Checkpoint(rl.CheckpointConfig{}))
		return r, log
	}
	r, _ := trainer(false, true)
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); !errors.Is(err, rl.ErrNoCheckpoint) ||
		!strings.Contains(err.Error(), "resume from folder "+dir+": ") || !strings.Contains(err.Error(), "--dir") || r.tk.Steps() != 0 {
		t.Errorf("%v: want the folder and what to do", err)
	}
	r, log := trainer(true, false)
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "begin at 0: this run ended before its first checkpoint") != 1 || !strings.Contains(text,
		dir) {
		t.Errorf("log %s", text)
	}
	version := r.q.Version()
	r, log = trainer(true, true)
	if err := r.tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("level=INFO msg=resume file=%s updates=%d env_steps=30 version=%d\n", filepath.Join(dir, rl.CheckpointFile), version,
		version)
	if version == 0 || !strings.Contains(log.String(), want) {
		t.Errorf("log %s\nwant %s", log, want)
	}
}

// saves are the updates at which a run has made checkpoints.
func saves(log *bytes.Buffer) (updates []int) {
	for line := range strings.Lines(log.String()) {
		var n int
		if _, rest, ok := strings.Cut(line, "msg=checkpoint "); ok {
			_, rest, _ = strings.Cut(rest, "updates=")
			_, _ = fmt.Sscan(rest, &n)
			updates = append(updates, n)
		}
	}
	return updates
}

func TestCheckpointEverySoManyUpdates(t *testing.T) {
	node, log := logging()
	r := savingTrainer(node, t.TempDir(), rl.CheckpointConfig{EveryUpdates: 10, Every: -1})
	if err := r.tk.Run(t.Context(), task.MaxSteps(33)); err != nil {
		t.Fatal(err)
	}
	// The first update is in step 20; each step makes two, and the last save is at the end.
	if got := saves(log); !slices.Equal(got, []int{10, 20, 28}) {
		t.Errorf("checkpoints at %v updates, want at 10, 20 and 28", got)
	}
}

// TestCheckpointEverySoMuchTime: a run that is killed loses little, however slow its
// updates are.
func TestCheckpointEverySoMuchTime(t *testing.T) {
	for _, c := range []struct {
		every time.Duration
		want  []int // updates; each step takes a second
	}{
		{0, []int{24, 34}},
		{10 * time.Second, []int{0, 4, 24, 34}},
		{-1, []int{34}},
	} {
		synctest.Test(t, func(t *testing.T) {
			node, log := logging()
			r := newTrainerOn(node, rl.Config{Seed: 1, Dir: t.TempDir()}, walks(envs.SameStep, &walk{length: 5}))
			r.tk.Use(func(ctx context.Context, _ *rl.Online, next task.Next) error {
				<-time.After(time.Second)
				return next(ctx)
			}, r.run.Checkpoint(rl.CheckpointConfig{Every: c.every}))
			if err := r.tk.Run(t.Context(), task.MaxSteps(36)); err != nil {
				t.Fatal(err)
			}
			if got := saves(log); !slices.Equal(got, c.want) {
				t.Errorf("every %v: checkpoints at %v updates, want %v", c.every, got, c.want)
			}
		})
	}
}

// TestCheckpointKeepsOlderOnes under their own names, from which a run can continue too.
func TestCheckpointKeepsOlderOnes(t *testing.T) {
	for keep, want := range map[int][]string{
		0: nil, 2: {"checkpoint-000000020.safetensors", "checkpoint-000000028.safetensors"},
		-1: {"checkpoint-000000010.safetensors", "checkpoint-000000020.safetensors", "checkpoint-000000028.safetensors"},
	} {
		dir := t.TempDir()
		r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{EveryUpdates: 10, Every: -1, Keep: keep})
		if err := r.tk.Run(t.Context(), task.MaxSteps(33)); err != nil {
			t.Fatal(err)
		}
		got, err := filepath.Glob(filepath.Join(dir, "checkpoint-*"))
		for i := range got {
			got[i] = filepath.Base(got[i])
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("keep %d: %q, want %q", keep, got, want)
		}
		if keep != 2 {
			continue
		}
		if err := os.Rename(filepath.Join(dir, got[0]), filepath.Join(dir, rl.CheckpointFile)); err != nil {
			t.Fatal(err)
		}
		if again := resumed(t, 1, dir); again.q.Version() != 20 {
			t.Errorf("the kept checkpoint has %d updates, want 20", again.q.Version())
		}
	}
}

// TestFailedRunKeepsTheLastGoodCheckpoint: the state of a run when it fails may be the
// cause of the failure.
func TestFailedRunKeepsTheLastGoodCheckpoint(t *testing.T) {
	dir := t.TempDir()
	r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{EveryUpdates: 10, Every: -1})
	broken := errors.New("broken")
	r.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates == 16 {
			return broken
		}
		return nil
	}))
	if err := r.tk.Run(t.Context()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if again := resumed(t, 1, dir); again.q.Version() != 10 {
		t.Errorf("the checkpoint has %d updates, want 10", again.q.Version())
	}
}

// TestP4CutEvaluationIsMadeAgain preempts a lone run in the middle of an evaluation, which comes first or last in a step:
// the resumed run makes the whole of it before it does anything else, and writes the rows of a run that was not interrupted.
func TestP4CutEvaluationIsMadeAgain(t *testing.T) {
	for name, last := range map[string]bool{"first in a step": false, "last in a step": true} {
		t.Run(name, func(t *testing.T) { cutEvaluations(t, last) })
	}
}

func cutEvaluations(t *testing.T, last bool) {
	t.Helper()
	const steps = 60
	build := func(dir string, resume bool, act func()) *trainer {
		r := &trainer{
			q:  dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}, Epsilon: policies.Constant(0.3)}),
			tk: task.New[rl.Online](quiet{task.Alone()}),
		}
		run := rl.New(r.tk, cutter{r.q, act}, rl.Config{Seed: 3, Dir: dir, MustResume: resume})
		r.tk.Use(run.Exchange(rl.ExchangeConfig{}))
		evaluate := func() { r.tk.Use(run.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 40, Episodes: 4})) }
		if !last {
			evaluate()
		}
		r.tk.Use(run.Collect(envs.CartPole(2), rl.CollectConfig{}),
			run.Learn(replay(data.UniformConfig{Capacity: 500}, data.ReplayConfig{Batch: 8, StartAt: 20, Every: 2}), rl.LearnConfig{}))
		if last {
			evaluate()
		}
		r.tk.Use(run.Log(rl.LogConfig{EverySteps: 15, CSV: filepath.Join(dir, "progress.csv"), Untimed: true}),
			run.Checkpoint(rl.CheckpointConfig{}))
		return r
	}
	result := func(r *trainer) string {
		c := r.tk.Context()
		return fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, c.Eval, c.Best, r.q.Weights())
	}
	whole := t.TempDir()
	straight := build(whole, false, func() {})
	if err := straight.tk.Run(t.Context(), task.MaxSteps(steps)); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 5, 30} { // actions in evaluations before the preemption
		dir := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())
		acts := 0
		first := build(dir, false, func() {
			if acts++; acts == cut {
				cancel(&task.PreemptError{Reason: "test"})
			}
		})
		if err := first.tk.Run(ctx, task.MaxSteps(steps)); !errors.Is(err, task.ErrPreempted) {
			t.Fatal(err)
		}
		// The first thing that the resumed run does is the evaluation: it is cut again.
		again, stop := context.WithCancelCause(t.Context())
		second := build(dir, true, func() { stop(&task.PreemptError{Reason: "test"}) })
		if err := second.tk.Run(again, task.MaxSteps(steps)); !errors.Is(err, task.ErrPreempted) || second.tk.Steps() > 0 {
			t.Fatal(err, second.tk.Steps())
		}
		third := build(dir, true, func() {})
		if err := third.tk.Run(t.Context(), task.MaxSteps(steps-first.tk.Steps())); err != nil {
			t.Fatal(err)
		}
		if got, want := result(third), result(straight); got != want {
			t.Errorf("cut at action %d of the evaluations: %.200s\nwant %.200s", cut, got, want)
		}
		if got, want := contentOf(t, filepath.Join(dir, "progress.csv")), contentOf(t, filepath.Join(whole, "progress.csv")); got != want {
			t.Errorf("cut at action %d of the evaluations:\n%s\nwant\n%s", cut, got, want)
		}
	}
}

// cutter is a policy that calls act before each choice of actions for an evaluation.
type cutter struct {
	*dqn.DQN
	act func()
}

func (c cutter) Act(a *policies.Act) error {
	if a.Greedy {
		c.act()
	}
	return c.DQN.Act(a)
}

// evaluated runs a task with the given mean returns, and returns its best weights.
func evaluated(t *testing.T, dir string, resume bool, means ...float64) *rl.Best {
	t.Helper()
	r := newTrainerOn(quiet{task.Alone()}, rl.Config{Seed: 1, Dir: dir, MustResume: resume}, walks(envs.SameStep, &walk{length: 5}))
	r.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if i := r.tk.Steps(); i < len(means) {
			c.Best = &rl.Best{Evaluation: rl.Evaluation{Mean: means[i]}, Weights: r.q.Weights()}
		}
		return nil
	}), r.run.Checkpoint(rl.CheckpointConfig{}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(5)); err != nil {
		t.Fatal(err)
	}
	best, err := rl.LoadBest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return best
}

// TestResumedRunKeepsABetterBest: the best evaluation after the checkpoint stays in
// its file until there is a better one.
func TestResumedRunKeepsABetterBest(t *testing.T) {
	dir := t.TempDir()
	evaluated(t, dir, false, 3)
	checkpoint, err := os.ReadFile(filepath.Join(dir, rl.CheckpointFile))
	if err != nil {
		t.Fatal(err)
	}
	if best := evaluated(t, dir, true, 3, 9); best.Mean != 9 {
		t.Errorf("best %v, want 9", best.Mean)
	}
	// The run was killed before the next checkpoint.
	if err := os.WriteFile(filepath.Join(dir, rl.CheckpointFile), checkpoint, 0o600); err != nil {
		t.Fatal(err)
	}
	if best := evaluated(t, dir, true, 4, 7); best.Mean != 9 {
		t.Errorf("a resumed run has replaced the best of 9 by %v", best.Mean)
	}
	if best := evaluated(t, dir, true, 4, 10, 11); best.Mean != 11 {
		t.Errorf("best %v, want 11", best.Mean)
	}
	// A run that is not resumed does not keep the best of the old run.
	if best := evaluated(t, dir, false, 2); best.Mean != 2 {
		t.Errorf("best %v, want 2", best.Mean)
	}
}

// TestResumeTakesTheBestOfTheCheckpoint, and writes it when the run was killed between
// the two files.
func TestResumeTakesTheBestOfTheCheckpoint(t *testing.T) {
	dir := t.TempDir()
	evaluated(t, dir, false, 3)
	if err := os.Remove(filepath.Join(dir, rl.BestFile)); err != nil {
		t.Fatal(err)
	}
	if best := evaluated(t, dir, true); best.Mean != 3 || len(best.Weights.Tensors) == 0 {
		t.Errorf("best %+v, want that of the checkpoint", best.Evaluation)
	}
}

// TestBestIsWrittenWhenItChanges, and not in every step.
func TestBestIsWrittenWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	r := newTrainerOn(quiet{task.Alone()}, rl.Config{Seed: 1, Dir: dir}, walks(envs.SameStep, &walk{length: 5}))
	r.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		switch r.tk.Steps() {
		case 1, 4:
			c.Best = &rl.Best{Evaluation: rl.Evaluation{Mean: float64(r.tk.Steps())}, Weights: r.q.Weights()}
		}
		return nil
	}), func(ctx context.Context, _ *rl.Online, next task.Next) error {
		if err := next(ctx); err != nil {
			return err
		}
		err := os.Remove(filepath.Join(dir, rl.BestFile))
		if step := r.tk.Steps(); (err == nil) != (step == 1 || step == 4) {
			t.Errorf("step %d: %v", step, err)
		}
		return nil
	}, r.run.Checkpoint(rl.CheckpointConfig{}))
	if err := r.tk.Run(t.Context(), task.MaxSteps(7)); err != nil {
		t.Fatal(err)
	}
}

// TestCheckpointLeavesNothingBesideIt: a process is killed in the middle of a write, and
// another one writes.
func TestCheckpointLeavesNothingBesideIt(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "."+rl.CheckpointFile+".new"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r := savingTrainer(quiet{task.Alone()}, dir, rl.CheckpointConfig{})
	if err := r.tk.Run(t.Context(), task.MaxSteps(30)); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 || files[0].Name() != rl.CheckpointFile {
		t.Errorf("files %v, %v", files, err)
	}
	resumed(t, 1, dir)
}

// unsaved is a policy that cannot be saved.
type unsaved struct{ *dqn.DQN }

func (unsaved) Save(*nn.Archive) error { return errors.New("out of ink") }

func TestCheckpointReportsAPolicyThatCannotBeSaved(t *testing.T) {
	dir, q := t.TempDir(), tiny(1)
	tk := task.New[rl.Online](quiet{task.Alone()})
	run := rl.New(tk, unsaved{q}, rl.Config{Dir: dir})
	tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{}),
		run.Learn(replay(data.UniformConfig{}, data.ReplayConfig{Batch: 2, StartAt: 2}),
			rl.LearnConfig{}), run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 2}))
	err := tk.Run(t.Context(), task.MaxSteps(100))
	if err == nil || !strings.Contains(err.Error(), "node 0: checkpoint: out of ink") || q.Version() != 2 {
		t.Errorf("after %d updates: %v", q.Version(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("files %v, %v", entries, err)
	}
}
