// Package data has sources of training data for policies.
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
// Sample allocates. A source that is larger than the memory limit of the process, by its control
// group, GOMEMLIMIT, or the machine, is refused with an error that has its size.
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
	// LimitBytes is the largest size of the buffer; 0 means the memory limit of
	// the process.
	LimitBytes uint64
	// MaxUses, if not 0, is how many times a row may be in a sample; then it is drawn no more. MaxAge, if
	// not 0, does so with rows whose actions were chosen by weights that are more than that many
	// updates older than those of the newest row; the rows need the column policies.Version.
	MaxUses int
	MaxAge  uint64
}

// limited reports whether rows are left out of samples.
func (c *UniformConfig) limited() bool { return c.MaxUses > 0 || c.MaxAge > 0 }

// checkAge reports rows whose age cannot be known.
func (c *UniformConfig) checkAge(src *policies.Batch) error {
	if c.MaxAge > 0 && src.N > 0 && src.Words(policies.Version) == nil {
		return fmt.Errorf("add to replay buffer: MaxAge is %d, but the rows have no column %s", c.MaxAge, policies.Version)
	}
	return nil
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
	fresh *fresh
}

// NewUniform returns a buffer, which takes no memory yet. It panics if Capacity or MaxUses is
// negative.
func NewUniform(cfg UniformConfig) *Uniform {
	b := &Uniform{ring: newRing(cfg)}
	if cfg.limited() {
		b.extraBytes = freshBytes * uint64(b.cfg.Capacity)
	}
	return b
}

// Sample fills dst with n rows, each drawn uniformly from all of the
// buffer. Fewer than n in the buffer, or fewer uses of rows within the limits, wrap ErrTooFew.
func (b *Uniform) Sample(dst *policies.Batch, n int) error {
	if b.size < n || n <= 0 {
		return fmt.Errorf("%w: %d of %d asked for", ErrTooFew, b.size, n)
	}
	b.drawn = b.drawn[:0]
	if b.fresh != nil {
		if err := b.drawFresh(n); err != nil {
			return err
		}
	}
	for len(b.drawn) < n {
		b.drawn = append(b.drawn, b.rng.IntN(b.size))
	}
	dst.InitLike(&b.rows)
	dst.Resize(n)
	dst.CopyRows(0, &b.rows, b.drawn...)
	return nil
}
