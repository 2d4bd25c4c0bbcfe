package rl

import (
	"context"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

// StopConfig determines how long a run lasts. The zero value never ends it, and of several limits the first
// that is reached does.
type StopConfig struct {
	EnvSteps int // of the whole job, those before the run was resumed included
	Updates  int // of the weights, those before the run was resumed included
	// After is the wall time since the first step of this process: it starts at 0 again in a resumed run.
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
	r.stop = cfg
	begun := false
	return func(ctx context.Context, c *Online, next task.Next) error {
		if !begun && cfg.After > 0 {
			timer := time.AfterFunc(cfg.After, func() { r.t.Finish(fmt.Sprintf("%v are over", cfg.After)) })
			r.t.OnFinish(func(context.Context, task.Outcome) error {
				timer.Stop()
				return nil
			})
		}
		begun = true
		if err := next(ctx); err != nil {
			return err
		}
		if reason := r.reached(c); reason != "" {
			r.t.Finish(reason)
		}
		return nil
	}
}

// reached reports which limit of Stop the counters have reached, or nothing.
func (r *Run) reached(c *Online) string {
	switch n := r.stop; {
	case n.EnvSteps > 0 && c.EnvSteps >= n.EnvSteps:
		return fmt.Sprintf("%d env steps reached %d", c.EnvSteps, n.EnvSteps)
	case n.Updates > 0 && c.Updates >= n.Updates:
		return fmt.Sprintf("%d updates reached %d", c.Updates, n.Updates)
	}
	return ""
}

// over returns the reason why a run that was resumed has nothing left to do, or nothing.
func (r *Run) over(c *Online) string {
	if best := c.Best; r.stopAt != 0 && best != nil && best.Reached && best.Mean >= r.stopAt {
		return fmt.Sprintf("mean return %.1f over %d episodes had reached %v before", best.Mean, best.Episodes, r.stopAt)
	}
	return r.reached(c)
}

// Over returns why this node, which learns, resumed a run that had nothing left to do, such as "4000
// env steps reached 4000"; it is empty if the run continued, began at 0, or has not begun. It may be
// called when the task's Run has returned.
func (r *Run) Over() string { return r.nothing }

// goOn makes the best weights of a run that was resumed ones like any other: a limit that they have reached is none any more, and
// better ones may take their place.
func (r *Run) goOn(c *Online) {
	if r.resumed && c.Best != nil && c.Best.Reached {
		best := *c.Best
		best.Reached = false
		c.Best = &best
	}
}
