// Package live lays out the progress of trainings for a terminal: it turns reports into lines.
//
//	var h live.History
//	h.Add(report)
//	rows := live.Rows(live.Run{Report: report, History: &h, Running: true}, columns, lines, live.StyleOf(os.Getenv))
//
// Every row is narrower than the terminal, and there are fewer rows than it has lines; the least informative rows are left
// out first. The package does no I/O and reads no clock. A History is bounded and is not safe for concurrent use. Texts of a
// report are made safe to print.
package live

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/cli/screen"
	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/train"
)

// Style describes the abilities of a terminal.
type Style struct {
	Colour  bool
	Unicode bool
}

// StyleOf returns the style for the environment variables NO_COLOR, LC_ALL, LC_CTYPE and LANG.
func StyleOf(getenv func(string) string) Style {
	s := Style{Colour: getenv("NO_COLOR") == ""}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(getenv(name)); v != "" {
			s.Unicode = strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			break
		}
	}
	return s
}

// Capable reports whether a terminal of this TERM moves its cursor.
func Capable(term string) bool { return term != "" && term != "dumb" }

// Run is a training to be shown.
type Run struct {
	Title     string        // such as "ppo on CartPole-v1, seed 1"
	Folder    string        // of the run
	Report    *train.Report // nil: none yet
	History   *History      // of the reports
	Threshold float64       // the return at which the environment counts as solved, or the run ends
	Goal      string        // the kind of threshold: "solved at", "ends at", or "" if there is none
	Limit     time.Duration // of the run; 0: none
	Saved     time.Duration // since the last checkpoint; negative: there is none
	Elapsed   time.Duration // of the command
	State     string        // such as "stopping"; empty: it runs
	Nodes     []launch.State
}

// History computes the current speed from the newest reports.
type History struct{ points []point }

type point struct {
	at             time.Duration
	steps, updates int
}

// The speed is measured over this time, from at most this many reports.
const (
	speedOver   = 20 * time.Second
	maxPoints   = 128
	pointsApart = 150 * time.Millisecond
)

// Add records a report.
func (h *History) Add(r *train.Report) {
	n := len(h.points)
	if n > 0 && (r.Elapsed < h.points[n-1].at || r.Steps < h.points[n-1].steps) { // another process
		h.points, n = h.points[:0], 0
	}
	if n == 0 {
		h.points, n = append(h.points, point{0, r.First, 0}), 1
		h.points[0].updates = -1 // not known
	}
	if r.Elapsed-h.points[n-1].at < pointsApart {
		return
	}
	h.points = append(h.points, point{r.Elapsed, r.Steps, r.Updates})
	for len(h.points) > 2 && (r.Elapsed-h.points[0].at > speedOver || len(h.points) > maxPoints) {
		h.points = h.points[1:]
	}
}

// Speed returns the current steps and updates per second, or zero if they are not known.
func (h *History) Speed() (steps, updates float64) {
	if h == nil || len(h.points) < 2 {
		return 0, 0
	}
	a, b := h.points[0], h.points[len(h.points)-1]
	took := (b.at - a.at).Seconds()
	steps = float64(b.steps-a.steps) / took
	if a.updates < 0 && len(h.points) > 2 {
		a = h.points[1]
		took = (b.at - a.at).Seconds()
	}
	if a.updates >= 0 && took > 0 {
		updates = float64(b.updates-a.updates) / took
	}
	return steps, updates
}

// left returns the remaining time of a run at its current speed, or a negative time if it is not known.
func (r *Run) left() time.Duration {
	steps, _ := r.History.Speed()
	left := time.Duration(-1)
	if steps > 0 {
		seconds := float64(max(r.Report.Total-r.Report.Steps, 0)) / steps
		if seconds < 1e8 {
			left = time.Duration(seconds * float64(time.Second))
		}
	}
	if rest := max(r.Limit-r.Report.Elapsed, 0); r.Limit > 0 && (left < 0 || rest < left) {
		left = rest
	}
	return left
}

// row is a line: a label and parts. The last parts are left out if they do not fit.
type row struct {
	drop  int // if lines are missing, the rows with the highest value are left out first
	label string
	parts []part
}

