package envs

import (
	"fmt"
	"math"
)

// NormalizeConfig describes a normalisation. The zero value works.
type NormalizeConfig struct {
	// Moments are the moments so far, which several environments may share, or
	// which an earlier run saved. They have as many values as an observation for
	// NormalizeObservation, and one for NormalizeReward. Nil means NewMoments,
	// for this environment alone.
	Moments *Moments
	// Delta, if not nil, collects the values added to Moments, to be merged into
	// the moments of other nodes. It has the same dimension.
	Delta *Moments
	// Frozen leaves the moments as they are, for evaluation.
	Frozen bool
	// Epsilon is added to the variance. 0 means 1e-8.
	Epsilon float64
	// Gamma is the discount of NormalizeReward. 0 means 0.99.
	Gamma float64
}

func (c *NormalizeConfig) defaults(dim int) {
	if c.Epsilon == 0 {
		c.Epsilon = 1e-8
	}
	if c.Gamma == 0 {
		c.Gamma = 0.99
	}
	if c.Moments == nil {
		c.Moments = NewMoments(dim)
	}
	for _, m := range []*Moments{c.Moments, c.Delta} {
		if m != nil && (len(m.Mean) != dim || len(m.Var) != dim) {
			panic(fmt.Sprintf("envs: moments of %d values to normalise %d", len(m.Mean), dim))
		}
	}
}

// see takes a vector into account unless the moments are frozen.
func (c *NormalizeConfig) see(v []float32) {
	if c.Frozen {
		return
	}
	c.Moments.addSingle(v)
	if c.Delta != nil {
		c.Delta.Add(v)
	}
}

// NormalizeObservation returns env with observations that are shifted and
// scaled to mean 0 and variance 1 over all that were seen, first ones and last
// ones included. It equals Gymnasium's wrapper of the same name, whose moments are
// in float32, for the first 65,536 observations. After that the moments continue in
// float64, for in float32 a variance grows without end when the count no longer
// does. It panics if the moments have another dimension.
func NormalizeObservation[A Action](env Env[A], cfg NormalizeConfig) Env[A] {
	dim := env.ObservationSpace().Dim()
	cfg.defaults(dim)
	return &normalizeObservation[A]{wrapped: wrapped[A]{env}, NormalizeConfig: cfg, obs: make([]float32, dim)}
}

type normalizeObservation[A Action] struct {
	wrapped[A]
	NormalizeConfig
	obs []float32
}

func (n *normalizeObservation[A]) ObservationSpace() Space {
	inf := float32(math.Inf(1))
	box := NewBox(-inf, inf, len(n.obs))
	if b, ok := n.Env.ObservationSpace().(Box); ok {
		box.Shape = b.Shape
	}
	return box
}

func (n *normalizeObservation[A]) observe(obs []float32) []float32 {
	if len(obs) != len(n.obs) {
		return obs // the vector reports its length
	}
	n.see(obs)
	n.Moments.normalizeSingle(n.obs, obs, n.Epsilon)
	return n.obs
}

func (n *normalizeObservation[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := n.Env.Reset(seed...)
	if err != nil {
		return nil, info, err
	}
	return n.observe(obs), info, nil
}

func (n *normalizeObservation[A]) Step(action A) (Step, error) {
	s, err := n.Env.Step(action)
	if err == nil {
		s.Obs = n.observe(s.Obs)
	}
	return s, err
}

func (n *normalizeObservation[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendInner(n.Env, n.Moments.appendTo(dst))
}

func (n *normalizeObservation[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := n.Moments.restore(src)
	if err != nil {
		return nil, err
	}
	return restoreInner(n.Env, rest)
}

// NormalizeReward returns env with rewards divided by the standard deviation of
// the discounted sum of the rewards so far, so that returns have a scale that
// does not depend on the task. It equals Gymnasium's wrapper of the same name: a
// sum continues after an episode was truncated, and begins again with the last
// reward of one that terminated. It panics if the moments have not one value.
//
// The returns of a [RecordEpisodeStatistics] inside are those of env.
func NormalizeReward[A Action](env Env[A], cfg NormalizeConfig) Env[A] {
	cfg.defaults(1)
	return &normalizeReward[A]{wrapped: wrapped[A]{env}, NormalizeConfig: cfg}
}

type normalizeReward[A Action] struct {
	wrapped[A]
	NormalizeConfig
	sum float64 // discounted
}

func (n *normalizeReward[A]) Step(action A) (Step, error) {
	s, err := n.Env.Step(action)
	if err != nil {
		return s, err
	}
	if s.Terminated {
		n.sum = 0
	}
	n.sum = n.sum*n.Gamma + s.Reward
	n.seeSum()
	s.Reward /= math.Sqrt(n.Moments.Var[0] + n.Epsilon)
	return s, nil
}

// seeSum takes the sum into account in float64, as Gymnasium does.
func (n *normalizeReward[A]) seeSum() {
	if n.Frozen {
		return
	}
	for _, m := range []*Moments{n.Moments, n.Delta} {
		if m != nil {
			m.add(0, n.sum, m.Count+1)
			m.Count++
		}
	}
}

func (n *normalizeReward[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendInner(n.Env, appendFloats(n.Moments.appendTo(dst), n.sum))
}

func (n *normalizeReward[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := n.Moments.restore(src)
	if err != nil {
		return nil, err
	}
	w, rest, err := words(rest, 1)
	if err != nil {
		return nil, err
	}
	n.sum = math.Float64frombits(w[0])
	return restoreInner(n.Env, rest)
}
