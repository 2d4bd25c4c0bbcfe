package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/ditask/ditask/internal/safefile"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// The files of a checkpoint folder, in the safetensors format.
const (
	// CheckpointFile has the complete state from which learning continues.
	CheckpointFile = "checkpoint.safetensors"
	// BestFile has the weights of the best evaluation, under the name "best".
	BestFile = "best.safetensors"
)

// CheckpointConfig describes checkpoints. The zero value works.
type CheckpointConfig struct {
	EveryUpdates int // between checkpoints; 0 means 5,000
	// Every is the time between checkpoints; the first step after it makes one. 0 means 30 s.
	// Negative: only updates count.
	Every time.Duration
	// WithoutData omits the data that is learned from, such as a large replay buffer. A resumed run then
	// collects again, and does not continue bit for bit.
	WithoutData bool
	// Keep is the number of newest checkpoints that stay next to CheckpointFile, each under a name with
	// its updates, such as checkpoint-000005000.safetensors; 0: none, negative: all. To continue from
	// such a file, rename it to CheckpointFile.
	Keep int
}

// Checkpoint saves the policy, the data that it learns from, the counters, the best weights, and the
// environments and random numbers of this node to Config.Dir, by CheckpointConfig.EveryUpdates and
// Every, and at the end of the run unless it failed; and the best weights to a second file whenever
// they change. It also saves what Log needs for its next row. In lockstep it saves the environments
// and random numbers of all nodes. Of several learners the first one writes the files, with the data
// of all learners. Without a folder it does nothing.
//
// It comes last in the chain. A file is written next to the old one, synced and renamed, so that
// one of both is always complete. A missing folder is created.
func (r *Run) Checkpoint(cfg CheckpointConfig) task.Middleware[Online] {
	k := &checkpoint{r: r, dir: r.cfg.Dir, cfg: cfg}
	if k.cfg.EveryUpdates == 0 {
		k.cfg.EveryUpdates = 5000
	}
	if k.cfg.Every == 0 {
		k.cfg.Every = 30 * time.Second
	}
	if cfg.EveryUpdates < 0 {
		panic(fmt.Sprintf("rl: checkpoint config: EveryUpdates %d must not be negative", cfg.EveryUpdates))
	}
	if r.cfg.Dir == "" || !r.t.Has(Learner) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	r.saves, r.withoutData = true, cfg.WithoutData
	return func(ctx context.Context, c *Online, next task.Next) error {
		if r.began && (!r.leads() || r.done) {
			return next(ctx)
		}
		return k.step(ctx, c, next)
	}
}

type checkpoint struct {
	r     *Run
	dir   string
	cfg   CheckpointConfig
	begun bool
	saved int       // updates at the last save
	at    time.Time // of the last save
	best  *Best     // the last saved
	filed *Best     // the best in its file, or nil: the best of another run does not count
}

func (k *checkpoint) step(ctx context.Context, c *Online, next task.Next) error {
	if !k.begun {
		k.begun = true
		if err := k.begin(c); err != nil {
			return err
		}
	}
	if err := next(ctx); err != nil {
		return err
	}
	k.r.torn = false
	if c.Updates-k.saved >= k.cfg.EveryUpdates || k.cfg.Every > 0 && time.Since(k.at) >= k.cfg.Every {
		if err := k.save(ctx, c, false); err != nil {
			return k.r.onNode(err)
		}
	}
	return k.saveBest(c)
}

func (k *checkpoint) begin(c *Online) error {
	if !k.r.began {
		return errNoExchange
	}
	err := makeFolder(k.dir)
	if err != nil {
		return k.r.onNode(err)
	}
	k.saved, k.at = c.Updates, time.Now()
	if k.r.resumed {
		if k.filed, err = LoadBest(k.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return k.r.onNode(err)
		}
		if k.filed != nil && !k.r.done {
			k.filed.Reached = false // the run continues: see goOn
		}
	}
	t := k.r.t
	t.OnFinish(func(ctx context.Context, o task.Outcome) error {
		if o.Kind == task.Failure {
			return nil // the last good checkpoint is kept
		}
		c := t.Context()
		if k.r.lockstep && k.r.torn {
			t.Logger().Warn("the run ended in the middle of a step: the checkpoint before it stays", slog.Int("updates", k.saved))
			return k.saveBest(c)
		}
		return errors.Join(k.save(ctx, c, true), k.saveBest(c))
	})
	return nil
}

// makeFolder creates the folder of the checkpoints and checks that files can be written there, so that
// a run does not fail an hour later.
func makeFolder(dir string) error {
	err := safefile.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".try.*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("checkpoint folder %s: %w: choose one that can be written, with ditask --dir or DITASK_DIR", absolute(dir), err)
	}
	return nil
}

