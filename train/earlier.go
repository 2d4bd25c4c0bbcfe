package train

import (
	"path/filepath"

	"github.com/ditask/ditask/internal/runfolder"
	"github.com/ditask/ditask/middleware/rl"
)

// earlier begins the curves of a resumed run with those in the files of its folder. It leaves out files that cannot be
// read, and rows after the checkpoint, which the run repeats: the curves are only shown.
func (r *reporter) earlier(dir string, c *rl.Online) {
	end := r.report.First
	if c.Collected != nil && !r.report.Offline {
		end -= c.Collected.EnvSteps // of this step
	}
	if end <= 0 {
		return
	}
	if t, err := runfolder.ReadTable(filepath.Join(dir, EvaluationsFile)); err == nil {
		if last := r.earlierScores(t, end); last >= 0 && last == evaluatedAt(c, r.report.Offline) {
			r.eval = c.Eval // the curve has it
		}
	}
	if t, err := runfolder.ReadTable(filepath.Join(dir, ProgressFile)); err == nil {
		r.earlierReturns(t, end)
	}
}

// evaluatedAt returns the clock of the newest evaluation.
func evaluatedAt(c *rl.Online, offline bool) int {
	if offline {
		return int(c.Eval.Version) //nolint:gosec // a count of updates
	}
	return c.Eval.EnvSteps
}

// The columns that are read, besides those of package runfolder.
const (
	columnSteps      = "time/total_timesteps"
	columnReturn     = "rollout/ep_rew_mean"
	columnEvaluation = "evaluation"
	columnReward     = "reward"
)

// earlierScores adds the mean of each evaluation, and returns the clock of the last; -1: there is none. Of two at one clock, the second
// confirms the first and counts.
func (r *reporter) earlierScores(t *runfolder.Table, end int) (last int) {
	steps, number, reward := t.Column(columnSteps), t.Column(columnEvaluation), t.Column(columnReward)
	last = -1
	if steps == nil || number == nil || reward == nil {
		return last
	}
	for from := 0; from < t.Rows(); {
		to, sum := from, 0.0
		for ; to < t.Rows() && number[to] == number[from]; to++ {
			sum += reward[to]
		}
		if to == from || steps[from] > float64(end) { // a number that is none, or what is repeated
			return last
		}
		if to == t.Rows() || steps[to] != steps[from] {
			r.scores.add(sum / float64(to-from))
			last = int(steps[from])
		}
		from = to
	}
	return last
}

// earlierReturns adds the means of the newest episodes, as often as a run of this length would have noted them.
func (r *reporter) earlierReturns(t *runfolder.Table, end int) {
	steps, returns := t.Column(columnSteps), t.Column(columnReturn)
	if steps == nil || returns == nil {
		return
	}
	every := max(r.report.Total/MaxCurve, end/MaxCurve, 1)
	for i, at := range steps {
		if !(at <= float64(end)) {
			return
		}
		for ; int(at)-r.steps >= every; r.steps += every {
			if returns[i]-returns[i] == 0 {
				r.returns.add(returns[i])
			}
		}
	}
}
