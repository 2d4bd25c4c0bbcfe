//go:build unix

package parallel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// launched is a process under test, with the launcher's end of its control socket.
type launched struct {
	process
	launcher *os.File
	said     *control.Reader
	stderr   *bytes.Buffer
}

// launch makes a process of a lone node that is asked to end within grace.
func launch(t *testing.T, env control.Env) *launched {
	t.Helper()
	launcher, node, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	_ = launcher.SetDeadline(time.Now().Add(20 * time.Second))
	env.ControlFD = 3
	stderr := &bytes.Buffer{}
	p := &launched{launcher: launcher, said: control.NewReader(launcher), stderr: stderr}
	p.process = *newProcess(newNode(env, nil, slog.New(slog.DiscardHandler)), control.NewClient(node, ""), stderr)
	t.Cleanup(func() { _ = launcher.Close(); _ = p.client.Close() })
	return p
}

// tell sends a line to the node.
func (p *launched) tell(t *testing.T, m control.Message) {
	t.Helper()
	line, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.launcher.Write(line); err != nil {
		t.Fatal(err)
	}
}

// tellInterval requests a status at that interval, and returns when the node has read the request.
func (p *launched) tellInterval(t *testing.T, every time.Duration) {
	t.Helper()
	p.tell(t, control.Message{Type: control.TypeInterval, Interval: every})
	p.tell(t, control.Message{Type: control.TypeMetrics, Metrics: &control.Metrics{Seq: 1}})
	<-p.client.Asked() // it reads in order
}

// outcome skips the node's messages until it reports its outcome.
func (p *launched) outcome(t *testing.T) control.Outcome {
	t.Helper()
	for {
		m, err := p.said.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type == control.TypeOutcome {
			return *m.Outcome
		}
	}
}

func TestEndedReportsTheOutcome(t *testing.T) {
	for _, c := range []struct {
		err    error
		want   control.Outcome
		code   int
		stderr string
	}{
		{nil, control.Outcome{Kind: control.Success, Node: 7}, ExitSuccess, ""},
		{errors.New("no memory\nstack"), control.Outcome{Kind: control.Failure, Node: 7, Error: "no memory\n    stack"}, ExitFailure,
			"no memory\n    stack\n"},
		{&task.PreemptError{Node: 7, Reason: "SIGTERM"}, control.Outcome{Kind: control.Preempted, Node: 7}, ExitPreempted,
			"task is preempted on node 7: SIGTERM\n"},
		{
			fmt.Errorf("run: %w\nits stack", &task.RemoteError{Node: 2, Reason: "out of luck"}),
			control.Outcome{Kind: control.Failure, Node: 2, Over: true,
				Error: "run: " + (&task.RemoteError{Node: 2, Reason: "out of luck"}).Error() + "\n    its stack"},
			ExitFailure, "node.7: ended, because node 2 failed\n",
		},
	} {
		p := launch(t, control.Env{NodeID: 7})
		if code := p.ended(c.err); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
		if got := p.outcome(t); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.err, got, c.want)
		}
		p.logPreempted()
		if p.stderr.String() != c.stderr {
			t.Errorf("%v: it writes %q, want %q", c.err, p.stderr.String(), c.stderr)
		}
	}
}

// A node that is asked to end because the job has failed reports that once.
func TestAPreemptedNodeOfAFailedJobNamesTheFailure(t *testing.T) {
	for _, final := range []bool{false, true} {
		p := launch(t, control.Env{NodeID: 7})
		p.losses.receive([]control.Lost{{Node: 3, Final: final}, {Node: 4, Final: final}})
		p.ended(&task.PreemptError{Node: 7, Reason: "SIGTERM"})
		p.logPreempted()
		p.logPreempted()
		want := "task is preempted on node 7: SIGTERM\n"
		if final {
			want = "node.7: ended, because node 3 failed\n"
		}
		if got := p.stderr.String(); got != want {
			t.Errorf("final %v: it writes %q, want %q", final, got, want)
		}
	}
}

