package rl

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// job is what the middleware of one task share.
type job struct {
	t *task.Task[Online]
	// synchronous says that the nodes go in step.
	synchronous bool

	resumed *nn.Archive // what the run goes on from, or nil
	names   []string    // of the parts
	parts   []part
}

// part is a middleware with a state of its own, such as random numbers, that a
// checkpoint must hold.
type part interface {
	// state returns a value that JSON can hold.
	state() (any, error)
	// resume takes the state over.
	resume(text []byte) error
}

var errNoExchange = errors.New("rl.ExchangeContext must come first in the chain")

// taskOf returns the task that a middleware runs in.
func (c *Online) taskOf() (*task.Task[Online], error) {
	if c.job == nil {
		return nil, errNoExchange
	}
	return c.job.t, nil
}

// inStep says that the nodes of the job go in step.
func (c *Online) inStep() bool { return c.job != nil && c.job.synchronous }

// join makes p a part of the job's checkpoints and resumes it if there is
// something to go on from. It reports whether there was.
func (c *Online) join(name string, p part) (resumed bool, err error) {
	j := c.job
	if j == nil {
		return false, errNoExchange
	}
	key := fmt.Sprintf("rl/part%d.%s", len(j.parts), name)
	j.names, j.parts = append(j.names, key), append(j.parts, p)
	if j.resumed == nil {
		return false, nil
	}
	text, ok := j.resumed.Meta[key]
	if !ok {
		return false, nil
	}
	if err := p.resume([]byte(text)); err != nil {
		return false, onNode(j.t, fmt.Errorf("resume %s: %w", name, err))
	}
	return true, nil
}

// save writes the state of all parts to a. A part whose environments cannot be
// saved is left out: it begins new episodes when the run is resumed.
func (j *job) save(a *nn.Archive) error {
	for i, p := range j.parts {
		v, err := p.state()
		if errors.Is(err, envs.ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return fmt.Errorf("save %s: %w", j.names[i], err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("save %s: %w", j.names[i], err)
		}
		a.SetText(j.names[i], string(text))
	}
	return nil
}

// snapshot returns the state of env.
func snapshot(env envs.VectorEnv[int]) ([]byte, error) {
	s, ok := env.(envs.Snapshotter)
	if !ok {
		return nil, fmt.Errorf("%w: %s", envs.ErrNoSnapshot, env.Name())
	}
	return s.AppendSnapshot(nil)
}

// putBack makes env what it was at snapshot.
func putBack(env envs.VectorEnv[int], state []byte) error {
	s, ok := env.(envs.Snapshotter)
	if !ok {
		return fmt.Errorf("%w: %s", envs.ErrNoSnapshot, env.Name())
	}
	rest, err := s.RestoreSnapshot(state)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the snapshot of %s", len(rest), env.Name())
	}
	return err
}
