package rl

import (
	"context"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

// StopConfig says how long a run lasts. The zero value never ends it, and of several limits the first
// that is reached does.
type StopConfig struct {
	EnvSteps int // of the whole job, those before the run was resumed included
	Updates  int // of the weights, those before the run was resumed included
	// After is the wall time since the first step of this process: a run that is resumed has it anew.
	After time.Duration
}

// Stop ends the run with success, in all processes, after the step in which a limit is reached: the
// counters may then be beyond it by what one step brings. A step that waits, for a collector that does
// not come, is ended too when the time is over, see [task.FinishGrace]. Return as a limit is
// [EvalConfig.StopAt]; task.MaxSteps counts the steps of the task. Stop may stand anywhere after
// Exchange: it looks at the step when that is over.
func (r *Run) Stop(cfg StopConfig) task.Middleware[Online] {
	if cfg.EnvSteps < 0 || cfg.Updates < 0 || cfg.After < 0 {
		panic(fmt.Sprintf("rl: stop config: EnvSteps %d, Updates %d and After %v must not be negative", cfg.EnvSteps, cfg.Updates, cfg.After))
	}
	if !r.t.Has(Learner) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	s := &stop{r: r, cfg: cfg}
	return func(ctx context.Context, c *Online, next task.Next) error {
		if !s.begun {
			s.begin()
		}
		if err := next(ctx); err != nil {
			return err
		}
		switch {
		case cfg.EnvSteps > 0 && c.EnvSteps >= cfg.EnvSteps:
			r.t.Finish(fmt.Sprintf("%d env steps reached %d", c.EnvSteps, cfg.EnvSteps))
		case cfg.Updates > 0 && c.Updates >= cfg.Updates:
			r.t.Finish(fmt.Sprintf("%d updates reached %d", c.Updates, cfg.Updates))
		}
		return nil
	}
}

type stop struct {
	r     *Run
	cfg   StopConfig
	begun bool
}

func (s *stop) begin() {
	s.begun = true
	if s.cfg.After == 0 {
		return
	}
	t := s.r.t
	timer := time.AfterFunc(s.cfg.After, func() { t.Finish(fmt.Sprintf("%v are over", s.cfg.After)) })
	t.OnFinish(func(context.Context, task.Outcome) error {
		timer.Stop()
		return nil
	})
}