type part struct {
	text string
	look look
}

// look is how a text stands out.
type look string

const (
	plain look = ""
	dim   look = "2"
	bold  look = "1"
	green look = "32"
	red   look = "31"
	cyan  look = "36"
)

func (s Style) paint(text string, l look) string {
	if !s.Colour || l == plain || text == "" {
		return text
	}
	return "\x1b[" + string(l) + "m" + text + "\x1b[0m"
}

const labelWidth = 10

// Rows returns the lines of a run.
func Rows(r Run, columns, lines int, s Style) []string {
	rows := []row{r.title()}
	if r.Report == nil {
		rows = append(rows, row{1, "", []part{{text: "starting", look: dim}}})
	} else {
		rows = append(rows, r.steps(columns, s), r.score(s), r.returns())
		rows = append(rows, r.curve(columns, lines, s)...)
		rows = append(rows, r.speed(), r.losses())
	}
	rows = append(rows, r.time())
	rows = append(rows, r.nodes())
	var shown []row
	for _, w := range rows {
		if len(w.parts) > 0 {
			shown = append(shown, w)
		}
	}
	return fit(shown, columns, lines, s)
}

// fit lays rows out for the size of the terminal.
func fit(rows []row, columns, lines int, s Style) []string {
	for len(rows) > max(lines-1, 1) {
		worst := 0
		for i, w := range rows {
			if w.drop >= rows[worst].drop {
				worst = i
			}
		}
		rows = append(rows[:worst:worst], rows[worst+1:]...)
	}
	out := make([]string, len(rows))
	for i, w := range rows {
		out[i] = w.line(columns, s)
	}
	return out
}

// line formats a row with its label, cut to a width.
func (w row) line(columns int, s Style) string {
	room := columns - 1
	var b strings.Builder
	gap := 0
	if w.label != "" {
		label := cut(w.label, room)
		b.WriteString(s.paint(label, dim))
		room -= screen.Width(label)
		gap = max(labelWidth-screen.Width(label), 1)
	}
	for i, p := range w.parts {
		text := printable.Text(p.text)
		if n := screen.Width(text); n+gap > room {
			if i > 0 && n > 0 {
				break
			}
			text = cut(text, room-gap)
		}
		if text == "" {
			continue
		}
		b.WriteString(strings.Repeat(" ", gap) + s.paint(text, p.look))
		room -= gap + screen.Width(text)
		gap = 3
	}
	return b.String()
}

// cut returns the beginning of a text that fits into a number of columns.
func cut(text string, columns int) string {
	width := 0
	for i, r := range text {
		if width += screen.Width(string(r)); width > columns {
			return text[:i]
		}
	}
	return text
}

func (r *Run) title() row {
	w := row{0, "", []part{{r.Title, bold}}}
	if r.State != "" {
		w.parts = append(w.parts, part{r.State, cyan})
	}
	w.parts = append(w.parts, part{r.Folder, dim})
	return w
}

// unit returns the unit of Steps.
func unit(r *train.Report) string {
	if r.Offline {
		return "updates"
	}
	return "steps"
}

func (r *Run) steps(columns int, s Style) row {
	p := r.Report
	share := float64(p.Steps) / float64(max(p.Total, 1))
	text := fmt.Sprintf("%s of %s", thousands(p.Steps), thousands(p.Total))
	room := columns - 1 - labelWidth - 3 - 4 - 3 - len(text)
	if room < 8 { // without the numbers
		room = columns - 1 - labelWidth - 3 - 4
	}
	return row{1, unit(p), []part{
		{bar(share, min(max(room, 0), 40), s), green},
		{fmt.Sprintf("%3.0f%%", math.Floor(100*min(share, 1))), bold}, {text, plain},
	}}
}

func (r *Run) score(s Style) row {
	p := r.Report
	w := row{2, "score", nil}
	if p.Eval == nil {
		if r.Goal != "" {
			w.parts = []part{{"no evaluation yet", dim}, {r.goal(), dim}}
		}
		return w
	}
	around := "± "
	if !s.Unicode {
		around = "+- "
	}
	w.parts = []part{{"now " + number(p.Eval.Mean), r.reached(p.Eval.Mean)}}
	if b := p.Best; b != nil {
		w.parts = append(w.parts, part{"best " + number(b.Mean), r.reached(b.Mean)})
	}
	w.parts = append(w.parts, part{r.goal(), dim}, part{around + number(p.Eval.Std), dim})
	if b := p.Best; b != nil {
		w.parts = append(w.parts, part{"best at " + thousands(b.EnvSteps), dim})
	}
	return w
}

