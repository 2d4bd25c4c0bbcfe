package rl_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/pythontest"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// rowsOf reads a table without its header.
func rowsOf(t *testing.T, path string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(contentOf(t, path))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// python runs a program in Python, which has the standard library alone, and decodes its output.
func python(t *testing.T, into any, args ...string) {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), pythontest.Program(t), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, stderr.String(), out)
	}
}

// readEvents is the program that reads event files.
var readEvents = filepath.Join("..", "..", "internal", "tensorboard", "testdata", "read_events.py")

// allFiles is a log that writes all files below dir.
func allFiles(dir string) rl.LogConfig {
	return rl.LogConfig{
		EverySteps: 40, CSV: filepath.Join(dir, "progress.csv"), JSON: filepath.Join(dir, "metrics.jsonl"), Untimed: true,
		Evaluations: filepath.Join(dir, "evaluations.csv"), TensorBoard: filepath.Join(dir, "tensorboard"), HistogramEvery: 2,
		HParams: map[string]any{"rate": 1e-3}, Outcome: filepath.Join(dir, "outcome.json"),
	}
}

// TestEvaluationsHaveEveryEpisode, also of an evaluation that another one then confirms or does not.
func TestEvaluationsHaveEveryEpisode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "evaluations.csv")
	tk, _ := scoredIn(rl.LogConfig{Evaluations: path}, nil, 30, 30, 0, 6, 6, 9, 0, 20, 19, 0, 5, 6, 0)
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil {
		t.Fatal(err)
	}
	want := `time/total_timesteps,evaluation,episode,env,reward,length,version
10,1,1,0,30,30,10
10,1,2,0,30,30,10
10,2,1,0,6,6,10
10,2,2,0,6,6,10
10,2,3,0,9,9,10
20,3,1,0,20,20,20
20,3,2,0,19,19,20
30,4,1,0,5,5,30
30,4,2,0,6,6,30
`
	if got := contentOf(t, path); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// learner is a lone run on CartPole that writes all files, with a checkpoint after each step.
func learner(dir string, resume bool, more func(*rl.Run) []task.Middleware[rl.Online]) *task.Task[rl.Online] {
	q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}, Epsilon: policies.Constant(0.3)})
	tk := task.New[rl.Online](quiet{task.Alone()})
	r := rl.New(tk, q, rl.Config{Seed: 3, Dir: dir, Resume: resume, MustResume: resume})
	tk.Use(r.Exchange(rl.ExchangeConfig{}),
		r.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 40, Episodes: 4}),
		r.Collect(envs.CartPole(2, envs.SameStep), rl.CollectConfig{}),
		r.Learn(replay(data.UniformConfig{Capacity: 500}, data.ReplayConfig{Batch: 8, StartAt: 20, Every: 2}), rl.LearnConfig{}),
		r.Checkpoint(rl.CheckpointConfig{EveryUpdates: 1, Every: -1, Keep: -1}), r.Log(allFiles(dir)))
	if more != nil {
		tk.Use(more(r)...)
	}
	return tk
}

// TestP4ResumedRunRepeatsNoRow stops a run some steps after each of several checkpoints, as a kill would: the
// rows that it has written after the checkpoint are in the files, and the resumed run writes
// the same rows again.
func TestP4ResumedRunRepeatsNoRow(t *testing.T) {
	const steps, first = 90, 10 // the first update is in step 10
	straight := t.TempDir()
	if err := learner(straight, false, nil).Run(t.Context(), task.MaxSteps(steps)); err != nil {
		t.Fatal(err)
	}
	want := contentOf(t, filepath.Join(straight, "evaluations.csv"))
	if n := strings.Count(want, "\n"); n != 1+4*4 { // at 40, 80, 120 and 160 env steps
		t.Fatalf("%d lines:\n%s", n, want)
	}
	progress := map[string]string{}
	for _, name := range []string{"progress.csv", "metrics.jsonl"} {
		progress[name] = contentOf(t, filepath.Join(straight, name))
	}
	for step := 15; step <= steps; step += 5 { // at 40, 80 ... env steps, and between
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(straight)); err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(dir, fmt.Sprintf("checkpoint-%09d.safetensors", step-first+1))
		if err := os.Rename(kept, filepath.Join(dir, rl.CheckpointFile)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"evaluations.csv", "progress.csv", "metrics.jsonl"} {
			if name == "evaluations.csv" && step > 80 {
				continue // all rows were there before the checkpoint
			}
			text := contentOf(t, filepath.Join(dir, name))
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text[:len(text)-3]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := learner(dir, true, nil).Run(t.Context(), task.MaxSteps(steps-step)); err != nil {
			t.Fatal(err)
		}
		if got := contentOf(t, filepath.Join(dir, "evaluations.csv")); step < steps && got != want {
			t.Errorf("resumed after step %d:\n%s\nwant\n%s", step, got, want)
		}
		for name, want := range progress {
			if got := contentOf(t, filepath.Join(dir, name)); step < steps && got != want {
				t.Errorf("%s of the run resumed after step %d:\n%s\nwant\n%s", name, step, got, want)
			}
		}
		checkSteps(t, dir, step == 50)
	}
}

