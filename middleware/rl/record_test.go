package rl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// spy is a source that keeps all that is added.
type spy struct{ rows policies.Batch }

func (s *spy) Add(b *policies.Batch) error {
	if s.rows.N == 0 {
		s.rows.InitLike(b)
	}
	s.rows.AppendBatch(b)
	return nil
}

func (s *spy) Next(*policies.Batch) bool           { return false }
func (s *spy) Learned(*policies.Batch) error       { return nil }
func (s *spy) Save(*nn.Archive) error              { return nil }
func (s *spy) Restore(*nn.Archive) error           { return nil }
func column(b *policies.Batch, name string) string { return fmt.Sprint(b.Floats(name)) }

// TestRecordWritesTheCollectedRows, in files of that many rows, the last of which has the rest.
func TestRecordWritesTheCollectedRows(t *testing.T) {
	dir := t.TempDir()
	tk, all := task.New[rl.Online](quiet{task.Alone()}), new(spy)
	r := runOf(tk, tiny(7), dir)
	tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(walks(envs.SameStep, &walk{length: 5, reward: 2}, &walk{length: 3}), rl.CollectConfig{}),
		r.Record(rl.RecordConfig{Rows: 9}), r.Learn(all, rl.LearnConfig{}))
	if err := tk.Run(t.Context(), task.MaxSteps(11)); err != nil {
		t.Fatal(err)
	}
	files, err := data.DatasetFiles(filepath.Join(dir, "data"))
	if err != nil || len(files) != 3 || filepath.Base(files[2]) != "part-000003.safetensors" {
		t.Fatalf("%v, %v", files, err)
	}
	var rows policies.Batch
	rows.InitLike(&all.rows)
	var infos []data.DatasetInfo
	for i, want := range []int{9, 9, 4} {
		info, b, err := data.ReadDataset(files[i])
		if err != nil || b.N != want {
			t.Fatalf("file %d: %d rows, want %d: %v", i, b.N, want, err)
		}
		rows.AppendBatch(b)
		infos = append(infos, info)
	}
	if rows.N != 22 || column(&rows, policies.Obs) != column(&all.rows, policies.Obs) || column(&rows, policies.NextObs) != column(&all.rows,
		policies.NextObs) ||
		!slices.Equal(rows.Bytes(policies.Terminated), all.rows.Bytes(policies.Terminated)) {
		t.Errorf("the files have\n%v\nwant\n%v", column(&rows, policies.Obs), column(&all.rows, policies.Obs))
	}
	// Episodes of 5 steps end in steps 5 and 10, those of 3 in 3, 6 and 9; the files end in steps 5, 9 and 11.
	want := data.DatasetInfo{Env: "Walk", Obs: box(2).String(), Action: "Discrete(2)", Policy: "dqn.DQN", Seed: 7}
	for i, episodes := range [][]float64{{3, 10}, {3, 3}, {10}} {
		want.Episodes, want.Return = len(episodes), 0
		for _, e := range episodes {
			want.Return += e / float64(len(episodes))
		}
		if infos[i] != want {
			t.Errorf("file %d is of %+v, want %+v", i, infos[i], want)
		}
	}
	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{filepath.Join(dir, "data")}, Columns: tiny(1).Spec().Learns})
	if err != nil || d.Len() != 22 || d.Info().Episodes != 5 {
		t.Errorf("%v", err)
	}
}

var errBroken = errors.New("broken")

// recording is a lone run on CartPole that records 40 rows a file, and fails in a step if that is not 0.
func recording(t *testing.T, cfg rl.Config, steps, failIn int, node task.Node, first ...task.Middleware[rl.Online]) error {
	t.Helper()
	tk := task.New[rl.Online](node)
	q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 3, Hidden: []int{8}, Epsilon: policies.Constant(0.3)})
	cfg.Seed = 3
	r := rl.New(tk, q, cfg)
	buf := replay(data.UniformConfig{Capacity: 500, Seed: 3}, data.ReplayConfig{Batch: 8, StartAt: 10, Every: 2})
	taken := 0
	tk.Use(r.Exchange(rl.ExchangeConfig{}))
	tk.Use(first...)
	tk.Use(r.Collect(envs.CartPole(2, envs.SameStep), rl.CollectConfig{}),
		r.Record(rl.RecordConfig{Rows: 40}), r.Learn(buf, rl.LearnConfig{}),
		r.Checkpoint(rl.CheckpointConfig{EveryUpdates: 15, Every: -1}), task.Step(func(context.Context, *rl.Online) error {
			if taken++; taken == failIn {
				return errBroken
			}
			return nil
		}))
	return tk.Run(t.Context(), task.MaxSteps(steps))
}

