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

// ring keeps the newest rows, and the random numbers of their samples.
type ring struct {
	cfg  UniformConfig
	rows policies.Batch // Capacity rows once reserved
	next int            // where the next row goes
	size int
	// extraBytes is the memory that the buffer takes beside its rows.
	extraBytes uint64
	source     *rand.PCG
	rng        *rand.Rand
}

func newRing(cfg UniformConfig) ring {
	if cfg.Capacity < 0 {
		panic(fmt.Sprintf("data: capacity of %d rows", cfg.Capacity))
	}
	if cfg.MaxUses < 0 {
		panic(fmt.Sprintf("data: MaxUses %d must not be negative", cfg.MaxUses))
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 100_000
	}
	source := rand.NewPCG(cfg.Seed, 0x7265706c6179) // the stream of samples
	return ring{cfg: cfg, source: source, rng: rand.New(source)}
}

// Price returns the number of bytes that capacity rows of these columns take.
func Price(capacity int, columns ...policies.Column) uint64 {
	return uint64(capacity) * uint64(policies.RowBytes(columns))
}

// Reserve takes the memory for rows of these columns. Called again with the same columns it does
// nothing. A price beyond the limit wraps ErrMemory.
func (r *ring) Reserve(columns ...policies.Column) error {
	if r.reserved() {
		return r.rows.Check(columns...)
	}
	limit, from := r.cfg.LimitBytes, "LimitBytes"
	if limit == 0 {
		limit, from = memoryLimit(os.DirFS("/"))
	}
	if price := Price(r.cfg.Capacity, columns...) + r.extraBytes; price > limit {
		return fmt.Errorf("%w: %d rows take %d bytes, %s allows %d: lower the capacity",
			ErrMemory, r.cfg.Capacity, price, from, limit)
	}
	r.rows.Init(columns...)
	r.rows.Resize(r.cfg.Capacity)
	return nil
}

func (r *ring) reserved() bool { return r.rows.N > 0 }

// Len returns the number of rows that can be sampled.
func (r *ring) Len() int { return r.size }

// Capacity returns the most rows that the buffer keeps.
func (r *ring) Capacity() int { return r.cfg.Capacity }

// Bytes returns the memory that the buffer has taken: 0 before Reserve.
func (r *ring) Bytes() uint64 {
	if !r.reserved() {
		return 0
	}
	return Price(r.cfg.Capacity, r.rows.Schema()...)
}

// Add copies the rows of src into the buffer, over the oldest ones when it is full.
func (r *ring) Add(src *policies.Batch) error {
	like := src
	if r.reserved() {
		like = &r.rows
	}
	if err := src.CheckLike(like); err != nil {
		return fmt.Errorf("add to replay buffer: %w", err)
	}
	if !r.reserved() {
		if err := r.Reserve(src.Schema()...); err != nil {
			return err
		}
	}
	for from := 0; from < src.N; {
		to := min(src.N, from+r.cfg.Capacity-r.next)
		r.rows.CopyRange(r.next, src, from, to)
		r.next = (r.next + to - from) % r.cfg.Capacity
		from = to
	}
	r.size = min(r.size+src.N, r.cfg.Capacity)
	return nil
}

// Save writes the buffer's rows and random state to a.
func (r *ring) Save(a *nn.Archive) error {
	random, err := r.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save replay buffer: %w", err)
	}
	a.SetText("replay/random", hex.EncodeToString(random))
	a.Set("replay/next", uint64(r.next))
	a.Set("replay/capacity", uint64(r.cfg.Capacity))
	return PutRows(a, "replay", &r.rows, r.size)
}

// Restore restores the buffer to its state at Save. The capacity must be the same.
func (r *ring) Restore(a *nn.Archive) error {
	if err := r.restore(a); err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	return nil
}

func (r *ring) restore(a *nn.Archive) error {
	src, err := RowsOf(a, "replay")
	capacity, err1 := a.Number("replay/capacity")
	next, err2 := a.Number("replay/next")
	random, err3 := hex.DecodeString(a.Meta["replay/random"])
	if err := errors.Join(err, err1, err2, err3); err != nil {
		return err
	}
	if capacity != uint64(r.cfg.Capacity) || uint64(src.N) > capacity || next >= capacity {
		return fmt.Errorf("%d of %d rows at %d, this one has a capacity of %d", src.N, capacity, next, r.cfg.Capacity)
	}
	r.next, r.size = 0, 0
	if src.N > 0 {
		if err := r.Add(src); err != nil {
			return err
		}
	}
	r.next = int(next)
	return r.source.UnmarshalBinary(random)
}