// archive puts the state from which this node continues into a, without the policy.
func (r *Run) archive(a *nn.Archive, c *Online, withoutData bool) error {
	var err error
	if r.source != nil && !withoutData {
		a.SetText(dataKey, "saved")
		err = errors.Join(err, r.source.Save(a))
	}
	return errors.Join(err, r.save(a), putCounters(a, c))
}

// save writes the checkpoint, during the run or at its end.
func (k *checkpoint) save(ctx context.Context, c *Online, ended bool) error {
	var a nn.Archive
	if err := k.saveLog(&a, c, ended); err != nil {
		return err
	}
	err := errors.Join(k.r.policy.Save(&a), k.r.archive(&a, c, k.cfg.WithoutData))
	if c.Best != nil {
		err = errors.Join(err, putBest(&a, c.Best))
	}
	if g := k.r.group; g != nil && err == nil {
		if err = g.collect(ctx, &a, k.cfg.WithoutData, ended); errors.Is(err, errRegroup) {
			return g.reenter(ctx, c, err) // the next step makes a checkpoint
		}
		if errors.Is(err, errTorn) {
			k.r.t.Logger().Warn("a learner ended in the middle of a step: the checkpoint before it stays", slog.Int("updates", k.saved))
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	path := filepath.Join(k.dir, CheckpointFile)
	if err := writeArchive(path, &a); err != nil {
		return err
	}
	if err := k.keep(path, c.Updates); err != nil {
		return fmt.Errorf("checkpoint: keep %s: %w", path, err)
	}
	k.saved, k.at = c.Updates, time.Now()
	k.r.t.Logger().Info("checkpoint", slog.String("file", path), slog.Int("updates", c.Updates), slog.Int("env_steps", c.EnvSteps))
	return nil
}

// saveLog makes the log write the rows that belong to the checkpoint, and puts its state into a.
func (k *checkpoint) saveLog(a *nn.Archive, c *Online, ended bool) error {
	l := k.r.log
	if l == nil || !l.started {
		return nil
	}
	var err error
	if ended { // perhaps in the middle of a step; the log itself writes the last row
		l.note(c)
		err = l.writeScores()
	} else {
		err = l.settle(c)
	}
	if err != nil {
		return err
	}
	text, err := l.state(c)
	a.SetText(logKey, text)
	return err
}

// keptPattern matches the names of kept checkpoints; by name they are in the order of updates.
const keptPattern = "checkpoint-*.safetensors"

// keep gives the newest checkpoint a second name, and removes the oldest ones beyond the limit.
func (k *checkpoint) keep(path string, updates int) error {
	if k.cfg.Keep == 0 {
		return nil
	}
	name := KeptFile(k.dir, updates)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(path, name); err != nil {
		return err
	}
	kept, err := filepath.Glob(filepath.Join(k.dir, keptPattern))
	if err != nil || k.cfg.Keep < 0 {
		return err
	}
	for _, old := range kept[:max(0, len(kept)-k.cfg.Keep)] {
		if err := os.Remove(old); err != nil {
			return err
		}
	}
	return nil
}

func (k *checkpoint) saveBest(c *Online) error {
	if c.Best == k.best {
		return nil
	}
	k.best = c.Best
	if k.filed.better(c.Best) {
		return nil // it was found after the checkpoint that this run continues from
	}
	k.filed = c.Best
	var a nn.Archive
	if err := putBest(&a, c.Best); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return writeArchive(filepath.Join(k.dir, BestFile), &a)
}

// counters are the fields of the context that a checkpoint holds.
type counters struct {
	EnvSteps int        `json:"env_steps"`
	Episodes int        `json:"episodes"`
	Updates  int        `json:"updates"`
	Eval     Evaluation `json:"eval"`

	Explored []policies.Metric `json:"explored,omitempty"`
}

const (
	countersKey   = "rl/counters"
	evaluationKey = "rl/evaluation"
	dataKey       = "rl/data" // there is data that the policy learns from
)

func putCounters(a *nn.Archive, c *Online) error {
	text, err := json.Marshal(counters{c.EnvSteps, c.Episodes, c.Updates, c.Eval, c.Explored})
	a.SetText(countersKey, string(text))
	return err
}

// bestText is the part of a Best in an archive besides the weights.
type bestText struct {
	Evaluation
	Reached bool `json:"reached,omitempty"`
}

func putBest(a *nn.Archive, b *Best) error {
	text, err := json.Marshal(bestText{b.Evaluation, b.Reached})
	a.Put("best", b.Weights)
	a.SetText(evaluationKey, string(text))
	return err
}

// writeArchive replaces the file at path: it writes a temporary file next to it, syncs
// and renames it. It overwrites a temporary file that a killed process has left.
func writeArchive(path string, a *nn.Archive) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	data, err := a.AppendBinary(nil)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := safefile.Create(filepath.Join(dir, "."+filepath.Base(path)+".new"), 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
