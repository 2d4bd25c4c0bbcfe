package live

import (
	"fmt"
	"time"
)

// Seed is one of several runs.
type Seed struct {
	Name    string // such as "seed 3"
	Run     Run
	Waiting bool
	Done    bool
	Failed  bool
}

// SeedRows returns the lines of several runs: a title, and one line for each run. If not all fit, running ones are shown first.
func SeedRows(title string, all []Seed, elapsed time.Duration, columns, lines int, s Style) []string {
	done, failed := 0, 0
	for _, r := range all {
		if r.Failed {
			failed++
		} else if r.Done {
			done++
		}
	}
	head := row{0, "", []part{{title, bold}, {fmt.Sprintf("%d of %d done", done, len(all)), plain}}}
	if failed > 0 {
		head.parts = append(head.parts, part{fmt.Sprintf("%d failed", failed), red})
	}
	head.parts = append(head.parts, part{clock(elapsed), dim})
	out := []string{head.line(columns, s)}
	room := max(lines-2, 0)
	shown := inOrder(all, room)
	for _, i := range shown {
		out = append(out, all[i].row(columns, s).line(columns, s))
	}
	if more := len(all) - len(shown); more > 0 && len(out) < lines-1 {
		out = append(out, row{0, "", []part{{fmt.Sprintf("%d more", more), dim}}}.line(columns, s))
	}
	return out
}

// inOrder returns the indices of the runs to show, in order: all, or as many as fit above one more line.
func inOrder(all []Seed, room int) (shown []int) {
	chosen := make([]bool, len(all))
	n := len(all)
	if n > room {
		n = max(room-1, 0)
	}
	choose := func(which func(Seed) bool) {
		for i, r := range all {
			if n > 0 && !chosen[i] && which(r) {
				chosen[i] = true
				n--
			}
		}
	}
	choose(func(r Seed) bool { return !r.Waiting && !r.Done })
	choose(func(r Seed) bool { return r.Failed })
	choose(func(r Seed) bool { return r.Waiting })
	choose(func(Seed) bool { return true })
	for i, c := range chosen {
		if c {
			shown = append(shown, i)
		}
	}
	return shown
}

func (r Seed) row(columns int, s Style) row {
	w := row{0, r.Name, nil}
	switch p := r.Run.Report; {
	case r.Failed:
		w.parts = []part{{"failed", red}, {r.Run.Folder, dim}}
	case r.Waiting:
		w.parts = []part{{"waiting", dim}}
	case p == nil:
		w.parts = []part{{"starting", dim}}
	default:
		share := float64(p.Steps) / float64(max(p.Total, 1))
		width := 10
		if columns < 60 {
			width = 6
		}
		if r.Done {
			w.parts = []part{{fmt.Sprintf("%-*s", width, "done"), green}, {fmt.Sprintf("%4s", ""), plain}}
		} else {
			w.parts = []part{{bar(share, width, s), green}, {fmt.Sprintf("%3.0f%%", 100*min(share, 1)), plain}}
		}
		w.parts = append(w.parts, r.scores()...)
		steps, _ := r.Run.History.Speed()
		if left := r.Run.left(); !r.Done && left >= 0 {
			w.parts = append(w.parts, part{fmt.Sprintf("%5s left", clock(left)), plain})
		}
		values := p.Scores
		if len(values) < 2 {
			values = p.Returns
		}
		if len(values) > 1 {
			w.parts = append(w.parts, part{spark(resample(values, min(max(columns-72, 8), 32)), 1, s)[0], cyan})
		}
		if !r.Done && steps > 0 {
			w.parts = append(w.parts, part{fmt.Sprintf("%s/s", number(steps)), dim})
		}
	}
	return w
}

func (r Seed) scores() (out []part) {
	p := r.Run.Report
	if p.Eval != nil && !r.Done {
		out = append(out, part{fmt.Sprintf("now %7s", number(p.Eval.Mean)), r.Run.reached(p.Eval.Mean)})
	}
	if p.Best != nil {
		out = append(out, part{fmt.Sprintf("best %7s", number(p.Best.Mean)), r.Run.reached(p.Best.Mean)})
	}
	if p.Eval == nil && p.Recent > 0 {
		out = append(out, part{fmt.Sprintf("return %7s", number(p.Return)), plain})
	}
	return out
}
