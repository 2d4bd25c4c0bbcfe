package traceview_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/traceview"
	"github.com/ditask/ditask/parallel/trace"
)

// record writes the traces of two nodes of three, at times that are known: node 1
// is restarted, and the second start gets the newest value again.
func record(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	open := func(node, attempt int, incarnation uint64) *trace.Recorder {
		r, err := trace.Create(trace.Path(dir, node, attempt), trace.Head{Job: "j<1>", Node: node, Nodes: 3, Attempt: attempt,
			Incarnation: incarnation}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []string{"a & b", "other"} {
			r.Declare(trace.Event{Name: e, Delivery: "latest"})
		}
		return r
	}
	synctest.Test(t, func(*testing.T) {
		wait := func() { <-time.After(time.Millisecond) }
		r0 := open(0, 0, 5)
		r1 := open(1, 0, 7)
		r0.Peer(trace.Peer{Node: 1, Change: trace.PeerJoined, Incarnation: 7})
		r1.Peer(trace.Peer{Node: 0, Change: trace.PeerJoined, Incarnation: 5})
		wait()
		r0.Sent("a & b", 1, 1, 10)
		wait()
		r1.Received("a & b", 0, 1, nil, make([]byte, 10))
		r0.Sent("a & b", 2, 1, 10)
		wait()
		r1.Sent("other", 0, 1, 3)
		_ = r1.Close()
		wait()
		r0.Peer(trace.Peer{Node: 1, Change: trace.PeerLost, Error: "silent\nfor long"})
		again := open(1, 1, 8)
		r0.Peer(trace.Peer{Node: 1, Change: trace.PeerJoined, Incarnation: 8})
		again.Peer(trace.Peer{Node: 0, Change: trace.PeerJoined, Incarnation: 5})
		r0.Sent("a & b", 1, 1, 10)
		wait()
		again.Received("a & b", 0, 1, nil, make([]byte, 10))
		again.Received("other", 2, 4, nil, nil)
		_ = again.Close()
		_ = r0.Close()
	})
	return dir
}

func load(t *testing.T, dir string, f traceview.Filter) *traceview.View {
	t.Helper()
	files, err := traceview.Files([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	v, err := traceview.Load(files, f)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTextSaysWhoSentWhatToWhomWhen(t *testing.T) {
	v := load(t, record(t), traceview.Filter{})
	var b strings.Builder
	if err := v.Text(&b); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "\n")
	want := `node 0  node-0-0.trace: 3 sent, 0 received, to 0.005000
node 1  node-1-0.trace: 1 sent, 1 received, to 0.003000
node 1  node-1-1.trace: 0 sent, 2 received, to 0.005000
        TIME  FROM    TO    EVENT   VERSION       BYTES  TOOK
    0.000000  node 0: node 1 joined
    0.000000  node 1: node 0 joined
    0.001000     0 -> 1     a & b         1          10  1.000 ms
    0.002000     0 -> 2     a & b         1          10  the receiver has no trace
    0.003000     1 -> 0     other         1           3  not received: dropped, replaced by a newer one, or lost
    0.004000     0 -> 1     a & b         1          10  1.000 ms
    0.004000  node 0: node 1 lost: silent
    0.004000  node 0: node 1 joined
    0.004000  node 1: node 0 joined
    0.005000     2 -> 1     other         4           0  sent before or beside the trace
`
	if got != want {
		t.Errorf("got:\n%s", got)
	}
}

func TestFiltersChoose(t *testing.T) {
	dir := record(t)
	for name, c := range map[string]struct {
		f    traceview.Filter
		want int
	}{
		"event": {traceview.Filter{Event: "o*"}, 2},
		"node":  {traceview.Filter{Nodes: []int{2}}, 2},
		"since": {traceview.Filter{Since: 3 * time.Millisecond}, 3},
		"until": {traceview.Filter{Until: 2 * time.Millisecond}, 2},
		"both":  {traceview.Filter{Event: "a*", Since: 3 * time.Millisecond}, 1},
	} {
		if v := load(t, dir, c.f); len(v.Messages) != c.want || v.Hidden != 5-c.want {
			t.Errorf("%s: %d shown, %d hidden, want %d", name, len(v.Messages), v.Hidden, c.want)
		}
	}
	if _, err := traceview.Load(nil, traceview.Filter{Event: "[" + "x"}); err == nil {
		t.Error("a bad glob")
	}
}

// TestThePictureHasEveryMessage reads the picture as XML: it is well formed and
// whole in itself, and has a tip for each message and change.
func TestThePictureHasEveryMessage(t *testing.T) {
	v := load(t, record(t), traceview.Filter{})
	for limit, want := range map[int]int{100: 5, 2: 2} {
		var b strings.Builder
		if err := v.SVG(&b, limit); err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(b.String()))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, b.String())
			}
		}
		if n := len(regexp.MustCompile(`<g [^>]*><title>`).FindAllString(b.String(), -1)); n != want {
			t.Errorf("limit %d: %d messages, want %d", limit, n, want)
		}
		if strings.Contains(strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", ""), "http") {
			t.Error("it needs something from elsewhere")
		}
		if more := strings.Contains(b.String(), "the first 2 of 5 messages"); more != (limit == 2) {
			t.Errorf("limit %d: it says that there is more: %v", limit, more)
		}
	}
}

func TestWhatIsNoTraceIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := traceview.Files([]string{dir}); err == nil {
		t.Error("an empty folder")
	}
	if _, err := traceview.Files([]string{filepath.Join(dir, "x")}); err == nil {
		t.Error("a folder that is missing")
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := traceview.Load([]string{file}, traceview.Filter{}); !errors.Is(err, trace.ErrFormat) {
		t.Errorf("another file: %v", err)
	}
}