// checkSteps reports rows of progress.csv whose env steps do not grow, and event files that have others.
func checkSteps(t *testing.T, dir string, events bool) {
	t.Helper()
	var steps []float64
	for _, row := range rowsOf(t, filepath.Join(dir, "progress.csv")) {
		var v float64
		if _, err := fmt.Sscan(row[0], &v); err != nil || len(steps) > 0 && v <= steps[len(steps)-1] {
			t.Errorf("row of step %q behind %v: %v", row[0], steps, err)
		}
		steps = append(steps, v)
	}
	if !events {
		return
	}
	var kept map[string][][2]float64
	python(t, &kept, readEvents, filepath.Join(dir, "tensorboard"))
	var of []float64
	for _, p := range kept["time/total_timesteps"] {
		of = append(of, p[0])
		if p[0] != p[1] {
			t.Errorf("step %v has the value %v", p[0], p[1])
		}
	}
	if !slices.Equal(of, steps) {
		t.Errorf("event files have the steps %v, progress.csv %v", of, steps)
	}
}

// TestLearnerWritesTheEpisodesOfAnotherNode: the evaluator is another process, at its own pace or in lockstep.
func TestLearnerWritesTheEpisodesOfAnotherNode(t *testing.T) {
	for _, synchronous := range []int{0, 3} {
		nodes, release := nodesOf(3)
		path := filepath.Join(t.TempDir(), "evaluations.csv")
		all := make([]*member, len(nodes))
		for i := range all {
			m := &member{node: nodes[i], q: tiny(1)}
			m.tk = task.New[rl.Online](m.node, rl.Roles(len(nodes))...)
			m.run = runOf(m.tk, m.q, "")
			eval := walks(envs.SameStep, &walk{length: 7}, &walk{length: 4, reward: 0.5})
			stopAt := 0.0
			if synchronous == 0 {
				stopAt = 4
			}
			m.tk.Use(
				m.run.Exchange(rl.ExchangeConfig{Synchronous: synchronous, EveryUpdates: 2}),
				m.run.Evaluate(eval, rl.EvalConfig{EverySteps: 40, Episodes: 3, StopAt: stopAt, Confirm: 4}),
				m.run.Collect(walks(envs.SameStep, &walk{length: 5}, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}),
				m.run.Learn(replay(data.UniformConfig{Capacity: 1000}, data.ReplayConfig{Batch: 4, StartAt: 4, Every: 2}), rl.LearnConfig{}),
				m.run.Log(rl.LogConfig{Evaluations: path}),
			)
			all[i] = m
		}
		var opts []task.RunOption
		if synchronous > 0 {
			opts = append(opts, task.MaxSteps(65))
		}
		if err := errors.Join(append(run(t.Context(), all, opts...), release())...); err != nil {
			t.Fatal(err)
		}
		var got []string
		versions := map[string]bool{}
		for _, row := range rowsOf(t, path) {
			got = append(got, strings.Join(row[1:6], " "))
			versions[row[6]] = true
		}
		// The episodes of environment 0 have the return 7, those of 1 the return 2.
		want := []string{"1 1 1 2 4", "1 2 0 7 7", "1 3 0 7 7"}
		if synchronous == 0 { // their mean of 5.3 reaches the score, that of four does too
			want = append(want, "2 1 1 2 4", "2 2 0 7 7", "2 3 1 2 4", "2 4 0 7 7")
		} else { // at 40, 80 and 120 env steps
			want = append(want, "2 1 1 2 4", "2 2 0 7 7", "2 3 0 7 7", "3 1 1 2 4", "3 2 0 7 7", "3 3 0 7 7")
		}
		if !slices.Equal(got, want) || versions["0"] {
			t.Errorf("synchronous %d: %q, want %q; versions %v", synchronous, got, want, versions)
		}
	}
}

