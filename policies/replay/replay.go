// Package replay keeps past transitions to learn from again.
//
//	buf := replay.New(replay.Config{Capacity: 20_000, Seed: 7})
//	err := buf.Reserve(4, 1)          // takes its memory now: buf.Bytes()
//	err = buf.Add(&batch)             // overwrites the oldest when full
//	err = buf.Sample(&batch, 64)      // uniform, with replacement
//
// The memory of all Capacity transitions is taken at once by Reserve, or by the
// first Add, as flat arrays; it does not grow, and neither Add nor Sample
// allocates. A buffer that would not fit in what the process may use, by its
// control group, GOMEMLIMIT, or the machine, is refused with its price.
//
// L.-J. Lin, "Self-improving reactive agents based on reinforcement learning,
// planning and teaching" (1992).
//
// A buffer is not safe for concurrent use. The same seed and additions give the
// same samples.
package replay

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Config describes a buffer. The zero value works.
type Config struct {
	Capacity int    // transitions; 0 means 100,000
	Seed     uint64 // of the samples
	// LimitBytes is the most that the buffer may take; 0 means what the
	// process may use.
	LimitBytes uint64
}

// ErrTooFew is wrapped when a sample is asked of an empty or too small buffer.
var ErrTooFew = errors.New("too few transitions in the replay buffer")

// ErrMemory is wrapped when the buffer would not fit in memory.
var ErrMemory = errors.New("replay buffer beyond the memory limit")

// Buffer is a ring of transitions.
type Buffer struct {
	cfg      Config
	ring     policies.Batch // Capacity transitions once reserved
	reserved bool
	next     int // where the next transition goes
	size     int
	source   *rand.PCG
	rng      *rand.Rand
}

// New returns a buffer, which takes no memory yet. It panics if Capacity is
// negative.
func New(cfg Config) *Buffer {
	if cfg.Capacity < 0 {
		panic(fmt.Sprintf("replay: capacity of %d transitions", cfg.Capacity))
	}
	if cfg.Capacity == 0 {
		cfg.Capacity = 100_000
	}
	source := rand.NewPCG(cfg.Seed, 0x7265706c6179) // the stream of samples
	return &Buffer{cfg: cfg, source: source, rng: rand.New(source)}
}

// Price is the number of bytes that capacity transitions take.
func Price(capacity, obsDim, actionDim int) uint64 {
	// Two observations, the action, the reward; two flags, the steps; the version.
	return uint64(capacity) * uint64(4*(2*obsDim+actionDim+1)+3+8)
}

// Reserve takes the memory for transitions of these dimensions. Called again
// with the same dimensions it does nothing. A price beyond the limit wraps
// ErrMemory.
func (b *Buffer) Reserve(obsDim, actionDim int) error {
	if b.reserved {
		return b.ring.Check(obsDim, actionDim)
	}
	limit, from := b.cfg.LimitBytes, "LimitBytes"
	if limit == 0 {
		limit, from = memoryLimit(os.DirFS("/"))
	}
	if price := Price(b.cfg.Capacity, obsDim, actionDim); price > limit {
		return fmt.Errorf("%w: %d transitions take %d bytes, %s allows %d: lower the capacity",
			ErrMemory, b.cfg.Capacity, price, from, limit)
	}
	b.ring.Resize(obsDim, actionDim, b.cfg.Capacity)
	for i := range b.ring.Steps {
		b.ring.Steps[i] = 1
	}
	b.reserved = true
	return nil
}

// Len is the number of transitions that can be sampled.
func (b *Buffer) Len() int { return b.size }

// Capacity is the most transitions that the buffer keeps.
func (b *Buffer) Capacity() int { return b.cfg.Capacity }

// Bytes is the memory that the buffer has taken: 0 before Reserve.
func (b *Buffer) Bytes() uint64 {
	if !b.reserved {
		return 0
	}
	return Price(b.cfg.Capacity, b.ring.ObsDim, b.ring.ActionDim)
}

// Add copies the transitions of src into the buffer, over the oldest ones when
// it is full.
func (b *Buffer) Add(src *policies.Batch) error {
	if err := src.Check(src.ObsDim, src.ActionDim); err != nil {
		return fmt.Errorf("add to replay buffer: %w", err)
	}
	if err := b.Reserve(src.ObsDim, src.ActionDim); err != nil {
		return err
	}
	for j := range src.Len() {
		b.ring.CopyRow(b.next, src, j)
		b.next = (b.next + 1) % b.cfg.Capacity
	}
	b.size = min(b.size+src.Len(), b.cfg.Capacity)
	return nil
}

