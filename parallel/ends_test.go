//go:build unix

package parallel

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/task"
)

func TestANodeEndsALittleBeforeItsLauncherKillsIt(t *testing.T) {
	for grace, want := range map[time.Duration]time.Duration{
		0:               9 * time.Second,
		5 * time.Second: 4500 * time.Millisecond,
		time.Minute:     59 * time.Second,
	} {
		if got := graceOf(control.Env{Grace: grace}); got != want {
			t.Errorf("grace %v: %v, want %v", grace, got, want)
		}
	}
}

// A node that was asked to end waits for its function, for the grace period at most. A second signal
// ends a node without a launcher at once, and no other.
func TestWithinTheGracePeriod(t *testing.T) {
	for _, c := range []struct {
		name     string
		fd       int
		signal   time.Duration // when it is sent; 0: never
		returns  time.Duration // when the function does; 0: never
		code     int
		after    time.Duration
		stderr   string
		reported bool
	}{
		{"in time", 3, 0, time.Second, ExitSuccess, time.Second, "", true},
		{"too late", 3, 0, 0, ExitFailure, 5 * time.Second, "node.7: did not end within 5s of SIGTERM: ended without saving\n", false},
		{"a second signal", 0, 2 * time.Second, 0, ExitFailure, 2 * time.Second, "node.7: ended at once, by a second signal\n", false},
		{"a second signal under a launcher", 3, 2 * time.Second, 3 * time.Second, ExitSuccess, 3 * time.Second, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stderr strings.Builder
				p := newProcess(newNode(control.Env{NodeID: 7, ControlFD: c.fd}, nil, slog.New(slog.DiscardHandler)), &control.Client{}, &stderr)
				signals, done := make(chan os.Signal, 1), make(chan error, 1)
				if c.signal > 0 {
					time.AfterFunc(c.signal, func() { signals <- syscall.SIGTERM })
				}
				if c.returns > 0 {
					time.AfterFunc(c.returns, func() { done <- nil })
				}
				began := time.Now()
				if code := p.within(&orders{signals: signals, launched: c.fd != 0}, 5*time.Second, done); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				if took := time.Since(began); took != c.after || stderr.String() != c.stderr {
					t.Errorf("after %v, want %v: %q", took, c.after, stderr.String())
				}
			})
		})
	}
}

func TestANodeThatDoesNotEndInTimeReportsIt(t *testing.T) {
	p := launch(t, control.Env{NodeID: 7})
	if code := p.within(&orders{}, time.Millisecond, nil); code != ExitFailure {
		t.Errorf("exit code %d", code)
	}
	if o := p.outcome(t); o.Kind != control.Failure || o.Node != 7 || o.Error != "did not end within the grace period" {
		t.Errorf("%+v", o)
	}
}

// A process that gets a signal preempts its function.
func TestASignalPreemptsTheFunction(t *testing.T) {
	p := launch(t, control.Env{NodeID: 7})
	code := p.run(func(ctx context.Context, _ *Node) error {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if code != ExitPreempted {
		t.Errorf("exit code %d", code)
	}
	if o := p.outcome(t); o.Kind != control.Preempted {
		t.Errorf("%+v", o)
	}
}

// The context of the function ends with it, so that no goroutine that waits for it continues.
func TestTheContextEndsWithTheFunction(t *testing.T) {
	p := launch(t, control.Env{})
	var ended <-chan struct{}
	if code := p.run(func(ctx context.Context, _ *Node) error { ended = ctx.Done(); return nil }); code != ExitSuccess {
		t.Errorf("exit code %d", code)
	}
	select {
	case <-ended:
	default:
		t.Error("the context has not ended")
	}
}

// The launcher receives that a node is ready, its status at the requested interval, and
// its metrics on request.
func TestLauncherReceivesTheStatusOfANode(t *testing.T) {
	p := launch(t, control.Env{})
	var steps atomic.Int64
	p.node.Observe(func() task.Snapshot { return task.Snapshot{Role: "learner", Steps: steps.Add(1000)} })
	p.tellInterval(t, time.Millisecond)
	defer during((&reporter{node: p.node, client: p.client}).run)()
	var types []string
	for rate := 0.0; rate == 0; {
		m, err := p.said.Next()
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, m.Type)
		if m.Status != nil {
			if rate = m.Status.Rate; m.Status.Role != "learner" || m.Status.Step%1000 != 0 {
				t.Errorf("%+v", m.Status)
			}
		}
	}
	if types[0] != control.TypeReady {
		t.Errorf("sent %v", types)
	}
	p.tell(t, control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: 5}})
	for last := false; !last; {
		m, err := p.said.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == control.TypeMetrics {
			if last = m.Metrics.Last; m.Metrics.Seq != 5 {
				t.Errorf("%+v", m.Metrics)
			}
		}
	}
}

