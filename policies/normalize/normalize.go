// Package normalize gives a policy observations of mean 0 and variance 1, and rewards on the scale of its returns.
//
//	p := normalize.New(ppo.New(cfg), normalize.Config{})
//	err := p.Act(&act)               // the observations are normalised before ppo sees them
//	metrics, err := p.Learn(&batch)  // those of the batch too
//	sum, err := p.Observe(&collected)
//	err = p.Merge(sum)               // takes new observations into account
//
// The result is a policy like any other. The mean and the deviation of each observed value are part of
// its weights: they go where those go, to collectors, evaluators, checkpoints and exported files, so
// that a trained policy never meets observations of another scale than it was trained with. Environments,
// batches and replay buffers keep raw observations.
//
// Only a learner calls [Policy.Observe] and [Policy.Merge], once for all that was collected since the last
// call, whichever node collected it; package rl does so after the updates of a step. So the statistics are those
// of all nodes together, and data that was collected with the newest weights is learned from at the scale
// at which it was acted on. Before the first call observations pass as they are, only clipped.
//
// With Config.Rewards the policy learns from rewards that are divided by the standard deviation of the
// discounted returns of all that was collected, and clipped. Replay buffers, datasets and the returns that a run
// reports have raw rewards: Learn divides those of each batch by the present deviation. An algorithm whose
// advantages are computed before Learn has them divided there:
//
//	rollout.ScaleRewards(p.ScaleRewards) // rollout is a *data.Rollout
//
// The deviation includes the rewards that are about to be learned from ([Policy.MergeReturns]). It is part of
// checkpoints, and not of the weights, because acting does not need it.
//
// Source of the method: as VecNormalize of Stable-Baselines3 and Gymnasium's NormalizeObservation,
// clipped to 10 deviations; the moments are merged as by T. F. Chan et al. (1979).
//
// A Policy is not safe for concurrent use.
package normalize