// Without a launcher nothing else writes the error of another node.
func TestErrorWithoutALauncherHasTheReason(t *testing.T) {
	err := fmt.Errorf("run: %w\nits stack", &task.RemoteError{Node: 2, Reason: "out of luck"})
	p := &process{node: newNode(control.Env{NodeID: 7}, nil, slog.New(slog.DiscardHandler))}
	if got := p.lastWords(err, control.Outcome{Node: 2, Error: err.Error()}); got != "run: node 2 failed: out of luck" {
		t.Errorf("it writes %q", got)
	}
}

// A program that made its node by Join reports its outcome by End.
func TestEndReportsTheOutcomeOfAJoinedNode(t *testing.T) {
	launcher, file, err := control.Pair()
	if err != nil {
		t.Fatal(err)
	}
	_ = launcher.SetDeadline(time.Now().Add(20 * time.Second))
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	n := newNode(control.Env{NodeID: 4, ControlFD: fd}, nil, slog.New(slog.DiscardHandler))
	var ending sync.WaitGroup
	ending.Go(func() {
		if code := n.End(nil); code != ExitSuccess {
			t.Errorf("exit code %d", code)
		}
	})
	said := control.NewReader(launcher)
	var types []string
	for {
		m, err := said.Next()
		if err != nil {
			break
		}
		types = append(types, m.Type)
		if m.Outcome != nil && (m.Outcome.Kind != control.Success || m.Outcome.Node != 4) {
			t.Errorf("%+v", m.Outcome)
		}
	}
	if strings.Join(types, " ") != "hello outcome" {
		t.Errorf("sent %v", types)
	}
	_, _ = launcher.WriteString("{\"type\":\"bye\"}\n")
	ending.Wait()
	_ = launcher.Close()
}

// The launcher reports that the process of a peer has ended: the peer is lost at once.
func TestAPeerIsLostWhenTheLauncherReportsItsEnd(t *testing.T) {
	nodes, joined := pairOfRouters(t)
	changes := make(chan router.Change, 4) // more than there are
	nodes[0].Watch(func(c router.Change) { changes <- c })
	joined()
	if c := <-changes; c.Kind != router.Joined {
		t.Fatalf("%+v", c)
	}

	p := launch(t, control.Env{Nodes: 2})
	p.node = newNode(control.Env{Nodes: 2}, nodes[0], slog.New(slog.DiscardHandler))
	p.losses.node = p.node
	defer during(p.losses.run)()
	_ = nodes[1].Abandon() // no messages were sent
	p.tell(t, control.Message{Type: control.TypeLost, Lost: &control.Lost{Node: 1, Incarnation: 5, Reason: "killed by signal: killed"}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case c := <-changes:
		if c.Kind != router.Lost || c.Err.Error() != "node.1: lost: killed by signal: killed" {
			t.Errorf("%+v", c)
		}
	case <-ctx.Done():
		t.Error("the peer is not lost")
	}
	_ = nodes[0].Close()
}

// The launcher receives whether a success is that of one node, which ends the job, or of all.
func TestOutcomeReportsWhetherAllNodesAreDone(t *testing.T) {
	for _, opts := range [][]task.RunOption{{task.MaxSteps(1)}, {task.MaxSteps(1), task.WaitForAll()}} {
		routers, _ := pairOfRouters(t)
		var nodes [2]*Node
		var running sync.WaitGroup
		for id, r := range routers {
			nodes[id] = newNode(control.Env{NodeID: id, Nodes: 2}, r, slog.New(slog.DiscardHandler))
			running.Go(func() {
				err := call(t.Context(), nodes[id], func(ctx context.Context, n *Node) error {
					tk := task.New[struct{}](n)
					tk.Use(task.Step(func(context.Context, *struct{}) error { return nil }))
					return tk.Run(ctx, opts...)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		p := launch(t, control.Env{})
		p.node = nodes[0]
		p.ended(nil)
		if got := p.outcome(t); got.Kind != control.Success || got.All != (len(opts) == 2) {
			t.Errorf("%d options: %+v", len(opts), got)
		}
	}
}
