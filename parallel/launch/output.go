package launch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/internal/safefile"
)

// maxLine is where a line is cut in the merged stream, in bytes, and the longest message of the
// launcher itself.
const maxLine = 64 << 10

// The last lines that are kept of every node, enough to find an error at the
// top of a stack in them, and the bytes kept of each.
const (
	tailLines = 256
	tailBytes = 1 << 10
)

// output is the merged stream of all nodes. It is safe for concurrent use.
type output struct {
	format string
	now    func() time.Time
	dir    string // of the nodes' files; empty: none
	stdout *Stream
	stderr *Stream
	failed atomic.Bool // a file could not be written, which was logged
}

// record is one line in the format json.
type record struct {
	Time    time.Time       `json:"time"`
	Node    int             `json:"node"`
	Role    string          `json:"role,omitempty"`
	Attempt int             `json:"attempt"`
	Stream  string          `json:"stream"`
	Text    *string         `json:"text,omitempty"`
	Record  json.RawMessage `json:"record,omitempty"`
}

// log writes a line of the launcher itself. It never waits.
func (o *output) log(level, text string) { o.stderr.TryWrite(ownLine(o.format, o.now(), level, text)) }

// ownLine is a line of the launcher itself. Text that it quotes begins no line.
func ownLine(format string, now time.Time, level, text string) []byte {
	if format == "json" {
		return jsonLine(struct {
			Time  time.Time `json:"time"`
			Level string    `json:"level"`
			Msg   string    `json:"msg"`
		}{now, level, text})
	}
	return []byte("ditask: " + printable.Block(text, maxLine) + "\n")
}

// line writes one line of a node, of which more bytes were left out. It uses buf, and
// returns it for the next line.
func (o *output) line(n *nodeLog, stream string, text []byte, more int, buf []byte) []byte {
	n.remember(text)
	role := n.Role()
	if o.format == "json" {
		buf = append(buf[:0], o.jsonText(n, role, stream, text, more)...)
	} else {
		buf = append(buf[:0], '[')
		buf = strconv.AppendInt(buf, int64(n.id), 10)
		if role != "" {
			buf = append(append(buf, ' '), role...)
		}
		buf = strconv.AppendInt(append(buf, " #"...), int64(n.attempt), 10)
		buf = append(append(buf, "] "...), text...)
		if more > 0 {
			buf = fmt.Appendf(buf, " ... (%d bytes more)", more)
		}
		buf = append(buf, '\n')
	}
	w := o.stdout
	if stream == "stderr" {
		w = o.stderr
	}
	w.put(buf, n.ended)
	return buf
}

// flush writes the waiting lines, as far as they are read, and reports those that were not written. A
// signal ends the wait for a stream.
func (o *output) flush(signals <-chan os.Signal) {
	o.stdout.Flush(signals)
	o.reportDropped("stdout", o.stdout)
	if o.stderr != o.stdout {
		o.reportDropped("stderr", o.stderr)
		o.stderr.Flush(signals)
	}
}

// reportDropped logs at the end the number of lines that were not written.
func (o *output) reportDropped(name string, s *Stream) {
	n, why := s.Dropped()
	switch {
	case n == 0:
	case isGone(why):
		o.log("WARN", fmt.Sprintf("%s: %d lines were not written, as its reader has gone: %v", name, n, why))
	case why != nil:
		o.log("WARN", fmt.Sprintf("%s: %d lines could not be written: %v", name, n, why))
	default:
		o.log("WARN", fmt.Sprintf("%s: %d lines were not written, as nothing read them", name, n))
	}
}

func (o *output) jsonText(n *nodeLog, role, stream string, text []byte, more int) []byte {
	r := record{Time: o.now(), Node: n.id, Role: role, Attempt: n.attempt, Stream: stream}
	if len(text) > 0 && text[0] == '{' && json.Valid(text) {
		r.Record = text
	} else {
		s := string(text)
		if more > 0 {
			s += fmt.Sprintf(" ... (%d bytes more)", more)
		}
		r.Text = &s
	}
	return jsonLine(r)
}

func jsonLine(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a record holds nothing that JSON does not have
		return fmt.Appendf(nil, "%q\n", err)
	}
	return append(printable.JSON(b), '\n')
}

// fileFailed logs once for the whole job that a log file cannot be written.
func (o *output) fileFailed(err error) {
	if !o.failed.Swap(true) {
		o.log("WARN", fmt.Sprintf("log folder: %v; the job continues without it", err))
	}
}

