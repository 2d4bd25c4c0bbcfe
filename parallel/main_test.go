package parallel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/trace"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
	"go.uber.org/goleak"
)

// childVar makes the test program a node, in a separate process.
const childVar = "PARALLEL_TEST_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVar); dir != "" {
		Main(func(ctx context.Context, _ *Node) error { return child(ctx, dir) })
	}
	goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute))
}

// child starts a process, and saves the reason when it is asked to end.
func child(ctx context.Context, dir string) error {
	if err := exec.Command("sleep", "300").Start(); err != nil {
		return err
	}
	fmt.Println("started")
	<-ctx.Done()
	fmt.Println("no process reads this") // SIGPIPE, if it were not ignored
	return os.WriteFile(filepath.Join(dir, "saved"), []byte(context.Cause(ctx).Error()), 0o600)
}

// A node is alone unless a launcher started it as one of several, or possibly several.
func TestWhichNodesHaveOthers(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name     string
		env      control.Env
		launched bool
		job      string
		size     int
		bus      bool
	}{
		{"by hand", control.Env{JobID: "j", Nodes: 4}, false, "local", 1, false},
		{"one of one", control.Env{JobID: "j", Nodes: 1}, true, "j", 1, false},
		{"one that attaches", control.Env{JobID: "j", Nodes: 1, Attach: []string{"unix:///s"}}, true, "j", 1, true},
		{"one of two", control.Env{JobID: "j", Nodes: 2}, true, "j", 2, true},
		{"one of an unknown number", control.Env{JobID: "j"}, true, "j", 0, true},
	} {
		c.env.Dir = dir
		n, log := joined(t, c.env, c.launched)
		if n.JobID() != c.job || n.Size() != c.size || (n.Bus() != nil) != c.bus || log.Len() > 0 {
			t.Errorf("%s: job %s, size %d, bus %v\n%s", c.name, n.JobID(), n.Size(), n.Bus() != nil, log)
		}
		if n.bus != nil {
			_ = n.bus.Close()
		}
	}
}

func TestJoinFaults(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, env := range map[string]control.Env{
		"token file":         {TokenFile: filepath.Join(dir, "none")},
		"ring":               {Topology: "ring"},
		"trace folder":       {Trace: filepath.Join(file, "x")},
		"no transport for x": {Bus: "x://"},
		"Node -1 is not in":  {NodeID: -1},
	} {
		env.JobID, env.Nodes, env.Dir = "j", 2, dir
		if n, err := join(env, true, slog.New(slog.DiscardHandler)); err == nil || n != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
	if _, err := Join(lookupOf(map[string]string{"DITASK_NODE_ID": "x"}), nil); err == nil ||
		!strings.Contains(err.Error(), "DITASK_NODE_ID") {
		t.Errorf("Join: %v", err)
	}
}

func lookupOf(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

// A lone node receives nothing that could be recorded.
func TestRecordOfALoneNodeIsRefusedWithAWarning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "trace")
	_, log := joined(t, control.Env{Trace: dir, Dir: t.TempDir()}, false)
	if !strings.Contains(log.String(), "nothing is recorded") || exists(dir) {
		t.Errorf("log %q, folder %v", log, exists(dir))
	}
}

// A launcher's lines have a time and a node, so that those of its nodes have no time, and
// those in JSON have the node.
func TestLogLineFollowsFromTheLauncher(t *testing.T) {
	for _, c := range []struct {
		format   string
		launched bool
		want     string
	}{
		{"", false, `^time=\S+ level=INFO msg=hello\n$`},
		{"", true, `^level=INFO msg=hello\n$`},
		{"json", false, `^{"time":"[^"]+","level":"INFO","msg":"hello","node":3}\n$`},
		{"json", true, `^{"level":"INFO","msg":"hello","node":3}\n$`},
	} {
		var out bytes.Buffer
		newLogger(control.Env{NodeID: 3, LogFormat: c.format}, c.launched, &out).Info("hello")
		if !regexp.MustCompile(c.want).Match(out.Bytes()) {
			t.Errorf("%q, launched %v: %q", c.format, c.launched, &out)
		}
	}
}

// A launcher that requests no status receives none, and a node that waits for a request does
// not compute one meanwhile.
func TestANodeWithoutALauncherReportsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		n := newNode(control.Env{}, nil, nil)
		n.Observe(func() task.Snapshot { asked++; return task.Snapshot{} })
		stop := during((&reporter{node: n, client: &control.Client{}}).run)
		<-time.After(time.Minute)
		stop()
		if asked != 0 {
			t.Errorf("its status was made %d times", asked)
		}
	})
}

// The goroutines of a process end with it, also before the node is ready.
func TestReportsEndBeforeTheNodeIsReady(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		n := &Node{ready: make(chan struct{})}
		during((&reporter{node: n, client: &control.Client{}}).run)()
		during((&losses{node: n, client: &control.Client{}}).run)()
	})
}

