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

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// The files of a checkpoint folder, in the safetensors format.
const (
	// CheckpointFile has everything that learning goes on from.
	CheckpointFile = "checkpoint.safetensors"
	// BestFile has the weights of the best evaluation, under the name "best".
	BestFile = "best.safetensors"
)

// CheckpointConfig describes checkpoints. The zero value works.
type CheckpointConfig struct {
	EveryUpdates int // between checkpoints; 0 means 5,000
	// Also is saved besides the policy, such as the replay buffer.
	Also []policies.Saver
}

// Checkpoint saves q, the counters, and the environments and random numbers of
// this node to dir every so many updates, and at the end of the run unless it
// failed; and the best weights whenever they change.
// It comes last in the chain. A file is written beside the old one, synced and
// renamed, so that one of both is whole whatever happens. The folder is made if
// it is missing.
func Checkpoint(q policies.Saver, dir string, cfg ...CheckpointConfig) task.Middleware[Online] {
	k := &checkpoint{dir: dir, every: 5000, parts: []policies.Saver{q}}
	if len(cfg) > 0 {
		if cfg[0].EveryUpdates > 0 {
			k.every = cfg[0].EveryUpdates
		}
		k.parts = append(k.parts, cfg[0].Also...)
	}
	return func(ctx context.Context, c *Online, next task.Next) error { return k.step(ctx, c, next) }
}

type checkpoint struct {
	dir   string
	every int
	parts []policies.Saver
	t     *task.Task[Online] // set in the first step
	saved int                // updates at the last save
	best  *Best              // the last one saved
}

func (k *checkpoint) step(ctx context.Context, c *Online, next task.Next) error {
	if k.t == nil {
		if err := k.begin(c); err != nil {
			return err
		}
	}
	if err := next(ctx); err != nil {
		return err
	}
	if c.Updates-k.saved >= k.every {
		if err := k.save(c); err != nil {
			return onNode(k.t, err)
		}
	}
	return k.saveBest(c)
}

func (k *checkpoint) begin(c *Online) error {
	t, err := c.taskOf()
	if err != nil {
		return err
	}
	if err := makeFolder(k.dir); err != nil {
		return onNode(t, err)
	}
	k.t, k.saved, k.best = t, c.Updates, c.Best
	t.OnFinish(func(_ context.Context, o task.Outcome) error {
		if o.Kind == task.Failure {
			return nil // the last good checkpoint stays
		}
		return errors.Join(k.save(t.Context()), k.saveBest(t.Context()))
	})
	return nil
}

// makeFolder makes the folder of the checkpoints and tries whether files can be
// written there: a run must not learn that after an hour.
func makeFolder(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".try.*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		if abs, e := filepath.Abs(dir); e == nil {
			dir = abs
		}
		return fmt.Errorf("checkpoint folder %s: %w: choose one that can be written, with ditask --dir or DITASK_DIR", dir, err)
	}
	return nil
}

func (k *checkpoint) save(c *Online) error {
	var a nn.Archive
	for _, p := range k.parts {
		if err := p.Save(&a); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	if err := errors.Join(c.job.save(&a), putCounters(&a, c)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	path := filepath.Join(k.dir, CheckpointFile)
	if err := writeArchive(path, &a); err != nil {
		return err
	}
	k.saved = c.Updates
	k.t.Logger().Info("checkpoint", slog.String("file", path), slog.Int("updates", c.Updates), slog.Int("env_steps", c.EnvSteps))
	return nil
}

func (k *checkpoint) saveBest(c *Online) error {
	if c.Best == k.best {
		return nil
	}
	var a nn.Archive
	a.Put("best", c.Best.Weights)
	if err := putEvaluation(&a, c.Best.Evaluation); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	k.best = c.Best
	return writeArchive(filepath.Join(k.dir, BestFile), &a)
}

// counters are the fields of the context that a checkpoint holds.
type counters struct {
	EnvSteps int        `json:"env_steps"`
	Episodes int        `json:"episodes"`
	Updates  int        `json:"updates"`
	Epsilon  float64    `json:"epsilon"`
	Eval     Evaluation `json:"eval"`
}

const (
	countersKey   = "rl/counters"
	evaluationKey = "rl/evaluation"
)

func putCounters(a *nn.Archive, c *Online) error {
	text, err := json.Marshal(counters{c.EnvSteps, c.Episodes, c.Updates, c.Epsilon, c.Eval})
	a.SetText(countersKey, string(text))
	return err
}

func putEvaluation(a *nn.Archive, e Evaluation) error {
	text, err := json.Marshal(e)
	a.SetText(evaluationKey, string(text))
	return err
}

// writeArchive puts a file in the place of path: written beside it, synced, and
// renamed.
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
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
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

func readArchive(path string) (*nn.Archive, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	a := new(nn.Archive)
	if err := a.UnmarshalBinary(data); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return a, nil
}

// Resume takes over what Checkpoint saved to dir: the counters of t's context,
// q, the parts that were saved besides, which must be the same, and, in the
// first step, environments and random numbers. It comes after ExchangeContext
// and before Run, on a chain that is assembled as the one that was saved. It
// reports whether there was a checkpoint.
//
// A lone node then goes on to the bit as if it had not been interrupted, if the
// replay buffer was saved too and the environments are envs.Snapshotter; those
// that are not begin new episodes.
func Resume(t *task.Task[Online], dir string, q policies.Saver, also ...policies.Saver) (bool, error) {
	a, err := readArchive(filepath.Join(dir, CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	var n counters
	if err := json.Unmarshal([]byte(a.Meta[countersKey]), &n); err != nil {
		return false, fmt.Errorf("resume: counters: %w", err)
	}
	for _, p := range append([]policies.Saver{q}, also...) {
		if err := p.Restore(a); err != nil {
			return false, fmt.Errorf("resume: %w", err)
		}
	}
	c := t.Context()
	if c.job == nil {
		return false, fmt.Errorf("resume: %w", errNoExchange)
	}
	c.job.resumed = a
	c.EnvSteps, c.Episodes, c.Updates, c.Epsilon, c.Eval = n.EnvSteps, n.Episodes, n.Updates, n.Epsilon, n.Eval
	c.Best, err = LoadBest(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("resume: %w", err)
	}
	return true, nil
}

// LoadBest reads the best weights that Checkpoint saved to dir. Without such a
// file the error wraps fs.ErrNotExist.
func LoadBest(dir string) (*Best, error) {
	path := filepath.Join(dir, BestFile)
	a, err := readArchive(path)
	if err != nil {
		return nil, err
	}
	b := new(Best)
	if err := json.Unmarshal([]byte(a.Meta[evaluationKey]), &b.Evaluation); err != nil {
		return nil, fmt.Errorf("read %s: evaluation: %w", path, err)
	}
	if b.Weights, err = a.State("best"); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}
