package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// The streams of random numbers of one node.
const (
	streamExplore = iota + 1
	streamTrain
	streamEval
)

// derive returns the seed of one stream of one node: a uniform distribution over 48 bits, so that
// the consecutive seeds of a vector's environments do not overlap those of another vector. It is
// the finaliser of SplitMix64 (G. Steele et al., 2014).
func derive(seed uint64, node, stream int) uint64 {
	z := seed + uint64(node)*0xbf58476d1ce4e5b9 + uint64(stream)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return (z ^ z>>31) >> 16
}

// CollectConfig describes a collection. The zero value works.
type CollectConfig struct {
	// VectorSteps is the number of steps of the vector in one step of the task, which is the length
	// of the sequences for a policy that learns from sequences. 0 means 1, or more on a collector
	// that sends transitions to a learner at its own pace: see [Run.Collect].
	VectorSteps int
	// Episodes, if not 0, is the minimum number of episodes that one step of the task collects: it
	// takes steps of the vector until that many have ended. The policy must learn from transitions, and
	// VectorSteps must be 0.
	Episodes int
	// RandomSteps is the number of env steps of the job at the beginning in which all actions are
	// drawn at random from the space instead of chosen by the policy.
	RandomSteps int
}

// Collect steps the environments of env with the actions of the policy, and puts the data that the
// policy learns from into the context. It does nothing in a step that ends the run. It panics if
// the spaces of env differ from those of the policy.
//
// A policy that learns from [policies.Steps] gets transitions, joined to n-step returns if
// Spec.NStep is set, from environments in any autoreset mode. Any other policy gets sequences: step t of
// environment k is row k*VectorSteps+t, and where an episode is truncated or the sequence ends, the
// column policies.Bootstrap has the value of the next observation. Sequences need environments in
// a mode other than [envs.NextStep], whose reset takes its own step.
//
// A message costs the learner as much time as a small update. Unless VectorSteps is set, a collector that sends
// transitions at its own pace therefore collects at least 64 of them or for a millisecond, so that only slow
// environments cause a message after each step.
func (r *Run) Collect(env envs.Vector, cfg CollectConfig) task.Middleware[Online] {
	spec := r.policy.Spec()
	k := &collector{
		r: r, env: env, cfg: cfg, spec: spec,
		done: make([]bool, env.Num()), running: make([]envs.Episode, env.Num()),
		act: newAct(&spec, env.Num()), transitions: spec.LearnsFrom(policies.Steps), now: time.Now,
	}
	if err := k.validate(); err != nil {
		panic(err.Error())
	}
	if s, ok := r.policy.(policies.RewardScaler); ok {
		k.discount = s.ReturnDiscount()
	}
	if k.discount > 0 {
		k.sums, k.moments = make([]float64, env.Num()), envs.NewDelta(1)
		k.last = envs.Moments{Count: 1, Mean: make([]float64, 1), Var: make([]float64, 1)}
	}
	if k.cfg.VectorSteps == 0 && k.cfg.Episodes == 0 {
		k.cfg.VectorSteps, k.fills = 1, k.transitions
	}
	if k.transitions {
		k.nstep = policies.NewNStep(max(spec.NStep, 1), spec.Gamma, env.Num())
	} else {
		k.behind = newAct(&spec, env.Num())
		k.behind.Greedy = true // its random numbers are not saved
	}
	r.env = env.Name()
	if !r.t.Has(Collector) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	return func(ctx context.Context, c *Online, next task.Next) error {
		if err := k.step(ctx, c); err != nil {
			return err
		}
		return next(ctx)
	}
}

// newAct returns the memory for the choice of n actions.
func newAct(spec *policies.Spec, n int) policies.Act {
	a := policies.Act{
		Obs: make([]float32, n*spec.Obs.Dim()), Action: make([]float32, n*spec.Action.Dim()),
		State: make([]float32, n*spec.StateSize), Noise: make([]float32, n*spec.NoiseSize), Reset: make([]bool, n),
	}
	for i := range spec.Extra {
		a.Extra = append(a.Extra, make([]float32, n*spec.Extra[i].Width()))
	}
	return a
}

type collector struct {
	r           *Run
	env         envs.Vector
	cfg         CollectConfig
	spec        policies.Spec
	transitions bool
	nstep       *policies.NStep // of transitions
	act         policies.Act    // the observations of the next step; State is that before its actions
	behind      policies.Act    // of observations behind the rows of a sequence
	out         Trajectory
	joined      bool
	source      rand.PCG
	done        []bool // of the last step
	running     []envs.Episode
	discount    float64       // of sums; 0: there are none
	sums        []float64     // discounted returns of the running episodes
	moments     *envs.Moments // of sums after each env step of this step of the task
	last        envs.Moments  // of the last one
	fills       bool          // continues to fullRows where it sends at its own pace
	now         func() time.Time
}

