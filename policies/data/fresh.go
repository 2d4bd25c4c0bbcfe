package data

import (
	"fmt"
	"slices"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// fresh are the rows of a buffer that may still be drawn, in an order of no meaning: a row that may not
// be drawn any more is replaced by the last one.
type fresh struct {
	rows   []int32  // that may be drawn
	at     []int32  // of each row of the buffer: its index in rows, or -1
	uses   []uint32 // of each row of the buffer
	newest uint64   // greatest version that was added
}

// freshBytes is the memory of these for each row of the buffer.
const freshBytes = 4 + 4 + 4

func newFresh(capacity int) *fresh {
	return &fresh{rows: make([]int32, 0, capacity), at: slices.Repeat([]int32{-1}, capacity), uses: make([]uint32, capacity)}
}

// add makes a row of the buffer one that may be drawn.
func (f *fresh) add(row int) {
	f.uses[row] = 0
	if f.at[row] < 0 {
		f.at[row] = int32(len(f.rows))
		f.rows = append(f.rows, int32(row))
	}
}

// remove has a row be drawn no more.
func (f *fresh) remove(row int) {
	i, last := f.at[row], f.rows[len(f.rows)-1]
	f.rows[i], f.at[last] = last, i
	f.rows, f.at[row] = f.rows[:len(f.rows)-1], -1
}

// Add copies the rows of src into the buffer, over the oldest ones when it is full.
func (b *Uniform) Add(src *policies.Batch) error {
	at := b.next
	if err := b.cfg.checkAge(src); err != nil {
		return err
	}
	if err := b.ring.Add(src); err != nil || !b.cfg.limited() {
		return err
	}
	if b.fresh == nil {
		b.fresh = newFresh(b.cfg.Capacity)
	}
	for i := range src.N {
		b.fresh.add((at + i) % b.cfg.Capacity)
	}
	for _, v := range src.Words(policies.Version) {
		b.fresh.newest = max(b.fresh.newest, v)
	}
	return nil
}

// drawFresh draws n rows within the limits, or none.
func (b *Uniform) drawFresh(n int) error {
	f, versions := b.fresh, b.rows.Words(policies.Version)
	for len(b.drawn) < n && len(f.rows) > 0 {
		row := int(f.rows[b.rng.IntN(len(f.rows))])
		if b.cfg.MaxAge > 0 && versions[row]+b.cfg.MaxAge < f.newest {
			f.remove(row)
			continue
		}
		if f.uses[row]++; b.cfg.MaxUses > 0 && f.uses[row] >= uint32(b.cfg.MaxUses) {
			f.remove(row)
		}
		b.drawn = append(b.drawn, row)
	}
	if len(b.drawn) < n { // the uses are spent: the rows are too few for another sample
		return fmt.Errorf("%w: %d of %d asked for are within the limits of uses and age", ErrTooFew, len(b.drawn), n)
	}
	return nil
}

// The name of the part of an archive besides the rows.
const freshPart = "replay.fresh"

// Save writes the buffer's rows, their use, and the random state to a.
func (b *Uniform) Save(a *nn.Archive) error {
	if err := b.ring.Save(a); err != nil || b.fresh == nil {
		return err
	}
	words := []uint64{b.fresh.newest}
	for _, row := range b.fresh.rows {
		words = append(words, uint64(row)<<32|uint64(b.fresh.uses[row]))
	}
	a.Put(freshPart, nn.State{Tensors: []nn.Tensor{{Name: "rows", Shape: []int{len(words)}, Words: words}}})
	return nil
}

// Restore restores the buffer to its state at Save. The capacity must be the same.
func (b *Uniform) Restore(a *nn.Archive) error {
	if err := b.ring.Restore(a); err != nil || !b.cfg.limited() {
		return err
	}
	b.fresh = nil
	if b.size == 0 {
		return nil
	}
	s, err := a.State(freshPart)
	if err != nil {
		return fmt.Errorf("restore replay buffer with limits: %w", err)
	}
	t, _ := s.Lookup("rows")
	if len(t.Words) == 0 || len(t.Words) > b.size+1 {
		return fmt.Errorf("restore replay buffer with limits: %d rows of %d", len(t.Words)-1, b.size)
	}
	f := newFresh(b.cfg.Capacity)
	f.newest = t.Words[0]
	for _, w := range t.Words[1:] {
		row := w >> 32
		if row >= uint64(b.size) || f.at[row] >= 0 {
			return fmt.Errorf("restore replay buffer with limits: row %d of %d, or twice", row, b.size)
		}
		f.add(int(row))
		f.uses[row] = uint32(w)
	}
	b.fresh = f
	return nil
}
