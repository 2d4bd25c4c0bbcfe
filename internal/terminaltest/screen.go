// Package terminaltest is a terminal for tests: a real pseudo-terminal of the kernel, and a model of the screen that a
// person would see behind it.
//
//	term := terminaltest.Open(t, 80, 24)
//	cmd.Stdout, cmd.Stderr = term.Slave, term.Slave
//	...
//	term.Resize(40, 24)
//	text := term.Text() // what is on the screen, with the lines that have left it at the top
//
// The model knows what a program may write that claims to work anywhere: characters, CR, LF, cursor up, erase to the end of
// the line and of the screen, and colours. Anything else is a fault of the test. Lines that are longer than the screen is wide
// wrap, and wrap again when that changes, as most terminals do.
//
// A Screen and a Terminal are safe for concurrent use. It is for tests only: a fault fails the test.
package terminaltest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Screen is a model of a terminal's screen. It is an io.Writer of what a program writes to the terminal.
type Screen struct {
	mu             sync.Mutex
	columns, lines int
	rows           []row // all rows since the beginning, at least up to the cursor
	x, y           int   // of the cursor, among all rows
	top            int   // the first row on the screen
	rest           []byte
	faults         []string
}

// row is one line of the screen. One that continues in the next row has wrapped.
type row struct {
	cells   []rune
	wrapped bool
}

// NewScreen returns an empty screen.
func NewScreen(columns, lines int) *Screen {
	return &Screen{columns: columns, lines: lines, rows: make([]row, 1)}
}

// Write handles the output of a program. It never fails.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := slices.Concat(s.rest, p)
	for len(text) > 0 {
		n := s.take(text)
		if n == 0 {
			break
		}
		text = text[n:]
	}
	s.rest = text
	return len(p), nil
}

// take interprets one character or sequence, and returns how long it is; 0: it is not whole.
func (s *Screen) take(text []byte) int {
	switch c := text[0]; {
	case c == '\r':
		s.x = 0
	case c == '\n':
		s.rows[s.y].wrapped = false
		s.down()
	case c == '\x1b':
		return s.sequence(text)
	case c < ' ' || c == 0x7f:
		s.faultf("control character %q", c)
	case !utf8.FullRune(text):
		return 0
	default:
		r, n := utf8.DecodeRune(text)
		s.put(r)
		return n
	}
	return 1
}

func (s *Screen) faultf(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// sequence interprets ESC [ numbers letter.
func (s *Screen) sequence(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	if text[1] != '[' {
		s.faultf("escape %q", text[:2])
		return 2
	}
	end := 2
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == ';') {
		end++
	}
	if end == len(text) {
		return 0
	}
	numbers := string(text[2:end])
	n, _ := strconv.Atoi(numbers)
	switch text[end] {
	case 'A':
		s.y, s.x = max(s.y-max(n, 1), s.top), min(s.x, s.columns-1)
	case 'K':
		s.erase()
	case 'J':
		s.erase()
		s.rows = s.rows[:s.y+1]
	case 'm':
	default:
		s.faultf("sequence %q", text[:end+1])
	}
	return end + 1
}

// erase empties the cursor's row from the cursor on.
func (s *Screen) erase() {
	r := &s.rows[s.y]
	r.cells, r.wrapped = r.cells[:min(s.x, len(r.cells))], false
}

func (s *Screen) down() {
	s.y++
	if s.y == len(s.rows) {
		s.rows = append(s.rows, row{})
	}
	s.top = max(s.top, s.y-s.lines+1)
}

func (s *Screen) put(r rune) {
	if s.x >= s.columns {
		s.rows[s.y].wrapped = true
		s.down()
		s.x = 0
	}
	w := &s.rows[s.y]
	for len(w.cells) <= s.x {
		w.cells = append(w.cells, ' ')
	}
	w.cells[s.x] = r
	s.x++
}

// Resize changes the size, and breaks lines again.
func (s *Screen) Resize(columns, lines int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []row
	x, y := 0, 0
	for i := 0; i < len(s.rows); i++ {
		var whole []rune
		at := -1 // of the cursor in it
		for ; ; i++ {
			if i == s.y {
				at = len(whole) + s.x
			}
			whole = append(whole, s.rows[i].cells...)
			if !s.rows[i].wrapped || i == len(s.rows)-1 {
				break
			}
		}
		first := len(out)
		for len(whole) > columns {
			out = append(out, row{whole[:columns:columns], true})
			whole = whole[columns:]
		}
		out = append(out, row{whole, false})
		if at >= 0 {
			y = min(first+at/columns, len(out)-1)
			x = at - (y-first)*columns
		}
	}
	s.rows, s.x, s.y, s.columns, s.lines = out, x, y, columns, lines
	s.top = max(len(out)-lines, 0)
	s.top = min(s.top, s.y)
}

// Text returns the written lines, also those that have left the screen at the top, without spaces at their ends.
func (s *Screen) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, r := range s.rows {
		b.WriteString(strings.TrimRight(string(r.cells), " "))
		if !r.wrapped {
			b.WriteByte('\n')
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// Faults returns output that the model does not know.
func (s *Screen) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.faults...)
}
