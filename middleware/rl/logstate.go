package rl

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// logKey is the state of Log in an archive.
const logKey = "rl/log"

// logState is the state of a log from which a resumed run writes the same rows as a run without an
// interruption.
type logState struct {
	At       int            `json:"at"`       // the clock when it was saved
	Last     int            `json:"last"`     // the clock of the last row
	Eval     Evaluation     `json:"eval"`     // of that row
	Rows     int            `json:"rows"`     // written so far
	Row      []metric       `json:"row"`      // the last one, without the columns of time
	Episodes []envs.Episode `json:"episodes"` // the newest
	Infos    infoState      `json:"infos"`
	Updates  int            `json:"updates"` // since the last row, as the next two
	Trained  []metric       `json:"trained"`
	Lag      Lag            `json:"lag"`
}

// infoState is the state of infoLog.
type infoState struct {
	Names    []string `json:"names"`
	Values   []float  `json:"values"`
	Had      []bool   `json:"had"`
	Episodes int      `json:"episodes"`
	Warned   bool     `json:"warned"`
}

// metric is a policies.Metric whose value may be any float.
type metric struct {
	Name  string `json:"name"`
	Value float  `json:"value"`
}

// float is a number that JSON can hold: NaN and the infinities are strings.
type float float64

func (n float) MarshalJSON() ([]byte, error) {
	if x := float64(n); x-x != 0 {
		return strconv.AppendQuote(nil, strconv.FormatFloat(x, 'g', -1, 64)), nil
	}
	return json.Marshal(float64(n))
}

func (n *float) UnmarshalJSON(text []byte) error {
	var quoted string
	if err := json.Unmarshal(text, &quoted); err != nil {
		return json.Unmarshal(text, (*float64)(n))
	}
	x, err := strconv.ParseFloat(quoted, 64)
	*n = float(x)
	return err
}

// timeColumns are not saved: each process begins them again.
var timeColumns = []string{"time/time_elapsed", "time/fps"}

// state returns the state of the log for a checkpoint.
func (l *logger) state(c *Online) (string, error) {
	s := logState{
		At: l.r.clock(c), Last: l.last, Eval: l.eval, Rows: l.files.rows, Episodes: l.episodes,
		Infos:   infoState{Names: l.infos.names, Had: l.infos.had, Episodes: l.infos.episodes, Warned: l.infos.warned},
		Updates: l.trained.Updates, Trained: saved(l.trained.Metrics), Lag: l.trained.Lag,
	}
	for _, name := range l.columns {
		if x, ok := l.row[name]; ok && !slices.Contains(timeColumns, name) {
			s.Row = append(s.Row, metric{name, float(x)})
		}
	}
	for _, x := range l.infos.values {
		s.Infos.Values = append(s.Infos.Values, float(x))
	}
	text, err := json.Marshal(s)
	return string(text), err
}

// restore restores a state, unless the run continues from another one: a restarted learner takes over the newer state of
// another learner, and the files have the rows up to that. It omits infos with other names.
func (l *logger) restore(text string) error {
	var s logState
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("resume the log: %w", err)
	}
	if s.Last < 0 || s.Last > s.At || s.Rows < 0 || s.Updates < 0 || len(s.Episodes) > window ||
		len(s.Infos.Had) != len(s.Infos.Names) || len(s.Infos.Values) > window*len(s.Infos.Names) ||
		len(s.Infos.Names) > 0 && len(s.Infos.Values)%len(s.Infos.Names) != 0 {
		return fmt.Errorf("resume the log: the checkpoint has a state that no log can have: last row at %d of %d", s.Last, s.At)
	}
	if s.At != l.r.first {
		return nil
	}
	l.last, l.eval, l.files.rows, l.episodes = s.Last, s.Eval, s.Rows, s.Episodes
	l.trained = Trained{Updates: s.Updates, Metrics: restored(s.Trained), Lag: s.Lag}
	l.set(restored(s.Row))
	if slices.Equal(s.Infos.Names, l.infos.names) {
		l.infos.had, l.infos.episodes, l.infos.warned = s.Infos.Had, s.Infos.Episodes, s.Infos.Warned
		for _, x := range s.Infos.Values {
			l.infos.values = append(l.infos.values, float64(x))
		}
		return nil
	}
	for _, name := range s.Infos.Names {
		delete(l.row, rolloutColumn(name))
		delete(l.row, evalColumn(name))
	}
	return nil
}

// saved returns metrics for a state, and restored returns the metrics of a state.
func saved(metrics []policies.Metric) (out []metric) {
	for _, m := range metrics {
		out = append(out, metric{m.Name, float(m.Value)})
	}
	return out
}

func restored(metrics []metric) (out []policies.Metric) {
	for _, m := range metrics {
		out = append(out, policies.Metric{Name: m.Name, Value: float64(m.Value)})
	}
	return out
}
