package rl

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/task"
)

// LogConfig describes a log. A zero value writes nothing.
type LogConfig struct {
	EverySteps int       // env steps of the job between rows; 0 means 1,000
	Terminal   io.Writer // a line for people, or nil
	CSV        io.Writer // all columns, a header first, or nil
	JSON       io.Writer // one object a line, without what is not known yet, or nil
	// Clock gives the time; nil means time.Now.
	Clock func() time.Time
	// Untimed leaves out what depends on time, so that the same numbers give
	// the same files.
	Untimed bool
}

// window is how many of the newest episodes the rollout means are of.
const window = 100

// The columns, by the names of Stable-Baselines3.
var columns = []string{
	"time/total_timesteps", "time/episodes", "time/time_elapsed", "time/fps",
	"rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/exploration_rate", "rollout/policy_lag",
	"train/n_updates", "train/loss", "train/learning_rate", "train/grad_norm", "train/policy_lag",
	"eval/mean_reward", "eval/std_reward", "eval/mean_ep_length",
}

// Log writes a row of metrics every so many env steps, after each evaluation,
// and at the end of the run. It may stand anywhere after Exchange: it
// looks at the step when that is over.
func Log(cfg LogConfig) task.Middleware[Online] {
	if cfg.EverySteps <= 0 {
		cfg.EverySteps = 1000
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	l := &logger{cfg: cfg, row: map[string]float64{}}
	if cfg.CSV != nil {
		l.csv = csv.NewWriter(cfg.CSV)
	}
	return func(ctx context.Context, c *Online, next task.Next) error { return l.step(ctx, c, next) }
}

type logger struct {
	cfg      LogConfig
	csv      *csv.Writer
	began    time.Time
	first    int // env steps when the log began
	started  bool
	last     int  // env steps of the last row
	headed   bool // the header was written
	eval     Evaluation
	episodes []envs.Episode // the newest, at most window
	trained  Trained        // sums since the last row, weighted by updates
	row      map[string]float64
}

func (l *logger) step(ctx context.Context, c *Online, next task.Next) error {
	if !l.started {
		t, err := c.taskOf()
		if err != nil {
			return err
		}
		l.started, l.began, l.first, l.last, l.eval = true, l.cfg.Clock(), c.EnvSteps, c.EnvSteps, c.Eval
		t.OnFinish(func(context.Context, task.Outcome) error {
			if t.Context().EnvSteps == l.last {
				return nil
			}
			return l.write(t.Context())
		})
	}
	if err := next(ctx); err != nil {
		return err
	}
	l.note(c)
	if c.EnvSteps-l.last < l.cfg.EverySteps && c.Eval == l.eval {
		return nil
	}
	return l.write(c)
}

// note takes down what the step brought.
func (l *logger) note(c *Online) {
	if c.Collected != nil {
		l.episodes = append(l.episodes, c.Collected.Episodes...)
		l.episodes = slices.Delete(l.episodes, 0, max(0, len(l.episodes)-window))
		l.row["rollout/policy_lag"] = c.Lag.Mean
	}
	if n := float64(c.Trained.Updates); n > 0 {
		s := &l.trained
		s.Updates += c.Trained.Updates
		s.Metrics.Loss += n * c.Trained.Metrics.Loss
		s.Metrics.GradNorm += n * c.Trained.Metrics.GradNorm
		s.Metrics.Rate = c.Trained.Metrics.Rate
		s.Lag.Mean += n * c.Trained.Lag.Mean
	}
}

// fill works out the columns that are known.
func (l *logger) fill(c *Online) {
	r := l.row
	r["time/total_timesteps"], r["time/episodes"] = float64(c.EnvSteps), float64(c.Episodes)
	if !l.cfg.Untimed {
		took := l.cfg.Clock().Sub(l.began).Seconds()
		r["time/time_elapsed"] = took
		if took > 0 {
			r["time/fps"] = float64(c.EnvSteps-l.first) / took
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
	r["rollout/exploration_rate"] = c.Epsilon
	r["train/n_updates"] = float64(c.Updates)
	if n := float64(l.trained.Updates); n > 0 {
		m := l.trained.Metrics
		r["train/loss"], r["train/grad_norm"], r["train/learning_rate"] = m.Loss/n, m.GradNorm/n, m.Rate
		r["train/policy_lag"] = l.trained.Lag.Mean / n
		l.trained = Trained{}
	}
	if c.Eval.Episodes > 0 {
		r["eval/mean_reward"], r["eval/std_reward"], r["eval/mean_ep_length"] = c.Eval.Mean, c.Eval.Std, c.Eval.Length
	}
}

func (l *logger) write(c *Online) error {
	l.fill(c)
	l.last, l.eval = c.EnvSteps, c.Eval
	if err := errors.Join(l.writeTerminal(), l.writeCSV(), l.writeJSON()); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	return nil
}

func (l *logger) writeTerminal() error {
	if l.cfg.Terminal == nil {
		return nil
	}
	line := fmt.Appendf(nil, "steps %8.0f", l.row["time/total_timesteps"])
	for _, c := range []struct{ column, format string }{
		{"rollout/ep_rew_mean", "  reward %7.1f"}, {"rollout/exploration_rate", "  epsilon %.2f"},
		{"train/n_updates", "  updates %7.0f"}, {"train/loss", "  loss %9.3g"},
		{"eval/mean_reward", "  eval %7.1f"}, {"time/fps", "  fps %6.0f"},
	} {
		if v, ok := l.row[c.column]; ok {
			line = fmt.Appendf(line, c.format, v)
		}
	}
	_, err := l.cfg.Terminal.Write(append(line, '\n'))
	return err
}

func (l *logger) writeCSV() error {
	if l.csv == nil {
		return nil
	}
	if !l.headed {
		l.headed = true
		if err := l.csv.Write(columns); err != nil {
			return err
		}
	}
	record := make([]string, len(columns))
	for i, c := range columns {
		if v, ok := l.row[c]; ok {
			record[i] = strconv.FormatFloat(v, 'g', -1, 64)
		}
	}
	if err := l.csv.Write(record); err != nil {
		return err
	}
	l.csv.Flush()
	return l.csv.Error()
}

func (l *logger) writeJSON() error {
	if l.cfg.JSON == nil {
		return nil
	}
	return json.NewEncoder(l.cfg.JSON).Encode(l.row)
}
