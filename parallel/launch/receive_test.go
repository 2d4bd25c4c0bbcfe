package launch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// Every message of a node that was ready counts as a sign of life; before, a node may
// be silent for long.
func TestEveryMessageIsASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := NewStream(io.Discard, "text")
		log := (&output{now: time.Now, stdout: silent, stderr: silent}).open(0, 0, "gpu")
		l := &Launcher{
			ready: make(chan struct{}), waits: map[int]bool{0: true}, states: make([]State, 1), received: make([]time.Time, 1), asks: make([]ask, 1),
			core: newCore(Config{}, []int{0}, false),
		}
		for _, m := range []control.Message{
			{Type: control.TypeHello},
			{Type: control.TypeStatus, Status: &control.Status{Role: "learner", Step: 7}},
			{Type: control.TypeReady},
			{Type: control.TypeAlive},
			{Type: control.TypeStatus, Status: &control.Status{}},
			{Type: control.TypeMetrics, Metrics: &control.Metrics{}},
			{Type: "of a newer version"},
		} {
			<-time.After(time.Second)
			was := l.received[0]
			l.receive(0, log, m)
			l.reportReceived()
			ready := m.Type == control.TypeReady || !was.IsZero()
			if ready != l.received[0].Equal(time.Now()) || !l.core.nodes[0].receivedAt.Equal(l.received[0]) {
				t.Errorf("%s: received at %v, the rules at %v, now %v", m.Type, l.received[0], l.core.nodes[0].receivedAt, time.Now())
			}
			if m.Type == control.TypeStatus && m.Status.Step == 7 &&
				(log.Role() != "learner" || l.states[0].Status.Step != 7 || !l.states[0].StatusAt.Equal(time.Now())) {
				t.Errorf("status: role %s, %+v", log.Role(), l.states[0])
			}
		}
		if log.Role() != "learner" || l.states[0].Phase != Running {
			t.Errorf("role %s, phase %s", log.Role(), l.states[0].Phase)
		}
		select {
		case <-l.ready:
		default:
			t.Error("not ready")
		}
	})
}

// The number of remaining restarts follows from the attempt of a node, and is never 0 where
// the launcher itself is started again.
func TestANodeKnowsItsRestarts(t *testing.T) {
	for _, c := range []struct {
		recovering, replaced bool
		attempt, want        int
	}{{false, false, 0, 0}, {true, false, 0, 3}, {true, false, 2, 1}, {true, false, 3, 0}, {true, false, 4, 0},
		{true, true, 3, 1}, {true, true, 0, 3}} {
		l := &Launcher{cfg: Config{MaxRetries: 3, Replaced: c.replaced, Env: control.Env{AutoRecover: c.recovering}}}
		n := &node{incarnation: 7}
		n.ID, n.LocalID = 5, 1
		e := l.env(n, c.attempt)
		if e.Retries != c.want || e.Attempt != c.attempt || e.NodeID != 5 || e.LocalID != 1 || e.Incarnation != 7 {
			t.Errorf("%+v: %+v", c, e)
		}
	}
}

// A node receives the address of the server and the folder of the job, if the job has them.
func TestANodeHasTheServerAndTheFolderOfTheJob(t *testing.T) {
	for dir, bus := range map[string]string{"": "", "out": "redis://h:1"} {
		l := &Launcher{cfg: Config{Env: control.Env{Dir: dir, Bus: bus}}}
		e := l.env(&node{}, 0)
		if e.Bus != bus || e.BusAuth != "" || filepath.IsAbs(e.Dir) != (dir != "") || dir != "" && filepath.Base(e.Dir) != dir ||
			dir == "" && e.Dir != "" {
			t.Errorf("%q, %q: %+v", dir, bus, e)
		}
	}
}

// After the end of its process, the lines of a node are written without a wait.
func TestTheLinesOfAnEndedProcessDoNotWait(t *testing.T) {
	path, err := exec.LookPath("echo")
	if err != nil {
		t.Fatal(err)
	}
	silent := NewStream(io.Discard, "text")
	log := (&output{now: time.Now, stdout: silent, stderr: silent}).open(0, 0, "gpu")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProc(spec{command: []string{path, "last words"}, env: control.Env{Incarnation: 7}, watcher: &watcher{pipe: w}},
		log, func(control.Message) {})
	if err != nil {
		t.Fatal(err)
	}
	if e := p.wait(); e.code != 0 || e.spoke || e.outcome != nil || len(e.lines) != 1 || e.lines[0] != "last words" || e.role != "gpu" {
		t.Errorf("%+v", e)
	}
	select {
	case <-log.ended:
	default:
		t.Error("they may wait")
	}
	_ = w.Close()
	pid := p.cmd.Process.Pid
	if b, err := io.ReadAll(r); err != nil || string(b) != fmt.Sprintf("begin 7\nstart %d\nend %d\n", pid, pid) {
		t.Errorf("the watcher receives %q, %v", b, err)
	}
	_ = r.Close()
}

// A watcher ignores numbers whose group would be its own, or every process.
func TestTheWatcherTakesOnlyGroupsOfNodes(t *testing.T) {
	w := watched{groups: map[int]bool{}}
	for _, line := range []string{
		"start 7", "start 8", "end 7", "start 0", "start 1", "start -9", "start x", "start", "stop 9",
		"", "socket unix:///run/s",
	} {
		w.receive(line)
	}
	if fmt.Sprint(w.groups) != "map[8:true]" || fmt.Sprint(w.sockets) != "[unix:///run/s]" || w.done {
		t.Errorf("%+v", w)
	}
	if w.receive("done "); !w.done {
		t.Error("not done")
	}
}
