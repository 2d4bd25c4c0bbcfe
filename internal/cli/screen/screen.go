// Package screen keeps a live picture, such as the table of a job's nodes, on a terminal below the lines of
// the log.
//
//	s := screen.New(os.Stderr)
//	cfg.Stdout, cfg.Stderr = s.Writer(os.Stdout), s.Writer(os.Stderr)
//	if size := screen.Terminal(os.Stderr); size != nil {
//		defer s.Draw(launcher.Snapshot, size, time.Second)()
//	}
//
// A Screen's writers are safe for concurrent use. Draw's goroutine ends when the returned
// function is called, unless the terminal is paused then. A write to a paused terminal
// blocks the writers and the table. Errors of the terminal are not reported.
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

// Screen keeps a picture below the log lines on a terminal. Writing a line removes the
// picture; it is drawn again a moment later, so that lines written together cost one
// drawing. Each drawing reads the size of the terminal. The cursor stays visible, below the
// picture, so that the terminal is usable if the process ends at any moment. After the process was stopped (Ctrl-Z)
// and continues, a new picture begins below the output of the shell. In the background nothing is drawn. The writers
// are safe for concurrent use.
type Screen struct {
	stderr io.Writer
	now    func() time.Time
	erased chan struct{} // capacity 1: a line has removed the picture; nil: no picture is drawn
	// continued returns a channel that receives when the process continues after it was stopped, until forget is called.
	// It may be nil.
	continued func() (again <-chan os.Signal, forget func())

	mu     sync.Mutex
	widths []int             // of the lines of the picture on the terminal
	size   func() (int, int) // of the terminal; nil: it does not change
	again  <-chan os.Signal  // the process continues after it was stopped; nil: no picture is drawn
}

// New returns a screen whose picture is drawn on stderr.
func New(stderr io.Writer) *Screen {
	return &Screen{stderr: stderr, now: time.Now, continued: continued}
}

// moment is how long the picture is hidden after a line.
const moment = 20 * time.Millisecond

// The terminal's control sequences (ECMA-48).
const (
	cursorUp   = "\x1b[%dA"
	clearLine  = "\x1b[K" // right of the cursor
	clearBelow = "\r\x1b[J"
)

// Writer returns a writer to w that removes the picture before it writes.
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
		default: // it is known, or no picture is drawn
		}
	}
	return w.w.Write(p)
}

// present reports whether a picture is at the end of the terminal. It is not if the shell has written below it while the process
// was stopped. The caller holds mu.
func (s *Screen) present() bool {
	select {
	case <-s.again:
		s.widths = nil
	default:
	}
	return len(s.widths) > 0
}

// above returns how many lines of the terminal the picture takes: more than it has rows if the terminal became narrower, as
// terminals wrap lines again then. On a terminal that cuts lines instead, as many lines of the log are lost. The caller holds mu.
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
		_, _ = fmt.Fprintf(s.stderr, cursorUp+clearBelow, s.above()) // errors are not reported
		s.widths = nil
	}
}

// Rows returns the lines of a picture for the size of a terminal: each narrower than the terminal, and fewer than it has. They may
// have colours.
type Rows func(columns, lines int) []string

// Draw draws the table of nodes every interval, and a moment after a line has removed it,
// until stop is called, which removes it. Draw is called before the first line. stop waits
// for a paused terminal for at most a second; after that, removing the table continues in
// the background until the terminal takes a write.
func (s *Screen) Draw(snapshot func() []launch.State, size func() (columns, lines int), interval time.Duration) (stop func()) {
	return s.DrawRows(func(columns, lines int) []string { return table(snapshot(), s.now(), columns, lines) }, size, interval, false)
}

// DrawRows is Draw with any picture. With stays, stop draws it once more and leaves it on the terminal.
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
				if late := s.now().Sub(planned); late > stopped { // SIGCONT may arrive a moment later
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

// stopped is the least delay of a timer that shows that the process was stopped.
const stopped = 300 * time.Millisecond

// eraseWithin is how long stop waits for a paused terminal. After that the picture stays on
// the terminal.
const eraseWithin = time.Second

// show draws a picture instead of the last one, in one write, which avoids flicker.
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
	_, _ = io.WriteString(s.stderr, b.String()) // errors are not reported
}

// Width returns how many columns a text takes at most, without its colours (the sequences ESC [ ... m).
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

// staleAfter is the age at which a status is shown as outdated.
const staleAfter = 5 * time.Second

// column is one column of the table. If the terminal is too narrow for all columns, those
// with the highest drop are left out first.
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

// table returns one line for each node, cut to the size of the terminal.
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

// noteRoom is the width of a note for which columns are left out.
const noteRoom = 12

// format lays the columns out, and makes all cells safe to print. width is the width that they need, with the beginning of the
// notes.
func format(cols []column, states []launch.State, now time.Time) (rows []string, width int) {
	rows = make([]string, len(states)+1)
	statuses := make([]control.Status, len(states))
	for i, s := range states {
		status := s.Status
		if s.Phase != launch.Running { // the numbers of its last process are not current
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
// Asian Width): Hangul. Some characters after it are narrow.
const firstWide = '\u1100'

// The block elements, which bars and charts consist of, are narrow.
const firstBlock, lastBlock = '\u2580', '\u259f'

// widthOf returns how many columns a printable text takes at most.
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

// count formats a number that may be large.
func count(n uint64) string {
	switch {
	case n < 100_000:
		return strconv.FormatUint(n, 10)
	case n < 100_000_000:
		return strconv.FormatUint(n/1000, 10) + "k"
	}
	return strconv.FormatUint(n/1_000_000, 10) + "M"
}

// short formats a time with about two digits.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2gms", float64(d)/1e6)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// number formats a number with about three digits.
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

// Terminal returns a function for the size of the terminal w, or nil if w is not a terminal.
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
