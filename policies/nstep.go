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
	if p.Len() == 0 {
		p.Init(len(t.Obs), len(t.Action))
	}
	reward := t.Reward
	t.Reward = 0
	p.Append(t)
	factor := float32(1)
	for i := p.Len() - 1; i >= 0; i-- {
		// The entry i saw p.Len()-1-i rewards before this one.
		p.Rewards[i] += factor * reward
		factor *= s.gamma
	}
	if t.Terminated || t.Truncated {
		for i := range p.Len() {
			s.emit(dst, p, i, t)
		}
		p.Init(p.ObsDim, p.ActionDim)
	} else if p.Len() == s.n {
		s.emit(dst, p, 0, t)
		p.shift()
	}
}

// emit appends entry i of p with the end that t is.
func (s *NStep) emit(dst *Batch, p *Batch, i int, t Transition) {
	e := p.At(i)
	e.NextObs, e.Terminated, e.Truncated = t.NextObs, t.Terminated, t.Truncated
	e.Steps = p.Len() - i
	dst.Append(e)
}

// Drop forgets what is pending of environment env: its next transition does
// not follow from the last one.
func (s *NStep) Drop(env int) { s.pending[env].Init(s.pending[env].ObsDim, s.pending[env].ActionDim) }

// shift removes the first transition.
func (b *Batch) shift() {
	n := b.Len() - 1
	for i := range n {
		b.CopyRow(i, b, i+1)
	}
	b.Resize(b.ObsDim, b.ActionDim, n)
}

// MarshalJSON writes what is pending, for a checkpoint.
func (s *NStep) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.pending) //nolint:musttag // written and read back by the fields' own names
}

// UnmarshalJSON takes over what was pending. The number of environments must be
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
		if err := b.Check(b.ObsDim, b.ActionDim); err != nil {
			return fmt.Errorf("pending transitions of environment %d: %w", i, err)
		}
		if b.Len() >= s.n {
			return fmt.Errorf("%d pending transitions of environment %d, want fewer than %d", b.Len(), i, s.n)
		}
	}
	s.pending = pending
	return nil
}
