package train

import (
	"context"
	"slices"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// Report is the progress of a run, in bounded size. A learner sends it as JSON to the command that shows it.
type Report struct {
	Algorithm string        `json:"algorithm"`
	Env       string        `json:"env"`
	Offline   bool          `json:"offline,omitempty"` // Steps are updates, not env steps
	Steps     int           `json:"steps"`             // so far
	First     int           `json:"first,omitempty"`   // with which this process began
	Total     int           `json:"total"`             // at the end
	Updates   int           `json:"updates"`
	Episodes  int           `json:"episodes"`
	Elapsed   time.Duration `json:"elapsed_ns"`
	// Return is the mean of the newest episodes, at most 100; Recent is how many they are.
	Return float64 `json:"return"`
	Recent int     `json:"recent"`
	// Metrics are the policy's, in its order: at most MaxReported.
	Metrics []ReportedMetric `json:"metrics,omitempty"`
	Eval    *rl.Evaluation   `json:"eval,omitempty"` // the newest, nil before the first
	Best    *rl.Evaluation   `json:"best,omitempty"`
	// Scores are the means of the evaluations, Returns those of the newest episodes over time. Neighbours are joined
	// so that they are at most MaxCurve.
	Scores  []float64 `json:"scores,omitempty"`
	Returns []float64 `json:"returns,omitempty"`
}

// ReportedMetric is a metric by its short name, such as value_loss.
type ReportedMetric struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// The bounds of a report.
const (
	MaxReported = 8
	MaxCurve    = 240
	recent      = 100
)

// reporter makes reports of a run.
type reporter struct {
	p       *prepared
	every   time.Duration
	told    func(*Report)
	now     func() time.Time
	began   time.Time
	last    time.Time // of the last report
	looked  time.Time // at the clock
	skip    int       // steps between two looks at the clock
	skipped int

	report   Report
	episodes [recent]float64
	at       int
	eval     rl.Evaluation
	scores   curve
	returns  curve
	steps    int // of the last value of returns
}

func newReporter(p *prepared, every time.Duration, told func(*Report)) *reporter {
	c := p.c
	return &reporter{p: p, every: every, told: told, now: time.Now, report: Report{
		Algorithm: c.algorithm.Name, Env: p.envs.name, Offline: c.algorithm.Offline, Total: c.Steps() + c.extra, First: -1,
	}}
}

// step is a middleware that looks at the step when that is over.
func (r *reporter) step(ctx context.Context, c *rl.Online, next task.Next) error {
	if r.report.First < 0 {
		r.began = r.now()
		r.report.First = r.clock(c)
		if dir := r.p.node.Dir(); dir != "" && r.report.First > 0 {
			r.earlier(dir, c)
		}
	}
	err := next(ctx)
	r.note(c)
	if r.skipped++; r.skipped <= r.skip {
		return err
	}
	r.skipped = 0
	now := r.now()
	if now.Sub(r.looked) < time.Millisecond { // short steps: the clock costs something too
		r.skip = min(2*r.skip+1, 1023)
	} else {
		r.skip = 0
	}
	r.looked = now
	if now.Sub(r.last) >= r.every {
		r.last = now
		r.tell(c, now)
	}
	return err
}

func (r *reporter) clock(c *rl.Online) int {
	if r.report.Offline {
		return c.Updates
	}
	return c.EnvSteps
}

// note records the results of the step. It allocates nothing in the steady state.
func (r *reporter) note(c *rl.Online) {
	if c.Collected != nil {
		r.took(c.Collected.Episodes)
	}
	if r.report.Recent > 0 && r.clock(c)-r.steps >= max(r.report.Total/MaxCurve, 1) {
		r.steps = r.clock(c)
		r.returns.add(r.mean())
	}
	if c.Trained.Updates > 0 {
		r.metrics(c.Trained.Metrics)
	}
	if !c.Eval.Equal(&r.eval) && c.Eval.Episodes > 0 {
		r.eval = c.Eval
		r.scores.add(c.Eval.Mean)
	}
}

func (r *reporter) took(episodes []envs.Episode) {
	for _, e := range episodes {
		r.episodes[r.at%recent] = e.Return
		r.at++
	}
	r.report.Recent = min(r.at, recent)
}

func (r *reporter) mean() (sum float64) {
	for _, v := range r.episodes[:r.report.Recent] {
		sum += v
	}
	return sum / float64(max(r.report.Recent, 1))
}

func (r *reporter) metrics(all []policies.Metric) {
	r.report.Metrics = r.report.Metrics[:0]
	for _, m := range all {
		if name := shortName(m.Name); len(r.report.Metrics) < MaxReported && m.Value-m.Value == 0 {
			r.report.Metrics = append(r.report.Metrics, ReportedMetric{name, m.Value})
		}
	}
}

// shortName returns a name such as train/value_loss without the part before the last slash.
func shortName(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			return name[i+1:]
		}
	}
	return name
}

// tell hands the report on.
func (r *reporter) tell(c *rl.Online, now time.Time) {
	p := &r.report
	p.Steps, p.Updates, p.Episodes, p.Elapsed = r.clock(c), c.Updates, c.Episodes, now.Sub(r.began)
	p.Return = r.mean()
	if c.Eval.Episodes > 0 {
		p.Eval = &r.eval
	}
	if c.Best != nil {
		best := c.Best.Evaluation
		p.Best = &best
	}
	p.Scores, p.Returns = r.scores.values(p.Scores[:0]), r.returns.values(p.Returns[:0])
	r.told(p)
}

// end tells how the run has ended.
func (r *reporter) end() {
	if r.report.First >= 0 {
		r.tell(r.p.task.Context(), r.now())
	}
}

// curve is a sequence of values of which neighbours are joined when they become many.
type curve struct {
	means []float64
	each  int     // values of one mean
	sum   float64 // of those that are not joined yet
	n     int
}

func (c *curve) add(v float64) {
	c.each = max(c.each, 1)
	c.sum += v
	if c.n++; c.n < c.each {
		return
	}
	c.means = append(c.means, c.sum/float64(c.n))
	c.sum, c.n = 0, 0
	if len(c.means) < MaxCurve {
		return
	}
	for i := range len(c.means) / 2 {
		c.means[i] = (c.means[2*i] + c.means[2*i+1]) / 2
	}
	c.means = slices.Delete(c.means, len(c.means)/2, len(c.means))
	c.each *= 2
}

// values appends the means to dst, that of the newest values last.
func (c *curve) values(dst []float64) []float64 {
	dst = append(dst, c.means...)
	if c.n > 0 {
		dst = append(dst, c.sum/float64(c.n))
	}
	return dst
}
