package data

import (
	"errors"
	"fmt"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// Source turns collected data into the batches that a policy learns from. [Replay], [Rollout],
// [Sequences] and [Dataset] are sources.
//
//	err := source.Add(&collected)
//	for source.Next(&batch) {
//		metrics, err := policy.Learn(&batch)
//		err = source.Learned(&batch)
//	}
type Source interface {
	// Add takes collected rows.
	Add(b *policies.Batch) error
	// Next fills dst with the batch of the next update, and reports false when there is
	// nothing to learn until more is added. A source that needs no additions, such as a data set,
	// reports false now and then, so that the caller can do something else.
	Next(dst *policies.Batch) bool
	// Learned takes back a batch of Next when the policy has learned from it and has written its
	// results into the columns, such as policies.TDError.
	Learned(b *policies.Batch) error
	policies.Saver
}

var (
	_ Source = (*Replay)(nil)
	_ Source = (*Rollout)(nil)
)

// Buffer is the replay buffer of a Replay: a [Uniform] or a [Prioritised].
type Buffer interface {
	Add(src *policies.Batch) error
	Len() int
	Capacity() int
	Bytes() uint64
	policies.Saver
	// draw fills dst with n of at least n rows. beta corrects for priorities.
	draw(dst *policies.Batch, n int, beta float64) error
	learned(b *policies.Batch) error
}

// ReplayConfig determines how often a replay buffer is learned from. The zero value is the most common one:
// a batch of 64 for each row.
//
// Batch * Updates / Every is Reverb's samples per insert. It holds with any number of collectors,
// and nothing can wait forever: a learner takes the collected rows before it makes the updates that are due
// for them, and then waits for more; a collector waits when it is some trajectories ahead (see package
// middleware/rl), and those are taken whether an update is due or not.
type ReplayConfig struct {
	Batch int // rows of an update; 0 means 64
	// Updates is how many updates follow every Every rows that are added; 0 means 1 for each of
	// them. Stable-Baselines3 calls them gradient_steps and train_freq.
	Updates, Every int
	// StartAt is the number of rows in the buffer before the first update; 0 means 1,000, or
	// the capacity if that is less. It is at least Batch.
	StartAt int
	// Beta is how much a sample corrects for priorities, by the number of batches drawn so far; nil
	// means 0.4 always.
	Beta policies.Schedule
}

func (c ReplayConfig) ensureDefaults(capacity int) ReplayConfig {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Batch, 64)
	def(&c.Updates, 1)
	def(&c.Every, 1)
	def(&c.StartAt, min(1000, capacity))
	c.StartAt = max(c.StartAt, c.Batch)
	if c.Beta == nil {
		c.Beta = policies.Constant(0.4)
	}
	return c
}

func (c ReplayConfig) validate(capacity int) error {
	var faults []error
	if c.Batch < 0 || c.Updates < 0 || c.Every < 0 || c.StartAt < 0 {
		faults = append(faults, fmt.Errorf("replay config: Batch %d, Updates %d, Every %d and StartAt %d must not be negative",
			c.Batch, c.Updates, c.Every, c.StartAt))
	}
	if full := c.ensureDefaults(capacity); full.StartAt > capacity {
		faults = append(faults, fmt.Errorf("replay config: StartAt %d and Batch %d are beyond the buffer's capacity of %d",
			full.StartAt, full.Batch, capacity))
	}
	return errors.Join(faults...)
}

// Replay is the source of a policy that learns from samples of a buffer, a number of times for a number
// of new rows. It is not safe for concurrent use.
type Replay struct {
	buf   Buffer
	cfg   ReplayConfig
	rows  uint64 // added since the buffer had enough, and not yet learned for
	due   uint64 // updates
	drawn uint64 // batches
}

// NewReplay returns the source that draws from buf. It panics with all faults of the config.
func NewReplay(buf Buffer, cfg ReplayConfig) *Replay {
	if err := cfg.validate(buf.Capacity()); err != nil {
		panic(err.Error())
	}
	return &Replay{buf: buf, cfg: cfg.ensureDefaults(buf.Capacity())}
}

// Len returns the number of rows in the buffer.
func (r *Replay) Len() int { return r.buf.Len() }

// Capacity returns the most rows that the buffer keeps.
func (r *Replay) Capacity() int { return r.buf.Capacity() }

// Bytes returns the memory that the buffer has taken.
func (r *Replay) Bytes() uint64 { return r.buf.Bytes() }

// Add puts rows into the buffer.
func (r *Replay) Add(src *policies.Batch) error {
	if err := r.buf.Add(src); err != nil {
		return err
	}
	if r.buf.Len() < r.cfg.StartAt {
		return nil
	}
	every := uint64(r.cfg.Every)
	r.rows += uint64(src.N)
	r.due += r.rows / every * uint64(r.cfg.Updates)
	r.rows %= every
	return nil
}

// Next fills dst with a sample, if an update is due. Updates that are due when a limit of the buffer leaves
// too few rows are not made up for later.
func (r *Replay) Next(dst *policies.Batch) bool {
	if r.due == 0 {
		return false
	}
	if r.buf.draw(dst, r.cfg.Batch, r.cfg.Beta(int(r.drawn))) != nil { // it has enough rows, but they were used up
		r.due = 0
		return false
	}
	r.due--
	r.drawn++
	return true
}

// Learned gives the rows of a prioritised buffer the priorities in the column policies.TDError.
func (r *Replay) Learned(b *policies.Batch) error { return r.buf.learned(b) }

// Save writes the buffer, and which updates are due.
func (r *Replay) Save(a *nn.Archive) error {
	a.Set("replay/rows", r.rows)
	a.Set("replay/due", r.due)
	a.Set("replay/drawn", r.drawn)
	return r.buf.Save(a)
}

// Restore restores r to the state at Save.
func (r *Replay) Restore(a *nn.Archive) error {
	rows, err1 := a.Number("replay/rows")
	due, err2 := a.Number("replay/due")
	drawn, err3 := a.Number("replay/drawn")
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("restore replay: %w", err)
	}
	if err := r.buf.Restore(a); err != nil {
		return err
	}
	if due > 0 && r.buf.Len() < r.cfg.Batch {
		return fmt.Errorf("restore replay: %d updates are due, with %d of %d rows", due, r.buf.Len(), r.cfg.Batch)
	}
	r.rows, r.due, r.drawn = rows, due, drawn
	return nil
}

func (b *Uniform) draw(dst *policies.Batch, n int, _ float64) error { return b.Sample(dst, n) }
func (b *Uniform) learned(*policies.Batch) error                    { return nil }

func (b *Prioritised) draw(dst *policies.Batch, n int, beta float64) error {
	return b.Sample(dst, n, beta)
}

func (b *Prioritised) learned(s *policies.Batch) error {
	return b.Update(s.Words(policies.Index), s.Floats(policies.TDError))
}

// Learned does nothing: a rollout learns nothing from the policy.
func (r *Rollout) Learned(*policies.Batch) error { return nil }
