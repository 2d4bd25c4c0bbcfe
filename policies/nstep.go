package policies

import (
	"encoding/json"
	"fmt"
)

// NStep joins the single transitions of several environments into n-step
// ones: Reward is the discounted sum of up to n rewards, and NextObs lies that
// many steps ahead. At the end of an episode the last ones have fewer steps.
// R. S. Sutton, "Learning to Predict by the Methods of Temporal Differences"
// (1988); for Q-learning, M. Hessel et al., "Rainbow" (2018).
type NStep struct {
	n       int
	gamma   float32
	pending []Batch // of each environment, oldest first, at most n
}

// NewNStep returns the joiner of envs environments. It panics unless n is in
// 1..255.
func NewNStep(n int, gamma float64, envs int) *NStep {
	if n < 1 || n > 255 {
		panic(fmt.Sprintf("policies: %d-step returns, want 1 to 255", n))
	}
	return &NStep{n: n, gamma: float32(gamma), pending: make([]Batch, envs)}
}

// Add takes the next transition of environment env, of a single step, and
// appends to dst those that it completes.
func (s *NStep) Add(dst *Batch, env int, t Transition) {
	if s.n == 1 {
		dst.Append(t)
		return
	}
	p := &s.pending[env]
	if p.N == 0 {
		p.InitLike(dst)
	}
	reward := t.Reward
	t.Reward = 0
	p.Append(t)
	factor := float32(1)
	rewards := p.Floats(Reward)
	for i := p.N - 1; i >= 0; i-- {
		// The entry i saw p.N-1-i rewards before this one.
		rewards[i] += factor * reward
		factor *= s.gamma
	}
	if t.Terminated || t.Truncated {
		for i := range p.N {
			s.emit(dst, p, i, t)
		}
		p.Resize(0)
	} else if p.N == s.n {
		s.emit(dst, p, 0, t)
		p.CopyRange(0, p, 1, p.N)
		p.Resize(p.N - 1)
	}
}

// emit appends entry i of p with the end that t is.
func (s *NStep) emit(dst *Batch, p *Batch, i int, t Transition) {
	e := p.At(i)
	e.NextObs, e.Terminated, e.Truncated = t.NextObs, t.Terminated, t.Truncated
	e.Steps = p.N - i
	dst.Append(e)
}

// Drop discards the pending transitions of environment env: its next transition
// does not follow from the last one.
func (s *NStep) Drop(env int) { s.pending[env].Resize(0) }

// Check reports pending transitions without these columns, such as those of another
// checkpoint.
func (s *NStep) Check(columns ...Column) error {
	for i := range s.pending {
		if p := &s.pending[i]; p.N > 0 {
			if err := p.Check(columns...); err != nil {
				return fmt.Errorf("pending transitions of environment %d: %w", i, err)
			}
		}
	}
	return nil
}

// MarshalJSON writes the pending transitions, for a checkpoint.
func (s *NStep) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.pending) //nolint:musttag // written and read back by the fields' own names
}

// UnmarshalJSON reads the pending transitions. The number of environments must be
// the same.
func (s *NStep) UnmarshalJSON(text []byte) error {
	var pending []Batch
	if err := json.Unmarshal(text, &pending); err != nil { //nolint:musttag // written and read back by the fields' own names
		return fmt.Errorf("pending transitions: %w", err)
	}
	if len(pending) != len(s.pending) {
		return fmt.Errorf("pending transitions of %d environments, want %d", len(pending), len(s.pending))
	}
	for i := range pending {
		b := &pending[i]
		if err := b.Check(b.Schema()...); err != nil {
			return fmt.Errorf("pending transitions of environment %d: %w", i, err)
		}
		if b.N >= s.n {
			return fmt.Errorf("%d pending transitions of environment %d, want fewer than %d", b.N, i, s.n)
		}
	}
	s.pending = pending
	return nil
}
