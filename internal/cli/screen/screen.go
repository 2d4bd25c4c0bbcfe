// Package screen keeps a live picture, such as a table of a job's nodes, on a terminal, below the lines of
// their log.
//
//	s := screen.New(os.Stderr)
//	cfg.Stdout, cfg.Stderr = s.Writer(os.Stdout), s.Writer(os.Stderr)
//	if size := screen.Terminal(os.Stderr); size != nil {
//		defer s.Draw(launcher.Snapshot, size, time.Second)()
//	}
//
// A Screen's writers are safe for concurrent use, and Draw's goroutine ends with the
// call of what it returns, unless the terminal is paused then. A write to a paused
// terminal blocks the writers and the table. What the terminal refuses is not reported: it is a picture.
package screen

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
)

// Screen keeps a picture below the log lines on a terminal. A line
// that is written removes it; it is back a moment later, so that lines
// which come together cost one drawing. The size of the terminal is asked for at each
// drawing. The cursor stays visible, below the picture, so that an end at any moment leaves the
// terminal as it was. After the process was stopped (Ctrl-Z) and goes on, a new picture begins below what the shell
// has written. In the background nothing is drawn. Its writers are safe for concurrent use.
type Screen struct {
	stderr io.Writer
	now    func() time.Time
	erased chan struct{} // 1: a line has removed the picture; nil: nobody draws
	// continued is told when the process goes on after it was stopped, until forget is called; nil: never.
	continued func() (again <-chan os.Signal, forget func())

	mu     sync.Mutex
	widths []int             // of the lines of the picture on the terminal
	size   func() (int, int) // of the terminal; nil: it does not change
	again  <-chan os.Signal  // the process goes on after it was stopped; nil: nobody draws
}

// New is a screen whose picture is drawn on stderr.
func New(stderr io.Writer) *Screen {
	return &Screen{stderr: stderr, now: time.Now, continued: continued}
}

// moment is how long the picture is away after a line.
const moment = 20 * time.Millisecond

// The terminal's control sequences (ECMA-48).
const (
	cursorUp   = "\x1b[%dA"
	clearLine  = "\x1b[K" // what is right of the cursor
	clearBelow = "\r\x1b[J"
)

// Writer is w, with the picture out of the way.
func (s *Screen) Writer(w io.Writer) io.Writer { return screenWriter{s, w} }

type screenWriter struct {
	s *Screen
	w io.Writer
}

func (w screenWriter) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.present() {
		w.s.erase()
		select {
		case w.s.erased <- struct{}{}:
		default: // it is known, or nobody draws
		}
	}
	return w.w.Write(p)
}

// present reports whether a picture is at the end of the terminal. One that the shell has written behind, while the process was
// stopped, is not. The caller holds mu.
func (s *Screen) present() bool {
	select {
	case <-s.again:
		s.widths = nil
	default:
	}
	return len(s.widths) > 0
}

// above is how many lines of the terminal the picture takes: more than it has, if the terminal is narrower than it was. Terminals
// break lines anew then; those that cut them lose as many lines of the log. The caller holds mu.
func (s *Screen) above() (n int) {
	columns := 0
	if s.size != nil {
		columns, _ = s.size()
	}
	for _, w := range s.widths {
		n++
		if columns > 0 && w > columns {
			n += (w - 1) / columns
		}
	}
	return n
}

// erase removes the picture. The caller holds mu.
func (s *Screen) erase() {
	if s.present() {
		_, _ = fmt.Fprintf(s.stderr, cursorUp+clearBelow, s.above()) // only a picture
		s.widths = nil
	}
}

// Rows are the lines of a picture for the size of a terminal: each narrower than it, and fewer than it has. They may have colours.
type Rows func(columns, lines int) []string

// Draw draws the table of nodes every interval, and a moment after a line has removed it,
// until stop is called, which removes it. It is called before the first line. stop
// waits for a terminal that is paused for a second at most; then what it has started
// goes on until the terminal takes a write.
func (s *Screen) Draw(snapshot func() []launch.State, size func() (columns, lines int), interval time.Duration) (stop func()) {
	return s.DrawRows(func(columns, lines int) []string { return table(snapshot(), s.now(), columns, lines) }, size, interval, false)
}

