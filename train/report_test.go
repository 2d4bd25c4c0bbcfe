package train_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/ditask/ditask/train"
)

// Reports follow a run, and do not change it.
func TestReports(t *testing.T) {
	scores := map[bool]float64{}
	for _, reported := range []bool{false, true} {
		c := config(t, "ppo", "env=CartPole-v1", "steps=4000", "eval_every=1000", "n_steps=32")
		var reports []train.Report
		out := train.Output{ReportEvery: 1}
		if reported {
			out.Report = func(r *train.Report) { reports = append(reports, *r) }
		}
		dir := t.TempDir()
		if err := c.Run(t.Context(), lone(t, dir), out); err != nil {
			t.Fatal(err)
		}
		trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Last)
		if err != nil {
			t.Fatal(err)
		}
		episodes, err := trained.Episodes(t.Context(), 3, 1, true)
		if err := trained.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range episodes {
			scores[reported] += e.Return
		}
		if !reported {
			continue
		}
		last := reports[len(reports)-1]
		if len(reports) < 3 || last.Steps < 4000 || last.Total != 4000 || last.Updates == 0 || last.Recent == 0 ||
			last.Eval == nil || last.Best == nil || len(last.Scores) < 3 || len(last.Returns) < 3 ||
			len(last.Metrics) == 0 || math.IsNaN(last.Return) {
			t.Errorf("%d reports, the last one %+v", len(reports), last)
		}
		for i, r := range reports[1:] {
			if r.Steps < reports[i].Steps || r.Elapsed < reports[i].Elapsed {
				t.Errorf("report %d goes back", i+1)
			}
		}
	}
	if scores[false] != scores[true] {
		t.Errorf("a run that is reported learns something else: %v", scores)
	}
}

// The curves of a resumed run begin with those of the run that it continues.
func TestReportsOfAResumedRun(t *testing.T) {
	dir := t.TempDir()
	reports := func(n train.Node, settings ...string) (all []train.Report) {
		t.Helper()
		c := config(t, "dqn", append([]string{"env=CartPole-v1", "eval_every=1000", "log_every=500", "learning_starts=200"}, settings...)...)
		err := c.Run(t.Context(), n, train.Output{ReportEvery: 1, Report: func(r *train.Report) {
			next := *r
			next.Scores, next.Returns = slices.Clone(r.Scores), slices.Clone(r.Returns)
			all = append(all, next)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := reports(lone(t, dir), "steps=4000")
	whole := before[len(before)-1]
	after := reports(resumed(t, dir), "steps=6000")
	first, last := after[0], after[len(after)-1]
	if len(whole.Scores) != 4 || !slices.Equal(first.Scores, whole.Scores) ||
		len(last.Scores) != 6 || !slices.Equal(last.Scores[:4], whole.Scores) {
		t.Errorf("scores %v, resumed %v, and at the end %v", whole.Scores, first.Scores, last.Scores)
	}
	n := 4000 / (6000 / train.MaxCurve) // notes of a run of 6,000 steps
	if len(first.Returns) < n-1 || len(first.Returns) > n+1 || len(last.Returns) <= len(first.Returns) {
		t.Errorf("%d returns when resumed, and %d at the end; want some %d, and more", len(first.Returns), len(last.Returns), n)
	}
	if got, want := first.Returns[n-1], whole.Return; math.Abs(got-want) > 1e-3 {
		t.Errorf("the curve of the returns goes on from %v, want %v", got, want)
	}
}

// A film shows every step, and what cannot be drawn is an error.
func TestFilm(t *testing.T) {
	dir := t.TempDir()
	if err := config(t, "ppo", "env=CartPole-v1", "steps=1000", "n_steps=32").Run(t.Context(), lone(t, dir), train.Output{}); err != nil {
		t.Fatal(err)
	}
	trained, err := train.Load(t.Context(), train.Algorithms(), dir, train.Best)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := trained.Close(); err != nil {
			t.Error(err)
		}
	}()
	var scenes [2][]train.Scene
	for i := range scenes {
		f := train.Film{Episodes: 2, Seed: 5, MaxSteps: 20}
		if err := trained.Film(t.Context(), f, func(s train.Scene) error { scenes[i] = append(scenes[i], s); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	lasts := 0
	for i, s := range scenes[0] {
		again := scenes[1][i]
		if !bytes.Equal(s.Image.Pix, again.Image.Pix) || s.Return != again.Return {
			t.Errorf("scene %d differs in the second film", i)
		}
		if s.Return != float64(s.Step) || s.Rate != 50 || s.Episode != lasts+1 || s.Step > 20 || s.Step == 20 && !s.Last {
			t.Errorf("scene %d: episode %d, step %d, return %v, last %v", i, s.Episode, s.Step, s.Return, s.Last)
		}
		if s.Last {
			lasts++
		}
	}
	if lasts != 2 || len(scenes[0]) != len(scenes[1]) {
		t.Errorf("%d episodes in %d and %d scenes", lasts, len(scenes[0]), len(scenes[1]))
	}
	stop := errors.New("stop")
	if err := trained.Film(t.Context(), train.Film{}, func(train.Scene) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of show: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	if err := train.FilmRandom(ctx, "CartPole-v1", "", train.Film{}, func(train.Scene) error { return nil }); !errors.Is(err, stop) {
		t.Errorf("a film that is ended: %v", err)
	}
}