// filesOf are the names and contents of the dataset files of a run.
func filesOf(t *testing.T, dir string) (names []string, content [][]byte) {
	t.Helper()
	files, err := data.DatasetFiles(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		names, content = append(names, filepath.Base(f)), append(content, b)
	}
	return names, content
}

// TestP4InterruptedRunLeavesTheSameFiles: one that failed some steps after a checkpoint, in the same file and two
// files later, one that ended in order, and one that failed before its first checkpoint.
func TestP4InterruptedRunLeavesTheSameFiles(t *testing.T) {
	const steps = 120
	straight := t.TempDir()
	if err := recording(t, rl.Config{Dir: straight}, steps, 0, quiet{task.Alone()}); err != nil {
		t.Fatal(err)
	}
	wantNames, want := filesOf(t, straight)
	if len(want) != 6 {
		t.Fatalf("files %v, want 6 of 40 rows", wantNames)
	}
	// A checkpoint is made in the steps 19, 34, 49 and so on.
	for name, c := range map[string]struct{ end, failIn, resumedAt int }{
		"the same file": {0, 53, 49}, "two files later": {0, 48, 34}, "in order": {60, 0, 60}, "before the first checkpoint": {0, 10, 0},
		"a full file": {40, 0, 40},
	} {
		dir := t.TempDir()
		err := recording(t, rl.Config{Dir: dir}, max(c.end, c.failIn), c.failIn, quiet{task.Alone()})
		if c.failIn > 0 != errors.Is(err, errBroken) || c.failIn == 0 && err != nil {
			t.Fatal(err)
		}
		half := filepath.Join(dir, "data", ".part-000003.safetensors.4711.new") // left by a process that was killed
		if err := os.WriteFile(half, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		node, log := logging()
		if err := recording(t, rl.Config{Dir: dir, Resume: true}, steps-c.resumedAt, 0, node); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, log)
		}
		if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a half-written file is left: %v", name, err)
		}
		if wanted := fmt.Sprintf("env_steps=%d ", 2*c.resumedAt); c.resumedAt > 0 && !strings.Contains(log.String(), wanted) {
			t.Fatalf("%s: the log has no %s:\n%s", name, wanted, log)
		}
		gotNames, got := filesOf(t, dir)
		if !slices.Equal(gotNames, wantNames) || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: files %v, want %v with the same bytes", name, gotNames, wantNames)
		}
	}
}

// TestP4KilledRunKeepsTheRowsOfItsCheckpoint: the folder is copied in the middle of the run, as a kill would
// leave it.
func TestP4KilledRunKeepsTheRowsOfItsCheckpoint(t *testing.T) {
	straight, dir, killed := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "killed")
	if err := recording(t, rl.Config{Dir: straight}, 120, 0, quiet{task.Alone()}); err != nil {
		t.Fatal(err)
	}
	copied := func(context.Context, *rl.Online) error {
		saved, err := filepath.Glob(filepath.Join(dir, rl.CheckpointFile))
		if _, missing := os.Stat(killed); err != nil || len(saved) == 0 || missing == nil {
			return err
		}
		return os.CopyFS(killed, os.DirFS(dir))
	}
	if err := recording(t, rl.Config{Dir: dir}, 30, 0, quiet{task.Alone()}, task.Step(copied)); err != nil {
		t.Fatal(err)
	}
	node, log := logging()
	if err := recording(t, rl.Config{Dir: killed, MustResume: true}, 101, 0, node); err != nil || !strings.Contains(log.String(),
		"env_steps=38 ") {
		t.Fatalf("%v\n%s", err, log)
	}
	wantNames, want := filesOf(t, straight)
	if names, got := filesOf(t, killed); !slices.Equal(names, wantNames) || !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("files %v, want %v with the same bytes", names, wantNames)
	}
}

