package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/task"
)

// RecordConfig describes the dataset files of a run. The zero value works in a run with a folder.
type RecordConfig struct {
	Dir string // of the files; "" means the folder "data" in Config.Dir. A missing folder is created
	// Rows is the number of rows of a file; 0 means 100,000, or fewer if that would be more than
	// 256 MiB. Writing a file takes twice its size in memory.
	Rows int
	// Policy names the policy that chose the actions, for data.DatasetInfo; "" means the type of the
	// policy, such as dqn.DQN.
	Policy string
}

// The names of the files of Record, and their maximum size unless Rows is set.
const (
	recordName  = "part-%06d" + data.DatasetExt
	recordGlob  = "part-[0-9]*" + data.DatasetExt
	recordBytes = 256 << 20
)

// Record writes the collected data to dataset files part-000001.safetensors, part-000002.safetensors
// and so on, for offline learning from a [data.Dataset]. Their columns are those that the policy
// learns from. The learner writes them, with the data of all collectors; a run without Learn only
// records. Record comes between Collect and Checkpoint.
//
// A file is written when it has all its rows, at each checkpoint, and at the end of the run, even
// after an error: a killed run loses the rows since then, and no file is ever half written. A resumed
// run continues at its checkpoint, and removes later rows, which it collects again: so a lone run
// that was interrupted has the same files as one that was not. Files of another run in the folder are
// an error.
func (r *Run) Record(cfg RecordConfig) task.Middleware[Online] {
	if cfg.Rows < 0 {
		panic(fmt.Sprintf("rl: record config: Rows %d must not be negative", cfg.Rows))
	}
	if cfg.Dir == "" {
		if r.cfg.Dir == "" {
			panic("rl: record config: Dir must be set in a run without a folder")
		}
		cfg.Dir = filepath.Join(r.cfg.Dir, "data")
	}
	if cfg.Policy == "" {
		cfg.Policy = strings.TrimPrefix(fmt.Sprintf("%T", r.policy), "*")
	}
	if cfg.Rows == 0 {
		cfg.Rows = max(1, min(100_000, recordBytes/max(policies.RowBytes(r.columns), 1)))
	}
	k := &record{r: r, cfg: cfg}
	if !r.t.Has(Learner) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	return func(ctx context.Context, c *Online, next task.Next) error {
		if err := k.step(c); err != nil {
			return err
		}
		had := c.Collected != nil
		if err := next(ctx); err != nil {
			return err
		}
		if !had && c.Collected != nil {
			return r.onNode(errors.New("rl: Record must stand behind Collect in the chain"))
		}
		return nil
	}
}

type record struct {
	r       *Run
	cfg     RecordConfig
	joined  bool
	rows    policies.Batch // of the current file
	written int            // number of those already written
	at      recordState
}

// recordState is the state of a record.
type recordState struct {
	File     int // number of the current file, from 1
	Rows     int // in it
	Episodes int // that ended in it
	Sum      float64
}

func (k *record) step(c *Online) error {
	if !k.joined {
		k.joined = true
		if err := k.r.join(c, "record", k); err != nil {
			return err
		}
		k.r.t.OnFinish(func(context.Context, task.Outcome) error { return k.failed(k.flush()) })
	}
	if c.Collected == nil {
		return nil
	}
	return k.failed(k.add(c.Collected))
}

func (k *record) failed(err error) error {
	if err == nil {
		return nil
	}
	return k.r.onNode(fmt.Errorf("record: %w", err))
}

// add appends the data of a step. Episodes count in the file in which the step's rows begin.
func (k *record) add(tr *Trajectory) error {
	b := &tr.Batch
	if err := errors.Join(b.Check(k.r.columns...), b.CheckFinite()); err != nil {
		return err
	}
	for _, e := range tr.Episodes {
		k.at.Episodes++
		k.at.Sum += e.Return
	}
	for from := 0; from < b.N; {
		to := min(b.N, from+k.cfg.Rows-k.rows.N)
		k.rows.AppendRange(b, from, to)
		from = to
		if k.rows.N < k.cfg.Rows {
			break
		}
		if err := k.flush(); err != nil {
			return err
		}
		k.begin(k.at.File + 1)
	}
	return nil
}

