package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// job is what the middleware of one task share.
type job struct {
	t        *task.Task[Online]
	lockstep bool
	// torn says that what this node holds is between two steps: in lockstep it must
	// not be saved.
	torn bool

	resumed bool              // by Resume
	begin   map[string]string // states by the names of the parts, to begin with; nil: none
	parts   []namedPart
	others  map[int]string // in lockstep, on the learner: the states of the other nodes by id
}

type namedPart struct {
	name string
	part
}

// part is a middleware with a state, such as random numbers, that a checkpoint must
// hold.
type part interface {
	// fresh begins anew, at the counters of c.
	fresh(c *Online) error
	// state returns a value that JSON can hold.
	state() (any, error)
	// resume takes the state over.
	resume(text []byte) error
}

var errNoExchange = errors.New("rl.Exchange must come first in the chain")

// taskOf returns the task that a middleware runs in.
func (c *Online) taskOf() (*task.Task[Online], error) {
	if c.job == nil {
		return nil, errNoExchange
	}
	return c.job.t, nil
}

// inLockstep reports whether the nodes of the job go in lockstep.
func (c *Online) inLockstep() bool { return c.job != nil && c.job.lockstep }

// join makes p a part of the job's checkpoints, and has it go on from its state in the
// checkpoint or begin anew.
func (c *Online) join(name string, p part) error {
	j := c.job
	if j == nil {
		return errNoExchange
	}
	full, n := name, 1
	for slices.ContainsFunc(j.parts, func(p namedPart) bool { return p.name == full }) {
		n++
		full = fmt.Sprintf("%s.%d", name, n)
	}
	joined := namedPart{full, p}
	j.parts = append(j.parts, joined)
	return c.start(joined)
}

// start has p go on from the state that the job begins with, or begin anew if that
// has none of p.
func (c *Online) start(p namedPart) error {
	text, ok := c.job.begin[p.name]
	if !ok {
		return p.fresh(c)
	}
	if err := p.resume([]byte(text)); err != nil {
		return onNode(c.job.t, fmt.Errorf("resume %s: %w", p.name, err))
	}
	return nil
}

// goBack makes this node what it was when states were taken; empty: new.
func (c *Online) goBack(states string) error {
	j := c.job
	j.begin = nil
	if states != "" {
		if err := json.Unmarshal([]byte(states), &j.begin); err != nil {
			return onNode(j.t, fmt.Errorf("resume: state of the node: %w", err))
		}
	}
	for _, p := range j.parts {
		if err := c.start(p); err != nil {
			return err
		}
	}
	return nil
}

// each calls put with the state of every part. A part whose environments cannot be
// saved is left out: it begins new episodes when the run is resumed.
func (j *job) each(put func(name, text string)) error {
	for _, p := range j.parts {
		v, err := p.state()
		if errors.Is(err, envs.ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return fmt.Errorf("save %s: %w", p.name, err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("save %s: %w", p.name, err)
		}
		put(p.name, string(text))
	}
	return nil
}

// states are the states of all parts as one text, for goBack.
func (j *job) states() (string, error) {
	all := map[string]string{}
	if err := j.each(func(name, text string) { all[name] = text }); err != nil {
		return "", err
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// The names of states in an archive.
const (
	partPrefix = "rl/part."
	nodePrefix = "rl/node."
)

// save writes the states of all parts, and of the other nodes, to a.
func (j *job) save(a *nn.Archive) error {
	for node, states := range j.others {
		a.SetText(nodePrefix+strconv.Itoa(node), states)
	}
	return j.each(func(name, text string) { a.SetText(partPrefix+name, text) })
}

// restore has the run begin with what save wrote.
func (j *job) restore(a *nn.Archive) error {
	j.resumed, j.begin, j.others = true, map[string]string{}, map[int]string{}
	for key, text := range a.Meta {
		if name, ok := strings.CutPrefix(key, partPrefix); ok {
			j.begin[name] = text
		}
		if id, ok := strings.CutPrefix(key, nodePrefix); ok {
			node, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("state of node %q: %w", id, err)
			}
			j.others[node] = text
		}
	}
	return nil
}

// snapshot returns the state of env.
func snapshot(env envs.Vector) ([]byte, error) {
	s, ok := env.(envs.Snapshotter)
	if !ok {
		return nil, fmt.Errorf("%w: %s", envs.ErrNoSnapshot, env.Name())
	}
	return s.AppendSnapshot(nil)
}

// putBack makes env what it was at snapshot.
func putBack(env envs.Vector, state []byte) error {
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
