package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/metrics"
)

func TestExitCodeOfAJob(t *testing.T) {
	for _, c := range []struct {
		r    Result
		want int
	}{
		{Result{Kind: control.Success}, 0},
		{Result{Kind: control.Success, signal: syscall.SIGINT}, 0},
		{Result{Kind: control.Preempted, signal: syscall.SIGINT}, 130},
		{Result{Kind: control.Preempted, signal: syscall.SIGTERM}, 75},
		{Result{Kind: control.Preempted}, 75},
		{Result{Kind: control.Failure}, 1},
		{Result{Kind: control.Failure, signal: syscall.SIGINT}, 1},
		{Result{Kind: control.Failure, First: &Failure{}}, 1},
		{Result{Kind: control.Failure, First: &Failure{ExitCode: 3}}, 3},
		{Result{Kind: control.Failure, First: &Failure{ExitCode: 137, ours: true}}, 1},
	} {
		if got := c.r.ExitCode(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.r, got, c.want)
		}
	}
}

func TestRestartsOfAJob(t *testing.T) {
	for want, nodes := range map[string][]NodeResult{
		"":                               {{ID: 0}, {ID: 1}},
		"restarts: node 1: 2":            {{ID: 0}, {ID: 1, Restarts: 2}},
		"restarts: node 1: 2, node 3: 1": {{ID: 1, Restarts: 2}, {ID: 2}, {ID: 3, Restarts: 1}},
	} {
		if got := (Result{Nodes: nodes}).restarts(); got != want {
			t.Errorf("%+v: %q, want %q", nodes, got, want)
		}
	}
}

// A failure has what the node or the launcher gives as its reason, and the node's last lines.
func TestFailureOfAnExit(t *testing.T) {
	many := make([]string, 20)
	for i := range many {
		many[i] = fmt.Sprint("line ", i)
	}
	outcome := func(kind control.Kind) *control.Outcome {
		return &control.Outcome{Kind: kind, Node: 5, Error: "no memory\nstack"}
	}
	for _, c := range []struct {
		name  string
		e     exit
		cause int
		err   string
		told  bool
		lines int
	}{
		{"no reason", exit{code: 1, lines: many}, 2, "", false, 12},
		{"few lines", exit{code: 1, lines: many[:3]}, 2, "", false, 3},
		{"not started", exit{code: 1, err: errors.New("no such file"), outcome: outcome(control.Failure)}, 2, "no such file", false, 0},
		{"reported", exit{code: 1, outcome: outcome(control.Failure)}, 5, "no memory\nstack", false, 0},
		{"reported and written", exit{code: 1, outcome: outcome(control.Failure), lines: []string{"", "error: no memory!"}}, 5,
			"no memory\nstack", true, 2},
		{"written long ago", exit{code: 1, outcome: outcome(control.Failure), lines: slices.Concat([]string{"no memory"}, many)},
			5, "no memory\nstack", true, 12},
		{"success with a code", exit{code: 1, outcome: outcome(control.Success)}, 2, "", false, 0},
	} {
		c.e.role = "learner"
		f := newFailure(coreNode{id: 2, attempt: 3}, c.e)
		if f.Node != 2 || f.Cause != c.cause || f.Attempt != 3 || f.Role != "learner" || f.ExitCode != 1 || f.Signal != "" ||
			f.Error != c.err || f.logged != c.told || len(f.Lines) != c.lines {
			t.Errorf("%s: %+v", c.name, f)
		}
		if n := len(f.Lines); n > 0 && f.Lines[n-1] != c.e.lines[len(c.e.lines)-1] {
			t.Errorf("%s: the last line is %q", c.name, f.Lines[n-1])
		}
	}
	if f := newFailure(coreNode{}, exit{signal: syscall.SIGKILL, code: 137}); f.Signal != "killed" {
		t.Errorf("%+v", f)
	}
}

func TestFailureInWords(t *testing.T) {
	for _, c := range []struct {
		f              Failure
		headline, line string
	}{
		{Failure{Node: 2, Cause: 2, ExitCode: 3}, "node 2 failed: exit code 3", "node 2 failed: exit code 3; then"},
		{Failure{Node: 2, Cause: 2, Signal: "killed", Role: "learner"}, "node 2 (learner) failed: killed",
			"node 2 (learner) failed: killed; then"},
		{Failure{Node: 2, Cause: 1, ExitCode: 1, Attempt: 1}, "node 2, attempt 1, failed because of node 1: exit code 1",
			"node 2, attempt 1, failed because of node 1: exit code 1; then"},
		{Failure{Node: 2, Cause: 2, Error: "did not answer", ours: true}, "node 2: did not answer", "node 2: did not answer; then"},
		{
			Failure{Node: 2, Cause: 2, ExitCode: 1, Error: "no memory\nstack\nmore\n"}, "node 2 failed: exit code 1: no memory",
			"node 2 failed: exit code 1: no memory; then\nstack\nmore",
		},
		{Failure{Node: 2, Cause: 2, ExitCode: 1, Error: "no memory\n", logged: true}, "node 2 failed: exit code 1: no memory",
			"node 2 failed: exit code 1; then"},
		{Failure{Node: 2, Cause: 2, ExitCode: 1, Error: "no memory\n"}, "node 2 failed: exit code 1: no memory",
			"node 2 failed: exit code 1: no memory; then"},
	} {
		if got := c.f.Headline(); got != c.headline {
			t.Errorf("headline %q, want %q", got, c.headline)
		}
		if got := c.f.line("; then"); got != c.line {
			t.Errorf("line %q, want %q", got, c.line)
		}
	}
}

