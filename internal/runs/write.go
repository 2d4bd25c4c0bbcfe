package runs

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// WriteJSON writes runs as an array of objects.
func WriteJSON(w io.Writer, all []Run) error {
	if all == nil {
		all = []Run{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(all)
}

// column is one of the text table.
type column struct {
	head  string
	right bool
	cell  func(*Run) string
}

// columns are in the order in which they are shown; the last ones go first where a line is too narrow.
var columns = []column{
	{"NAME", false, func(r *Run) string { return r.Name }},
	{"STATE", false, func(r *Run) string { return string(r.State) }},
	{"STEPS", true, func(r *Run) string { return count(r.EnvSteps) }},
	{"BEST", true, func(r *Run) string { return score(r.Best) }},
	{"LAST", true, func(r *Run) string { return score(r.Last) }},
	{"ALGO", false, func(r *Run) string { return r.Algo }},
	{"ENV", false, func(r *Run) string { return r.Env }},
	{"SEED", true, func(r *Run) string { return r.Seed }},
	{"TIME", true, func(r *Run) string { return span(r.Seconds) }},
	{"STARTED", false, func(r *Run) string {
		if r.Started == nil {
			return "-"
		}
		return r.Started.Format(time.DateTime)
	}},
}

// minName is how much of a name is shown at least.
const minName = 16

// WriteText writes runs as a table whose lines have at most that many letters, and below it the faults of some of them.
// A name is cut at its beginning, and columns at the end of the table are left out, where it is too wide; 0 means
// that it cannot be.
func WriteText(w io.Writer, all []Run, width int) error {
	shown := columns
	var b strings.Builder
	for width > 0 && len(shown) > 2 && total(widths(all, shown))-max(0, widths(all, shown)[0]-minName) > width {
		shown = shown[:len(shown)-1]
	}
	wide := widths(all, shown)
	if over := total(wide) - width; width > 0 && over > 0 {
		wide[0] = max(minName, wide[0]-over)
	}
	line := func(cell func(column) string) {
		var l strings.Builder
		for i, c := range shown {
			text := cutFront(cell(c), wide[i])
			pad := strings.Repeat(" ", wide[i]-utf8.RuneCountInString(text))
			if c.right {
				text = pad + text
			} else {
				text += pad
			}
			if i > 0 {
				l.WriteString("  ")
			}
			l.WriteString(text)
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	line(func(c column) string { return c.head })
	for i := range all {
		line(func(c column) string { return orDash(c.cell(&all[i])) })
	}
	for i := range all {
		for _, f := range all[i].Faults {
			fmt.Fprintf(&b, "%s: %s\n", all[i].Name, f)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func widths(all []Run, shown []column) []int {
	wide := make([]int, len(shown))
	for i, c := range shown {
		wide[i] = len(c.head)
		for j := range all {
			wide[i] = max(wide[i], utf8.RuneCountInString(orDash(c.cell(&all[j]))))
		}
	}
	return wide
}

// total returns the width of a line.
func total(wide []int) int {
	sum := 2 * (len(wide) - 1)
	for _, w := range wide {
		sum += w
	}
	return sum
}

// cutFront keeps the end of a text, which tells names of runs apart.
func cutFront(s string, width int) string {
	letters := []rune(s)
	if len(letters) <= width {
		return s
	}
	return "\u2026" + string(letters[len(letters)-width+1:])
}

// count writes a number of steps in groups of three digits.
func count(v *float64) string {
	if v == nil {
		return "-"
	}
	s := strconv.FormatFloat(*v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func score(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', 1, 64)
}

func span(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return time.Duration(*seconds * float64(time.Second)).Round(time.Second).String()
}