// DrawRows is Draw with a picture of any kind. With stays, stop draws it once more, and leaves it there.
func (s *Screen) DrawRows(rows Rows, size func() (columns, lines int), interval time.Duration, stays bool) (stop func()) {
	quit := make(chan struct{})
	s.erased, s.size = make(chan struct{}, 1), size
	forget := func() {}
	if s.continued != nil {
		s.again, forget = s.continued()
	}
	draw := func() {
		if f, ok := s.stderr.(*os.File); ok && background(f) { // the shell has the terminal
			return
		}
		columns, lines := size()
		s.show(rows(columns, lines))
	}
	var drawing sync.WaitGroup
	drawing.Go(func() {
		t := time.NewTimer(interval)
		defer t.Stop()
		planned := s.now().Add(interval)
		for {
			select {
			case <-quit:
				return
			case <-s.erased:
				t.Reset(min(moment, interval))
			case <-t.C:
				if late := s.now().Sub(planned); late > stopped { // the signal of going on may come a moment later
					planned = s.now()
					t.Reset(moment)
					continue
				}
				draw()
				t.Reset(interval)
				planned = s.now().Add(interval)
			}
		}
	})
	return func() {
		close(quit)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer forget()
			drawing.Wait()
			if stays {
				draw()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if stays {
				s.widths = nil
			}
			s.erase()
		}()
		late := time.NewTimer(eraseWithin)
		defer late.Stop()
		select {
		case <-ended:
		case <-late.C:
		}
	}
}

// stopped is by how much a timer is late in a process that was stopped.
const stopped = 300 * time.Millisecond

// eraseWithin is how long the end of the picture waits for a terminal that is paused: the
// picture is left there then.
const eraseWithin = time.Second

// show draws a picture in the place of the last one, in one write: nothing flickers.
func (s *Screen) show(rows []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	if s.present() {
		fmt.Fprintf(&b, cursorUp+"\r", s.above())
	}
	s.widths = s.widths[:0]
	for _, row := range rows {
		b.WriteString(row + clearLine + "\n")
		s.widths = append(s.widths, Width(row))
	}
	b.WriteString(clearBelow)
	_, _ = io.WriteString(s.stderr, b.String()) // only a picture
}

// Width is how many columns a text takes at most, without its colours (the sequences ESC [ ... m).
func Width(s string) int {
	n := 0
	for {
		before, rest, ok := strings.Cut(s, "\x1b[")
		n += widthOf(before)
		if !ok {
			return n
		}
		_, s, _ = strings.Cut(rest, "m")
	}
}

// staleAfter is when a status is too old to be shown as the present.
const staleAfter = 5 * time.Second

// column is one column of the table. Where the terminal is too narrow for all, those
// that say the least go first: the highest drop.
type column struct {
	name  string
	drop  int
	value func(launch.State, control.Status) string
}

func columnsOf() []column {
	return []column{
		{"NODE", 0, func(s launch.State, _ control.Status) string { return strconv.Itoa(s.ID) }},
		{"ROLE", 0, func(s launch.State, c control.Status) string {
			return cmp.Or(cmp.Or(c.Role, strings.Join(s.Labels, ",")), "-")
		}},
		{"STATE", 0, func(s launch.State, _ control.Status) string { return string(s.Phase) }},
		{"STEP", 0, func(_ launch.State, c control.Status) string { return strconv.FormatInt(c.Step, 10) }},
		{"RATE", 0, func(_ launch.State, c control.Status) string { return number(c.Rate) + "/s" }},
		{"QUEUE", 1, func(_ launch.State, c control.Status) string { return strconv.Itoa(c.Queue) }},
		{"LAG", 2, func(_ launch.State, c control.Status) string { return number(c.Lag) }},
		{"DROPS", 3, func(_ launch.State, c control.Status) string { return count(c.Drops) }},
		{"PEERS", 5, func(_ launch.State, c control.Status) string { return strconv.Itoa(c.Peers) }},
		{"RTT", 6, func(_ launch.State, c control.Status) string {
			if c.RTT == 0 {
				return "-"
			}
			return fmt.Sprintf("%s #%d", short(c.RTT), c.RTTPeer)
		}},
		{"RECONN", 7, func(_ launch.State, c control.Status) string { return count(c.Reconnects) }},
		{"RESTARTS", 4, func(s launch.State, _ control.Status) string { return strconv.Itoa(s.Restarts) }},
		{"NOTE", 0, func(_ launch.State, c control.Status) string { return c.Note }},
	}
}

