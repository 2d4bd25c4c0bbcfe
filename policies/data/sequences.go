package data

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// SequencesConfig describes a queue of sequences. Length must be set.
type SequencesConfig struct {
	Length int // steps of a sequence
	Batch  int // sequences of an update; 0 means 1
	Uses   int // updates that a sequence takes part in; 0 means 1
}

// Validate reports every fault of the config at once.
func (c SequencesConfig) Validate() error {
	var faults []error
	if c.Length < 1 {
		faults = append(faults, fmt.Errorf("sequences config: Length is %d, want at least 1", c.Length))
	}
	if c.Batch < 0 || c.Uses < 0 {
		faults = append(faults, fmt.Errorf("sequences config: Batch %d and Uses %d must not be negative", c.Batch, c.Uses))
	}
	return errors.Join(faults...)
}

// Sequences is the source of a policy that learns from whole sequences in the order in which they came,
// and corrects for the age of the weights that have chosen the actions, as IMPALA and APPO do. It holds
// the sequences that were added and not learned from. A learner that takes one trajectory in each step, and
// learns from all of it, bounds their number. It is not safe for concurrent use.
type Sequences struct {
	cfg  SequencesConfig
	rows policies.Batch // oldest first; whole sequences
	uses int            // of the first batch so far
}

var _ Source = (*Sequences)(nil)

// NewSequences returns an empty queue. It panics with all faults of the config.
func NewSequences(cfg SequencesConfig) *Sequences {
	if err := cfg.Validate(); err != nil {
		panic(err.Error())
	}
	cfg.Batch, cfg.Uses = max(cfg.Batch, 1), max(cfg.Uses, 1)
	return &Sequences{cfg: cfg}
}

// Len returns the number of sequences in the queue.
func (s *Sequences) Len() int { return s.rows.N / s.cfg.Length }

// Add appends whole sequences: step t of sequence k is row k*Length+t.
func (s *Sequences) Add(src *policies.Batch) error {
	if s.rows.N == 0 {
		s.rows.InitLike(src)
	}
	if err := src.CheckLike(&s.rows); err != nil {
		return fmt.Errorf("add to sequences: %w", err)
	}
	if src.N == 0 || src.N%s.cfg.Length != 0 {
		return fmt.Errorf("add to sequences: %d rows, want whole sequences of %d steps", src.N, s.cfg.Length)
	}
	s.rows.AppendBatch(src)
	return nil
}

// Next fills dst with the oldest sequences, if there are enough of them.
func (s *Sequences) Next(dst *policies.Batch) bool {
	n := s.cfg.Batch * s.cfg.Length
	if s.rows.N < n {
		return false
	}
	dst.InitLike(&s.rows)
	dst.Resize(n)
	dst.CopyRange(0, &s.rows, 0, n)
	if s.uses++; s.uses == s.cfg.Uses {
		s.uses = 0
		s.rows.CopyRange(0, &s.rows, n, s.rows.N)
		s.rows.Resize(s.rows.N - n)
	}
	return true
}

// Learned does nothing.
func (s *Sequences) Learned(*policies.Batch) error { return nil }

// Save writes the content of the queue.
func (s *Sequences) Save(a *nn.Archive) error {
	a.Set("sequences/uses", uint64(s.uses))
	return PutRows(a, "sequences", &s.rows, s.rows.N)
}

// Restore restores s to the state at Save.
func (s *Sequences) Restore(a *nn.Archive) error {
	uses, err1 := a.Number("sequences/uses")
	rows, err2 := RowsOf(a, "sequences")
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("restore sequences: %w", err)
	}
	if rows.N%s.cfg.Length != 0 || uses >= uint64(s.cfg.Uses) {
		return fmt.Errorf("restore sequences: %d rows used %d times, want whole sequences of %d steps that are used %d times",
			rows.N, uses, s.cfg.Length, s.cfg.Uses)
	}
	s.rows, s.uses = *rows, int(uses)
	return nil
}