// Sample fills dst with n transitions, each drawn uniformly from all of the
// buffer. Fewer than n in the buffer wrap ErrTooFew.
func (b *Buffer) Sample(dst *policies.Batch, n int) error {
	if b.size < n || n <= 0 {
		return fmt.Errorf("%w: %d of %d asked for", ErrTooFew, b.size, n)
	}
	dst.Resize(b.ring.ObsDim, b.ring.ActionDim, n)
	for i := range n {
		dst.CopyRow(i, &b.ring, b.rng.IntN(b.size))
	}
	return nil
}

// Save writes the buffer's transitions and random state to a.
func (b *Buffer) Save(a *nn.Archive) error {
	random, err := b.source.MarshalBinary()
	if err != nil {
		return fmt.Errorf("save replay buffer: %w", err)
	}
	a.SetText("replay/random", hex.EncodeToString(random))
	a.Set("replay/next", uint64(b.next))
	a.Set("replay/capacity", uint64(b.cfg.Capacity))
	n, o, k := b.size, b.ring.ObsDim, b.ring.ActionDim
	// Flags and versions are written as numbers; a version is exact as two.
	flags := make([]float32, 5*n)
	for i := range n {
		t := b.ring.At(i)
		flags[5*i] = number(t.Terminated)
		flags[5*i+1] = number(t.Truncated)
		flags[5*i+2] = float32(t.Steps)
		flags[5*i+3] = float32(t.Version >> 24)
		flags[5*i+4] = float32(t.Version & (1<<24 - 1))
	}
	a.Put("replay", nn.State{Version: uint64(n), Tensors: []nn.Tensor{
		{Name: "obs", Shape: []int{n, o}, Data: b.ring.Obs[:n*o]},
		{Name: "next_obs", Shape: []int{n, o}, Data: b.ring.NextObs[:n*o]},
		{Name: "actions", Shape: []int{n, k}, Data: b.ring.Actions[:n*k]},
		{Name: "rewards", Shape: []int{n}, Data: b.ring.Rewards[:n]},
		{Name: "terminated_truncated_steps_version", Shape: []int{n, 5}, Data: flags},
	}})
	return nil
}

func number(v bool) float32 {
	if v {
		return 1
	}
	return 0
}

// Restore makes the buffer what it was at Save. The capacity must be the same.
func (b *Buffer) Restore(a *nn.Archive) error {
	s, err := a.State("replay")
	if err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	capacity, err1 := a.Number("replay/capacity")
	next, err2 := a.Number("replay/next")
	random, err3 := hex.DecodeString(a.Meta["replay/random"])
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	if capacity != uint64(b.cfg.Capacity) || s.Version > capacity || next >= capacity {
		return fmt.Errorf("restore replay buffer: %d of %d transitions at %d, this one has a capacity of %d",
			s.Version, capacity, next, b.cfg.Capacity)
	}
	src, err := batch(s, int(s.Version))
	if err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	b.next, b.size = 0, 0
	if src.Len() > 0 {
		if err := b.Add(&src); err != nil {
			return fmt.Errorf("restore replay buffer: %w", err)
		}
	}
	b.next = int(next)
	return b.source.UnmarshalBinary(random)
}

// batch is the transitions that Save wrote.
func batch(s nn.State, n int) (policies.Batch, error) {
	var b policies.Batch
	var tensors [5]nn.Tensor
	for i, name := range []string{"obs", "next_obs", "actions", "rewards", "terminated_truncated_steps_version"} {
		t, ok := s.Lookup(name)
		if !ok || len(t.Shape) == 0 || t.Shape[0] != n {
			return b, fmt.Errorf("tensor %s of %d transitions is missing", name, n)
		}
		tensors[i] = t
	}
	obs, actions, flags := tensors[0], tensors[2], tensors[4]
	if len(obs.Shape) != 2 || len(actions.Shape) != 2 || len(flags.Data) != 5*n {
		return b, fmt.Errorf("tensors of shapes %v, %v, %v", obs.Shape, actions.Shape, flags.Shape)
	}
	b.Resize(obs.Shape[1], actions.Shape[1], n)
	b.Obs, b.NextObs, b.Actions, b.Rewards = obs.Data, tensors[1].Data, actions.Data, tensors[3].Data
	for i := range n {
		f := flags.Data[5*i : 5*i+5]
		b.Terminated[i], b.Truncated[i] = f[0] != 0, f[1] != 0
		b.Steps[i], b.Versions[i] = uint8(f[2]), uint64(f[3])<<24|uint64(f[4])
	}
	return b, b.Check(b.ObsDim, b.ActionDim)
}