// table is one line a node, cut to the terminal.
func table(states []launch.State, now time.Time, columns, lines int) []string {
	room := max(lines-3, 1)
	shown := states
	if len(shown) > room {
		shown = shown[:room-1]
	}
	cols := columnsOf()
	for {
		rows, width := format(cols, shown, now)
		worst := 0
		for i, c := range cols {
			if c.drop > cols[worst].drop {
				worst = i
			}
		}
		if width < columns || cols[worst].drop == 0 {
			if more := len(states) - len(shown); more > 0 {
				rows = append(rows, fmt.Sprintf("... %d more", more))
			}
			for i := range rows {
				rows[i] = fit(rows[i], columns)
			}
			return rows
		}
		cols = slices.Delete(cols, worst, worst+1)
	}
}

// noteRoom is how much room a note gets before columns go for it.
const noteRoom = 12

// format lays the columns out, and makes all that is in them safe to print. width is what they need, with the beginning of the
// notes.
func format(cols []column, states []launch.State, now time.Time) (rows []string, width int) {
	rows = make([]string, len(states)+1)
	statuses := make([]control.Status, len(states))
	for i, s := range states {
		status := s.Status
		if s.Phase != launch.Running { // what its last process did is not what it does
			status = control.Status{Role: status.Role, Step: status.Step, Note: status.Note, Drops: status.Drops}
		}
		if age := now.Sub(s.StatusAt); s.Phase == launch.Running && !s.StatusAt.IsZero() && age > staleAfter {
			status.Note = fmt.Sprintf("silent for %v", age.Round(time.Second))
		}
		statuses[i] = status
	}
	cells := make([]string, len(rows))
	for _, c := range cols {
		wide := 0
		cells[0] = c.name
		for i, s := range states {
			cells[i+1] = printable.Text(c.value(s, statuses[i]))
		}
		for i, cell := range cells {
			wide = max(wide, widthOf(rows[i])+widthOf(cell))
		}
		for i, cell := range cells {
			rows[i] += cell
			rows[i] += strings.Repeat(" ", wide+columnGap-widthOf(rows[i]))
		}
	}
	header := widthOf(strings.TrimRight(rows[0], " "))
	for _, r := range rows {
		width = max(width, widthOf(strings.TrimRight(r, " ")))
	}
	return rows, min(width, header+noteRoom)
}

// columnGap is between two columns.
const columnGap = 2

// firstWide is the first character that terminals show two columns wide (Unicode's East
// Asian Width): Hangul. Behind it are narrow ones too.
const firstWide = '\u1100'

// The block elements, of which bars and charts are made, are narrow.
const firstBlock, lastBlock = '\u2580', '\u259f'

// widthOf is how many columns a printable text takes at most.
func widthOf(s string) int {
	n := 0
	for _, r := range s {
		n += widthOfRune(r)
	}
	return n
}

func widthOfRune(r rune) int {
	if r >= firstWide && (r < firstBlock || r > lastBlock) {
		return 2
	}
	return 1
}

// count is a number of things that may be many.
func count(n uint64) string {
	switch {
	case n < 100_000:
		return strconv.FormatUint(n, 10)
	case n < 100_000_000:
		return strconv.FormatUint(n/1000, 10) + "k"
	}
	return strconv.FormatUint(n/1_000_000, 10) + "M"
}

// short is a time with two digits or so.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2gms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// number has three digits or so.
func number(f float64) string {
	switch {
	case f >= 100 || f == float64(int64(f)):
		return strconv.FormatFloat(f, 'f', 0, 64)
	case f >= 10:
		return strconv.FormatFloat(f, 'f', 1, 64)
	default:
		return strconv.FormatFloat(f, 'f', 2, 64)
	}
}

// fit cuts a row of printable text to the width of the terminal.
func fit(row string, columns int) string {
	row = strings.TrimRight(row, " ")
	width := 0
	for i, r := range row {
		if width += widthOfRune(r); width >= columns {
			return row[:i]
		}
	}
	return row
}

// Terminal is a function for the size of the terminal that w is, or nil.
func Terminal(w io.Writer) func() (columns, lines int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() (int, int) {
		columns, lines, err := term.GetSize(int(f.Fd()))
		if err != nil || columns <= 0 || lines <= 0 {
			return 80, 24
		}
		return columns, lines
	}
}
