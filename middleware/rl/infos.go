package rl

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
)

// MaxInfos is the maximum number of infos of a run.
const MaxInfos = 16

// ErrInfo is wrapped by the error for a value under a name of Config.Infos that is neither a finite
// number nor a truth value.
var ErrInfo = errors.New("only finite numbers and truth values can be logged")

// CheckInfos returns every fault of names of infos: see Config.Infos.
func CheckInfos(names []string) error {
	var faults []error
	if len(names) > MaxInfos {
		faults = append(faults, fmt.Errorf("%d names of infos: want %d at most", len(names), MaxInfos))
	}
	for k, name := range names {
		odd := func(r rune) bool {
			return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(",[]\"'", r)
		}
		column := rolloutColumn(name)
		switch {
		case name == "" || len(name) > 64 || strings.ContainsFunc(name, odd):
			faults = append(faults, fmt.Errorf("%q is no name of an info: want 1 to 64 bytes without spaces, commas, quotes and brackets", name))
		case slices.Contains(columns, column) || slices.Contains(columns, evalColumn(name)) || column == "rollout/exploration_rate":
			faults = append(faults, fmt.Errorf("%q cannot be the name of an info: its column %s or %s is one of every run",
				name, column, evalColumn(name)))
		case slices.ContainsFunc(names[:k], func(other string) bool { return rolloutColumn(other) == column }):
			faults = append(faults, fmt.Errorf("two infos have the column %s: leave out %q", column, name))
		}
	}
	return errors.Join(faults...)
}

// InfoName returns the part of the name of an info's columns after rollout/ and eval/: success_rate for is_success,
// as in Stable-Baselines3, and the name itself for any other.
func InfoName(name string) string {
	if name == "is_success" {
		return "success_rate"
	}
	return name
}

func rolloutColumn(name string) string { return "rollout/" + InfoName(name) }

func evalColumn(name string) string { return "eval/" + InfoName(name) }

// AppendInfos appends the numbers with the given names of the info of a step that has ended an episode of environment
// index of env: NaN for those that are missing or nil, and 1 and 0 for truth values. The error is an *envs.Error that
// wraps ErrInfo.
func AppendInfos(dst []float64, names []string, env string, index int, info envs.Info) ([]float64, error) {
	for _, name := range names {
		x, ok := infoNumber(info.Values[name])
		if !ok {
			v := info.Values[name]
			err := fmt.Errorf("info %q of the last step of an episode is %.80v, a %T: %w", name, v, v, ErrInfo)
			return dst, &envs.Error{Env: env, Index: index, Op: "step", Err: err}
		}
		dst = append(dst, x)
	}
	return dst, nil
}

// infoNumber returns the value of an info as a number, NaN for nil.
func infoNumber(value any) (x float64, ok bool) {
	switch v := value.(type) {
	case nil:
		return math.NaN(), true
	case bool:
		return float64(bit(v)), true
	case float64:
		x = v
	case float32:
		x = float64(v)
	case int:
		x = float64(v)
	case int64:
		x = float64(v)
	case int32:
		x = float64(v)
	case uint8:
		x = float64(v)
	case uint32:
		x = float64(v)
	case uint64:
		x = float64(v)
	default:
		return 0, false
	}
	return x, x-x == 0
}

// InfoMeans returns the means of infos over episodes. values has len(names) numbers of each episode, NaN for
// missing ones, and a mean is over the episodes that have the number. It omits a name without any.
func InfoMeans(names []string, values []float64) []policies.Metric {
	var out []policies.Metric
	for k, name := range names {
		if mean := infoMean(len(names), k, values); mean-mean == 0 {
			out = append(out, policies.Metric{Name: InfoName(name), Value: mean})
		}
	}
	return out
}

// infoMean returns the mean of info k of n, NaN if no episode has it.
func infoMean(n, k int, values []float64) float64 {
	sum, with := 0.0, 0.0
	for ; k < len(values); k += n {
		if !math.IsNaN(values[k]) {
			sum, with = sum+values[k], with+1
		}
	}
	return sum / with
}

// checkInfos returns an error if the number of infos does not match the number of episodes.
func (r *Run) checkInfos(from int, episodes []envs.Episode, infos []float64) error {
	if len(infos) == len(episodes)*len(r.cfg.Infos) {
		return nil
	}
	return r.onNode(fmt.Errorf("node %d has sent %d infos of %d episodes: the processes of the job name different infos",
		from, len(infos), len(episodes)))
}

// infoLog has the infos of the newest episodes for a log.
type infoLog struct {
	names    []string
	values   []float64 // of each of those episodes, one for each name
	had      []bool    // whether an episode had that name
	episodes int
	warned   bool
}

// patientEpisodes is the number of episodes without an info before a warning.
const patientEpisodes = 20

// add appends the infos of episodes, and keeps those of the newest episodes.
func (l *infoLog) add(values []float64, keep int) {
	n := len(l.names)
	l.values = append(l.values, values...)
	l.values = slices.Delete(l.values, 0, max(0, len(l.values)-keep*n))
	l.episodes += len(values) / n
	for k, x := range values {
		l.had[k%n] = l.had[k%n] || !math.IsNaN(x)
	}
}

// fill sets the columns, and removes those of infos that none of the newest episodes had.
func (l *infoLog) fill(row map[string]float64) {
	for k, name := range l.names {
		column := rolloutColumn(name)
		if mean := infoMean(len(l.names), k, l.values); mean-mean == 0 {
			row[column] = mean
		} else {
			delete(row, column)
		}
	}
}

// evaluated adds the infos of an evaluation, and counts its episodes if the run has no others.
func (l *infoLog) evaluated(e *Evaluation, alone bool) {
	for k, name := range l.names {
		l.had[k] = l.had[k] || slices.ContainsFunc(e.Infos, func(m policies.Metric) bool { return m.Name == InfoName(name) })
	}
	if alone {
		l.episodes += e.Episodes
	}
}

// warn logs once the names that no episode had. At the end of a run few episodes are enough.
func (l *infoLog) warn(log *slog.Logger, env string, end bool) {
	if l.warned || l.episodes == 0 || l.episodes < patientEpisodes && !end {
		return
	}
	l.warned = true
	var missing []string
	for k, name := range l.names {
		if !l.had[k] {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		log.Warn("no episode has such an info in its last step: check the names", slog.String("infos", strings.Join(missing, ",")),
			slog.String("env", env), slog.Int("episodes", l.episodes))
	}
}