import (
	"fmt"
	"math"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/graph"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a normalisation. The zero value works.
type Config struct {
	// Clip bounds the magnitude of normalised values; 0 means 10, as in Stable-Baselines3.
	Clip float64
	// Epsilon is added to the variance; 0 means 1e-8, as in Stable-Baselines3 and Gymnasium.
	Epsilon float64
	// Rewards has the policy learn from rewards that are divided by the standard deviation of the discounted
	// returns, and clipped to +-Clip.
	Rewards bool
	// Gamma is the discount of one step in these returns, more than 0 and at most 1; 0 means 0.99, as in
	// Stable-Baselines3.
	Gamma float64
	// RawObservations leaves observations as they are.
	RawObservations bool
}

// Policy is a policy behind normalised observations.
type Policy struct {
	policies.Policy
	cfg     Config
	moments *envs.Moments
	delta   *envs.Moments
	returns *envs.Moments // discounted, with the weight of 1/10,000 of a variance of 1 at first
	scales  bool          // Learn scales rewards
	rewards []float32
	mean    []float32
	scale   []float32 // 1 over the deviation
	obs     []float32
	batch   policies.Batch
	blocks  [2][]float32
	summary []float64
}

var (
	_ policies.Exporter     = (*Policy)(nil)
	_ policies.Observer     = (*Policy)(nil)
	_ policies.RewardScaler = (*Policy)(nil)
	_ policies.Parallel     = (*Policy)(nil)
)

// New returns p behind normalised observations. It panics if a field of cfg is negative or not finite, or Gamma more
// than 1.
func New(p policies.Policy, cfg Config) *Policy {
	if !(cfg.Clip >= 0) || !(cfg.Epsilon >= 0) || math.IsInf(cfg.Clip, 0) || math.IsInf(cfg.Epsilon, 0) {
		panic(fmt.Sprintf("normalize: Clip %v and Epsilon %v must be finite and not negative", cfg.Clip, cfg.Epsilon))
	}
	if !(cfg.Gamma >= 0 && cfg.Gamma <= 1) {
		panic(fmt.Sprintf("normalize: Gamma %v must be at least 0 and at most 1", cfg.Gamma))
	}
	if cfg.Gamma == 0 {
		cfg.Gamma = 0.99
	}
	if cfg.Clip == 0 {
		cfg.Clip = 10
	}
	if cfg.Epsilon == 0 {
		cfg.Epsilon = 1e-8
	}
	spec := p.Spec()
	d := spec.Obs.Dim()
	n := &Policy{
		Policy: p, cfg: cfg, moments: envs.NewDelta(d), delta: envs.NewDelta(d), mean: make([]float32, d), scale: make([]float32, d),
		returns: envs.NewMoments(1), scales: cfg.Rewards && spec.LearnsFrom(policies.Reward),
	}
	n.rescale()
	return n
}

// SetRate changes the learning rate of the policy, if it has one.
func (p *Policy) SetRate(rate float64) {
	if s, ok := p.Policy.(interface{ SetRate(rate float64) }); ok {
		s.SetRate(rate)
	}
}

// SetClip changes the clip range of the policy's objective, if it has one.
func (p *Policy) SetClip(epsilon float64) {
	if s, ok := p.Policy.(interface{ SetClip(epsilon float64) }); ok {
		s.SetClip(epsilon)
	}
}

// SetAllReduce has several learners train the policy together. It panics if that is no policies.Parallel.
func (p *Policy) SetAllReduce(f nn.AllReduce) {
	inner, ok := p.Policy.(policies.Parallel)
	if !ok {
		panic(fmt.Sprintf("normalize: %T is no policies.Parallel", p.Policy))
	}
	inner.SetAllReduce(f)
}

// Moments returns the moments of the observations. They are valid until the next Merge.
func (p *Policy) Moments() *envs.Moments { return p.moments }

// Returns returns the moments of the discounted returns. They are valid until the next MergeReturns.
func (p *Policy) Returns() *envs.Moments { return p.returns }

// Act chooses an action for each row of a.Obs.
func (p *Policy) Act(a *policies.Act) error {
	if p.cfg.RawObservations {
		return p.Policy.Act(a)
	}
	raw := a.Obs
	p.obs = p.normalized(p.obs, raw)
	a.Obs = p.obs
	err := p.Policy.Act(a)
	a.Obs = raw
	return err
}

// Learn makes one update from a batch of raw observations and rewards.
func (p *Policy) Learn(b *policies.Batch) ([]policies.Metric, error) {
	p.batch.N = b.N
	p.batch.Columns = append(p.batch.Columns[:0], b.Columns...)
	for i, name := range [...]string{policies.Obs, policies.NextObs} {
		if c := p.batch.Column(name); c != nil && !p.cfg.RawObservations {
			p.blocks[i] = p.normalized(p.blocks[i], c.Floats)
			c.Floats = p.blocks[i]
		}
	}
	if c := p.batch.Column(policies.Reward); c != nil && p.scales {
		p.rewards = append(p.rewards[:0], c.Floats...)
		p.ScaleRewards(p.rewards)
		c.Floats = p.rewards
	}
	return p.Policy.Learn(&p.batch)
}

// ScaleRewards divides rewards by the standard deviation of the returns, and clips them.
func (p *Policy) ScaleRewards(rewards []float32) {
	scale, clip := 1/math.Sqrt(p.returns.Var[0]+p.cfg.Epsilon), float32(p.cfg.Clip)
	for i, r := range rewards {
		rewards[i] = clipped(float32(float64(r)*scale), clip)
	}
}

// ReturnDiscount is Config.Gamma with Config.Rewards, and 0 without.
func (p *Policy) ReturnDiscount() float64 {
	if !p.cfg.Rewards {
		return 0
	}
	return p.cfg.Gamma
}

// MergeReturns takes the counts, means and variances of discounted returns into account. Moments that are not
// finite, or negative where they cannot be, are an error and change nothing.
func (p *Policy) MergeReturns(moments []float64) error {
	ok := len(moments)%3 == 0 && !slices.ContainsFunc(moments, notFinite)
	for i := 0; ok && i < len(moments); i += 3 {
		ok = moments[i] >= 0 && moments[i+2] >= 0
	}
	if !ok {
		return fmt.Errorf("normalize: %v are not the count, the mean and the variance of discounted rewards", moments)
	}
	for i := 0; i < len(moments); i += 3 {
		p.returns.Merge(&envs.Moments{Count: moments[i], Mean: moments[i+1 : i+2], Var: moments[i+2 : i+3]})
	}
	return nil
}

func notFinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// normalized writes the rows of raw to dst, at their scale. A row that is cut off stays as it is, for
// the policy to refuse.
func (p *Policy) normalized(dst, raw []float32) []float32 {
	dst = append(dst[:0], raw...)
	d, clip := len(p.mean), float32(p.cfg.Clip)
	for len(raw) >= d {
		row := dst[len(dst)-len(raw):][:d]
		for i, x := range row {
			row[i] = clipped((x-p.mean[i])*p.scale[i], clip)
		}
		raw = raw[d:]
	}
	return dst
}

// Export implements policies.Exporter: observations are normalised with the present statistics, and clipped,
// before the policy sees them. A policy that is no Exporter is an error that wraps [graph.ErrUnsupported].
func (p *Policy) Export(g *graph.Graph, obs graph.Value) error {
	inner, ok := p.Policy.(policies.Exporter)
	if !ok {
		return fmt.Errorf("normalize: %T %w: it is no policies.Exporter", p.Policy, graph.ErrUnsupported)
	}
	if p.cfg.RawObservations {
		return inner.Export(g, obs)
	}
	mean, scale := g.Constant(tensors[0], p.mean, len(p.mean)), g.Constant(tensors[1], p.scale, len(p.scale))
	clip := float32(p.cfg.Clip)
	return inner.Export(g, obs.Sub(mean).Mul(scale).Clip(-clip, clip))
}

// clipped leaves NaN and infinities for the policy to find.
func clipped(x, clip float32) float32 {
	if math.IsInf(float64(x), 0) {
		return x
	}
	return max(-clip, min(clip, x))
}

// Observe sums the observations of collected rows up: their number, means and variances. Observations
// that are not finite are an error.
func (p *Policy) Observe(b *policies.Batch) ([]float64, error) {
	if b.N == 0 || p.cfg.RawObservations {
		return nil, nil
	}
	if err := b.Needs(policies.Column{Name: policies.Obs, Kind: policies.Float32, Shape: []int{len(p.mean)}}); err != nil {
		return nil, fmt.Errorf("normalize: %w", err)
	}
	clear(p.delta.Mean)
	clear(p.delta.Var)
	p.delta.Count = 0
	for obs := b.Floats(policies.Obs); len(obs) > 0; obs = obs[len(p.mean):] {
		p.delta.Add(obs[:len(p.mean)])
	}
	p.summary = append(append(append(p.summary[:0], p.delta.Count), p.delta.Mean...), p.delta.Var...)
	return p.summary, nil
}

// Merge adds a summary of Observe to the moments. A summary of other observations, or one that is not
// finite, is an error and changes nothing.
func (p *Policy) Merge(summary []float64) error {
	if len(summary) == 0 {
		return nil
	}
	d := len(p.mean)
	if len(summary) != 1+2*d || slices.ContainsFunc(summary, notFinite) || summary[0] < 0 || slices.Min(summary[1+d:]) < 0 {
		return fmt.Errorf("normalize: the summary %v is not of %d observed values", summary, d)
	}
	p.moments.Merge(&envs.Moments{Count: summary[0], Mean: summary[1 : 1+d], Var: summary[1+d:]})
	p.rescale()
	return nil
}

// rescale computes the scales for Act and Learn.
func (p *Policy) rescale() {
	for i := range p.mean {
		p.mean[i], p.scale[i] = 0, 1
		if p.moments.Count > 0 {
			p.mean[i] = float32(p.moments.Mean[i])
			p.scale[i] = float32(1 / math.Sqrt(p.moments.Var[i]+p.cfg.Epsilon))
		}
	}
}

// tensors are the names of the weights.
var tensors = [...]string{"normalize/mean", "normalize/scale"}

// Weights returns a copy of the policy's weights, with the mean of each observed value and one over its
// deviation.
func (p *Policy) Weights() nn.State {
	s := p.Policy.Weights()
	if p.cfg.RawObservations {
		return s
	}
	for i, v := range [...][]float32{p.mean, p.scale} {
		s.Tensors = append(s.Tensors, nn.Tensor{Name: tensors[i], Shape: []int{len(v)}, Data: slices.Clone(v)})
	}
	return s
}

// Load replaces the weights, to act with. Moments observed here stay, and count again from the next Merge.
func (p *Policy) Load(s nn.State) error {
	if p.cfg.RawObservations {
		return p.Policy.Load(s)
	}
	var own [2][]float32
	for i, name := range tensors {
		t, _ := s.Lookup(name)
		if len(t.Data) != len(p.mean) {
			return fmt.Errorf("tensor %s has %d values, want %d", name, len(t.Data), len(p.mean))
		}
		if err := t.CheckFinite(); err != nil {
			return err
		}
		own[i] = t.Data
	}
	rest := s
	rest.Tensors = slices.DeleteFunc(slices.Clone(s.Tensors), func(t nn.Tensor) bool { return slices.Contains(tensors[:], t.Name) })
	if err := p.Policy.Load(rest); err != nil {
		return err
	}
	copy(p.mean, own[0])
	copy(p.scale, own[1])
	return nil
}

// parts returns the parts of a checkpoint besides the policy.
func (p *Policy) parts() (parts policies.Parts) {
	if p.cfg.Rewards {
		parts = append(parts, policies.NumbersPart("normalize.returns", &p.returns.Count, &p.returns.Mean[0], &p.returns.Var[0]))
	}
	if p.cfg.RawObservations {
		return parts
	}
	numbers := []*float64{&p.moments.Count}
	for i := range p.mean {
		numbers = append(numbers, &p.moments.Mean[i], &p.moments.Var[i])
	}
	return append(parts, policies.NumbersPart("normalize.moments", numbers...),
		policies.ValuesPart("normalize.mean", p.mean, nil), policies.ValuesPart("normalize.scale", p.scale, nil))
}

// Save writes the policy and the moments to a.
func (p *Policy) Save(a *nn.Archive) error {
	if err := p.Policy.Save(a); err != nil {
		return err
	}
	return p.parts().Save(a)
}

// Restore restores p to the state at Save. An error may leave it half restored.
func (p *Policy) Restore(a *nn.Archive) error {
	if err := p.Policy.Restore(a); err != nil {
		return err
	}
	if err := p.parts().Restore(a); err != nil {
		return err
	}
	if m := p.moments; m.Count < 0 || slices.ContainsFunc(m.Var, func(v float64) bool { return v < 0 }) {
		return fmt.Errorf("restore normalize.moments: a count of %v or a variance is negative", m.Count)
	}
	if m := p.returns; m.Count < 0 || m.Var[0] < 0 {
		return fmt.Errorf("restore normalize.returns: the count %v or the variance %v is negative", m.Count, m.Var[0])
	}
	return nil
}