// TestPythonReadsARun: its tables, its lines, its tensors and its event file, with the values that were written.
func TestPythonReadsARun(t *testing.T) {
	dir := t.TempDir()
	tk := learner(dir, false, nil)
	if err := tk.Run(t.Context(), task.MaxSteps(60)); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Progress, Metrics []map[string]float64
		Evaluations       [][]float64
		Outcome           map[string]any
		Safetensors       map[string]struct {
			Aligned bool
			Tensors map[string]struct {
				DType string
				Shape []int
				First any
			}
		}
	}
	python(t, &got, filepath.Join("testdata", "read_run.py"), dir)
	if n := len(got.Progress); n != 4 || len(got.Metrics) != n { // at 40, after the evaluation, at 80, and at the end
		t.Errorf("%d rows, %d lines", n, len(got.Metrics))
	}
	for i, row := range got.Progress {
		for name, v := range got.Metrics[i] {
			if row[name] != v {
				t.Errorf("row %d: %s is %v in progress.csv, %v in metrics.jsonl", i, name, row[name], v)
			}
		}
	}
	c := tk.Context()
	last, sum := got.Progress[len(got.Progress)-1], 0.0
	for _, row := range got.Evaluations[4:] {
		sum += row[4] / 4
		if row[0] != 80 || row[1] != 2 || row[6] != float64(c.Eval.Version) {
			t.Errorf("evaluation %v", row)
		}
	}
	if last["time/total_timesteps"] != 120 || last["eval/mean_reward"] != c.Eval.Mean || len(got.Evaluations) != 8 || sum != c.Eval.Mean {
		t.Errorf("last row %v; mean of the last evaluation %v, want %v", last, sum, c.Eval.Mean)
	}
	if want := map[string]any{"outcome": "success", "reason": "max steps", "env_steps": 120.0, "episodes": float64(c.Episodes),
		"updates": 51.0}; !maps.Equal(got.Outcome, want) {
		t.Errorf("outcome %v, want %v", got.Outcome, want)
	}
	best := got.Safetensors[rl.BestFile]
	for _, w := range c.Best.Weights.Tensors {
		if read := best.Tensors["best/"+w.Name]; read.DType != "F32" || !slices.Equal(read.Shape,
			w.Shape) || float32(read.First.(float64)) != w.Data[0] {
			t.Errorf("tensor %s: %+v, want shape %v and first value %v", w.Name, read, w.Shape, w.Data[0])
		}
	}
	if len(best.Tensors) == 0 || !best.Aligned || len(got.Safetensors[rl.CheckpointFile].Tensors) <= len(best.Tensors) {
		t.Errorf("files %v", slices.Collect(maps.Keys(got.Safetensors)))
	}
	checkSteps(t, dir, true)
}

// TestLogConfigsThatContradictThemselvesPanic, with all faults.
func TestLogConfigsThatContradictThemselvesPanic(t *testing.T) {
	defer func() {
		text := fmt.Sprint(recover())
		if !strings.HasPrefix(text, "rl: log config: EverySteps -1, ") || !strings.Contains(text, "need TensorBoard, a folder") {
			t.Errorf("panic %q", text)
		}
	}()
	runOf(task.New[rl.Online](quiet{task.Alone()}), tiny(1), "").Log(rl.LogConfig{EverySteps: -1, HistogramEvery: 5})
}

// TestOutcomeOfAFailedRun: the outcome file has the failure, and is missing while a run continues.
func TestOutcomeOfAFailedRun(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "outcome.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tk := learner(dir, false, func(*rl.Run) []task.Middleware[rl.Online] {
		return []task.Middleware[rl.Online]{task.Step(func(context.Context, *rl.Online) error {
			if _, err := os.Stat(path); err == nil {
				t.Error("the outcome of an earlier start is there")
			}
			return errors.New("broken")
		})}
	})
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err == nil {
		t.Fatal("no error")
	}
	if text := contentOf(t, path); !strings.Contains(text, `"outcome": "failure"`) || !strings.Contains(text, "broken") {
		t.Errorf("%s", text)
	}
}
