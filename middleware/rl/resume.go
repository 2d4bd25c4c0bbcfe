package rl

import (
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

// ResumeConfig describes what is resumed. The zero value works.
type ResumeConfig struct {
	// Required makes a missing checkpoint an error, as for a user who asks to
	// resume. Otherwise the run then begins at 0, as for a node that was restarted
	// before its first checkpoint.
	Required bool
	// Also are the parts that were saved besides the policy: those of
	// CheckpointConfig.
	Also []policies.Saver
}

// ErrNoCheckpoint is wrapped by the error of Resume if there is no checkpoint.
var ErrNoCheckpoint = errors.New("there is no checkpoint")

// Resume takes over what Checkpoint saved to dir: the counters of t's context, the
// best weights, q, the parts that were saved besides, and, in the first step,
// environments and random numbers. It comes after Exchange and before Run, on a chain
// that is assembled as the one that was saved. It logs what the run goes on from, or
// that there is nothing, and reports whether there was a checkpoint.
//
// A lone node then goes on to the bit as if it had not been interrupted, if the
// replay buffer was saved too and the environments are envs.Snapshotter; those
// that are not begin new episodes. In lockstep it is the same for all nodes of a job
// of as many: only the learner calls Resume, the others get their states from it. At
// their own pace, collectors and the evaluator begin new episodes.
func Resume(t *task.Task[Online], dir string, q policies.Saver, cfg ...ResumeConfig) (bool, error) {
	var config ResumeConfig
	if len(cfg) > 0 {
		config = cfg[0]
	}
	path := filepath.Join(dir, CheckpointFile)
	a, err := readArchive(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && config.Required:
		return false, fmt.Errorf("resume from folder %s: %w: give --dir of a run that has %s, or leave out --resume",
			absolute(dir), ErrNoCheckpoint, CheckpointFile)
	case errors.Is(err, fs.ErrNotExist):
		t.Logger().Info("begin at 0: this run ended before its first checkpoint", slog.String("folder", dir))
		return false, nil
	case err != nil:
		return false, fmt.Errorf("resume: %w", err)
	}
	if err := takeOver(t, a, q, config.Also); err != nil {
		return false, fmt.Errorf("resume from %s: %w", path, err)
	}
	attrs := []any{slog.String("file", path), slog.Int("updates", t.Context().Updates), slog.Int("env_steps", t.Context().EnvSteps)}
	if m, ok := q.(policies.Model); ok {
		attrs = append(attrs, slog.Uint64("version", m.Version()))
	}
	t.Logger().Info("resume", attrs...)
	return true, nil
}

// takeOver makes the task, q and the other parts what they were when a was saved.
func takeOver(t *task.Task[Online], a *nn.Archive, q policies.Saver, also []policies.Saver) error {
	c := t.Context()
	if c.job == nil {
		return errNoExchange
	}
	var n counters
	if err := json.Unmarshal([]byte(a.Meta[countersKey]), &n); err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	for _, p := range append([]policies.Saver{q}, also...) {
		if err := p.Restore(a); err != nil {
			return err
		}
	}
	if err := c.job.restore(a); err != nil {
		return err
	}
	c.EnvSteps, c.Episodes, c.Updates, c.Epsilon, c.Eval = n.EnvSteps, n.Episodes, n.Updates, n.Epsilon, n.Eval
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

// bestOf is what putBest wrote.
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
