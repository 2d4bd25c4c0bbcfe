package policytest

import (
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// RandomBatch returns a batch of n rows with the columns that spec learns from. Observations and
// actions are elements of their spaces; log-probabilities lie between -1.5 and -1, weights between
// 0.5 and 1; a row in four is terminated, and a row in four of the others truncated; steps are 1
// or 2; versions are 0. Any other column has normal numbers if it is of float32, and else zeros.
func RandomBatch(spec policies.Spec, rng *rand.Rand, n int) *policies.Batch {
	b := new(policies.Batch)
	b.Init(spec.Learns...)
	b.Resize(n)
	for i := range b.Columns {
		fill(&b.Columns[i], spec, rng)
	}
	truncated := b.Bytes(policies.Truncated)
	for i, end := range b.Bytes(policies.Terminated) {
		if end != 0 && truncated != nil {
			truncated[i] = 0
		}
	}
	return b
}

// fill makes the values of a column.
func fill(c *policies.Block, spec policies.Spec, rng *rand.Rand) {
	switch c.Name {
	case policies.Obs, policies.NextObs:
		sample(c, spec.Obs, rng)
		return
	case policies.Action:
		sample(c, spec.Action, rng)
		return
	}
	for i := range c.Floats {
		switch c.Name {
		case policies.LogProb:
			c.Floats[i] = -1 - rng.Float32()/2
		case policies.Weight:
			c.Floats[i] = 0.5 + rng.Float32()/2
		default:
			c.Floats[i] = float32(rng.NormFloat64())
		}
	}
	for i := range c.Bytes {
		switch {
		case c.Name == policies.Steps:
			c.Bytes[i] = uint8(1 + rng.IntN(2))
		case c.Kind == policies.Bool && rng.IntN(4) == 0:
			c.Bytes[i] = 1
		default:
			c.Bytes[i] = 0
		}
	}
	clear(c.Ints)
	clear(c.Words)
}

// sample makes each row an element of a space.
func sample(c *policies.Block, space envs.Space, rng *rand.Rand) {
	row := make([]float32, space.Dim())
	for at := 0; at+len(row) <= max(len(c.Floats), len(c.Bytes)); at += len(row) {
		space.Sample(row, rng)
		if c.Kind == policies.Float32 {
			copy(c.Floats[at:], row)
			continue
		}
		for k, v := range row { // pixels
			c.Bytes[at+k] = uint8(v)
		}
	}
}

// batch returns the batch of Config.Batch, or the default.
func (s *suite) batch(p policies.Policy, rng *rand.Rand) *policies.Batch {
	if s.Batch != nil {
		return s.Batch(p, rng)
	}
	return RandomBatch(p.Spec(), rng, 4+rng.IntN(13))
}

// newAct returns a choice of actions for random observations. Its results are not numbers, so that
// one that was not written is found.
func newAct(spec policies.Spec, rows int, rng *rand.Rand) *policies.Act {
	a := &policies.Act{
		Obs: make([]float32, rows*spec.Obs.Dim()), Action: unknown(rows * spec.Action.Dim()), Rand: rng,
		Extra: make([][]float32, len(spec.Extra)),
	}
	for i := range rows {
		spec.Obs.Sample(a.Obs[i*spec.Obs.Dim():(i+1)*spec.Obs.Dim()], rng)
	}
	for i, c := range spec.Extra {
		a.Extra[i] = unknown(rows * c.Width())
	}
	a.Noise = make([]float32, rows*spec.NoiseSize)
	if spec.StateSize > 0 {
		a.State, a.Reset = make([]float32, rows*spec.StateSize), make([]bool, rows)
		for i := range a.State {
			a.State[i] = float32(rng.NormFloat64())
		}
		for i := range a.Reset {
			a.Reset[i] = rng.IntN(2) == 0
		}
	}
	return a
}
