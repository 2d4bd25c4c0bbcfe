package envs

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs/nprand"
)

// core is the part that all environments of this package share: its name, its random
// numbers, and whether an episode is in progress.
type core struct {
	name          string
	rng           *nprand.PCG64 // nil until the first reset
	started, over bool
}

// Name returns the environment's name.
func (c *core) Name() string { return c.name }

// begin is the part of a reset that is the same everywhere.
func (c *core) begin(seed []uint64) error {
	switch {
	case len(seed) > 1:
		return fmt.Errorf("%s: %w", c.name, ErrSeeds)
	case len(seed) == 1:
		c.rng = nprand.New(seed[0])
	case c.rng == nil:
		c.rng = nprand.New(rand.Uint64())
	}
	c.started, c.over = true, false
	return nil
}

// ready reports whether a step may follow.
func (c *core) ready() error {
	switch {
	case !c.started:
		return fmt.Errorf("%s: %w", c.name, ErrNotReset)
	case c.over:
		return fmt.Errorf("%s: %w", c.name, ErrEpisodeOver)
	}
	return nil
}

// coreWords is the number of words that appendCore writes.
const coreWords = 6

func (c *core) appendCore(dst []byte) []byte {
	rng := c.rng
	if rng == nil {
		rng = new(nprand.PCG64)
	}
	half := uint64(rng.Half)
	if rng.HasHalf {
		half |= 1 << 32
	}
	return appendWords(dst, flags(c.rng != nil, c.started, c.over), rng.Hi, rng.Lo, rng.IncHi, rng.IncLo, half)
}

// restoreCore takes the words of appendCore.
func (c *core) restoreCore(w []uint64) {
	c.rng = nil
	if w[0]&1 != 0 {
		c.rng = &nprand.PCG64{Hi: w[1], Lo: w[2], IncHi: w[3], IncLo: w[4], Half: uint32(w[5]), HasHalf: w[5]>>32&1 != 0}
	}
	c.started, c.over = w[0]&2 != 0 && c.rng != nil, w[0]&4 != 0
}

// limited puts the time limit of a configuration around env: registered if
// maxSteps is 0, none if it is negative.
func limited[A Action](env Env[A], maxSteps, registered int) Env[A] {
	if maxSteps == 0 {
		maxSteps = registered
	}
	if maxSteps <= 0 {
		return env
	}
	return TimeLimit(env, maxSteps)
}

// appendFloats appends the bits of v.
func appendFloats(dst []byte, v ...float64) []byte {
	for _, x := range v {
		dst = appendWords(dst, math.Float64bits(x))
	}
	return dst
}

// restoreFloats takes the core and then the floats over from src.
func (c *core) restoreFloats(src []byte, v []float64) ([]byte, error) {
	w, rest, err := words(src, coreWords+len(v))
	if err != nil {
		return nil, err
	}
	c.restoreCore(w)
	for i := range v {
		v[i] = math.Float64frombits(w[coreWords+i])
	}
	return rest, nil
}

// restoreInts takes the core and then the integers over from src.
func (c *core) restoreInts(src []byte, v ...*int) ([]byte, error) {
	w, rest, err := words(src, coreWords+len(v))
	if err != nil {
		return nil, err
	}
	c.restoreCore(w)
	for i := range v {
		*v[i] = int(w[coreWords+i])
	}
	return rest, nil
}