// The rate is that of the steps since the status before: without steps it is 0.
func TestTheRateOfANodeThatDoesNoSteps(t *testing.T) {
	p := launch(t, control.Env{})
	p.node.Observe(func() task.Snapshot { return task.Snapshot{Steps: 1000} })
	p.tellInterval(t, time.Millisecond)
	defer during((&reporter{node: p.node, client: p.client}).run)()
	for status := 0; status < 3; {
		m, err := p.said.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Status != nil {
			if status++; m.Status.Rate != 0 || m.Status.Step != 1000 {
				t.Errorf("%+v", m.Status)
			}
		}
	}
}

func playFirst(context.Context, *Node) error  { return nil }
func playSecond(context.Context, *Node) error { return errors.New("second") }

func TestMainPicksTheFunctionByItsName(t *testing.T) {
	fns := []Func{playFirst, playSecond}
	for _, name := range []string{"", "main", "playFirst"} {
		if fn, err := pick(name, fns); err != nil || fn(t.Context(), nil) != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"playSecond", "github.com/ditask/ditask/parallel.playSecond"} {
		if fn, err := pick(name, fns); err != nil || fn(t.Context(), nil) == nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := pick("play", fns); err == nil || err.Error() != `no function "play": parallel.Main was given playFirst, playSecond` {
		t.Error(err)
	}
	if _, err := pick("", nil); err == nil {
		t.Error("no function is no error")
	}
}

func TestMainRefusesABadEnvironment(t *testing.T) {
	for want, env := range map[string]map[string]string{
		"ditask: bad environment: DITASK_NODE_ID=\"x\"": {"DITASK_NODE_ID": "x"},
		"ditask: no function \"Play\"":                  {"DITASK_MAIN": "Play"},
		"ditask: node.1: ":                              {"DITASK_NODE_ID": "1", "DITASK_NODES": "2", "DITASK_BUS": "ftp://h"},
		"ditask: node.0: open DITASK_CONTROL_FD=9999":   {"DITASK_NODE_ID": "0", "DITASK_CONTROL_FD": "9999"},
	} {
		var stderr strings.Builder
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		if code := runMain(lookup, &stderr, []Func{playFirst}); code != ExitUsage || !strings.HasPrefix(stderr.String(), want) {
			t.Errorf("want %s: exit code %d, %s", want, code, stderr.String())
		}
	}
}

// How the loss of a node counts follows from its environment.
func TestRecoveryFollowsFromTheEnvironment(t *testing.T) {
	nodes, _ := pairOfRouters(t)
	defer func() { _, _ = nodes[0].Close(), nodes[1].Close() }()
	for _, c := range []struct {
		env               control.Env
		recovers, elastic bool
	}{
		{control.Env{Nodes: 2}, false, false},
		{control.Env{Nodes: 2, Retries: 3}, false, false},
		{control.Env{Nodes: 2, AutoRecover: true}, false, true},
		{control.Env{Nodes: 2, AutoRecover: true, Retries: 1}, true, true},
		{control.Env{Nodes: 2, AutoRecover: true, Topology: "star"}, false, false},
		{control.Env{Nodes: 2, AutoRecover: true, Topology: "star", NodeID: 1}, false, true},
	} {
		n := newNode(c.env, nodes[0], slog.New(slog.DiscardHandler))
		if n.bus.Recovers() != c.recovers || n.bus.Elastic() != c.elastic {
			t.Errorf("%+v: recovers %v, elastic %v", c.env, n.bus.Recovers(), n.bus.Elastic())
		}
	}
	for attempt, want := range map[int]bool{0: false, 1: true} {
		if n := newNode(control.Env{Attempt: attempt}, nil, slog.New(slog.DiscardHandler)); n.Resume() != want {
			t.Errorf("attempt %d: resume %v", attempt, n.Resume())
		}
	}
	if !newNode(control.Env{Resume: true}, nil, slog.New(slog.DiscardHandler)).Resume() {
		t.Error("the first attempt of a resumed job does not resume")
	}
}

// A lost peer ends the task, unless the job recovers; one that is not started again always
// does, and all nodes know that.
func TestALostPeerIsFatalUnlessTheJobRecovers(t *testing.T) {
	for _, c := range []struct{ recovering, final bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		recovering := c.recovering
		nodes, joined := pairOfRouters(t)
		n := newNode(control.Env{Nodes: 2, AutoRecover: recovering}, nodes[0], slog.New(slog.DiscardHandler))
		lost := make(chan task.PeerChange, 4) // more than there are changes
		n.bus.Watch(func(c task.PeerChange) {
			if c.Event == task.PeerLost {
				lost <- c
			}
		})
		joined()
		_ = nodes[1].Abandon() // nothing was sent
		n.peerGone(control.Lost{Node: 1, Incarnation: 5, Reason: "exit code 3", Final: c.final})
		got := <-lost
		if got.Fatal != (!recovering || c.final) || failedElsewhere(got.Err) != c.final || !strings.HasSuffix(got.Err.Error(), "exit code 3") {
			t.Errorf("%+v: fatal %v: %v", c, got.Fatal, got.Err)
		}
		_ = nodes[0].Close()
	}
}