// recorded is a recorder that writes to a file, and its log.
func recorded(t *testing.T, env control.Env) (rec *recorder, log *bytes.Buffer, path string) {
	t.Helper()
	log = &bytes.Buffer{}
	env.Trace = filepath.Join(t.TempDir(), "trace")
	rec, err := record(env, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return rec, log, trace.Path(env.Trace, env.NodeID, env.Attempt)
}

// recordsOf are all records of a file.
func recordsOf(t *testing.T, path string) (all []trace.Record) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r := trace.NewReader(file)
	r.Payloads = true
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
}

// A record has the description of its node, and the changes of its peers.
func TestRecordHasTheNodeAndItsPeers(t *testing.T) {
	for _, env := range []control.Env{
		{JobID: "j", NodeID: 2, LocalID: 1, Nodes: 4, Attempt: 3, Seed: 9, Resume: true},
		{JobID: "j", Nodes: 4, Continue: true, AutoRecover: true},
		{JobID: "j", Nodes: 4},
	} {
		rec, _, path := recorded(t, env)
		rec.changed(router.Change{Kind: router.Joined, Peer: router.Peer{ID: 1, Incarnation: 5, Labels: []string{"blue"}}})
		rec.changed(router.Change{Kind: router.Left, Peer: router.Peer{ID: 1}})
		rec.changed(router.Change{Kind: router.Lost, Peer: router.Peer{ID: 3}, Err: errors.New("out of reach")})
		rec.changed(router.Change{Kind: router.Failed, Err: errors.New("no peer has changed")})
		rec.done()
		rec.done()
		all := recordsOf(t, path)
		h := all[0].Head
		if h.Job != "j" || h.Node != env.NodeID || h.LocalID != env.LocalID || h.Nodes != 4 || h.Attempt != env.Attempt || h.Seed != env.Seed {
			t.Errorf("%+v: %+v", env, h)
		}
		if h.Resume != (env.Resume || env.Continue) || h.Recover != env.AutoRecover || !slices.Equal(h.Args, os.Args[1:]) {
			t.Errorf("%+v: %+v", env, h)
		}
		var changes []string
		for _, r := range all[1:] {
			if r.Peer != nil {
				changes = append(changes, r.Peer.Change+": "+r.Peer.Error)
			}
		}
		if got := strings.Join(changes, ", "); got != "joined: , left: , lost: out of reach" || all[len(all)-1].End == nil {
			t.Errorf("changes %s; the last record is of kind %d", got, all[len(all)-1].Kind)
		}
		if p := all[1].Peer; p.Node != 1 || p.Incarnation != 5 || !slices.Equal(p.Labels, []string{"blue"}) {
			t.Errorf("%+v", p)
		}
	}
	if rec, err := record(control.Env{}, nil); rec != nil || err != nil {
		t.Errorf("without a folder for records: %v, %v", rec, err)
	}
}

// A record that is full is logged once; it holds the earlier events.
func TestRecordThatIsFullIsLoggedOnce(t *testing.T) {
	rec, log, path := recorded(t, control.Env{TraceLimit: 1})
	rec.declare(task.ChannelSpec{Name: "e", Delivery: task.DeliverLatest, Queue: 2, Fingerprint: 3, Schema: "int64"})
	for i := range 4 {
		if strings.Contains(log.String(), "its limit") != (i > 2) {
			t.Errorf("after %d messages: log %q", i, log)
		}
		rec.Received("e", &router.Message{From: 1, Version: 7, Header: []byte("h"), Payload: make([]byte, 400<<10)})
	}
	rec.Sent("e", 1, 1, nil)
	rec.done()
	if strings.Count(log.String(), "\n") != 1 {
		t.Errorf("log %q", log)
	}
	all := recordsOf(t, path)
	if e := all[1].Event; e.Name != "e" || e.Delivery != "latest" || e.Queue != 2 || e.Fingerprint != 3 || e.Schema != "int64" {
		t.Errorf("%+v", e)
	}
	if r := all[2]; len(all) != 5 || r.Node != 1 || r.Version != 7 || string(r.Header) != "h" || r.Bytes != 400<<10 {
		t.Errorf("%d records; node %d, version %d, header %s, %d bytes", len(all), r.Node, r.Version, r.Header, r.Bytes)
	}
}

// A record has the events that the node declares, the time when it was ready, and an end.
func TestRecordOfANodeThatStarts(t *testing.T) {
	for name, end := range map[string]func(b *bus) error{"closed": (*bus).Close, "abandoned": (*bus).Abandon} {
		rec, log, path := recorded(t, control.Env{})
		nodes := startedPair(t, control.Env{}, func(nodes [2]*Node) {
			nodes[0].bus.rec = rec
			if _, err := nodes[0].bus.Channel(task.ChannelSpec{Name: "e"}, nil); err != nil {
				t.Fatal(err)
			}
		})
		if err := errors.Join(end(nodes[0].bus), nodes[1].bus.Close()); err != nil || log.Len() > 0 {
			t.Errorf("%s: %v, log %q", name, err, log)
		}
		var kinds []trace.Kind
		for _, r := range recordsOf(t, path) {
			kinds = append(kinds, r.Kind)
		}
		if want := []trace.Kind{trace.KindHead, trace.KindEvent, trace.KindReady, trace.KindEnd}; !slices.Equal(kinds, want) {
			t.Errorf("%s: records of the kinds %v, want %v", name, kinds, want)
		}
	}
}
