package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/runfolder"
)

// group is one curve.
type group struct {
	algo, env string
	runs      []series
	envs      []string // of the runs: the strata

	x []float64 // the grid
	estimate
	tails []series // of the runs that continue behind it
}

// label names the group by the settings that differ between groups.
func (g *group) label(algos, envs bool) string {
	switch {
	case g.algo == "" || envs && !algos && g.env != "":
		return cmp.Or(g.env, "runs")
	case envs && g.env != "":
		return g.algo + ", " + g.env
	}
	return g.algo
}

// groups sorts runs into groups and estimates their curves.
func groups(runs []Run, cfg *Config) (all []*group, left int, err error) {
	for i := range runs {
		r := &runs[i]
		s, bad, err := values(r, cfg)
		if err != nil {
			return nil, 0, err
		}
		left += bad
		env := r.Env
		if cfg.By == Algo {
			env = ""
		}
		j := slices.IndexFunc(all, func(g *group) bool { return g.algo == r.Algo && g.env == env })
		if j < 0 {
			j, all = len(all), append(all, &group{algo: r.Algo, env: env})
		}
		all[j].runs, all[j].envs = append(all[j].runs, s), append(all[j].envs, r.Env)
	}
	if len(all) > maxGroups {
		return nil, 0, fmt.Errorf("plot: %d curves, at most %d can be told apart: draw less runs", len(all), maxGroups)
	}
	slices.SortStableFunc(all, func(a, b *group) int { return cmp.Or(cmp.Compare(a.algo, b.algo), cmp.Compare(a.env, b.env)) })
	for _, g := range all {
		if err := g.fit(cfg); err != nil {
			return nil, 0, err
		}
	}
	return all, left, nil
}

// values returns the points of a run, and how many were left out as they are infinite.
func values(r *Run, cfg *Config) (s series, left int, err error) {
	name := printable.Cut(r.Name, 200)
	x, y := r.Progress.Column(cfg.xColumn()), r.Progress.Column(cfg.Column)
	for _, c := range []string{cfg.xColumn(), cfg.Column} {
		if r.Progress.Column(c) == nil {
			return s, 0, fmt.Errorf("plot: run %s has no column %s: it has %s", name, c, printable.Cut(fmt.Sprint(r.Progress.Columns), 1000))
		}
	}
	began, before := 0.0, 0.0
	for i := range x {
		at := x[i]
		if cfg.X == WallTime { // which begins at 0 when a run is resumed
			if at < before {
				began += before
			}
			if !math.IsNaN(at) {
				before = at
			}
			at += began
		}
		if math.IsInf(at, 0) || math.IsInf(y[i], 0) {
			left++
		}
		if v := at + y[i]; math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		switch n := len(s.x); {
		case n > 0 && at < s.x[n-1]:
			return s, 0, fmt.Errorf("plot: run %s: %s goes back from %v to %v", name, cfg.xColumn(), s.x[n-1], at)
		case n > 0 && at == s.x[n-1]:
			s.y[n-1] = y[i] // the newest
		default:
			s.x, s.y = append(s.x, at), append(s.y, y[i])
		}
	}
	if len(s.x) == 0 {
		return s, 0, fmt.Errorf("plot: run %s has no value of %s yet", name, cfg.Column)
	}
	return s, left, nil
}

