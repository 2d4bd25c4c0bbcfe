package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// Config describes a training run. The zero value is a run that is not saved.
type Config struct {
	Seed uint64 // of environments and exploration: each node derives its own from it
	// Dir is the folder of the checkpoints, for Checkpoint and Resume; see parallel.Node.Dir.
	Dir string
	// Resume restores the checkpoint in Dir, if there is one, before the first step. Without a
	// checkpoint the run begins at 0, for a node that was restarted before its first checkpoint, or
	// fails if MustResume is set, for a user who asks to resume.
	Resume, MustResume bool
	// Infos are names of numbers and truth values in envs.Info.Values of the last step of an episode, at most
	// MaxInfos, equal on all nodes. Their means are the columns rollout/NAME of Log, over those of the newest 100
	// episodes that have the number, and eval/NAME, over those of an evaluation; the columns of is_success are
	// rollout/success_rate and eval/success_rate. A value that is not a finite number ends the run with ErrInfo,
	// and a name without a value in the first 20 episodes is logged as a warning.
	Infos []string
}

// Run is what the middleware of one training run share on one node. [New] returns one.
type Run struct {
	t      *task.Task[Online]
	policy policies.Policy
	cfg    Config

	began    bool       // the exchange has taken its first step
	step     int        // number of the step that the exchange has begun, from 1
	first    int        // the clock before that
	known    Evaluation // the newest before that
	lockstep bool
	sends    bool // this node collects for a learner on another one, at its own pace
	// torn reports that the state of this node is between two steps: in lockstep it must not be
	// saved.
	torn bool

	group *group // of the learners, if there are several and this node is one
	// Of Checkpoint: there is a folder, and CheckpointConfig.WithoutData.
	saves, withoutData bool

	source      data.Source // of Learn; nil: none
	stop        StopConfig  // of Stop
	stopAt      float64     // of Evaluate; 0: none
	evaluations []*evaluate // of Evaluate on an evaluator, in the order of their calls
	done        bool        // the run was resumed, and has nothing left to do
	nothing     string      // why, if it is done
	offline     bool        // it needs no collector
	env         string      // name of the environments of Collect
	columns     []policies.Column

	logsScores bool     // Log of this node writes the episodes of evaluations
	scores     []Scores // that it has not written; at most maxUnlogged
	log        *logger  // nil: there is none on this node
	logged     string   // the state of Log to begin with; empty: there is none
	unsent     []Scores // of this node's evaluator, in this step

	resumed bool              // from a checkpoint
	begin   map[string]string // states by the names of the parts, to begin with; nil: none
	parts   []namedPart
	others  map[int]string // in lockstep, on the learner: the states of the other nodes by id
}

// New returns the run of a policy in a task. Its methods are the middleware of the task; the
// middleware of a role that this node does not have do nothing:
//
//	t.Use(r.Exchange(rl.ExchangeConfig{}), r.Collect(...), r.Learn(...), r.Evaluate(...), r.Checkpoint(...), r.Log(...))
func New(t *task.Task[Online], policy policies.Policy, cfg Config) *Run {
	if err := CheckInfos(cfg.Infos); err != nil {
		panic("rl: " + err.Error())
	}
	spec := policy.Spec()
	return &Run{t: t, policy: policy, cfg: cfg, columns: columnsOf(&spec), others: map[int]string{}}
}

// columnsOf returns the columns of the data collected for a policy.
func columnsOf(spec *policies.Spec) []policies.Column {
	obs, action := spec.Obs.Dim(), spec.Action.Dim()
	columns := slices.DeleteFunc(policies.TransitionColumns(obs, action), func(c policies.Column) bool {
		return (c.Name == policies.NextObs || c.Name == policies.Steps) && !spec.LearnsFrom(c.Name)
	})
	columns = append(columns, spec.Extra...)
	if spec.Bootstrap != "" {
		columns = append(columns, policies.Column{Name: policies.Bootstrap, Kind: policies.Float32})
	}
	return columns
}

// leads reports whether this node is the only learner, or the first one of several.
func (r *Run) leads() bool { return r.t.Has(Learner) && (r.group == nil || r.group.leads()) }

type namedPart struct {
	name string
	part
}

// part is a middleware with a state, such as random numbers, that a checkpoint must hold.
type part interface {
	// fresh begins without a state, at the counters of c.
	fresh(c *Online) error
	// state returns a value that JSON can hold.
	state() (any, error)
	// resume restores a state.
	resume(text []byte) error
}

var errNoExchange = errors.New("rl: Exchange must come first in the chain")

// join makes p a part of the run's checkpoints, and makes it continue from its state in the
// checkpoint or begin without one.
func (r *Run) join(c *Online, name string, p part) error {
	if !r.began {
		return errNoExchange
	}
	full, n := name, 1
	for slices.ContainsFunc(r.parts, func(p namedPart) bool { return p.name == full }) {
		n++
		full = numbered(name, n)
	}
	joined := namedPart{full, p}
	r.parts = append(r.parts, joined)
	return r.start(c, joined)
}

// numbered returns the name of the n-th part of a kind, from 1.
func numbered(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, n)
}

// start makes p continue from the state that the run begins with, or begin without one if there is
// none for p.
func (r *Run) start(c *Online, p namedPart) error {
	text, ok := r.begin[p.name]
	if !ok {
		return p.fresh(c)
	}
	if err := p.resume([]byte(text)); err != nil {
		return r.onNode(fmt.Errorf("resume %s: %w", p.name, err))
	}
	return nil
}

// goBack restores the states of this node; with empty states the node begins anew.
func (r *Run) goBack(c *Online, states string) error {
	r.begin = nil
	if states != "" {
		if err := json.Unmarshal([]byte(states), &r.begin); err != nil {
			return r.onNode(fmt.Errorf("resume: state of the node: %w", err))
		}
	}
	for _, p := range r.parts {
		if err := r.start(c, p); err != nil {
			return err
		}
	}
	return nil
}

// each calls put with the state of every part, including parts that have not begun since the run
// was resumed. It omits a part whose environments cannot be saved: that part begins new episodes
// when the run is resumed.
func (r *Run) each(put func(name, text string)) error {
	for name, text := range r.begin {
		if !slices.ContainsFunc(r.parts, func(p namedPart) bool { return p.name == name }) {
			put(name, text)
		}
	}
	for _, p := range r.parts {
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

// states returns the states of all parts as one text, for goBack.
func (r *Run) states() (string, error) {
	all := map[string]string{}
	if err := r.each(func(name, text string) { all[name] = text }); err != nil {
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
func (r *Run) save(a *nn.Archive) error {
	for node, states := range r.others {
		a.SetText(nodePrefix+strconv.Itoa(node), states)
	}
	if r.group != nil {
		a.Set(passedKey, r.group.passed)
	}
	return r.each(func(name, text string) { a.SetText(partPrefix+name, text) })
}

// restore makes the run begin with the states that save has written.
func (r *Run) restore(a *nn.Archive) error {
	r.resumed, r.begin, r.others = true, map[string]string{}, map[int]string{}
	for key, text := range a.Meta {
		if name, ok := strings.CutPrefix(key, partPrefix); ok {
			r.begin[name] = text
		}
		if id, ok := strings.CutPrefix(key, nodePrefix); ok {
			node, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("state of node %q: %w", id, err)
			}
			r.others[node] = text
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

// putBack restores the state of env at snapshot.
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
