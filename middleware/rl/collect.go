package rl

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// Actor is what Collect needs of a policy with discrete actions.
type Actor interface {
	policies.Greedy
	// Version is that of the weights.
	Version() uint64
	// Returns are the number of steps and the discount of the returns that the
	// policy learns from.
	Returns() (steps int, gamma float64)
	// Seed is the policy's seed; environments and exploration derive theirs
	// from it and the node's id.
	Seed() uint64
}

// The streams of random numbers of one node.
const (
	streamExplore = iota + 1
	streamTrain
	streamEval
)

// derive returns the seed of one stream of one node: an even spread over 48
// bits, so that the consecutive seeds of a vector's environments do not meet
// those of another. It is the finaliser of SplitMix64 (G. Steele et al., 2014).
func derive(seed uint64, node, stream int) uint64 {
	z := seed + uint64(node)*0xbf58476d1ce4e5b9 + uint64(stream)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> 16
}

// EpsGreedy makes the collectors after it choose a random action with the
// probability that the schedule has for the env steps of the job, and the
// policy's otherwise.
func EpsGreedy(q Actor, epsilon policies.Schedule) task.Middleware[Online] {
	e := &explorer{q: q}
	return task.Step(func(_ context.Context, c *Online) error {
		if err := e.begin(c); err != nil {
			return err
		}
		e.eps = epsilon(c.EnvSteps)
		c.Epsilon = e.eps
		c.act = e.choose
		return nil
	})
}

type explorer struct {
	q      Actor
	node   int
	eps    float64
	source *rand.PCG
	rng    *rand.Rand
	choose func(dst []int, obs []float32) error // act, made once
}

func (e *explorer) begin(c *Online) error {
	if e.rng != nil {
		return nil
	}
	t, err := c.taskOf()
	if err != nil {
		return err
	}
	e.node, e.source, e.choose = t.NodeID(), new(rand.PCG), e.act
	e.rng = rand.New(e.source)
	return c.join("explore", e)
}

func (e *explorer) fresh(c *Online) error {
	e.source.Seed(derive(e.q.Seed(), e.node, streamExplore), uint64(c.EnvSteps))
	return nil
}

func (e *explorer) act(dst []int, obs []float32) error {
	if err := e.q.Greedy(dst, obs); err != nil {
		return err
	}
	policies.EpsGreedy(dst, e.eps, e.q.Actions(), e.rng)
	return nil
}

func (e *explorer) state() (any, error) { return e.source.MarshalBinary() }

func (e *explorer) resume(text []byte) error {
	var state []byte
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	return e.source.UnmarshalBinary(state)
}

// CollectConfig describes a collection. The zero value works.
type CollectConfig struct {
	// VectorSteps is how many steps of the vector one step of the task takes;
	// 0 means 1.
	VectorSteps int
}

// Collect steps the environments of env with the actions of the policy and
// leaves the transitions in the context, as n-step returns if the policy learns
// from such. Any autoreset mode will do. It does nothing in a step that ends
// the run.
func Collect(q Actor, env envs.Vector, cfg ...CollectConfig) task.Middleware[Online] {
	steps, gamma := q.Returns()
	n := env.Num()
	k := &collector{
		q: q, env: env, times: 1,
		nstep:   policies.NewNStep(steps, gamma, n),
		actions: make([]int, n), obs: make([]float32, n*q.ObsDim()),
		done: make([]bool, n), running: make([]envs.Episode, n), action: make([]float32, 1),
		columns: policies.TransitionColumns(q.ObsDim(), 1),
	}
	if len(cfg) > 0 && cfg[0].VectorSteps > 0 {
		k.times = cfg[0].VectorSteps
	}
	if d := env.ObservationSpace().Dim(); d != q.ObsDim() {
		panic(fmt.Sprintf("rl: %s has %d observed values, the policy %d", env.Name(), d, q.ObsDim()))
	}
	mustBeDiscrete(env)
	return task.Step(func(ctx context.Context, c *Online) error { return k.step(ctx, c) })
}

// mustBeDiscrete panics unless the actions of env are numbered from 0.
func mustBeDiscrete(env envs.Vector) {
	if d, ok := env.ActionSpace().(envs.Discrete); !ok || d.Start != 0 {
		panic(fmt.Sprintf("rl: %s has actions in %v, not in a Discrete space from 0", env.Name(), env.ActionSpace()))
	}
}

type collector struct {
	q       Actor
	env     envs.Vector
	times   int
	nstep   *policies.NStep
	columns []policies.Column
	out     Trajectory
	joined  bool
	node    int
	obs     []float32 // before the step, copied
	actions []int
	flat    []float32 // actions, as the environments take them
	action  []float32 // of one environment
	done    []bool
	running []envs.Episode
}

