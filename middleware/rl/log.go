package rl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/task"
)

// LogConfig describes a log. The zero value writes nothing.
type LogConfig struct {
	EverySteps   int       // env steps of the job between rows; 0 means 1,000
	EveryUpdates int       // the same in updates, for an offline run; 0 means 1,000
	Terminal     io.Writer // a line for a terminal, or nil
	// CSV is a file with all columns, a header first, such as progress.csv; "" writes none. Columns that appear
	// late are empty in earlier rows. A new run replaces an existing file; a resumed run continues it, without the
	// rows of steps that it repeats. Apart from the columns of time, a run that is interrupted and continues
	// bit for bit, alone or in lockstep, has the same rows as one without an interruption.
	CSV string
	// JSON is a file with one object per line, without unknown values, such as metrics.jsonl; ""
	// writes none. An existing file is treated as for CSV.
	JSON string
	// Evaluations is a file with one row for each episode of each evaluation, such as evaluations.csv,
	// including evaluations on another node; "" writes none. An existing file is treated as for CSV. It
	// has at most MaxScores episodes of one evaluation.
	Evaluations string
	// TensorBoard is a folder for event files, such as tensorboard, with the columns of CSV; "" writes none. A
	// resumed run writes a new file, from which readers recognise the repeated steps; any other run removes the
	// event files that an earlier run wrote to the folder.
	TensorBoard string
	// HistogramEvery is the number of rows between two sets of histograms of the weights in the event file; 0 writes
	// none.
	HistogramEvery int
	// HParams are the hyperparameters in TensorBoard's HPARAMS tab: texts, booleans and finite numbers by their names.
	// If nil, the run is not in that tab.
	HParams map[string]any
	// Outcome is a file with the outcome of the run in JSON, such as outcome.json; "" writes none. It is
	// missing while a run continues, and after a killed run.
	Outcome string
	// Clock gives the time; nil means time.Now.
	Clock func() time.Time
	// Untimed omits values that depend on time, so that the same numbers give the same files.
	Untimed bool
}

// window is the number of newest episodes in the rollout means.
const window = 100

// columns are the columns of every run, by the names of Stable-Baselines3. Those of the policy follow.
// In an offline run, time/total_timesteps and time/fps count updates.
var columns = []string{
	"time/total_timesteps", "time/episodes", "time/time_elapsed", "time/fps",
	"rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/policy_lag",
	"train/n_updates", "train/policy_lag",
	"eval/mean_reward", "eval/std_reward", "eval/mean_ep_length",
}

// Log writes a row of metrics at intervals of env steps, or of updates of an offline run, after
// each evaluation, and at the end of the run. It may stand anywhere after Exchange: it reads the
// results of a step after the step. Of several learners the first one writes.
func (r *Run) Log(cfg LogConfig) task.Middleware[Online] {
	if err := cfg.check(); err != nil {
		panic("rl: " + err.Error())
	}
	cfg = cfg.cloned()
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &logger{r: r, cfg: cfg, files: logFiles{r: r, cfg: cfg}, columns: slices.Clone(columns), row: map[string]float64{}}
	l.infos = infoLog{names: r.cfg.Infos, had: make([]bool, len(r.cfg.Infos))}
	for _, name := range r.cfg.Infos {
		l.columns = append(l.columns, rolloutColumn(name), evalColumn(name))
	}
	if !r.t.Has(Learner) {
		return func(ctx context.Context, _ *Online, next task.Next) error { return next(ctx) }
	}
	if cfg.Evaluations != "" {
		r.logsScores = true
	}
	r.log = l
	return func(ctx context.Context, c *Online, next task.Next) error {
		if r.began && !r.leads() {
			r.takeScores() // the first learner has them too
			return next(ctx)
		}
		return l.step(ctx, c, next)
	}
}

type logger struct {
	r        *Run
	cfg      LogConfig
	files    logFiles
	began    time.Time
	started  bool
	every    int
	noted    int            // the newest step whose results are recorded
	last     int            // the clock of the last row
	eval     Evaluation     // of that row
	episodes []envs.Episode // the newest, at most window
	infos    infoLog        // of those
	trained  Trained        // since the last row
	columns  []string       // known so far
	row      map[string]float64
}

// begin opens the files.
func (l *logger) begin() error {
	if !l.r.began {
		return errNoExchange
	}
	var err error
	if l.every, err = l.r.every("log", l.cfg.EverySteps, l.cfg.EveryUpdates); err != nil {
		return err
	}
	l.started, l.began, l.last, l.eval = true, l.cfg.Clock(), l.r.first, l.r.known
	if l.r.logged != "" {
		if err := l.restore(l.r.logged); err != nil {
			return l.failed(err)
		}
	}
	l.r.t.OnFinish(func(_ context.Context, o task.Outcome) error {
		c := l.r.t.Context()
		l.note(c) // the run may have ended in the middle of a step
		l.infos.warn(l.r.t.Logger(), l.r.env, true)
		err := l.writeScores()
		if l.r.clock(c) != l.last {
			err = errors.Join(err, l.writeEnd(c))
		}
		return errors.Join(err, l.failed(l.files.close(c, o)))
	})
	return l.failed(l.files.open(l.columns, l.last))
}

func (l *logger) failed(err error) error {
	if err == nil {
		return nil
	}
	return l.r.onNode(fmt.Errorf("log: %w", err))
}

