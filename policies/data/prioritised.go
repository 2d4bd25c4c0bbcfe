package data

import (
	"errors"
	"fmt"
	"math"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// PrioritisedConfig describes a buffer with priorities. The zero value has the paper's settings.
type PrioritisedConfig struct {
	UniformConfig
	// Alpha is how much priorities count, from 0, where all rows are equal; 0 means 0.6.
	Alpha float64
	// Epsilon is added to each priority, so that no row is never drawn; 0 means 1e-6.
	Epsilon float64
}

// Prioritised is a replay buffer that draws rows in proportion to their priorities, which are those
// that [Prioritised.Update] gave them. A new row has the greatest priority so far. T. Schaul et
// al., "Prioritized Experience Replay" (2016), the proportional variant with a sum tree. A row beyond
// MaxUses or MaxAge has the priority 0, also after an Update.
type Prioritised struct {
	ring
	alpha, epsilon float64
	tree           []float64         // node i has the sum of 2i and 2i+1; the leaves are from leaves on
	leaves         int               // a power of two
	most           float64           // greatest priority so far, with alpha
	drawn          []int             // rows of a sample
	found          []int             // rows of masses
	masses         []float64         // of a sample: where to find its rows
	priorities     []float64         // of drawn, when they were drawn
	spent          *spent            // nil: there are no limits
	changed        []int             // nodes whose sums are to be computed
	extra          []policies.Column // of a sample
}

// ErrPriority is wrapped by the error of Update for a priority that is negative or not finite.
var ErrPriority = errors.New("priority is no finite number of 0 or more")

// NewPrioritised returns a buffer, which takes no memory yet. It panics if the capacity, MaxUses, alpha or
// epsilon is negative.
func NewPrioritised(cfg PrioritisedConfig) *Prioritised {
	if cfg.Alpha < 0 || cfg.Epsilon < 0 {
		panic(fmt.Sprintf("data: prioritised replay with alpha %v and epsilon %v", cfg.Alpha, cfg.Epsilon))
	}
	b := &Prioritised{ring: newRing(cfg.UniformConfig), alpha: cfg.Alpha, epsilon: cfg.Epsilon, most: 1, leaves: 1}
	for b.leaves < b.cfg.Capacity {
		b.leaves *= 2
	}
	b.extraBytes = treeBytes(b.leaves)
	if cfg.limited() {
		b.spent = &spent{}
		b.extraBytes += usesBytes * uint64(b.cfg.Capacity)
	}
	if cfg.Alpha == 0 {
		b.alpha = 0.6
	}
	if cfg.Epsilon == 0 {
		b.epsilon = 1e-6
	}
	return b
}

// Bytes returns the memory that the buffer has taken, with its tree: 0 before Reserve.
func (b *Prioritised) Bytes() uint64 {
	if !b.reserved() {
		return 0
	}
	bytes := b.ring.Bytes() + 8*uint64(len(b.tree))
	if b.spent != nil {
		bytes += usesBytes * uint64(len(b.spent.uses))
	}
	return bytes
}

// treeBytes returns the size of the tree in bytes.
func treeBytes(leaves int) uint64 { return 8 * 2 * uint64(leaves) }

// Add copies the rows of src into the buffer, over the oldest ones when it is full.
func (b *Prioritised) Add(src *policies.Batch) error {
	at := b.next
	if err := b.cfg.checkAge(src); err != nil {
		return err
	}
	if err := b.ring.Add(src); err != nil {
		return err
	}
	b.plant()
	b.changed = b.changed[:0]
	for i := range min(src.N, b.cfg.Capacity) {
		row := (at + src.N - 1 - i) % b.cfg.Capacity
		if b.spent != nil {
			b.revive(row)
		}
		b.set(row, b.most)
	}
	b.sum()
	if b.spent != nil {
		b.spent.hear(src.Words(policies.Version))
	}
	return nil
}

// plant takes the memory of the tree.
func (b *Prioritised) plant() {
	if b.tree != nil {
		return
	}
	b.tree = make([]float64, 2*b.leaves)
	if b.spent != nil {
		b.spent.uses = make([]uint32, b.cfg.Capacity)
	}
}

// set gives a row its priority, with alpha. The sums above it are as they were until sum.
func (b *Prioritised) set(row int, p float64) {
	b.tree[b.leaves+row] = p
	if i := (b.leaves + row) / 2; len(b.changed) == 0 || b.changed[len(b.changed)-1] != i {
		b.changed = append(b.changed, i)
	}
}

// sum computes the sums above the rows that were set, level by level: those of a level do not wait
// for each other. They are sums of both children, so that rounding does not add up.
func (b *Prioritised) sum() {
	for len(b.changed) > 0 && b.changed[0] > 0 {
		n := 0
		for _, i := range b.changed {
			b.tree[i] = b.tree[2*i] + b.tree[2*i+1]
			if i /= 2; n == 0 || b.changed[n-1] != i { // neighbours share their parent
				b.changed[n] = i
				n++
			}
		}
		b.changed = b.changed[:n]
	}
}

// find puts into found n rows. The sum of all priorities is divided into n equal parts, and one row is drawn from
// each: that at which the sum of the priorities before it and its own passes the number that was drawn. All descend
// together, so that they wait together for memory. There are no branches, which would be mispredicted at every other
// level.
func (b *Prioritised) find(n int) {
	part := b.tree[1] / float64(n)
	b.masses, b.found = b.masses[:0], b.found[:0]
	for i := range n {
		b.masses = append(b.masses, (float64(i)+b.rng.Float64())*part)
		b.found = append(b.found, 1)
	}
	masses := b.masses[:len(b.found)]
	for level := 1; level < b.leaves; level *= 2 {
		for k, i := range b.found {
			left, right := b.tree[2*i], 0
			if masses[k] >= left {
				right = 1
			}
			masses[k] -= left * float64(right)
			b.found[k] = 2*i + right
		}
	}
	for k, i := range b.found {
		b.found[k] = min(i-b.leaves, b.size-1) // beyond the last row by rounding at most
	}
}

// take adds the drawn rows to the sample.
func (b *Prioritised) take(rows ...int) {
	for _, row := range rows {
		b.drawn = append(b.drawn, row)
		b.priorities = append(b.priorities, b.tree[b.leaves+row])
	}
}

// Sample fills dst with n rows: their priorities are divided into n equal parts, and one row is drawn
// from each. Three columns stand behind those of the rows: policies.Index, by which Update names
// them, policies.Weight, the importance weights (N P(i))^-beta, divided by the greatest one
// of the sample, and policies.TDError, zeros, for the policy to write. Fewer than n rows in the buffer, or fewer
// uses of rows within the limits, wrap ErrTooFew.
func (b *Prioritised) Sample(dst *policies.Batch, n int, beta float64) error {
	if b.size < n || n <= 0 {
		return fmt.Errorf("%w: %d of %d asked for", ErrTooFew, b.size, n)
	}
	b.drawn, b.priorities = b.drawn[:0], b.priorities[:0]
	if b.spent != nil {
		if err := b.findWithin(n); err != nil {
			return err
		}
	} else {
		b.find(n)
		b.take(b.found...)
	}
	if b.extra == nil {
		b.extra = append(b.rows.Schema(), policies.Column{Name: policies.Index, Kind: policies.Uint64},
			policies.Column{Name: policies.Weight, Kind: policies.Float32}, policies.Column{Name: policies.TDError, Kind: policies.Float32})
	}
	dst.Init(b.extra...)
	dst.Resize(n)
	dst.CopyRows(0, &b.rows, b.drawn...)
	index, weights := dst.Words(policies.Index), dst.Floats(policies.Weight)
	clear(dst.Floats(policies.TDError))
	least := math.Inf(1)
	for i, row := range b.drawn {
		index[i] = uint64(row)
		least = min(least, b.priorities[i])
	}
	for i, p := range b.priorities { // (N P)^-beta over the greatest one: N and the sum cancel
		weights[i] = float32(power(least/p, beta))
	}
	return nil
}

// power is x to the power of y for x > 0: twice as fast as math.Pow, which has more digits than
// priorities need.
func power(x, y float64) float64 { return math.Exp(y * math.Log(x)) }

// Update gives rows of a sample, named by their index, new priorities: mostly the absolute
// temporal differences. A priority that is negative or not finite wraps ErrPriority, and changes
// nothing.
func (b *Prioritised) Update(index []uint64, priorities []float32) error {
	if len(index) != len(priorities) {
		return fmt.Errorf("%d priorities for %d rows", len(priorities), len(index))
	}
	for i, p := range priorities {
		if !(p >= 0) || math.IsInf(float64(p), 0) {
			return fmt.Errorf("%w: row %d has %v", ErrPriority, index[i], p)
		}
		if index[i] >= uint64(b.size) {
			return fmt.Errorf("priority of row %d of %d", index[i], b.size)
		}
	}
	b.changed = b.changed[:0]
	for i, row := range index {
		p := max(power(float64(priorities[i])+b.epsilon, b.alpha), math.SmallestNonzeroFloat64)
		b.most = max(b.most, p)
		if b.tree[b.leaves+int(row)] > 0 { // a row beyond the limits stays there
			b.set(int(row), p)
		}
	}
	b.sum()
	return nil
}

// Save writes rows, priorities and random state to a.
func (b *Prioritised) Save(a *nn.Archive) error {
	if err := b.ring.Save(a); err != nil {
		return err
	}
	words := []uint64{math.Float64bits(b.most)}
	for row := range b.size {
		words = append(words, math.Float64bits(b.tree[b.leaves+row]))
	}
	a.Put("priorities", nn.State{Tensors: []nn.Tensor{{Name: "float64", Shape: []int{len(words)}, Words: words}}})
	if b.spent != nil {
		b.spent.save(a, b.size)
	}
	return nil
}

// Restore restores the buffer to its state at Save. The capacity must be the same.
func (b *Prioritised) Restore(a *nn.Archive) error {
	if err := b.ring.Restore(a); err != nil {
		return err
	}
	s, err := a.State("priorities")
	if err != nil {
		return fmt.Errorf("restore replay buffer: %w", err)
	}
	t, _ := s.Lookup("float64")
	if len(t.Words) != b.size+1 {
		return fmt.Errorf("restore replay buffer: %d priorities of %d rows", len(t.Words)-1, b.size)
	}
	b.plant()
	clear(b.tree)
	for i, w := range t.Words {
		p := math.Float64frombits(w)
		spent := p == 0 && i > 0 && b.spent != nil
		if !(p > 0) && !spent || math.IsInf(p, 0) {
			return fmt.Errorf("restore replay buffer: %w: row %d has %v", ErrPriority, i-1, p)
		}
		if i == 0 {
			b.most = p
			continue
		}
		b.tree[b.leaves+i-1] = p
	}
	for i := b.leaves - 1; i > 0; i-- {
		b.tree[i] = b.tree[2*i] + b.tree[2*i+1]
	}
	if b.spent != nil {
		return b.restoreSpent(a)
	}
	return nil
}
