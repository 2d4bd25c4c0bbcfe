package launch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/parallel/control"
)

// outputs is an output in a format, and the text of its streams.
func outputs(format, dir string) (o *output, stdout, stderr *bytes.Buffer) {
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	o = &output{
		format: format, dir: dir, now: func() time.Time { return now },
		stdout: NewStream(stdout, format), stderr: NewStream(stderr, format),
	}
	return o, stdout, stderr
}

// Each line of a node has its id, role and attempt, in both formats.
func TestLinesOfANode(t *testing.T) {
	const at = `{"time":"2030-01-02T03:04:05Z","node":3,`
	for _, c := range []struct{ format, role, stream, text, want string }{
		{"text", "", "stdout", "a\n", "[3 #1] a\n"},
		{"text", "gpu", "stderr", "a\r\nb", "[3 gpu #1] a\n[3 gpu #1] b\n"},
		{"text", "", "stdout", "\n\n", "[3 #1] \n[3 #1] \n"},
		{"text", "", "stdout", "", ""},
		{"text", "", "stdout", "\r\r\n", "[3 #1] \r\n"},
		{"json", "", "stdout", "a\n", at + `"attempt":1,"stream":"stdout","text":"a"}` + "\n"},
		{"json", "gpu", "stderr", "\n", at + `"role":"gpu","attempt":1,"stream":"stderr","text":""}` + "\n"},
		{"json", "", "stdout", `{"a":1}`, at + `"attempt":1,"stream":"stdout","record":{"a":1}}` + "\n"},
		{"json", "", "stdout", `{"a":`, at + `"attempt":1,"stream":"stdout","text":"{\"a\":"}` + "\n"},
		{"json", "", "stdout", "17", at + `"attempt":1,"stream":"stdout","text":"17"}` + "\n"},
	} {
		o, stdout, stderr := outputs(c.format, "")
		n := o.open(3, 1, c.role)
		n.copy(c.stream, strings.NewReader(c.text))
		o.flush(nil)
		got, other := stdout, stderr
		if c.stream == "stderr" {
			got, other = stderr, stdout
		}
		if got.String() != c.want || other.Len() > 0 {
			t.Errorf("%s %q: %q, want %q; the other stream has %q", c.format, c.text, got, c.want, other)
		}
	}
}

// A line that is longer than the bound is cut, and has how many bytes are missing.
func TestLongLinesAreCut(t *testing.T) {
	for more, want := range map[int]string{
		0:             "",
		1:             " ... (1 bytes more)",
		maxLine:       fmt.Sprintf(" ... (%d bytes more)", maxLine),
		2*maxLine + 5: fmt.Sprintf(" ... (%d bytes more)", 2*maxLine+5),
	} {
		for _, format := range []string{"text", "json"} {
			o, stdout, _ := outputs(format, "")
			n := o.open(3, 1, "")
			n.copy("stdout", strings.NewReader(strings.Repeat("z", maxLine+more)+"\nnext\n"))
			o.flush(nil)
			lines := strings.Split(stdout.String(), "\n")
			if got := strings.TrimSuffix(lines[0], `"}`); len(lines) != 3 || !strings.HasSuffix(got, "z"+want) ||
				strings.Count(got, "z") != maxLine {
				t.Errorf("%s, %d bytes more: %d lines, the first ends with %q", format, more, len(lines), got[len(got)-40:])
			}
			if !strings.Contains(lines[1], "next") {
				t.Errorf("%s, %d bytes more: then %q", format, more, lines[1])
			}
		}
	}
}

// The lines of the launcher itself go to stderr.
func TestLinesOfTheLauncher(t *testing.T) {
	for format, want := range map[string]string{
		"text": "ditask: no space\n",
		"json": `{"time":"2030-01-02T03:04:05Z","level":"WARN","msg":"no space"}` + "\n",
	} {
		o, stdout, stderr := outputs(format, "")
		o.log("WARN", "no space")
		o.flush(nil)
		if stderr.String() != want || stdout.Len() > 0 {
			t.Errorf("%s: %q, want %q", format, stderr, want)
		}
	}
}

