// Package offpolicy trains a policy from a replay buffer in one goroutine, for the tests of
// algorithms.
//
//	t, err := offpolicy.New(p, env, offpolicy.Config{RandomSteps: 1000, Batch: 64, Seed: 1})
//	err = t.Run(8000)                                   // env steps
//	score, err := offpolicy.Evaluate(p, env, 20, 99)    // mean return of greedy episodes
//
// The vector is in SameStep mode. Nothing here is safe for concurrent use.
package offpolicy

import (
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
)

// Config describes a [Trainer].
type Config struct {
	RandomSteps int    // env steps with random actions, before the first update
	Batch       int    // rows of an update
	UpdateEvery int    // env steps for each update; 0 means 1
	Capacity    int    // rows of the replay buffer; 0 means 100,000
	Seed        uint64 // of the environments, of exploration and of samples
	// Source, if not nil, is learned from instead of a uniform buffer. Batch, UpdateEvery and Capacity do
	// not count then.
	Source data.Source
}

// Trainer collects transitions, with the n-step returns of the policy's Spec, and learns from samples of
// them.
type Trainer struct {
	// Returns are those of the episodes that ended, with exploration.
	Returns []float64

	cfg       Config
	p         policies.Policy
	env       envs.Vector
	replay    *data.Uniform
	nstep     *policies.NStep
	act       policies.Act
	row, mini policies.Batch
	running   []float64
	steps     int // env steps
	updates   int
}

// New resets the environments.
func New(p policies.Policy, env envs.Vector, cfg Config) (*Trainer, error) {
	if cfg.UpdateEvery == 0 {
		cfg.UpdateEvery = 1
	}
	t := &Trainer{
		cfg: cfg, p: p, env: env, running: make([]float64, env.Num()), act: acting(p, env, cfg.Seed),
		replay: data.NewUniform(data.UniformConfig{Capacity: cfg.Capacity, Seed: cfg.Seed}),
		nstep:  policies.NewNStep(max(p.Spec().NStep, 1), p.Spec().Gamma, env.Num()),
	}
	t.row.Init(policies.TransitionColumns(p.Spec().Obs.Dim(), p.Spec().Action.Dim())...)
	first, err := env.Reset(cfg.Seed)
	copy(t.act.Obs, first)
	return t, err
}

func acting(p policies.Policy, env envs.Vector, seed uint64) policies.Act {
	n, spec := env.Num(), p.Spec()
	return policies.Act{
		Obs: make([]float32, n*spec.Obs.Dim()), Action: make([]float32, n*spec.Action.Dim()), Rand: rand.New(rand.NewPCG(seed, 1)),
		Noise: make([]float32, n*spec.NoiseSize),
	}
}

// Run makes that many env steps, and the updates that belong to them.
func (t *Trainer) Run(steps int) error {
	for end := t.steps + steps; t.steps < end; {
		if err := t.collect(); err != nil {
			return err
		}
		if err := t.learn(); err != nil {
			return err
		}
	}
	return nil
}

// learn makes the updates that are due.
func (t *Trainer) learn() error {
	if t.cfg.Source != nil {
		if err := t.cfg.Source.Add(&t.row); err != nil {
			return err
		}
		for t.cfg.Source.Next(&t.mini) {
			if _, err := t.p.Learn(&t.mini); err != nil {
				return err
			}
			if err := t.cfg.Source.Learned(&t.mini); err != nil {
				return err
			}
		}
		return nil
	}
	if err := t.replay.Add(&t.row); err != nil {
		return err
	}
	for t.updates < (t.steps-t.cfg.RandomSteps)/t.cfg.UpdateEvery {
		t.updates++
		if err := t.replay.Sample(&t.mini, t.cfg.Batch); err != nil {
			return err
		}
		if _, err := t.p.Learn(&t.mini); err != nil {
			return err
		}
	}
	return nil
}

// collect makes one step of each environment.
func (t *Trainer) collect() error {
	t.act.EnvSteps, t.act.Metrics = t.steps, t.act.Metrics[:0]
	if err := t.p.Act(&t.act); err != nil {
		return err
	}
	obs, action := t.p.Spec().Obs.Dim(), t.p.Spec().Action.Dim()
	if t.steps < t.cfg.RandomSteps {
		for i := range t.env.Num() {
			t.env.ActionSpace().Sample(t.act.Action[i*action:(i+1)*action], t.act.Rand)
		}
	}
	res, err := t.env.Step(t.act.Action)
	if err != nil {
		return err
	}
	t.row.Resize(0)
	for i := range t.env.Num() {
		next := res.Obs
		t.running[i] += res.Rewards[i]
		if res.Terminated[i] || res.Truncated[i] {
			next = res.FinalObs
			t.Returns = append(t.Returns, t.running[i])
			t.running[i] = 0
		}
		t.nstep.Add(&t.row, i, policies.Transition{
			Obs: t.act.Obs[i*obs : (i+1)*obs], Action: t.act.Action[i*action : (i+1)*action], Reward: float32(res.Rewards[i]),
			NextObs: next[i*obs : (i+1)*obs], Terminated: res.Terminated[i], Truncated: res.Truncated[i], Steps: 1, Version: t.p.Version(),
		})
	}
	copy(t.act.Obs, res.Obs)
	t.steps += t.env.Num()
	return nil
}

// Last returns the mean of the newest n returns, or of all if there are fewer.
func (t *Trainer) Last(n int) float64 { return mean(t.Returns[max(len(t.Returns)-n, 0):]) }

func mean(v []float64) (m float64) {
	for _, x := range v {
		m += x / float64(len(v))
	}
	return m
}

// Evaluate returns the mean return of that many episodes of greedy actions in each environment.
func Evaluate(p policies.Policy, env envs.Vector, episodes int, seed uint64) (float64, error) {
	act := acting(p, env, seed)
	act.Greedy = true
	first, err := env.Reset(seed)
	if err != nil {
		return 0, fmt.Errorf("evaluate: %w", err)
	}
	copy(act.Obs, first)
	var returns []float64
	ended, running := make([]int, env.Num()), make([]float64, env.Num())
	for len(returns) < episodes*env.Num() {
		if err := p.Act(&act); err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
		res, err := env.Step(act.Action)
		if err != nil {
			return 0, fmt.Errorf("evaluate: %w", err)
		}
		copy(act.Obs, res.Obs)
		for i := range running {
			running[i] += res.Rewards[i]
			if !res.Terminated[i] && !res.Truncated[i] {
				continue
			}
			if ended[i]++; ended[i] <= episodes { // no more of the short ones
				returns = append(returns, running[i])
			}
			running[i] = 0
		}
	}
	return mean(returns), nil
}
