// Package data has the sources that policies learn from.
//
//	buf := data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: 7})
//	err := buf.Reserve(policies.TransitionColumns(4, 1)...) // takes its memory now: buf.Bytes()
//	err = buf.Add(&batch)                                   // overwrites the oldest when full
//	err = buf.Sample(&batch, 64)                            // uniform, with replacement
//
// To learn offline, [WriteDataset] writes rows to a file, and a [Dataset] draws from such files.
//
// Rows are batches of columns, of which a source needs to know nothing. The memory of all Capacity
// rows is taken at once by Reserve, or by the first Add; it does not grow, and neither Add nor
// Sample allocates. A source that would not fit in what the process may use, by its control group,
// GOMEMLIMIT, or the machine, is refused with its price.
//
// A source is not safe for concurrent use. The same seed and additions give the same samples.
package data

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
)

// UniformConfig describes a replay buffer. The zero value works.
type UniformConfig struct {
	Capacity int    // rows; 0 means 100,000
	Seed     uint64 // of the samples
	// LimitBytes is the most that the buffer may take; 0 means what the
	// process may use.
	LimitBytes uint64
}

// ErrTooFew is wrapped when a sample is asked of an empty or too small buffer.
var ErrTooFew = errors.New("too few rows in the replay buffer")

// ErrMemory is wrapped when the buffer would not fit in memory.
var ErrMemory = errors.New("replay buffer beyond the memory limit")

// Uniform is a replay buffer: a ring of rows, each of which is as likely as any other in a sample.
// L.-J. Lin, "Self-improving reactive agents based on reinforcement learning, planning and
// teaching" (1992).
type Uniform struct {
	ring
	drawn []int // rows of one sample
}

// NewUniform returns a buffer, which takes no memory yet. It panics if Capacity is
// negative.
func NewUniform(cfg UniformConfig) *Uniform { return &Uniform{ring: newRing(cfg)} }

// Sample fills dst with n rows, each drawn uniformly from all of the
// buffer. Fewer than n in the buffer wrap ErrTooFew.
func (b *Uniform) Sample(dst *policies.Batch, n int) error {
	if b.size < n || n <= 0 {
		return fmt.Errorf("%w: %d of %d asked for", ErrTooFew, b.size, n)
	}
	b.drawn = b.drawn[:0]
	for range n {
		b.drawn = append(b.drawn, b.rng.IntN(b.size))
	}
	dst.InitLike(&b.rows)
	dst.Resize(n)
	dst.CopyRows(0, &b.rows, b.drawn...)
	return nil
}