// The file of a node has both streams as they came; no line of one begins within a line
// of the other.
func TestFileOfANode(t *testing.T) {
	dir := t.TempDir()
	o, _, stderr := outputs("text", dir)
	n := o.open(3, 0, "")
	for _, piece := range [][2]string{
		{"stdout", "a\n"}, {"stdout", "b"}, {"stdout", "c"}, {"stderr", "d\n"}, {"stdout", "e"}, {"stderr", ""}, {"stdout", "f\n"},
		{"stderr", "g\n"},
	} {
		n.keep(piece[0], []byte(piece[1]))
	}
	n.close()
	n.keep("stdout", []byte("after the end\n"))
	n.close()
	o.open(3, 1, "").close() // it appends
	const head = "--- node 3, attempt %d, 2030-01-02T03:04:05Z ---\n"
	want := fmt.Sprintf(head, 0) + "a\nbc\nd\nef\ng\n" + fmt.Sprintf(head, 1)
	if got, err := os.ReadFile(filepath.Join(dir, "node-3.log")); err != nil || string(got) != want {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
	o.flush(nil)
	if stderr.Len() > 0 {
		t.Errorf("stderr has %q", stderr)
	}
	o, _, _ = outputs("json", dir)
	o.open(4, 2, "").close()
	const json = `{"time":"2030-01-02T03:04:05Z","msg":"start","node":4,"attempt":2}` + "\n"
	if got, err := os.ReadFile(filepath.Join(dir, "node-4.log")); err != nil || string(got) != json {
		t.Errorf("%v: %q, want %q", err, got, json)
	}
}

// A fault of a log folder is reported once, for all nodes and writes.
func TestFaultsOfTheLogFolderAreReportedOnce(t *testing.T) {
	for name, fail := range map[string]func(o *output, n *nodeLog){
		"open": func(o *output, _ *nodeLog) { o.dir = filepath.Join(o.dir, "none"); o.open(4, 0, "") },
		"write": func(_ *output, n *nodeLog) {
			_ = n.file.Close()
			n.keep("stdout", []byte("a"))
			n.keep("stdout", []byte("b"))
		},
		"close": func(_ *output, n *nodeLog) { _ = n.file.Close() },
	} {
		o, _, stderr := outputs("text", t.TempDir())
		n := o.open(3, 0, "")
		fail(o, n)
		n.close()
		o.fileFailed(errors.New("once more"))
		o.flush(nil)
		if !strings.HasPrefix(stderr.String(), "ditask: log folder: ") ||
			!strings.HasSuffix(stderr.String(), "; the job continues without it\n") ||
			strings.Count(stderr.String(), "\n") != 1 || strings.Contains(stderr.String(), "once more") {
			t.Errorf("%s: %q", name, stderr)
		}
	}
}

// The last lines of a node are kept, each cut, oldest first.
func TestLastLinesOfANode(t *testing.T) {
	o, _, _ := outputs("text", "")
	for _, count := range []int{0, 1, tailLines, tailLines + 1, 2*tailLines + 3} {
		n := o.open(3, 0, "")
		var want []string
		for i := range count {
			n.remember([]byte(fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
		}
		if got := n.lines(); !slices.Equal(got, want[max(0, len(want)-tailLines):]) {
			t.Errorf("%d lines: kept %v", count, got)
		}
	}
	n := o.open(3, 0, "")
	n.remember(make([]byte, tailBytes+1))
	if got := n.lines(); len(got[0]) != tailBytes {
		t.Errorf("a line of %d bytes is kept", len(got[0]))
	}
	o.flush(nil)
}

// fullOnce is a writer that has no room for the first line.
type fullOnce struct {
	bytes.Buffer
	wrote bool
}

func (w *fullOnce) Write(p []byte) (int, error) {
	if !w.wrote {
		w.wrote = true
		return 0, syscall.ENOSPC
	}
	return w.Buffer.Write(p)
}

// Lines that could not be written are reported once, also where both streams are one.
func TestLinesThatCouldNotBeWrittenAreReportedOnce(t *testing.T) {
	for _, one := range []bool{true, false} {
		o, _, stderr := outputs("text", "")
		full := &fullOnce{}
		o.stdout = NewStream(full, "text")
		got := stderr.String
		if one {
			o.stderr, got = o.stdout, full.String
		}
		n := o.open(3, 0, "")
		n.copy("stdout", strings.NewReader("lost\n"))
		o.flush(nil)
		o.stderr.Flush(nil)
		if text := got(); strings.Count(text, "lines could not be written: no space left on device") != 1 ||
			!strings.Contains(text, "ditask: stdout: 1 lines") {
			t.Errorf("one stream %v: %q", one, text)
		}
	}
}

// A line of the launcher may quote text of a node or its peers.
func TestOutputOfTheLauncherIsPrintable(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		o, _, stderr := outputs(format, "")
		f := newFailure(coreNode{id: 3}, exit{code: 1, role: "learner",
			outcome: &control.Outcome{Kind: control.Failure, Node: 3, Error: logtest.Hostile}})
		o.log("WARN", f.line("; the job ends"))
		o.flush(nil)
		if got := stderr.String(); logtest.Faults(got) != "" || !strings.Contains(got, `\u009b2J`) || format == "json" &&
			strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %s: %q", format, logtest.Faults(got), got)
		}
	}
}

// A node's own output is unchanged in text, and has the same meaning in JSON.
func TestJSONOfANodesOutputIsPrintable(t *testing.T) {
	o, stdout, _ := outputs("json", "")
	n := o.open(1, 0, "")
	n.copy("stdout", strings.NewReader("\x1b[2J\u009b\u202e\x7f\n{\"a\":\"\u009b\"}\n"))
	n.close()
	o.flush(nil)
	want := []string{`"text":"\u001b[2J\u009b\u202e\u007f"`, `"record":{"a":"\u009b"}`}
	for _, w := range want {
		if got := stdout.String(); logtest.Faults(got) != "" || !strings.Contains(got, w) {
			t.Errorf("want %s in %q", w, got)
		}
	}
}
