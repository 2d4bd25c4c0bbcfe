// Package algorithm describes an algorithm by the hyperparameters that a config file, a command line or a
// tuner can set, and builds its policy and its source of data from their values.
//
//	func Algorithm() algorithm.Algorithm {
//		return algorithm.Algorithm{Name: "td3", About: "...", Source: "...", Declare: declare}
//	}
//
//	func declare(p *algorithm.Params) algorithm.Build {
//		gamma := p.Float("gamma", 0.99, "", "discount of one step", "CleanRL", algorithm.Above(0), algorithm.AtMost(1))
//		return func(t algorithm.Task) (algorithm.Setup, error) {
//			return algorithm.Setup{Policy: New(Config{Obs: t.Obs, Action: action, Gamma: *gamma}), ...}, nil
//		}
//	}
//
// Declare is called once for each training, so that no two share a value. The result depends on the
// values and the task alone.
//
// Errors name the hyperparameter, the value and the wanted values. Nothing here is safe for concurrent use.
package algorithm

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
)

// Algorithm is a way to learn a policy.
type Algorithm struct {
	Name   string // in lower case, such as "ppo"
	About  string // one sentence without a full stop, such as "learns the value of each action by temporal differences"
	Source string // the paper, and where the defaults are from
	// Envs and Steps are the usual number of environments of each collector, and the env steps of a run, or the
	// updates of one that is offline.
	Envs, Steps int
	// Discrete and Continuous say which actions it learns.
	Discrete, Continuous bool
	// Tabular reports that observations are states of a table, and not encoded.
	Tabular bool
	// Offline reports that it learns from dataset files, and collects nothing.
	Offline bool
	// Declare adds the hyperparameters to p, and returns the function that builds a Setup from their values.
	Declare func(p *Params) Build
}

// Build makes a setup from values that were declared.
type Build func(t Task) (Setup, error)

// Task describes the task that an algorithm learns.
type Task struct {
	Obs, Action envs.Space
	// Goal is the environment's, or nil: see envs.Goal.
	Goal envs.Goal
	Seed uint64
	Envs int // environments that each collector steps
	// Steps is the length of the run in env steps, or in updates if the algorithm is offline: schedules go by it.
	Steps   int
	Threads int // goroutines that may compute a large update; 0 means 1
}

// Discrete returns the space of discrete actions.
func (t *Task) Discrete() (envs.Discrete, error) {
	d, ok := t.Action.(envs.Discrete)
	if !ok {
		return d, fmt.Errorf("actions are %v, and it learns those of a Discrete", t.Action)
	}
	return d, nil
}

// Box returns the space of continuous actions.
func (t *Task) Box() (envs.Box, error) {
	b, ok := t.Action.(envs.Box)
	if !ok {
		return b, fmt.Errorf("actions are %v, and it learns those of a Box", t.Action)
	}
	return b, policies.Bounded(b)
}

// Setup has the parts with which an algorithm learns.
type Setup struct {
	Policy policies.Policy
	// Source is nil if the algorithm is offline: the caller opens the dataset then, with Batch rows.
	Source data.Source
	Batch  int
	// Goals, if not 0, is how many goals in hindsight each transition is given: Source is a *data.Replay, for her.New.
	Goals int
	// VectorSteps, Episodes and RandomSteps are those of a collection: see rl.CollectConfig.
	VectorSteps, Episodes, RandomSteps int
	// Rate and Clip, if not nil, are the learning rate and the clip range by env steps: see rl.LearnConfig.
	Rate, Clip policies.Schedule
	// OnPolicy reports that it learns only from data of the newest weights: processes run in lockstep.
	OnPolicy bool
	// ClipActions reports that the policy's actions may leave the bounds of a Box.
	ClipActions bool
}