// nodeLog is the output of one attempt of one node. Its streams may be copied
// concurrently.
type nodeLog struct {
	out     *output
	id      int
	attempt int
	role    atomic.Pointer[string] // the reader of the control socket must not wait for a disk
	ended   chan struct{}          // closed when the process has ended: its lines wait for nothing

	mu     sync.Mutex
	tail   []string // the last lines, a ring when it is full
	oldest int      // where the ring begins
	file   *os.File // nil: none, or no more
	within string   // the stream that has begun a line in file and not ended it
}

// open begins the log of an attempt.
func (o *output) open(id, attempt int, role string) *nodeLog {
	n := &nodeLog{out: o, id: id, attempt: attempt, ended: make(chan struct{})}
	n.role.Store(&role)
	if o.dir == "" {
		return n
	}
	path := filepath.Join(o.dir, fmt.Sprintf("node-%d.log", id))
	file, err := safefile.Append(path, 0o644)
	if err == nil {
		n.file = file
		_, err = file.Write(o.header(id, attempt))
	}
	if err != nil {
		n.drop(err)
	}
	return n
}

func (o *output) header(id, attempt int) []byte {
	now := o.now()
	if o.format == "json" {
		return jsonLine(struct {
			Time    time.Time `json:"time"`
			Msg     string    `json:"msg"`
			Node    int       `json:"node"`
			Attempt int       `json:"attempt"`
		}{now, "start", id, attempt})
	}
	return fmt.Appendf(nil, "--- node %d, attempt %d, %s ---\n", id, attempt, now.Format(time.RFC3339))
}

// Role is the prefix of the node's lines.
func (n *nodeLog) Role() string { return *n.role.Load() }

// setRole changes the mark, once the node has announced its roles.
func (n *nodeLog) setRole(role string) { n.role.Store(&role) }

func (n *nodeLog) remember(text []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	line := string(text[:min(len(text), tailBytes)])
	if len(n.tail) < tailLines {
		n.tail = append(n.tail, line)
		return
	}
	n.tail[n.oldest] = line
	n.oldest = (n.oldest + 1) % tailLines
}

// lines are the last lines of the node, of both streams, oldest first.
func (n *nodeLog) lines() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Concat(n.tail[n.oldest:], n.tail[:n.oldest])
}

// keep writes a piece of a stream to the node's file.
func (n *nodeLog) keep(stream string, piece []byte) {
	n.mu.Lock()
	file := n.file
	if file == nil || len(piece) == 0 {
		n.mu.Unlock()
		return
	}
	if n.within != "" && n.within != stream {
		piece = append([]byte{'\n'}, piece...)
	}
	n.within = stream
	if piece[len(piece)-1] == '\n' {
		n.within = ""
	}
	_, err := file.Write(piece)
	n.mu.Unlock()
	if err != nil {
		n.drop(err)
	}
}

// drop continues without the file.
func (n *nodeLog) drop(err error) {
	n.mu.Lock()
	if n.file != nil {
		_ = n.file.Close()
		n.file = nil
	}
	n.mu.Unlock()
	n.out.fileFailed(err)
}

// close ends the file; an error in that is one of writing.
func (n *nodeLog) close() {
	n.mu.Lock()
	file := n.file
	n.file = nil
	n.mu.Unlock()
	if file == nil {
		return
	}
	if err := file.Close(); err != nil {
		n.out.fileFailed(err)
	}
}

// copy reads a stream to its end and writes its lines.
func (n *nodeLog) copy(stream string, r io.Reader) {
	br := bufio.NewReaderSize(r, maxLine)
	var held []byte // the beginning of a line that is longer than the buffer
	more := 0       // bytes of it that came after
	var buf []byte
	for {
		piece, err := br.ReadSlice('\n')
		n.keep(stream, piece)
		if errors.Is(err, bufio.ErrBufferFull) {
			if held == nil {
				held = append([]byte(nil), piece...)
			} else {
				more += len(piece)
			}
			continue
		}
		text := trimEOL(piece)
		switch {
		case held != nil:
			buf = n.out.line(n, stream, held, more+len(text), buf)
			held, more = nil, 0
		case len(piece) > 0:
			buf = n.out.line(n, stream, text, 0, buf)
		}
		if err != nil {
			return
		}
	}
}

func trimEOL(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	if len(b) > 0 && b[len(b)-1] == '\r' {
		b = b[:len(b)-1]
	}
	return b
}