// A message of transitions has at least fullRows rows, unless they take longer than fullTime to
// collect.
const (
	fullRows = 64
	fullTime = time.Millisecond
)

// validate returns every fault of the config, and every difference between the environments and the
// requirements of the policy.
func (k *collector) validate() error {
	name, n := k.env.Name(), k.cfg.VectorSteps
	switch {
	case n < 0 || k.cfg.RandomSteps < 0 || k.cfg.Episodes < 0:
		return fmt.Errorf("rl: collect config: VectorSteps %d, Episodes %d and RandomSteps %d must not be negative", n, k.cfg.Episodes,
			k.cfg.RandomSteps)
	case k.cfg.Episodes > 0 && n > 0:
		return fmt.Errorf("rl: collect config: VectorSteps is %d and Episodes is %d: set one of them", n, k.cfg.Episodes)
	case k.cfg.Episodes > 0 && !k.transitions:
		return fmt.Errorf("rl: collect config: Episodes is %d, but the policy learns from sequences, whose length is VectorSteps", k.cfg.Episodes)
	case k.cfg.RandomSteps > 0 && len(k.spec.Extra) > 0:
		return fmt.Errorf("rl: RandomSteps is %d, but the policy must choose all actions: it adds %v", k.cfg.RandomSteps, k.spec.Extra[0])
	case k.transitions && len(k.spec.Extra) > 0:
		return fmt.Errorf("rl: a policy that learns from %s cannot add columns of its own", policies.Steps)
	case !k.transitions && k.env.Autoreset() == envs.NextStep:
		return fmt.Errorf("rl: %s is reset in steps of its own, which a policy that learns from sequences cannot use: "+
			"make it with envs.SameStep", name)
	}
	return suits(k.env, &k.spec)
}

// suits returns the differences between the spaces of an environment and those of a policy.
func suits(env envs.Vector, spec *policies.Spec) error {
	if have, want := env.ObservationSpace().Dim(), spec.Obs.Dim(); have != want {
		return fmt.Errorf("rl: %s has %d observed values, the policy %d", env.Name(), have, want)
	}
	have, want := env.ActionSpace(), spec.Action
	same := have.Dim() == want.Dim()
	switch h := have.(type) {
	case envs.Discrete:
		same = h == want
	case envs.MultiDiscrete:
		w, ok := want.(envs.MultiDiscrete)
		same = ok && slices.Equal(h.N, w.N)
	default:
		_, ok := want.(envs.Box)
		same = same && ok
	}
	if !same {
		return fmt.Errorf("rl: %s has actions in %v, the policy in %v", env.Name(), have, want)
	}
	return nil
}

func (k *collector) step(ctx context.Context, c *Online) error {
	if c.Stopped {
		return nil
	}
	if !k.joined {
		k.joined = true
		k.act.Rand = rand.New(&k.source)
		if err := k.r.join(c, "collect", k); err != nil {
			return err
		}
	}
	if k.r.evaluationDue() {
		return nil
	}
	k.out = Trajectory{Collects: 1, Batch: k.out.Batch, Episodes: k.out.Episodes[:0], Infos: k.out.Infos[:0], Explored: k.out.Explored[:0]}
	b := &k.out.Batch
	b.Init(k.r.columns...)
	if !k.transitions {
		b.Resize(k.env.Num() * k.cfg.VectorSteps)
	}
	if err := k.steps(ctx, c); err != nil {
		return err
	}
	if k.discount > 0 {
		k.out.Returns = []float64{k.moments.Count, k.moments.Mean[0], k.moments.Var[0]}
	}
	c.EnvSteps += k.out.EnvSteps
	c.Episodes += len(k.out.Episodes)
	c.Explored = k.out.Explored
	c.collected(&k.out)
	return nil
}

// steps takes the steps of the vector that belong to one step of the task. Whole episodes may never
// end, so they are cut short when ctx ends; the environments are then restored, for a resumed run.
func (k *collector) steps(ctx context.Context, c *Online) error {
	var before []byte
	if k.cfg.Episodes > 0 {
		s, err := k.state()
		if err == nil {
			before, err = json.Marshal(s)
		}
		if err != nil && !errors.Is(err, envs.ErrNoSnapshot) {
			return k.r.onNode(err)
		}
	}
	if k.discount > 0 {
		k.moments.Count, k.moments.Mean[0], k.moments.Var[0] = 0, 0, 0
	}
	began := k.now()
	for t := 0; t < k.cfg.VectorSteps || len(k.out.Episodes) < k.cfg.Episodes || k.few(began); t++ {
		if k.cfg.Episodes > 0 && ctx.Err() != nil {
			err := context.Cause(ctx)
			if before != nil {
				err = errors.Join(err, k.resume(before))
			}
			return err
		}
		if err := k.once(c, t); err != nil {
			return k.r.onNode(fmt.Errorf("collect at env step %d: %w", c.EnvSteps+k.out.EnvSteps, err))
		}
	}
	return nil
}