// fit estimates the curve.
func (g *group) fit(cfg *Config) error {
	lo, hi := math.Inf(-1), math.Inf(1)
	for _, r := range g.runs {
		lo, hi = max(lo, r.x[0]), min(hi, r.x[len(r.x)-1])
	}
	if lo > hi {
		return fmt.Errorf("plot: the %d runs of %s %s have no %s in common: one ends at %v, another one begins at %v",
			len(g.runs), printable.Text(g.algo), printable.Text(g.env), cfg.xColumn(), hi, lo)
	}
	n := cfg.Points
	if lo == hi {
		n = 1
	}
	for k := range n {
		x := lo
		if n > 1 {
			x = lo + (hi-lo)*float64(k)/float64(n-1)
		}
		g.x = append(g.x, min(x, hi))
	}
	strata := map[string][][]float64{}
	var names []string
	for i := range g.runs {
		s := &g.runs[i]
		scores := make([]float64, n)
		for k, x := range g.x {
			scores[k] = s.at(x)
		}
		if _, ok := strata[g.envs[i]]; !ok {
			names = append(names, g.envs[i])
		}
		strata[g.envs[i]] = append(strata[g.envs[i]], scores)
		g.tails = append(g.tails, s.from(hi)...)
	}
	if len(g.runs) == 1 {
		g.mean = smooth(strata[names[0]][0], n/20)
		return nil
	}
	slices.Sort(names)
	var scores [][][]float64
	for _, name := range names {
		scores = append(scores, strata[name])
	}
	g.estimate = bootstrap(scores, cfg.Resamples, cfg.Seed)
	return nil
}

// from returns the points at and behind x, if that is more than a fiftieth of the run: the last rows of runs are never at the same step.
func (s *series) from(x float64) []series {
	if last := s.x[len(s.x)-1]; last-x <= (last-s.x[0])/50 {
		return nil
	}
	tail := series{[]float64{x}, []float64{s.at(x)}}
	for i := range s.x {
		if s.x[i] > x {
			tail.x, tail.y = append(tail.x, s.x[i]), append(tail.y, s.y[i])
		}
	}
	return []series{tail}
}

// bounds returns the smallest and the largest values that are drawn.
func bounds(all []*group, cfg *Config) (x, y [2]float64) {
	x, y = [2]float64{0, math.Inf(-1)}, [2]float64{math.Inf(1), math.Inf(-1)}
	put := func(s series) {
		for i := range s.x {
			x[1] = max(x[1], s.x[i])
			y[0], y[1] = min(y[0], s.y[i]), max(y[1], s.y[i])
		}
	}
	for _, g := range all {
		for _, line := range [][]float64{g.mean, g.low, g.high} {
			if line != nil {
				put(series{g.x, line})
			}
		}
		for _, t := range g.tails {
			put(t)
		}
		if len(g.runs) == 1 {
			put(g.runs[0])
		}
	}
	for _, v := range cfg.Threshold {
		y[0], y[1] = min(y[0], v), max(y[1], v)
	}
	if x[1] <= 0 {
		x[1] = 1
	}
	if pad := (y[1] - y[0]) * 0.04; pad > 0 {
		y[0], y[1] = y[0]-pad, y[1]+pad
	} else {
		pad = max(math.Abs(y[0])*0.1, 1)
		y[0], y[1] = y[0]-pad, y[1]+pad
	}
	return x, y
}

// title returns the settings that all runs have in common.
func title(all []*group, cfg *Config) string {
	if cfg.Title != "" {
		return cfg.Title
	}
	algos, envs := differ(all)
	switch {
	case !envs && all[0].env != "":
		if !algos && all[0].algo != "" {
			return all[0].algo + " on " + all[0].env
		}
		return all[0].env
	case !algos && all[0].algo != "":
		return all[0].algo
	}
	return "Learning curves"
}

// differ reports whether groups have different algorithms, and environments.
func differ(all []*group) (algos, envs bool) {
	for _, g := range all {
		algos, envs = algos || g.algo != all[0].algo, envs || g.env != all[0].env
	}
	return algos, envs
}

// describe returns a column in words.
func describe(column string) string {
	words := map[string]string{
		runfolder.Return:      "return of training episodes, mean of the newest 100",
		runfolder.Eval:        "mean return of evaluations",
		"rollout/ep_len_mean": "length of training episodes, mean of the newest 100",
		"eval/mean_ep_length": "mean length of episodes in evaluations",
		"time/fps":            "env steps a second",
	}
	return cmp.Or(words[column], column)
}
