package terminaltest

import (
	"strings"
	"testing"
)

func TestScreen(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"lines":       {"a\r\nb\r\n", "a\nb\n"},
		"overwritten": {"abc\rX", "Xbc\n"},
		"up":          {"a\r\nb\r\n\x1b[2AX\x1b[K", "X\nb\n"},
		"below":       {"a\r\nb\r\nc\r\n\x1b[2A\r\x1b[JX", "a\nX\n"},
		"colours":     {"\x1b[1;32mgo\x1b[0m", "go\n"},
		"wrapped":     {"0123456789ab\r\nc", "0123456789ab\nc\n"},
		"scrolled":    {"1\r\n2\r\n3\r\n4\r\n5\r\n\x1b[9AX", "1\n2\nX\n4\n5\n"},
		"wide text":   {"ä█", "ä█\n"},
	} {
		s := NewScreen(10, 4)
		for i := range len(c.in) { // also in parts
			_, _ = s.Write([]byte{c.in[i]})
		}
		if got := s.Text(); got != c.want || len(s.Faults()) > 0 {
			t.Errorf("%s: %q, want %q, faults %q", name, got, c.want, s.Faults())
		}
	}
	s := NewScreen(10, 4)
	_, _ = s.Write([]byte("\x1b[?25l\x1bM\a"))
	if f := strings.Join(s.Faults(), ", "); !strings.Contains(f, `"\x1b[?"`) || !strings.Contains(f, `"\x1bM"`) || !strings.Contains(f,
		`'\a'`) {
		t.Errorf("faults %s", f)
	}
}

// Lines break again in a terminal of another width, and the cursor goes with its text.
func TestScreenOfAnotherSize(t *testing.T) {
	s := NewScreen(10, 5)
	_, _ = s.Write([]byte("log\r\n012345678\r\nabcdefghi\r\n"))
	s.Resize(5, 5)
	_, _ = s.Write([]byte("\x1b[4A\r\x1b[Jnew\r\n"))
	if got := s.Text(); got != "log\nnew\n" {
		t.Errorf("%q", got)
	}
}