func (k *collector) step(_ context.Context, c *Online) error {
	if c.Stopped {
		return nil
	}
	t, err := c.taskOf()
	if err != nil {
		return err
	}
	if !k.joined {
		k.joined, k.node = true, t.NodeID()
		if err := c.join("collect", k); err != nil {
			return err
		}
	}
	act := c.act
	if act == nil {
		act = k.q.Greedy
	}
	k.out.Batch.Init(k.columns...)
	k.out = Trajectory{Collects: 1, Batch: k.out.Batch, Episodes: k.out.Episodes[:0], Epsilon: c.Epsilon}
	for range k.times {
		if err := k.once(act); err != nil {
			return onNode(t, fmt.Errorf("collect at env step %d: %w", c.EnvSteps+k.out.EnvSteps, err))
		}
	}
	c.EnvSteps += k.out.EnvSteps
	c.Episodes += len(k.out.Episodes)
	c.collected(&k.out)
	return nil
}

// fresh starts the first episodes.
func (k *collector) fresh(c *Online) error {
	// A run that is resumed without its environments is not to repeat the
	// episodes that it began with.
	obs, err := k.env.Reset(derive(k.q.Seed()+uint64(c.EnvSteps), k.node, streamTrain))
	if err != nil {
		return onNode(c.job.t, err)
	}
	copy(k.obs, obs)
	clear(k.done)
	clear(k.running)
	for i := range k.running {
		k.nstep.Drop(i)
	}
	return nil
}

// collectorState is what a checkpoint holds of a collector.
type collectorState struct {
	Env     []byte
	Obs     []float32
	Done    []bool
	Running []envs.Episode
	NStep   *policies.NStep
}

func (k *collector) state() (any, error) {
	env, err := snapshot(k.env)
	return collectorState{env, k.obs, k.done, k.running, k.nstep}, err
}

func (k *collector) resume(text []byte) error {
	s := collectorState{NStep: k.nstep}
	if err := json.Unmarshal(text, &s); err != nil { //nolint:musttag // written and read back by the fields' own names
		return err
	}
	if len(s.Obs) != len(k.obs) || len(s.Done) != len(k.done) || len(s.Running) != len(k.running) || s.NStep != k.nstep {
		return fmt.Errorf("the state is of other environments than %d %s", k.env.Num(), k.env.Name())
	}
	if err := k.nstep.Check(k.columns...); err != nil {
		return err
	}
	copy(k.obs, s.Obs)
	copy(k.done, s.Done)
	copy(k.running, s.Running)
	return putBack(k.env, s.Env)
}

// once takes one step of the vector.
func (k *collector) once(act func([]int, []float32) error) error {
	if k.env.Autoreset() == envs.Disabled {
		obs, err := k.env.ResetSome(k.done)
		if err != nil {
			return err
		}
		copy(k.obs, obs)
	}
	if err := act(k.actions, k.obs); err != nil {
		return err
	}
	res, err := k.env.Step(flat(&k.flat, k.actions))
	if err != nil {
		return err
	}
	d := k.q.ObsDim()
	for i, a := range k.actions {
		k.done[i] = res.Terminated[i] || res.Truncated[i]
		if res.Reset[i] { // no transition, and what came before led nowhere
			k.nstep.Drop(i)
			k.running[i] = envs.Episode{}
			continue
		}
		next := res.Obs
		if k.done[i] {
			next = res.FinalObs
		}
		k.action[0] = float32(a)
		k.nstep.Add(&k.out.Batch, i, policies.Transition{
			Obs: k.obs[i*d : (i+1)*d], Action: k.action, Reward: float32(res.Rewards[i]), NextObs: next[i*d : (i+1)*d],
			Terminated: res.Terminated[i], Truncated: res.Truncated[i], Steps: 1, Version: k.q.Version(),
		})
		k.out.EnvSteps++
		k.count(i, res.Rewards[i])
	}
	copy(k.obs, res.Obs)
	return nil
}

// flat returns discrete actions as the values that a vector takes, in buf.
func flat(buf *[]float32, actions []int) []float32 {
	*buf = (*buf)[:0]
	for _, a := range actions {
		*buf = append(*buf, float32(a))
	}
	return *buf
}

// count adds a reward to the running episode of environment i.
func (k *collector) count(i int, reward float64) {
	k.running[i].Return += reward
	k.running[i].Length++
	if k.done[i] {
		k.out.Episodes = append(k.out.Episodes, k.running[i])
		k.running[i] = envs.Episode{}
	}
}
