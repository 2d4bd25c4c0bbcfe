// Package data has the sources that policies learn from.
//
//	buf := data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: 7})
//	err := buf.Reserve(policies.TransitionColumns(4, 1)...) // takes its memory now: buf.Bytes()
//	err = buf.Add(&batch)                                   // overwrites the oldest when full
//	err = buf.Sample(&batch, 64)                            // uniform, with replacement
//
// Rows are batches of columns, of which a source needs to know nothing. The memory of all Capacity
// rows is taken at once by Reserve, or by the first Add; it does not grow, and neither Add nor
// Sample allocates. A source that would not fit in what the process may use, by its control group,
// GOMEMLIMIT, or the machine, is refused with its price.
//
// A source is not safe for concurrent use. The same seed and additions give the same samples.
package data

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
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
	cfg    UniformConfig
	ring   policies.Batch // Capacity rows once reserved
	next   int            // where the next row goes
	size   int
	source *rand.PCG
	rng    *rand.Rand
	drawn  []int // rows of one sample
}

// NewUniform returns a buffer, which takes no memory yet. It panics if Capacity is
// negative.
func NewUniform(cfg UniformConfig) *Uniform {
	if cfg.Capacity < 0 {
		panic(fmt.Sprintf("data: capacity of %d rows", cfg.Capacity))
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 100_000
	}
	source := rand.NewPCG(cfg.Seed, 0x7265706c6179) // the stream of samples
	return &Uniform{cfg: cfg, source: source, rng: rand.New(source)}
}

// Price is the number of bytes that capacity rows of these columns take.
func Price(capacity int, columns ...policies.Column) uint64 {
	return uint64(capacity) * uint64(policies.RowBytes(columns)) //nolint:gosec // sizes are positive
}

// Reserve takes the memory for rows of these columns. Called again with the same columns it does
// nothing. A price beyond the limit wraps ErrMemory.
func (b *Uniform) Reserve(columns ...policies.Column) error {
	if b.reserved() {
		return b.ring.Check(columns...)
	}
	limit, from := b.cfg.LimitBytes, "LimitBytes"
	if limit == 0 {
		limit, from = memoryLimit(os.DirFS("/"))
	}
	if price := Price(b.cfg.Capacity, columns...); price > limit {
		return fmt.Errorf("%w: %d rows take %d bytes, %s allows %d: lower the capacity",
			ErrMemory, b.cfg.Capacity, price, from, limit)
	}
	b.ring.Init(columns...)
	b.ring.Resize(b.cfg.Capacity)
	return nil
}

func (b *Uniform) reserved() bool { return b.ring.N > 0 }

// Len is the number of rows that can be sampled.
func (b *Uniform) Len() int { return b.size }

// Capacity is the most rows that the buffer keeps.
func (b *Uniform) Capacity() int { return b.cfg.Capacity }

// Bytes is the memory that the buffer has taken: 0 before Reserve.
func (b *Uniform) Bytes() uint64 {
	if !b.reserved() {
		return 0
	}
	return Price(b.cfg.Capacity, b.ring.Schema()...)
}

// Add copies the rows of src into the buffer, over the oldest ones when it is full.
func (b *Uniform) Add(src *policies.Batch) error {
	like := src
	if b.reserved() {
		like = &b.ring
	}
	if err := src.CheckLike(like); err != nil {
		return fmt.Errorf("add to replay buffer: %w", err)
	}
	if !b.reserved() {
		if err := b.Reserve(src.Schema()...); err != nil {
			return err
		}
	}
	for from := 0; from < src.N; {
		to := min(src.N, from+b.cfg.Capacity-b.next)
		b.ring.CopyRange(b.next, src, from, to)
		b.next = (b.next + to - from) % b.cfg.Capacity
		from = to
	}
	b.size = min(b.size+src.N, b.cfg.Capacity)
	return nil
}

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
	dst.InitLike(&b.ring)
	dst.Resize(n)
	dst.CopyRows(0, &b.ring, b.drawn...)
	return nil
}

// Save writes the buffer's rows and random state to a.
func (b *Uniform) Save(a *nn.Archive) error {
	random, err := b.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save replay buffer: %w", err)
	}
	a.SetText("replay/random", hex.EncodeToString(random))
	a.Set("replay/next", uint64(b.next))             //nolint:gosec // not negative
	a.Set("replay/capacity", uint64(b.cfg.Capacity)) //nolint:gosec // not negative
	return putRows(a, "replay", &b.ring, b.size)
}

// Restore makes the buffer what it was at Save. The capacity must be the same.
func (b *Uniform) Restore(a *nn.Archive) error {
	if err := b.restore(a); err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	return nil
}

func (b *Uniform) restore(a *nn.Archive) error {
	src, err := rowsOf(a, "replay")
	capacity, err1 := a.Number("replay/capacity")
	next, err2 := a.Number("replay/next")
	random, err3 := hex.DecodeString(a.Meta["replay/random"])
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return err
	}
	if capacity != uint64(b.cfg.Capacity) || uint64(src.N) > capacity || next >= capacity { //nolint:gosec // not negative
		return fmt.Errorf("%d of %d rows at %d, this one has a capacity of %d", src.N, capacity, next, b.cfg.Capacity)
	}
	b.next, b.size = 0, 0
	if src.N > 0 {
		if err := b.Add(src); err != nil {
			return err
		}
	}
	b.next = int(next) //nolint:gosec // below the capacity
	return b.source.UnmarshalBinary(random)
}
