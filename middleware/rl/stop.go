package rl

import (
	"context"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

// StopConfig determines when a run ends. The zero value never ends it; of several limits, the first one
// reached ends it.
type StopConfig struct {
	EnvSteps int // of the whole job, including those before the run was resumed
	Updates  int // of the weights, including those before the run was resumed
	// After is the wall time since the first step of this process: it begins at 0 again in a resumed run.
	After time.Duration
}

// Stop ends the run with success, in all processes, after the step in which a limit is reached: the
// counters may then exceed it by the amount of one step. When the time is over, it also ends a step
// that waits, for example for a missing collector, see [task.FinishGrace]. A limit of the return is
// [EvalConfig.StopAt]; task.MaxSteps limits the steps of the task. Stop may stand anywhere after
// Exchange: it checks the limits after the step.
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

// reached returns the limit of Stop that the counters have reached, or "".
func (r *Run) reached(c *Online) string {
	switch n := r.stop; {
	case n.EnvSteps > 0 && c.EnvSteps >= n.EnvSteps:
		return fmt.Sprintf("%d env steps reached %d", c.EnvSteps, n.EnvSteps)
	case n.Updates > 0 && c.Updates >= n.Updates:
		return fmt.Sprintf("%d updates reached %d", c.Updates, n.Updates)
	}
	return ""
}

// over returns the reason why a resumed run has nothing left to do, or "".
func (r *Run) over(c *Online) string {
	if best := c.Best; r.stopAt != 0 && best != nil && best.Reached && best.Mean >= r.stopAt {
		return fmt.Sprintf("mean return %.1f over %d episodes had reached %v before", best.Mean, best.Episodes, r.stopAt)
	}
	return r.reached(c)
}

// Over returns why this learner resumed a run that had nothing left to do, such as "4000 env steps
// reached 4000"; it is empty if the run continued, began at 0, or has not begun. It may be called
// when the task's Run has returned.
func (r *Run) Over() string { return r.nothing }

// goOn clears Reached of the best weights of a resumed run: the limit that they had reached does not apply any more, and better
// weights may replace them.
func (r *Run) goOn(c *Online) {
	if r.resumed && c.Best != nil && c.Best.Reached {
		best := *c.Best
		best.Reached = false
		c.Best = &best
	}
}
