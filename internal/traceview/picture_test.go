package traceview_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ditask/ditask/internal/traceview"
	"github.com/ditask/ditask/parallel/trace"
)

var update = flag.Bool("update", false, "write the pictures in testdata anew")

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at returns a time of a view, in microseconds.
func at(us int) time.Time { return began.Add(time.Duration(us) * time.Microsecond) }

// crowded returns a view of three nodes with every kind of arrow, label and mark, and more events than colours.
func crowded() *traceview.View {
	v := &traceview.View{Job: "a<b>", Began: began, Hidden: 3}
	send := func(event string, from, to, sent, took int) {
		m := traceview.Message{Event: event, From: from, To: to, Version: uint64(sent), Bytes: 10 * sent, Sent: at(sent)}
		if took >= 0 {
			m.Received = at(sent + took)
		}
		v.Messages = append(v.Messages, m)
	}
	send("right", 0, 2, 10, 5)
	send("left", 2, 0, 12, 100)
	send("near the first", 0, 1, 11, 4)
	send("lost", 0, 1, 500, -1)
	send("lost to the left", 2, 1, 520, -1)
	v.Messages = append(v.Messages,
		traceview.Message{Event: "came", From: 1, To: 0, Version: 9, Received: at(700)},
		traceview.Message{Event: "came from the left", From: 0, To: 2, Version: 9, Received: at(100_000)})
	for i := range 12 {
		send(fmt.Sprintf("event %d", i), i%3, (i+1)%3, 200_000+7*i, 30)
	}
	send("an event whose name has \U0001F40C and no end", 1, 2, 300_000, 1)
	v.Changes = []traceview.Change{
		{At: at(0), Seen: 0, Peer: trace.Peer{Node: 1, Change: trace.PeerJoined}},
		{At: at(600), Seen: 1, Peer: trace.Peer{Node: 2, Change: trace.PeerLeft}},
		{At: at(300_001), Seen: 2, Peer: trace.Peer{Node: 7, Change: trace.PeerLost, Error: "silent & gone"}},
	}
	return v
}

// TestPicturesAreThoseOfTestdata compares each picture with the one in testdata.
func TestPicturesAreThoseOfTestdata(t *testing.T) {
	several := crowded()
	several.Messages = several.Messages[:2]
	many := crowded()
	for i := range 40 { // more events than the legend has, in lanes that have room for them
		many.Messages = append(many.Messages, traceview.Message{Event: fmt.Sprint(i), From: i, To: i + 1, Sent: at(400_000 + i),
			Received: at(400_001 + i)})
	}
	for name, c := range map[string]struct {
		v     *traceview.View
		limit int
	}{
		"crowded": {crowded(), 100}, "first": {crowded(), 5}, "several": {several, 2}, "many": {many, 100},
		"empty": {&traceview.View{Job: "none", Began: began}, 100}, "restarted": {load(t, record(t), traceview.Filter{}), 100},
	} {
		var got bytes.Buffer
		if err := c.v.SVG(&got, c.limit); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", name+".svg")
		if *update {
			if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, got.Bytes(), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
			t.Errorf("%s (-want +got; go test -update writes it anew):\n%s", file, diff)
		}
	}
}

