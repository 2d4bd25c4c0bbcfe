package rl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/ditask/ditask/internal/tensorboard"
	"github.com/ditask/ditask/task"
)

// scoreColumns are the columns of LogConfig.Evaluations.
var scoreColumns = []string{stepsColumn, "evaluation", "episode", "env", "reward", "length", "version"}

// logFiles are the files of a log, without the terminal.
type logFiles struct {
	r      *Run
	cfg    LogConfig
	csv    *table
	json   *lines
	scores *table
	events *tensorboard.Writer

	evaluations int // number of the newest evaluation
	rows        int // of progress
}

// check returns all faults of a config.
func (c *LogConfig) check() error {
	var faults []error
	if c.EverySteps < 0 || c.EveryUpdates < 0 || c.HistogramEvery < 0 {
		faults = append(faults, fmt.Errorf("log config: EverySteps %d, EveryUpdates %d and HistogramEvery %d must not be negative",
			c.EverySteps, c.EveryUpdates, c.HistogramEvery))
	}
	if c.TensorBoard == "" && (c.HistogramEvery > 0 || c.HParams != nil) {
		faults = append(faults, errors.New("log config: HistogramEvery and HParams need TensorBoard, a folder"))
	}
	return errors.Join(faults...)
}

// open creates the files, or continues existing ones, whose rows up to the clock last it keeps.
func (f *logFiles) open(columns []string, last int) error {
	upTo, first := -1, 0
	if f.r.resumed {
		upTo, first = last, last+1
	}
	var errs [5]error
	if f.cfg.CSV != "" {
		f.csv, errs[0] = openTable(f.cfg.CSV, columns, upTo)
	}
	if f.cfg.JSON != "" {
		f.json, errs[1] = openLines(f.cfg.JSON, upTo)
	}
	if f.cfg.Evaluations != "" {
		errs[2] = f.openScores()
	}
	if f.cfg.TensorBoard != "" {
		f.events, errs[3] = tensorboard.Create(tensorboard.Config{
			Dir: f.cfg.TensorBoard, Resume: f.r.resumed, Step: int64(first), Clock: f.cfg.Clock, Untimed: f.cfg.Untimed,
		})
		if errs[3] == nil && f.cfg.HParams != nil {
			errs[3] = f.events.Start(tensorboard.Session{
				HParams: f.cfg.HParams, Metrics: []string{"rollout/ep_rew_mean", "eval/mean_reward"},
			})
		}
	}
	if f.cfg.Outcome != "" { // of an earlier start
		if errs[4] = os.Remove(f.cfg.Outcome); errors.Is(errs[4], fs.ErrNotExist) {
			errs[4] = nil
		}
	}
	return errors.Join(errs[:]...)
}

// openScores keeps the rows of the evaluations that the checkpoint counts. An evaluation at the checkpoint's
// own clock may have been made after the checkpoint, and is then repeated.
func (f *logFiles) openScores() (err error) {
	upTo := -1
	if f.r.resumed && f.r.known.Episodes > 0 {
		upTo = f.r.clockOf(&f.r.known)
	}
	if f.scores, err = openTable(f.cfg.Evaluations, scoreColumns, upTo); err != nil || upTo < 0 {
		return err
	}
	rows, err := readTable(f.cfg.Evaluations)
	if err != nil {
		return err
	}
	at := slices.Index(rows[0], "evaluation")
	for _, row := range rows[1:] {
		if n, err := strconv.Atoi(row[at]); err == nil {
			f.evaluations = max(f.evaluations, n)
		}
	}
	return nil
}

// clockOf returns the clock of the job at an evaluation.
func (r *Run) clockOf(e *Evaluation) int {
	if r.offline {
		return int(e.Version)
	}
	return e.EnvSteps
}

// writeScores writes the episodes of evaluations.
func (f *logFiles) writeScores(all []Scores) error {
	if f.scores == nil {
		return nil
	}
	for i := range all {
		s := &all[i]
		for n := range s.Returns {
			if n == 0 || n == s.First {
				f.evaluations++
			}
			from := 0
			if n >= s.First {
				from = s.First
			}
			err := f.scores.write(scoreColumns, map[string]float64{
				stepsColumn: float64(f.r.clockOf(&s.Evaluation)), "evaluation": float64(f.evaluations), "episode": float64(n - from + 1),
				"env": float64(s.Envs[n]), "reward": s.Returns[n], "length": float64(s.Lengths[n]), "version": float64(s.Version),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a row of progress.
func (f *logFiles) write(columns []string, row map[string]float64) error {
	f.rows++
	return errors.Join(f.csv.write(columns, row), f.json.write(row), f.writeEvents(columns, row))
}

func (f *logFiles) writeEvents(columns []string, row map[string]float64) error {
	if f.events == nil {
		return nil
	}
	step := int64(row[stepsColumn])
	var values []tensorboard.Scalar
	for _, c := range columns {
		if v, ok := row[c]; ok {
			values = append(values, tensorboard.Scalar{Tag: c, Value: v})
		}
	}
	if err := f.events.Scalars(step, values); err != nil || f.cfg.HistogramEvery == 0 || f.rows%f.cfg.HistogramEvery != 0 {
		return err
	}
	for _, t := range f.r.policy.Weights().Tensors {
		if err := f.events.Histogram(step, "weights/"+t.Name, t.Data); err != nil {
			return err
		}
	}
	return nil
}

// outcome is the content of LogConfig.Outcome.
type outcome struct {
	Outcome  string     `json:"outcome"` // success, failure or preempted
	Reason   string     `json:"reason"`
	EnvSteps int        `json:"env_steps"`
	Episodes int        `json:"episodes"`
	Updates  int        `json:"updates"`
	Ended    *time.Time `json:"ended,omitempty"`
}

// close ends the files of a run with its outcome.
func (f *logFiles) close(c *Online, o task.Outcome) error {
	var err error
	if f.events != nil && f.cfg.HParams != nil {
		switch o.Kind { //nolint:exhaustive // a preempted run continues later
		case task.Success:
			err = f.events.End(tensorboard.Success)
		case task.Failure:
			err = f.events.End(tensorboard.Failure)
		}
	}
	err = errors.Join(err, f.csv.close(), f.json.close(), f.scores.close(), f.events.Close())
	if f.cfg.Outcome == "" {
		return err
	}
	end := outcome{Outcome: o.Kind.String(), Reason: o.Reason, EnvSteps: c.EnvSteps, Episodes: c.Episodes, Updates: c.Updates}
	if !f.cfg.Untimed {
		now := f.cfg.Clock().UTC()
		end.Ended = &now
	}
	file, err1 := replace(f.cfg.Outcome, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(end)
	})
	if err1 == nil {
		err1 = file.Close()
	}
	return errors.Join(err, err1)
}

// cloned returns a copy of c, in which the caller may change the maps.
func (c LogConfig) cloned() LogConfig {
	c.HParams = maps.Clone(c.HParams)
	return c
}
