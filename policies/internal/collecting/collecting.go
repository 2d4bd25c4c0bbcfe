// Package collecting collects batches for on-policy algorithms in their tests.
//
//	c, err := collecting.New(policy, env, 128, seed)
//	batch, err := c.Collect()             // 128 steps of each environment
//	fmt.Println(c.Mean(20), c.EnvSteps)   // mean return of the last 20 episodes
//
// A collector is not safe for concurrent use.
package collecting

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// Collector collects batches of sequences from a vector in SameStep mode with a policy, which may be
// replaced between two batches by one with the same Spec.
type Collector struct {
	Policy   policies.Policy
	EnvSteps int       // taken so far, in all environments
	Returns  []float64 // of the episodes that ended

	env     envs.Vector
	length  int
	batch   policies.Batch
	act     policies.Act
	ahead   policies.Act // on observations that are not in the batch, for their values
	running []float64
}

// New resets the environments with a seed, which is also that of the actions. Sequences have length
// steps.
func New(p policies.Policy, env envs.Vector, length int, seed uint64) (*Collector, error) {
	if env.Autoreset() != envs.SameStep {
		return nil, fmt.Errorf("collecting from a vector in the mode %v, want SameStep", env.Autoreset())
	}
	n, spec := env.Num(), p.Spec()
	c := &Collector{Policy: p, env: env, length: length, running: make([]float64, n)}
	for _, a := range []*policies.Act{&c.act, &c.ahead} {
		a.Obs, a.Action = make([]float32, n*spec.Obs.Dim()), make([]float32, n*spec.Action.Dim())
		a.State, a.Noise = make([]float32, n*spec.StateSize), make([]float32, n*spec.NoiseSize)
		for _, column := range spec.Extra {
			a.Extra = append(a.Extra, make([]float32, n*column.Width()))
		}
	}
	c.act.Rand, c.act.Reset = rand.New(rand.NewPCG(seed, 1)), slices.Repeat([]bool{true}, n)
	c.ahead.Greedy = true
	obs, err := env.Reset(seed)
	if err != nil {
		return nil, err
	}
	copy(c.act.Obs, obs)
	columns := slices.Concat(policies.TransitionColumns(spec.Obs.Dim(), spec.Action.Dim()), spec.Extra)
	if spec.Bootstrap != "" {
		columns = append(columns, policies.Column{Name: policies.Bootstrap, Kind: policies.Float32})
	}
	c.batch.Init(columns...)
	c.batch.Resize(n * length)
	return c, nil
}

// Collect fills the batch, which the next call overwrites: step t of environment k is row k*length+t.
func (c *Collector) Collect() (*policies.Batch, error) {
	for t := range c.length {
		if err := c.step(t); err != nil {
			return nil, err
		}
	}
	c.EnvSteps += c.batch.N
	return &c.batch, nil
}

// Mean returns the mean return of the newest n episodes, and 0 before there are as many.
func (c *Collector) Mean(n int) float64 {
	if len(c.Returns) < n {
		return 0
	}
	var sum float64
	for _, v := range c.Returns[len(c.Returns)-n:] {
		sum += v
	}
	return sum / float64(n)
}

// step makes step t of all environments.
func (c *Collector) step(t int) error {
	if err := c.Policy.Act(&c.act); err != nil {
		return err
	}
	res, err := c.env.Step(c.act.Action)
	if err != nil {
		return err
	}
	copy(c.ahead.Obs, res.Obs)
	version, d := c.Policy.Version(), c.Policy.Spec().Obs.Dim()
	for k := range c.env.Num() {
		row, over := k*c.length+t, res.Terminated[k] || res.Truncated[k]
		c.running[k] += res.Rewards[k]
		if over {
			copy(c.ahead.Obs[k*d:(k+1)*d], res.FinalObs[k*d:])
			c.Returns, c.running[k] = append(c.Returns, c.running[k]), 0
		}
		c.act.Reset[k] = over
		c.put(policies.Obs, row, k, c.act.Obs)
		c.put(policies.Action, row, k, c.act.Action)
		c.put(policies.NextObs, row, k, c.ahead.Obs)
		for i, column := range c.Policy.Spec().Extra {
			c.put(column.Name, row, k, c.act.Extra[i])
		}
		c.batch.Floats(policies.Reward)[row] = float32(res.Rewards[k])
		c.batch.Bytes(policies.Terminated)[row], c.batch.Bytes(policies.Truncated)[row] = bit(res.Terminated[k]), bit(res.Truncated[k])
		c.batch.Bytes(policies.Steps)[row], c.batch.Words(policies.Version)[row] = 1, version
	}
	copy(c.act.Obs, res.Obs)
	if t == c.length-1 || slices.Contains(res.Truncated, true) {
		return c.bootstrap(t)
	}
	return nil
}

// bootstrap writes the values of the observations behind step t, if the policy has them.
func (c *Collector) bootstrap(t int) error {
	spec := c.Policy.Spec()
	i := slices.IndexFunc(spec.Extra, func(column policies.Column) bool { return column.Name == spec.Bootstrap })
	if i < 0 {
		return nil
	}
	copy(c.ahead.State, c.act.State)
	if err := c.Policy.Act(&c.ahead); err != nil {
		return err
	}
	for k := range c.env.Num() {
		c.put(policies.Bootstrap, k*c.length+t, k, c.ahead.Extra[i])
	}
	return nil
}

// put copies the values of environment k to a row of a column.
func (c *Collector) put(name string, row, k int, values []float32) {
	w := len(values) / c.env.Num()
	copy(c.batch.Floats(name)[row*w:(row+1)*w], values[k*w:(k+1)*w])
}

func bit(v bool) uint8 {
	if v {
		return 1
	}
	return 0
}

// Random returns a batch of n rows with the columns that p learns from: normal numbers, actions of the
// space, log-probabilities of -1.5, no ends but one in ten, and a version of 0.
func Random(rng *rand.Rand, p policies.Policy, n int) *policies.Batch {
	var b policies.Batch
	b.Init(p.Spec().Learns...)
	b.Resize(n)
	for i := range b.Columns {
		c := &b.Columns[i]
		for k := range c.Floats {
			c.Floats[k] = float32(rng.NormFloat64())
		}
		for k := range c.Bytes {
			c.Bytes[k] = bit(rng.IntN(10) == 0)
		}
		clear(c.Words)
	}
	w := p.Spec().Action.Dim()
	for i := range n {
		p.Spec().Action.Sample(b.Floats(policies.Action)[i*w:(i+1)*w], rng)
	}
	for i := range b.Floats(policies.LogProb) {
		b.Floats(policies.LogProb)[i] = -1.5
	}
	return &b
}