// TestTextOfEachFate is the table of what the text says of a message and of a file.
func TestTextOfEachFate(t *testing.T) {
	v := &traceview.View{
		Job: "j", Began: began, Hidden: 2,
		Nodes: []traceview.Node{
			{File: "d/node-0-0.trace", Head: trace.Head{Node: 0}, Last: at(9), Limit: true, Sent: 4},
			{File: "d/node-1-0.trace", Head: trace.Head{Node: 1}, Last: at(2), Killed: true},
			{File: "d/node-2-0.trace", Head: trace.Head{Node: 2}, Last: at(3)}, {File: "d/node-2-1.trace",
				Head: trace.Head{Node: 2, Attempt: 1}, Last: at(9)},
		},
		Messages: []traceview.Message{
			{Event: "name", From: 0, To: 1, Version: 1, Sent: at(2)}, {Event: "longer", From: 0, To: 1, Version: 2, Sent: at(3)},
			{Event: "name", From: 0, To: 2, Version: 3, Sent: at(4)}, {Event: "name", From: 0, To: 3, Version: 4, Sent: at(5)},
			{Event: "name", From: 0, To: 1, Version: 5, Sent: at(6), Received: at(5)}, {Event: "name", From: 0, To: 1, Version: 6,
				Sent: at(7), Received: at(7)},
		},
		Changes: []traceview.Change{{At: at(2), Seen: 1, Peer: trace.Peer{Node: 0, Change: "left"}},
			{At: at(8), Seen: 1, Peer: trace.Peer{Node: 2, Change: "lost", Error: "why\nmore"}}},
	}
	const want = `job j from 2026-01-02 03:04:05.000000 UTC
node 0  node-0-0.trace: 4 sent, 0 received, to 0.000009 (the file has reached its limit: what came later is missing)
node 1  node-1-0.trace: 0 sent, 0 received, to 0.000002 (the node has not ended the file: it was killed, or runs)
node 2  node-2-0.trace: 0 sent, 0 received, to 0.000003
node 2  node-2-1.trace: 0 sent, 0 received, to 0.000009
        TIME  FROM    TO    EVENT    VERSION       BYTES  TOOK
    0.000002     0 -> 1     name           1           0  not received: dropped, replaced by a newer one, or lost
    0.000002  node 1: node 0 left
    0.000003     0 -> 1     longer         2           0  the receiver's trace had ended
    0.000004     0 -> 2     name           3           0  not received: dropped, replaced by a newer one, or lost
    0.000005     0 -> 3     name           4           0  the receiver has no trace
    0.000006     0 -> 1     name           5           0  -0.001 ms: their clocks differ
    0.000007     0 -> 1     name           6           0  0.000 ms
    0.000008  node 1: node 2 lost: why
2 other messages are not shown
`
	var got strings.Builder
	if err := v.Text(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := v.Text(full{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk: %v", err)
	}
	if err := v.SVG(full{}, 5); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk, for a picture: %v", err)
	}
}

// full is a writer that takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestFilterHasBothEndsAndTheChanges holds the bounds of a filter exactly.
func TestFilterHasBothEndsAndTheChanges(t *testing.T) {
	dir := record(t)
	const step = time.Millisecond
	for _, tt := range []struct {
		f                 traceview.Filter
		messages, changes int
	}{
		{traceview.Filter{}, 5, 5},
		{traceview.Filter{Since: step}, 5, 3}, {traceview.Filter{Since: step + 1}, 4, 3},
		{traceview.Filter{Until: 4 * step}, 4, 5}, {traceview.Filter{Until: 4*step - 1}, 3, 2},
		{traceview.Filter{Since: 4 * step, Until: 4 * step}, 1, 3},
		{traceview.Filter{Nodes: []int{0}}, 4, 3}, {traceview.Filter{Nodes: []int{1}}, 4, 2}, {traceview.Filter{Nodes: []int{1, 2}}, 5,
			2}, {traceview.Filter{Nodes: []int{}}, 0, 0},
		{traceview.Filter{Event: "a*", Nodes: []int{2}}, 1, 0},
	} {
		v := load(t, dir, tt.f)
		if len(v.Messages) != tt.messages || v.Hidden != 5-tt.messages || len(v.Changes) != tt.changes {
			t.Errorf("%+v: %d messages, %d hidden, %d changes; want %d and %d", tt.f, len(v.Messages), v.Hidden, len(v.Changes),
				tt.messages, tt.changes)
		}
	}
}

// TestFilesInAnyOrderAreOneView reads the files of a job from the last to the first.
func TestFilesInAnyOrderAreOneView(t *testing.T) {
	files, err := traceview.Files([]string{record(t)})
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	want, err := traceview.Load(files, traceview.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]int{{2, 1, 0}, {1, 2, 0}, {2, 0, 1}} {
		// A file can be named itself, besides a folder.
		named, err := traceview.Files([]string{files[order[0]], files[order[1]], files[order[2]]})
		if err != nil {
			t.Fatal(err)
		}
		got, err := traceview.Load(named, traceview.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Nodes, got.Nodes); diff != "" || !got.Began.Equal(want.Began) || got.Job != "j<1>" {
			t.Errorf("%v, began %v: nodes (-want +got):\n%s", order, got.Began, diff)
		}
		if diff := cmp.Diff(want.Messages, got.Messages); diff != "" {
			t.Errorf("%v: messages (-want +got):\n%s", order, diff)
		}
		for i, c := range got.Changes {
			if i > 0 && c.At.Before(got.Changes[i-1].At) {
				t.Errorf("%v: changes are not in order of time: %+v", order, got.Changes)
			}
		}
	}
	for _, n := range want.Nodes {
		if n.Killed || n.Limit {
			t.Errorf("%+v", n)
		}
	}
}

// TestValueThatIsSentTwiceArrivesTwice has two files of one receiver, the later of which is read first.
func TestValueThatIsSentTwiceArrivesTwice(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		open := func(node, attempt int) *trace.Recorder {
			r, err := trace.Create(trace.Path(dir, node, attempt), trace.Head{Job: "j", Node: node, Attempt: attempt, Incarnation: 3}, 0)
			if err != nil {
				t.Fatal(err)
			}
			r.Declare(trace.Event{Name: "e"})
			return r
		}
		sender, first, second := open(0, 0), open(1, 0), open(1, 1)
		for _, receiver := range []*trace.Recorder{first, second} {
			receiver.Peer(trace.Peer{Node: 0, Change: trace.PeerJoined, Incarnation: 3})
			// A peer that leaves is still the one that sent what comes after.
			receiver.Peer(trace.Peer{Node: 0, Change: trace.PeerLeft, Incarnation: 99})
			<-time.After(time.Millisecond)
			sender.Sent("e", 1, 7, 1)
			<-time.After(time.Millisecond)
			receiver.Received("e", 0, 7, nil, []byte{1})
		}
		if err := errors.Join(sender.Close(), first.Close()); err != nil {
			t.Fatal(err)
		}
		// The second one is killed: its file has no end.
	})
	v, err := traceview.Load([]string{trace.Path(dir, 1, 1), trace.Path(dir, 1, 0), trace.Path(dir, 0, 0)}, traceview.Filter{})
	if err != nil || len(v.Messages) != 2 {
		t.Fatalf("%+v, %v", v, err)
	}
	for _, m := range v.Messages {
		if m.Received.Sub(m.Sent) != time.Millisecond {
			t.Errorf("%+v", m)
		}
	}
	if v.Nodes[1].Killed || !v.Nodes[2].Killed || v.Nodes[0].Sent != 2 || v.Nodes[1].Came != 1 {
		t.Errorf("%+v", v.Nodes)
	}
}

func TestFilesThatAreNotOfOneJob(t *testing.T) {
	dir := t.TempDir()
	var files []string
	for i, job := range []string{"one", "two"} {
		r, err := trace.Create(trace.Path(dir, i, 0), trace.Head{Job: job, Node: i}, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		files = append(files, trace.Path(dir, i, 0))
	}
	if _, err := traceview.Load(files, traceview.Filter{}); err == nil || !strings.Contains(err.Error(), "is of job ") {
		t.Errorf("two jobs: %v", err)
	}
	if _, err := traceview.Load([]string{filepath.Join(dir, "none")}, traceview.Filter{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