func (r *Run) goal() string {
	if r.Goal == "" {
		return ""
	}
	return r.Goal + " " + number(r.Threshold)
}

// reached returns the look of a score.
func (r *Run) reached(score float64) look {
	if r.Goal != "" && score >= r.Threshold {
		return green
	}
	return bold
}

func (r *Run) returns() row {
	p := r.Report
	if p.Recent == 0 {
		return row{}
	}
	return row{4, "return", []part{
		{number(p.Return), bold}, {fmt.Sprintf("mean of the last %d episodes", p.Recent), dim}, {"of " + thousands(p.Episodes), dim},
	}}
}

// curve draws the learning curve, in four lines if they fit.
func (r *Run) curve(columns, lines int, s Style) []row {
	values, what := r.Report.Scores, "scores"
	if len(values) < 2 {
		values, what = r.Report.Returns, "returns"
	}
	if len(values) < 2 {
		return nil
	}
	height := 4
	if lines < 18 {
		height = 1
	}
	low, high := extent(values)
	labels := max(screen.Width(number(low)), screen.Width(number(high)))
	width := min(columns-1-labelWidth-labels-3, 60)
	if width < 4 {
		return nil
	}
	var rows []row
	for i, text := range spark(resample(values, width), height, s) {
		label, side := "", ""
		switch i {
		case 0:
			label = what
			side = number(high)
			if height == 1 {
				side = number(low) + " to " + number(high)
			}
		case height - 1:
			side = number(low)
		}
		if label == "" {
			label = strings.Repeat(" ", labelWidth-1)
		}
		rows = append(rows, row{5 + min(i, 1), label, []part{{text, cyan}, {side, dim}}})
	}
	return rows
}

func (r *Run) speed() row {
	steps, updates := r.History.Speed()
	if steps == 0 {
		return row{}
	}
	w := row{3, "speed", []part{{number(steps) + " " + unit(r.Report) + "/s", plain}}}
	if !r.Report.Offline && updates > 0 {
		w.parts = append(w.parts, part{number(updates) + " updates/s", plain})
	}
	return w
}

func (r *Run) losses() row {
	w := row{7, "learning", nil}
	for _, m := range r.Report.Metrics {
		w.parts = append(w.parts, part{m.Name + " " + strconv.FormatFloat(m.Value, 'g', 3, 64), plain})
	}
	return w
}

func (r *Run) time() row {
	w := row{2, "time", []part{{clock(r.Elapsed), plain}}}
	if r.Report != nil && r.State == "" {
		if left := r.left(); left >= 0 {
			w.parts = append(w.parts, part{"about " + clock(left) + " left", bold})
		}
	}
	if r.Saved >= 0 {
		w.parts = append(w.parts, part{"checkpoint " + clock(r.Saved) + " ago", dim})
	}
	return w
}

// nodes summarises the state of several processes.
func (r *Run) nodes() row {
	if len(r.Nodes) < 2 || r.State == "done" || r.State == "stopped" {
		return row{}
	}
	up, restarts := 0, 0
	var others []string
	for _, n := range r.Nodes {
		restarts += n.Restarts
		if n.Phase == launch.Running {
			up++
		} else if len(others) < 8 {
			others = append(others, fmt.Sprintf("%d %s", n.ID, n.Phase))
		}
	}
	look := plain
	if up < len(r.Nodes) {
		look = red
	}
	w := row{6, "nodes", []part{{fmt.Sprintf("%d of %d up", up, len(r.Nodes)), look}}}
	if restarts > 0 {
		w.parts = append(w.parts, part{fmt.Sprintf("%d restarted", restarts), red})
	}
	if len(others) > 0 {
		w.parts = append(w.parts, part{strings.Join(others, ", "), dim})
	}
	return w
}