// begin starts a file.
func (k *record) begin(file int) {
	k.rows.Init(k.r.columns...)
	k.written, k.at = 0, recordState{File: file}
}

func (k *record) path(file int) string {
	return filepath.Join(k.cfg.Dir, fmt.Sprintf(recordName, file))
}

// flush writes the rows of the current file, if there are new ones.
func (k *record) flush() error {
	if k.rows.N == k.written {
		return nil
	}
	spec := k.r.policy.Spec()
	info := data.DatasetInfo{
		Env: k.r.env, Obs: spec.Obs.String(), Action: spec.Action.String(), Policy: k.cfg.Policy, Seed: k.r.cfg.Seed, Episodes: k.at.Episodes,
	}
	if k.at.Episodes > 0 {
		info.Return = k.at.Sum / float64(k.at.Episodes)
	}
	if err := data.WriteDataset(k.path(k.at.File), info, &k.rows); err != nil {
		return err
	}
	k.written = k.rows.N
	return nil
}

// fresh begins the first file. It removes the files of an earlier start of this run that ended
// before its first checkpoint.
func (k *record) fresh(*Online) error {
	k.begin(1)
	if err := k.makeFolder(); err != nil {
		return k.failed(err)
	}
	files, err := k.files()
	if err != nil || len(files) == 0 {
		return k.failed(err)
	}
	if k.r.resumed || !k.r.cfg.Resume {
		return k.failed(fmt.Errorf("the folder %s has %d dataset files of another run: choose another folder, or remove them",
			absolute(k.cfg.Dir), len(files)))
	}
	return k.failed(k.remove(files))
}

// makeFolder creates the folder, and removes the half-written files of a killed process.
func (k *record) makeFolder() error {
	if err := makeFolder(k.cfg.Dir); err != nil {
		return err
	}
	half, err := filepath.Glob(filepath.Join(k.cfg.Dir, "."+recordGlob+".*.new"))
	for _, f := range half {
		err = errors.Join(err, os.Remove(f))
	}
	return err
}

// files returns the dataset files in the folder.
func (k *record) files() ([]string, error) {
	return filepath.Glob(filepath.Join(k.cfg.Dir, recordGlob))
}

func (k *record) remove(files []string) error {
	if len(files) == 0 {
		return nil
	}
	k.r.t.Logger().Warn("removing dataset files whose rows are collected again", slog.Int("files", len(files)), slog.String("first", files[0]))
	var faults []error
	for _, f := range files {
		faults = append(faults, os.Remove(f))
	}
	return errors.Join(faults...)
}

// state writes the pending rows, so that the files have all rows that the checkpoint counts.
func (k *record) state() (any, error) {
	k.at.Rows = k.rows.N
	return k.at, k.flush()
}

// resume continues with the files of the state.
func (k *record) resume(text []byte) error {
	var s recordState
	if err := json.Unmarshal(text, &s); err != nil { //nolint:musttag // written and read back by the fields' own names
		return err
	}
	if s.File < 1 || s.Rows < 0 || s.Rows > k.cfg.Rows || s.Episodes < 0 {
		return fmt.Errorf("%d rows of file %d, want at most %d of a file", s.Rows, s.File, k.cfg.Rows)
	}
	if err := k.makeFolder(); err != nil {
		return err
	}
	k.begin(s.File)
	k.at = s
	if s.Rows > 0 {
		_, rows, err := data.ReadDataset(k.path(s.File))
		if err != nil {
			return err
		}
		if err := rows.Check(k.r.columns...); err != nil {
			return fmt.Errorf("%s: %w", k.path(s.File), err)
		}
		if rows.N < s.Rows {
			return fmt.Errorf("%s has %d rows, the checkpoint counts %d", k.path(s.File), rows.N, s.Rows)
		}
		k.rows.AppendRange(rows, 0, s.Rows)
		if rows.N == s.Rows {
			k.written = s.Rows
		}
	}
	return k.removeBehind(s)
}

// removeBehind removes the files whose rows are collected again.
func (k *record) removeBehind(s recordState) error {
	files, err := k.files()
	if err != nil {
		return err
	}
	var behind []string
	for _, f := range files {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(f), recordName, &n); err == nil && (n > s.File || n == s.File && s.Rows == 0) {
			behind = append(behind, f)
		}
	}
	return k.remove(behind)
}