// TestResumedRecordHasTheRowsOfTheCheckpoint, before it collects anything.
func TestResumedRecordHasTheRowsOfTheCheckpoint(t *testing.T) {
	for failIn, want := range map[int]struct{ files, rows int }{53: {3, 98}, 48: {2, 68}} {
		dir := t.TempDir()
		if err := recording(t, rl.Config{Dir: dir}, failIn, failIn, quiet{task.Alone()}); !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		stop := task.Step(func(_ context.Context, c *rl.Online) error {
			c.Stopped = true
			return nil
		})
		if err := recording(t, rl.Config{Dir: dir, MustResume: true}, 1, 0, quiet{task.Alone()}, stop); err != nil {
			t.Fatal(err)
		}
		d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{filepath.Join(dir, "data")}})
		if err != nil {
			t.Fatal(err)
		}
		if names, _ := filesOf(t, dir); len(names) != want.files || d.Len() != want.rows {
			t.Errorf("failed in step %d: %d rows in %v, want %d in %d files", failIn, d.Len(), names, want.rows, want.files)
		}
	}
}

func TestRecordRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := recording(t, rl.Config{Dir: dir}, 30, 0, quiet{task.Alone()}); err != nil {
		t.Fatal(err)
	}
	if err := recording(t, rl.Config{Dir: dir}, 30, 0, quiet{task.Alone()}); err == nil ||
		!strings.Contains(err.Error(), "record: the folder "+filepath.Join(dir, "data")+" has 2 dataset files of another run") {
		t.Errorf("files of another run: %v", err)
	}
	first := filepath.Join(dir, "data", "part-000002.safetensors")
	text, err := os.ReadFile(first)
	if err := errors.Join(err, os.WriteFile(first, text[:len(text)-1], 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := recording(t, rl.Config{Dir: dir, Resume: true}, 30, 0, quiet{task.Alone()}); !errors.Is(err, data.ErrDataset) ||
		!strings.Contains(err.Error(), first) {
		t.Errorf("a damaged file: %v", err)
	}
	for name, build := range map[string]func(r *rl.Run) []task.Middleware[rl.Online]{
		"before Collect": func(r *rl.Run) []task.Middleware[rl.Online] {
			return []task.Middleware[rl.Online]{r.Record(rl.RecordConfig{}), r.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{})}
		},
		"not finite": func(r *rl.Run) []task.Middleware[rl.Online] {
			return []task.Middleware[rl.Online]{r.Collect(walks(envs.SameStep, &walk{length: 5, reward: math.NaN()}), rl.CollectConfig{}),
				r.Record(rl.RecordConfig{})}
		},
	} {
		tk := task.New[rl.Online](quiet{task.Alone()})
		r := runOf(tk, tiny(1), t.TempDir())
		tk.Use(r.Exchange(rl.ExchangeConfig{}))
		tk.Use(build(r)...)
		err := tk.Run(t.Context(), task.MaxSteps(3))
		want := map[string]string{"before Collect": "Record must stand behind Collect",
			"not finite": "node 0: record: tensor reward is not finite: value 0 is NaN"}[name]
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, cfg := range []rl.RecordConfig{{}, {Dir: "x", Rows: -1}} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "rl: record config: ") {
					t.Errorf("%+v: panic %s", cfg, p)
				}
			}()
			rl.New(task.New[rl.Online](quiet{task.Alone()}), tiny(1), rl.Config{}).Record(cfg)
		}()
	}
}

// TestRecordOfSeveralNodes is on the learner, with the data of the collectors.
func TestRecordOfSeveralNodes(t *testing.T) {
	dir := t.TempDir()
	nodes, release := nodesOf(3)
	ended := make(chan error, len(nodes))
	seen := new(spy)
	for _, node := range nodes {
		go func() {
			tk := task.New[rl.Online](node, rl.Roles(3)...)
			r := rl.New(tk, tiny(1), rl.Config{Seed: 1, Dir: dir})
			tk.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}),
				r.Record(rl.RecordConfig{Rows: 8}), r.Learn(seen, rl.LearnConfig{}))
			var options []task.RunOption
			if node.ID() == 0 {
				options = append(options, task.MaxSteps(20))
			}
			ended <- tk.Run(t.Context(), options...)
		}()
	}
	var faults []error
	for range nodes {
		faults = append(faults, <-ended)
	}
	if err := errors.Join(append(faults, release())...); err != nil {
		t.Fatal(err)
	}
	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{filepath.Join(dir, "data")}})
	if err != nil || d.Len() != seen.rows.N || d.Len() != 20 || d.Info().Env != "Walk" {
		t.Errorf("%d rows in the files, %d learned from, want 20: %v", d.Len(), seen.rows.N, err)
	}
}
