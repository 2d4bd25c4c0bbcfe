package rl

import (
	"cmp"
	"fmt"
	"log/slog"
)

// clock returns the unit of evaluations, rows of the log and schedules: the env steps of the job or,
// in an offline run, which has none, the updates.
func (r *Run) clock(c *Online) int {
	if r.offline {
		return c.Updates
	}
	return c.EnvSteps
}

// now returns the clock in words.
func (r *Run) now(c *Online) string {
	if r.offline {
		return fmt.Sprintf("update %d", c.Updates)
	}
	return fmt.Sprintf("env step %d", c.EnvSteps)
}

// every returns an interval in env steps or, in an offline run, updates; 0 means 1,000. The
// interval in the other unit must be 0.
func (r *Run) every(what string, envSteps, updates int) (int, error) {
	switch {
	case r.offline && envSteps > 0:
		return 0, r.onNode(fmt.Errorf("%s config: EverySteps is %d, but an offline run takes no env steps: set EveryUpdates", what, envSteps))
	case !r.offline && updates > 0:
		return 0, r.onNode(fmt.Errorf("%s config: EveryUpdates is %d, which is for offline runs: set EverySteps", what, updates))
	}
	return cmp.Or(max(envSteps, updates), 1000), nil
}

// announce logs the source of an offline run, once.
func (l *learn) announce() {
	d, ok := l.source.(interface {
		Len() int
		Bytes() uint64
	})
	if ok && l.r.offline && !l.priced {
		l.priced = true
		l.r.t.Logger().Info("dataset", slog.Int("rows", d.Len()), slog.Uint64("bytes", d.Bytes()))
	}
}

// checkOffline returns an error for an offline run that would never end, and for one with several
// nodes, in which the learner would wait for collectors.
func (r *Run) checkOffline() error {
	if n := r.stop.EnvSteps; r.offline && n > 0 {
		return r.onNode(fmt.Errorf("stop config: EnvSteps is %d, but an offline run takes no env steps: set Updates", n))
	}
	if r.offline && !alone(r.t) {
		return r.onNode(fmt.Errorf("rl: an offline run has nothing to pass between nodes: start it with one process"))
	}
	return nil
}