// few reports whether the data collected since began is too small for a message.
func (k *collector) few(began time.Time) bool {
	return k.fills && k.r.sends && k.out.Batch.Len() < fullRows && k.now().Sub(began) < fullTime
}

// fresh begins the first episodes.
func (k *collector) fresh(c *Online) error {
	seed, node := k.r.cfg.Seed, k.r.t.NodeID()
	k.source.Seed(derive(seed, node, streamExplore), uint64(c.EnvSteps))
	// A run that is resumed without its environments must not repeat its first episodes.
	obs, err := k.env.Reset(derive(seed+uint64(c.EnvSteps), node, streamTrain))
	if err != nil {
		return k.r.onNode(err)
	}
	copy(k.act.Obs, obs)
	clear(k.act.State)
	clear(k.act.Noise)
	clear(k.done)
	clear(k.running)
	clear(k.sums)
	for i := range k.running {
		k.act.Reset[i] = true
		if k.nstep != nil {
			k.nstep.Drop(i)
		}
	}
	return nil
}

// collectorState is the state of a collector.
type collectorState struct {
	Env         []byte
	Random      []byte
	Obs, State  []float32
	Done, Reset []bool
	Running     []envs.Episode
	Noise       []float32       `json:",omitempty"`
	Sums        []float64       `json:",omitempty"`
	NStep       *policies.NStep `json:",omitempty"`
}

func (k *collector) state() (any, error) {
	env, err := snapshot(k.env)
	if err != nil {
		return nil, err
	}
	random, err := k.source.MarshalBinary()
	return collectorState{env, random, k.act.Obs, k.act.State, k.done, k.act.Reset, k.running, k.act.Noise, k.sums, k.nstep}, err
}

func (k *collector) resume(text []byte) error {
	s := collectorState{NStep: k.nstep}
	if err := json.Unmarshal(text, &s); err != nil { //nolint:musttag // written and read back by the fields' own names
		return err
	}
	if len(s.Obs) != len(k.act.Obs) || len(s.State) != len(k.act.State) || len(s.Done) != len(k.done) || len(s.Reset) != len(k.done) ||
		len(s.Running) != len(k.running) || len(s.Noise) != len(k.act.Noise) || len(s.Sums) != len(k.sums) || s.NStep != k.nstep {
		return fmt.Errorf("the state is of other environments than %d %s", k.env.Num(), k.env.Name())
	}
	if k.nstep != nil {
		if err := k.nstep.Check(k.r.columns...); err != nil {
			return err
		}
	}
	if err := k.source.UnmarshalBinary(s.Random); err != nil {
		return err
	}
	copy(k.act.Obs, s.Obs)
	copy(k.act.State, s.State)
	copy(k.act.Noise, s.Noise)
	copy(k.act.Reset, s.Reset)
	copy(k.done, s.Done)
	copy(k.running, s.Running)
	copy(k.sums, s.Sums)
	return putBack(k.env, s.Env)
}

// once takes step t of the vector.
func (k *collector) once(c *Online, t int) error {
	if k.env.Autoreset() == envs.Disabled {
		obs, err := k.env.ResetSome(k.done)
		if err != nil {
			return err
		}
		copy(k.act.Obs, obs)
	}
	if err := k.choose(c); err != nil {
		return err
	}
	res, err := k.env.Step(k.act.Action)
	if err != nil {
		return err
	}
	for i := range k.done {
		k.done[i] = res.Terminated[i] || res.Truncated[i]
	}
	if k.transitions {
		k.addTransitions(res)
	} else {
		k.addRows(t, res)
		if err := k.bootstrap(t, res); err != nil {
			return err
		}
	}
	for i := range k.done {
		if res.Reset[i] { // no step of an episode
			k.running[i] = envs.Episode{}
			continue
		}
		k.out.EnvSteps++
		k.count(i, res.Rewards[i])
		if k.done[i] && len(k.r.cfg.Infos) > 0 {
			if k.out.Infos, err = AppendInfos(k.out.Infos, k.r.cfg.Infos, k.env.Name(), i, res.Infos[i]); err != nil {
				return err
			}
		}
	}
	copy(k.act.Obs, res.Obs)
	copy(k.act.Reset, k.done)
	return nil
}