// The report has the last lines of a node only if nothing else explains its failure.
func TestReportOfTheLastLines(t *testing.T) {
	lines, two := []string{"a", "b"}, []NodeResult{{}, {}}
	const short = "the job failed because of node 1: exit code 3\n"
	const long = "the job failed because of node 1: exit code 3; the last lines of node 2:\n    a\n    b\n"
	for want, cases := range map[string][]Result{
		short: {
			{Nodes: two[:1], First: &Failure{Node: 2, Cause: 1, ExitCode: 3, Lines: lines}},
			{Nodes: two, First: &Failure{Node: 2, Cause: 1, ExitCode: 3}},
			{Nodes: two, First: &Failure{Node: 2, Cause: 1, ExitCode: 3, Lines: lines, Error: "no memory"}},
		},
		long: {{Nodes: two, First: &Failure{Node: 2, Cause: 1, ExitCode: 3, Lines: lines}}},
		"":   {{Nodes: two}},
	} {
		for _, r := range cases {
			var b strings.Builder
			if err := r.Report(&b); err != nil || b.String() != want {
				t.Errorf("%q, want %q: %v", b.String(), want, err)
			}
		}
	}
}

// Of several failures the first that no other node caused is the cause, or, if it blames a node,
// the failure of that node.
func TestTheFirstOfSeveralFailures(t *testing.T) {
	own := func(node int) Failure { return Failure{Node: node, Cause: node} }
	blame := func(node, cause int) Failure { return Failure{Node: node, Cause: cause} }
	late := func(node int) Failure { return Failure{Node: node, Cause: node, late: true} }
	for _, c := range []struct {
		failures []Failure
		want     int
	}{
		{[]Failure{own(1)}, 1},
		{[]Failure{own(1), own(2)}, 1},
		{[]Failure{own(1), blame(2, 3), own(3)}, 1},
		{[]Failure{blame(1, 2), own(2)}, 2},
		{[]Failure{blame(1, 2), own(3), own(2)}, 2},
		{[]Failure{blame(1, 9), own(3), own(2)}, 3},
		{[]Failure{blame(1, 2), late(2)}, 1},
		{[]Failure{blame(1, 9), late(2)}, 1},
		{[]Failure{blame(1, 2), blame(2, 1)}, 1},
	} {
		if f := first(c.failures); f == nil || f.Node != c.want {
			t.Errorf("%+v: %+v, want node %d", c.failures, f, c.want)
		}
	}
	if f := first(nil); f != nil {
		t.Errorf("%+v", f)
	}
}

func TestBackoffDoublesUpToItsBound(t *testing.T) {
	c := &core{backoff: time.Second, maxBackoff: 5 * time.Second}
	for attempt, want := range []float64{1, 2, 4, 5, 5, 5} {
		if got := c.delay(attempt).Seconds(); got != want {
			t.Errorf("after attempt %d: %v s, want %v s", attempt, got, want)
		}
	}
	c = &core{backoff: 9 * time.Second, maxBackoff: 5 * time.Second}
	if got := c.delay(0); got != 5*time.Second {
		t.Errorf("a back-off beyond its bound: %v", got)
	}
}

func TestNodesAndSignalsInWords(t *testing.T) {
	for want, ids := range map[string][]int{"node 3": {3}, "nodes 1, 2": {1, 2}} {
		if got := nodesText(ids); got != want {
			t.Errorf("%v: %q", ids, got)
		}
	}
	for sig, want := range map[syscall.Signal]string{syscall.SIGINT: "interrupted", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "hangup"} {
		if got := signalName(sig); got != want {
			t.Errorf("%d: %q", sig, got)
		}
	}
}

// The metrics of a node count when all parts of its newest answer have arrived.
func TestMetricsOfAnAnswerInParts(t *testing.T) {
	p := &proc{}
	l := &Launcher{
		states: []State{{ID: 4, Phase: Running, Restarts: 2, Status: control.Status{Role: "learner"}}, {ID: 5}},
		asks:   make([]ask, 2), seq: 7,
	}
	l.cfg.Plan.Job = "j"
	done := make(chan struct{})
	l.asks[0] = ask{proc: p, seq: 7, done: done}
	part := func(seq uint64, last bool) control.Metrics {
		return control.Metrics{Seq: seq, Last: last, Samples: []metrics.Sample{{Name: "m", Value: float64(seq)}}}
	}
	text := func() string {
		var out []string
		for _, s := range l.samples(7) {
			out = append(out, fmt.Sprint(s.Label("node"), s.Label("role"), " ", strings.TrimPrefix(s.Name, "ditask_node_"), " ", s.Value))
		}
		return strings.Join(out, ", ")
	}
	const other = ", 5 up 0, 5 answered 0, 5 restarts_total 0"
	l.receiveMetrics(0, part(6, true)) // an answer to an older request
	l.receiveMetrics(0, part(7, false))
	if got := text(); got != "4learner up 1, 4learner answered 0, 4learner restarts_total 2"+other {
		t.Errorf("after a part: %s", got)
	}
	l.receiveMetrics(0, part(7, true))
	<-done
	l.receiveMetrics(0, part(7, true)) // nothing was asked
	if got := text(); got != "4learner up 1, 4learner answered 1, 4learner restarts_total 2, 4learner m 7, 4learner m 7"+other {
		t.Errorf("after the last part: %s", got)
	}
	if l.samples(7)[0].Label("job") != "j" {
		t.Errorf("%+v", l.samples(7)[0])
	}
	l.asks[0] = ask{proc: p, seq: 8, done: make(chan struct{})}
	done = l.asks[0].done
	l.reached(0, nil) // it has ended, and answers no more
	<-done
	if got := text(); got != "4learner up 1, 4learner answered 0, 4learner restarts_total 2"+other {
		t.Errorf("after the end: %s", got)
	}
}
