package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// ErrNoCheckpoint is wrapped by the error of a run that must be resumed and has no checkpoint.
var ErrNoCheckpoint = errors.New("there is no checkpoint")

// takeUp restores the checkpoint, if the run is to be resumed: the counters, the best weights, the
// policy, its data and, when their middleware takes its first step, environments and random
// numbers. It logs the checkpoint that the run continues from, or that there is none.
//
// A lone node then continues bit for bit as if it had not been interrupted, if its data was saved too
// and the environments are envs.Snapshotter; other environments begin new episodes. In lockstep the
// same holds for all nodes of a job with as many nodes: they receive their states from the learner.
// Without lockstep, collectors and the evaluator begin new episodes.
func (r *Run) takeUp(c *Online) error {
	if !r.cfg.Resume && !r.cfg.MustResume || !r.t.Has(Learner) {
		return nil
	}
	path := filepath.Join(r.cfg.Dir, CheckpointFile)
	a, err := readArchive(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && r.cfg.MustResume:
		return fmt.Errorf("resume from folder %s: %w: give --dir of a run that has %s, or leave out --resume",
			absolute(r.cfg.Dir), ErrNoCheckpoint, CheckpointFile)
	case errors.Is(err, fs.ErrNotExist):
		r.t.Logger().Info("begin at 0: this run ended before its first checkpoint", slog.String("folder", r.cfg.Dir))
		return nil
	case err != nil:
		return fmt.Errorf("resume: %w", err)
	}
	if err := r.takeOver(c, a); err != nil {
		return fmt.Errorf("resume from %s: %w", path, err)
	}
	r.t.Logger().Info("resume", slog.String("file", path), slog.Int("updates", c.Updates), slog.Int("env_steps", c.EnvSteps),
		slog.Uint64("version", r.policy.Version()))
	return nil
}

// takeOver restores the state of the run from a.
func (r *Run) takeOver(c *Online, a *nn.Archive) error {
	if err := r.policy.Restore(a); err != nil {
		return err
	}
	return r.takeOverOwn(c, a)
}

// takeOverOwn is takeOver without the policy, which all learners have.
func (r *Run) takeOverOwn(c *Online, a *nn.Archive) error {
	var n counters
	if err := json.Unmarshal([]byte(a.Meta[countersKey]), &n); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	if _, ok := a.Meta[dataKey]; ok && r.source != nil {
		if err := r.source.Restore(a); err != nil {
			return err
		}
	}
	if err := r.restore(a); err != nil {
		return err
	}
	if r.group != nil && r.group.leads() {
		r.group.restore(a)
	}
	r.logged = a.Meta[logKey]
	c.EnvSteps, c.Episodes, c.Updates, c.Explored, c.Eval = n.EnvSteps, n.Episodes, n.Updates, n.Explored, n.Eval
	if _, ok := a.Meta[evaluationKey]; !ok {
		return nil
	}
	best, err := bestOf(a)
	c.Best = best
	return err
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
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

// LoadBest reads the best weights that Checkpoint saved to dir. Without such a
// file the error wraps fs.ErrNotExist.
func LoadBest(dir string) (*Best, error) {
	path := filepath.Join(dir, BestFile)
	a, err := readArchive(path)
	if err != nil {
		return nil, err
	}
	b, err := bestOf(a)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// bestOf returns the Best that putBest has written.
func bestOf(a *nn.Archive) (*Best, error) {
	var text bestText
	if err := json.Unmarshal([]byte(a.Meta[evaluationKey]), &text); err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	weights, err := a.State("best")
	if err != nil {
		return nil, err
	}
	return &Best{Evaluation: text.Evaluation, Weights: weights, Reached: text.Reached}, nil
}

// LoadPolicy restores policy, which must be like the one that Checkpoint saved to dir, as it was at the
// last checkpoint. Without such a file the error wraps fs.ErrNotExist.
func LoadPolicy(dir string, policy policies.Policy) error {
	return loadPolicy(filepath.Join(dir, CheckpointFile), policy)
}

// KeptFile returns the path of the checkpoint after that many updates that CheckpointConfig.Keep keeps in
// dir.
func KeptFile(dir string, updates int) string {
	return filepath.Join(dir, strings.Replace(keptPattern, "*", fmt.Sprintf("%09d", updates), 1))
}

// LoadKept is LoadPolicy for the checkpoint after that many updates that CheckpointConfig.Keep has kept.
func LoadKept(dir string, updates int, policy policies.Policy) error {
	return loadPolicy(KeptFile(dir, updates), policy)
}

func loadPolicy(path string, policy policies.Policy) error {
	a, err := readArchive(path)
	if err == nil {
		err = policy.Restore(a)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return err
}