// choose fills k.act.
func (k *collector) choose(c *Online) error {
	a := &k.act
	if a.EnvSteps = c.EnvSteps + k.out.EnvSteps; a.EnvSteps < k.cfg.RandomSteps {
		for i, w := 0, k.spec.Action.Dim(); i < len(a.Action); i += w {
			k.spec.Action.Sample(a.Action[i:i+w], a.Rand)
		}
		return nil
	}
	a.Metrics = a.Metrics[:0]
	if err := k.r.policy.Act(a); err != nil {
		return err
	}
	k.out.Explored = append(k.out.Explored[:0], a.Metrics...)
	return nil
}

// addTransitions appends the transitions that the step has completed.
func (k *collector) addTransitions(res *envs.Result) {
	d, w := k.spec.Obs.Dim(), k.spec.Action.Dim()
	for i := range k.done {
		if res.Reset[i] { // not a transition, and the previous one has no successor
			k.nstep.Drop(i)
			continue
		}
		next := res.Obs
		if k.done[i] {
			next = res.FinalObs
		}
		k.nstep.Add(&k.out.Batch, i, policies.Transition{
			Obs: k.act.Obs[i*d : (i+1)*d], Action: k.act.Action[i*w : (i+1)*w], Reward: float32(res.Rewards[i]), NextObs: next[i*d : (i+1)*d],
			Terminated: res.Terminated[i], Truncated: res.Truncated[i], Steps: 1, Version: k.r.policy.Version(),
		})
	}
}

// addRows writes step t of each sequence.
func (k *collector) addRows(t int, res *envs.Result) {
	b, version := &k.out.Batch, k.r.policy.Version()
	obs, action, reward := b.Floats(policies.Obs), b.Floats(policies.Action), b.Floats(policies.Reward)
	terminated, truncated, versions := b.Bytes(policies.Terminated), b.Bytes(policies.Truncated), b.Words(policies.Version)
	next := b.Floats(policies.NextObs)
	d, w := k.spec.Obs.Dim(), k.spec.Action.Dim()
	for i := range k.done {
		row := i*k.cfg.VectorSteps + t
		copy(obs[row*d:(row+1)*d], k.act.Obs[i*d:])
		copy(action[row*w:(row+1)*w], k.act.Action[i*w:])
		reward[row], versions[row] = float32(res.Rewards[i]), version
		terminated[row], truncated[row] = bit(res.Terminated[i]), bit(res.Truncated[i])
		for x := range k.spec.Extra {
			c := &k.spec.Extra[x]
			n := c.Width()
			copy(b.Floats(c.Name)[row*n:(row+1)*n], k.act.Extra[x][i*n:])
		}
		if next != nil {
			from := res.Obs
			if k.done[i] {
				from = res.FinalObs
			}
			copy(next[row*d:(row+1)*d], from[i*d:])
		}
	}
}

// bootstrap writes the value of the observations after rows that are not followed by the next step
// of the same episode.
func (k *collector) bootstrap(t int, res *envs.Result) error {
	values := k.out.Batch.Floats(policies.Bootstrap)
	if values == nil {
		return nil
	}
	last := t == k.cfg.VectorSteps-1
	for i := range k.done {
		values[i*k.cfg.VectorSteps+t] = 0
	}
	if !last && !slices.Contains(res.Truncated, true) {
		return nil
	}
	a, d := &k.behind, k.spec.Obs.Dim()
	copy(a.Obs, res.Obs)
	copy(a.State, k.act.State)
	for i := range k.done {
		if k.done[i] {
			copy(a.Obs[i*d:(i+1)*d], res.FinalObs[i*d:])
		}
	}
	if err := k.r.policy.Act(a); err != nil {
		return err
	}
	x := slices.IndexFunc(k.spec.Extra, func(c policies.Column) bool { return c.Name == k.spec.Bootstrap })
	for i := range k.done {
		if res.Truncated[i] || last && !res.Terminated[i] {
			values[i*k.cfg.VectorSteps+t] = a.Extra[x][i]
		}
	}
	return nil
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

// count adds a reward to the running episode of environment i.
func (k *collector) count(i int, reward float64) {
	k.running[i].Return += reward
	k.running[i].Length++
	if k.discount > 0 {
		k.sums[i] = float64(k.sums[i]*k.discount) + reward
		k.last.Mean[0] = k.sums[i]
		k.moments.Merge(&k.last)
		if k.done[i] {
			k.sums[i] = 0
		}
	}
	if k.done[i] {
		k.out.Episodes = append(k.out.Episodes, k.running[i])
		k.running[i] = envs.Episode{}
	}
}
