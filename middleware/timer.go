package middleware

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ditask/ditask/task"
)

// StepTimer measures how long each middleware of a task takes by itself: its
// forward and backward halves, without the rest of the step between them.
// Add its [StepTimer.Wrap] to a task. A group counts as one.
type StepTimer[C any] struct {
	mu    sync.Mutex
	stats []*Timing
}

// Timing is how long one middleware took.
type Timing struct {
	Name  string // such as "rl.Collect"
	Calls int
	Last  time.Duration // of the newest call
	Max   time.Duration
	Total time.Duration
}

// Mean returns the mean duration of a call, or 0 before the first.
func (s Timing) Mean() time.Duration {
	if s.Calls == 0 {
		return 0
	}
	return s.Total / time.Duration(s.Calls)
}

// String returns the name and the figures in one line.
func (s Timing) String() string {
	return fmt.Sprintf("%s: %d calls, mean %v, max %v, total %v", s.Name, s.Calls, s.Mean(), s.Max, s.Total)
}

// NewStepTimer returns a timer that has seen nothing yet.
func NewStepTimer[C any]() *StepTimer[C] { return &StepTimer[C]{} }

// Wrap is a task.Wrapper: t.Wrap(timer.Wrap).
func (s *StepTimer[C]) Wrap(name string, m task.Middleware[C]) task.Middleware[C] {
	st := &Timing{Name: name}
	s.mu.Lock()
	s.stats = append(s.stats, st)
	s.mu.Unlock()
	frames := sync.Pool{New: func() any {
		f := &timing{}
		f.through = f.run
		return f
	}}
	return func(ctx context.Context, c *C, next task.Next) error {
		f := frames.Get().(*timing)
		f.next, f.rest = next, 0
		begin := time.Now()
		err := m(ctx, c, f.through)
		took := time.Since(begin) - f.rest
		frames.Put(f)
		s.add(st, took)
		return err
	}
}

// timing is one call of a wrapped middleware.
type timing struct {
	next    task.Next
	through task.Next     // run, bound once
	rest    time.Duration // spent in next
}

func (f *timing) run(ctx context.Context) error {
	begin := time.Now()
	defer func() { f.rest += time.Since(begin) }()
	return f.next(ctx)
}

func (s *StepTimer[C]) add(st *Timing, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Calls++
	st.Last = took
	st.Total += took
	st.Max = max(st.Max, took)
}

// Stats returns the figures of all middleware, in the order of the chain. It may
// be called at any time.
func (s *StepTimer[C]) Stats() []Timing {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Timing, len(s.stats))
	for i, st := range s.stats {
		all[i] = *st
	}
	return all
}