func (l *logger) step(ctx context.Context, c *Online, next task.Next) error {
	if !l.started {
		if err := l.begin(); err != nil {
			return err
		}
	}
	if err := next(ctx); err != nil {
		return err
	}
	return l.settle(c)
}

// settle writes the rows that are due after the step. A checkpoint calls it before the log itself does, so that the
// files have the rows that the checkpoint counts.
func (l *logger) settle(c *Online) error {
	if !l.started {
		return nil
	}
	l.note(c)
	if err := l.writeScores(); err != nil {
		return err
	}
	if l.r.clock(c)-l.last < l.every && c.Eval.Equal(&l.eval) {
		return nil
	}
	return l.write(c)
}

// note records the results of the step, once.
func (l *logger) note(c *Online) {
	if l.noted == l.r.step {
		return
	}
	l.noted = l.r.step
	if c.Collected != nil {
		l.episodes = append(l.episodes, c.Collected.Episodes...)
		l.episodes = slices.Delete(l.episodes, 0, max(0, len(l.episodes)-window))
		if len(l.infos.names) > 0 {
			l.infos.add(c.Collected.Infos, window)
			l.infos.warn(l.r.t.Logger(), l.r.env, false)
		}
		l.row["rollout/policy_lag"] = c.Lag.Mean
	}
	if len(l.infos.names) > 0 && !c.Eval.Equal(&l.eval) {
		l.infos.evaluated(&c.Eval, l.r.offline)
		l.infos.warn(l.r.t.Logger(), l.r.env, false)
	}
	if n := c.Trained.Updates; n > 0 {
		l.trained.add(n, c.Trained.Metrics, c.Trained.Lag)
	}
}

// fill computes the known columns.
func (l *logger) fill(c *Online) {
	r := l.row
	r["time/total_timesteps"], r["time/episodes"] = float64(l.r.clock(c)), float64(c.Episodes)
	if !l.cfg.Untimed {
		took := l.cfg.Clock().Sub(l.began).Seconds()
		r["time/time_elapsed"] = took
		if took > 0 {
			r["time/fps"] = float64(l.r.clock(c)-l.r.first) / took
		}
	}
	if n := float64(len(l.episodes)); n > 0 {
		var sum envs.Episode
		for _, e := range l.episodes {
			sum.Return += e.Return
			sum.Length += e.Length
		}
		r["rollout/ep_rew_mean"], r["rollout/ep_len_mean"] = sum.Return/n, float64(sum.Length)/n
	}
	l.infos.fill(r)
	l.set(c.Explored)
	r["train/n_updates"] = float64(c.Updates)
	if l.trained.Updates > 0 {
		r["train/policy_lag"] = l.trained.Lag.Mean
		l.set(l.trained.Metrics)
		l.trained = Trained{Metrics: l.trained.Metrics[:0]}
	}
	if c.Eval.Episodes > 0 {
		r["eval/mean_reward"], r["eval/std_reward"], r["eval/mean_ep_length"] = c.Eval.Mean, c.Eval.Std, c.Eval.Length
		for _, name := range l.infos.names {
			delete(r, evalColumn(name))
		}
		for _, m := range c.Eval.Infos {
			if column := "eval/" + m.Name; slices.Contains(l.columns, column) {
				r[column] = m.Value
			}
		}
	}
}

// set adds metrics of the policy to the row.
func (l *logger) set(metrics []policies.Metric) {
	for _, m := range metrics {
		if !slices.Contains(l.columns, m.Name) {
			l.columns = append(l.columns, m.Name)
		}
		l.row[m.Name] = m.Value
	}
}

func (l *logger) write(c *Online) error {
	l.fill(c)
	l.last, l.eval = l.r.clock(c), c.Eval
	return l.failed(errors.Join(l.writeTerminal(), l.files.write(l.columns, l.row)))
}

// writeEnd writes a row at the end of the run. A run that continues later does not count this row: it writes the rows that
// it would have written without the end.
func (l *logger) writeEnd(c *Online) error {
	kept := *l
	kept.trained.Metrics = slices.Clone(l.trained.Metrics)
	kept.row = maps.Clone(l.row)
	return kept.write(c)
}

func (l *logger) writeScores() error {
	if l.cfg.Evaluations == "" || !l.started {
		return nil
	}
	return l.failed(l.files.writeScores(l.r.takeScores()))
}

// writeTerminal writes the columns that fit in a line, and the first ones of the policy.
func (l *logger) writeTerminal() error {
	if l.cfg.Terminal == nil {
		return nil
	}
	line := fmt.Appendf(nil, "steps %8.0f", l.row["time/total_timesteps"])
	put := func(column, format string) {
		if v, ok := l.row[column]; ok {
			line = fmt.Appendf(line, format, v)
		}
	}
	put("rollout/ep_rew_mean", "  reward %7.1f")
	put("rollout/exploration_rate", "  epsilon %.2f")
	put("train/n_updates", "  updates %7.0f")
	shown := 0
	for _, name := range l.columns[len(columns):] {
		if short, ok := strings.CutPrefix(name, "train/"); ok && shown < 2 {
			shown++
			put(name, "  "+strings.ReplaceAll(short, "%", "%%")+" %9.3g")
		}
	}
	put("eval/mean_reward", "  eval %7.1f")
	put("time/fps", "  fps %6.0f")
	_, err := l.cfg.Terminal.Write(append(line, '\n'))
	return err
}
