package gym

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/ditask/ditask/internal/printable"
)

// The bounds of the output of environments.
const (
	maxLine = 4 << 10 // of one line; a longer one is printed as several
	maxTail = 4 << 10 // the end of the output, for an error
)

// lines writes the output of a process, line by line behind a prefix, and keeps the end of it.
type lines struct {
	w      *lockedWriter // of all processes
	prefix string
	part   []byte // of a line that has no end yet

	mu   sync.Mutex
	tail []byte
}

// lockedWriter writes one line at a time.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write never fails: an environment must not fail because its output cannot be written.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.w.Write(p)
	return len(p), nil
}

// copy copies r until its end.
func (l *lines) copy(r io.Reader) {
	buffer := make([]byte, maxLine)
	for {
		n, err := r.Read(buffer)
		l.add(buffer[:n])
		if err != nil {
			break
		}
	}
	if len(l.part) > 0 {
		l.print(l.part)
	}
}

func (l *lines) add(p []byte) {
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := maxLine - len(l.part); len(line) > room {
			line, rest, ended = line[:room], p[room:], true
		}
		l.part, p = append(l.part, line...), rest
		if ended {
			l.print(l.part)
			l.part = l.part[:0]
		}
	}
}

func (l *lines) print(line []byte) {
	text := printable.Lines(strings.TrimRight(string(line), "\r"))
	l.mu.Lock()
	l.tail = append(append(l.tail, text...), '\n')
	if n := len(l.tail) - maxTail; n > 0 {
		l.tail = append(l.tail[:0], l.tail[n:]...)
	}
	l.mu.Unlock()
	_, _ = l.w.Write([]byte(l.prefix + text + "\n"))
}

// last returns the last lines that were printed, as a block behind an error.
func (l *lines) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := strings.TrimRight(string(l.tail), "\n")
	if text == "" {
		return ""
	}
	if len(l.tail) == maxTail {
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
	}
	return "; it printed last:\n    " + strings.ReplaceAll(text, "\n", "\n    ")
}
