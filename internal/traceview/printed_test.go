package traceview_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/logtest"
	"github.com/ditask/ditask/internal/traceview"
	"github.com/ditask/ditask/parallel/trace"
)

// The files of another user hold whatever that user likes, and have such names.
func TestTracesOfOthersArePrintable(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "node-0\n"+logtest.Forged+"\x1b[2J\u009b-0.trace")
	r, err := trace.Create(name, trace.Head{Job: logtest.Hostile, Nodes: 2}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.Declare(trace.Event{Name: logtest.Hostile})
	r.Sent(logtest.Hostile, 1, 1, 10)
	r.Received(logtest.Hostile, 1, 1, nil, []byte("x"))
	r.Peer(trace.Peer{Node: 1, Change: logtest.Hostile, Error: logtest.Hostile})
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := traceview.Files([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	v, err := traceview.Load(files, traceview.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var text, picture strings.Builder
	if err := v.Text(&text); err != nil {
		t.Fatal(err)
	}
	if err := v.SVG(&picture, 10); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]string{"the text": text.String(), "the picture": picture.String()} {
		if faults := logtest.Faults(got); faults != "" || !strings.Contains(got, `\u009b2J`) {
			t.Errorf("%s: %s", what, faults)
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines != 6 {
		t.Errorf("%d lines:\n%s", lines, text.String())
	}
	another := filepath.Join(dir, "node-1\n"+logtest.Forged+"\x1b[2J-0.trace")
	for _, job := range []string{"x", ""} { // of another job, and none
		if job != "" {
			r, err := trace.Create(another, trace.Head{Job: job, Nodes: 2}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		} else {
			another += "x"
		}
		if _, err := traceview.Load(append(files, another), traceview.Filter{}); err == nil || logtest.Faults(err.Error()) != "" ||
			!strings.Contains(err.Error(), `\x1b[2J`) {
			t.Errorf("%q: %v", job, err)
		}
	}
}
