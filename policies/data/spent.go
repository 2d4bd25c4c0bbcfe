package data

import (
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// spent has the uses and the ages of the rows of a prioritised buffer with limits. A row that may not be drawn any more has the
// priority 0 in the tree.
type spent struct {
	uses   []uint32 // of each row of the buffer
	live   int      // rows that may be drawn, as far as their age was looked at
	newest uint64   // greatest version that was added
}

// usesBytes is the memory of these for each row of the buffer.
const usesBytes = 4

// hear takes note of the versions of rows that were added.
func (s *spent) hear(versions []uint64) {
	for _, v := range versions {
		s.newest = max(s.newest, v)
	}
}

// revive makes a row one that may be drawn, as often as a new one. Its priority is set after that.
func (b *Prioritised) revive(row int) {
	if b.tree[b.leaves+row] == 0 {
		b.spent.live++
	}
	b.spent.uses[row] = 0
}

// end has a row be drawn no more.
func (b *Prioritised) end(row int) {
	b.spent.live--
	b.set(row, 0)
}

// findWithin draws n rows within the limits, or none. Other rows replace drawn
// rows that have reached a limit.
func (b *Prioritised) findWithin(n int) error {
	s, versions := b.spent, b.rows.Words(policies.Version)
	for len(b.drawn) < n && s.live > 0 {
		b.find(n - len(b.drawn))
		b.changed = b.changed[:0]
		for _, row := range b.found {
			if b.tree[b.leaves+row] == 0 { // this round ended it, or rounding led here
				continue
			}
			if b.cfg.MaxAge > 0 && versions[row]+b.cfg.MaxAge < s.newest {
				b.end(row)
				continue
			}
			b.take(row)
			if s.uses[row]++; b.cfg.MaxUses > 0 && s.uses[row] >= uint32(b.cfg.MaxUses) {
				b.end(row)
			}
		}
		b.sum()
	}
	if len(b.drawn) < n { // the uses are spent: the rows are too few for another sample
		return fmt.Errorf("%w: %d of %d asked for are within the limits of uses and age", ErrTooFew, len(b.drawn), n)
	}
	return nil
}

// spentPart is the name of the part of an archive with the limits of a prioritised buffer.
const spentPart = "replay.spent"

func (s *spent) save(a *nn.Archive, size int) {
	words := []uint64{s.newest}
	for row := range size {
		words = append(words, uint64(s.uses[row]))
	}
	a.Put(spentPart, nn.State{Tensors: []nn.Tensor{{Name: "uses", Shape: []int{len(words)}, Words: words}}})
}

// restoreSpent restores the state of the limits, after the priorities.
func (b *Prioritised) restoreSpent(a *nn.Archive) error {
	state, err := a.State(spentPart)
	if err != nil {
		return fmt.Errorf("restore replay buffer with limits: %w", err)
	}
	t, _ := state.Lookup("uses")
	if len(t.Words) != b.size+1 {
		return fmt.Errorf("restore replay buffer with limits: uses of %d rows, want %d", len(t.Words)-1, b.size)
	}
	s := b.spent
	s.newest, s.live = t.Words[0], 0
	clear(s.uses)
	for row, uses := range t.Words[1:] {
		if uses > uint64(^uint32(0)) || b.cfg.MaxUses > 0 && uses >= uint64(b.cfg.MaxUses) && b.tree[b.leaves+row] > 0 {
			return fmt.Errorf("restore replay buffer with limits: row %d was used %d times, and may be drawn", row, uses)
		}
		s.uses[row] = uint32(uses)
		if b.tree[b.leaves+row] > 0 {
			s.live++
		}
	}
	return nil
}
