package launch

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

func TestRulesL12TheEndOfTheJobElsewhereIsNoReasonToRestart(t *testing.T) {
	s := newScript(t, 3, true, false)
	s.wait(0, "start0 start1 start2")
	lost := said(control.Failure, 1, 7, "node.7: lost: silent for 8s")
	s.exit(0, lost, "restart0") // because it could not continue without the other
	over := said(control.Failure, 1, 7, "node.7 failed: out of luck")
	over.outcome.Over = true
	s.exit(1, over, "retire1 retire0 terminated2")
	s.exit(2, over, "retire2")
	if r := s.end(control.Failure, 1); r.First == nil || r.First.Cause != 7 {
		t.Errorf("%+v", r.First)
	}
}

// parts are the actions for the nodes of other launchers: "1: exit code 3", with a "!" if the job has
// failed.
func parts(actions []action) string {
	var out []string
	for _, a := range actions {
		if a.do == part {
			mark := ""
			if a.final {
				mark = "!"
			}
			out = append(out, fmt.Sprintf("%d: %s%s", a.node, a.note, mark))
		}
	}
	return strings.Join(out, "; ")
}

func TestRulesL12OtherLaunchersAreNotifiedOfAnEndWithoutALeave(t *testing.T) {
	over := said(control.Failure, 3, 1, "no memory")
	over.outcome.Over = true
	const killed = "1: killed by signal: killed"
	for _, c := range []struct {
		e               exit
		fails, restarts string // where the job fails with it, and where the node is restarted
	}{
		{killedBy(syscall.SIGKILL), killed + "!", killed + ", and will be restarted"},
		{said(control.Failure, 3, 1, "no memory\nstack"), "1: exit code 3: no memory!", "1: exit code 3, and will be restarted"},
		{over, "", ""},
		{exit{code: 75}, "1: exit code 75", "1: exit code 75"},
		{exit{code: 1, err: errors.New("cannot start")}, "1: exit code 1: cannot start!", ""},
		{said(control.Preempted, 75, 1, ""), "", ""},
		{won, "", ""},
	} {
		for _, recovering := range []bool{true, false} {
			for _, shared := range []bool{true, false} {
				s := newScript(t, 2, recovering, false)
				s.c.shared = shared
				s.wait(0, "start0 start1")
				want := c.fails
				if recovering {
					want = c.restarts
				}
				if !shared {
					want = ""
				}
				if got := parts(s.c.exited(s.now, 1, c.e)); got != want {
					t.Errorf("recovering %v, shared %v, %+v: other launchers receive %q, want %q", recovering, shared, c.e, got, want)
				}
			}
		}
	}
}

func TestRulesL12TheLastFailureIsFinal(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		s := newScript(t, 2, true, false)
		s.c.shared, s.c.replaced, s.c.maxRetries = true, replaced, 1
		s.wait(0, "start0 start1")
		s.exit(1, killedBy(syscall.SIGKILL), "restart1")
		s.wait(time.Second, "start1")
		actions := s.c.exited(s.now, 1, killedBy(syscall.SIGKILL))
		want := "1: killed by signal: killed (attempt 1)!"
		if replaced {
			want = "1: killed by signal: killed"
		}
		if got := parts(actions); got != want || words(actions) != "retire1 terminated0" || actions[0].do != lose ||
			actions[0].final == replaced {
			t.Errorf("replaced %v: other launchers receive %q, want %q; %s; %+v", replaced, got, want, words(actions), actions[0])
		}
		if got := parts(s.c.exited(s.now, 0, killedBy(syscall.SIGSEGV))); got != "" {
			t.Errorf("of a preempted node they receive %q", got)
		}
		if r := s.end(control.Failure, 137); r.Restarts != 1 || r.Nodes[1].ExitCode != 137 {
			t.Errorf("%+v", r)
		}
	}
}

func TestRulesOtherNodesAreNotifiedOfAnEndWithoutALeave(t *testing.T) {
	for _, c := range []struct {
		e    exit
		want string
	}{
		{killedBy(syscall.SIGKILL), "1: killed by signal: killed"},
		{killedBy(syscall.SIGSEGV), "1: killed by signal: segmentation fault"},
		{exit{code: 3}, "1: exit code 3"},
		{said(control.Failure, 3, 1, "no memory\nstack"), "1: exit code 3"},
		{exit{spoke: true}, "1: exit code 0"},
		{exit{code: 75}, "1: exit code 75"},                                // without a report it has not drained
		{exit{code: 1, err: errors.New("cannot start")}, "1: exit code 1"}, // if it is not started again
		{said(control.Preempted, 75, 1, ""), ""},
		{won, ""},
	} {
		for _, recovering := range []bool{false, true} {
			s := newScript(t, 2, recovering, false)
			s.wait(0, "start0 start1")
			actions := s.c.exited(s.now, 1, c.e)
			if recovering && c.e.err != nil {
				c.want = ""
			}
			if got := lost(actions); got != c.want {
				t.Errorf("%+v: the others receive %q, want %q", c.e, got, c.want)
			}
			if c.want != "" && actions[0].do != lose {
				t.Errorf("%+v: the others are notified after %v", c.e, words(actions))
			}
		}
	}
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.c.answered(0, s.now)
	for range 5 {
		s.now = s.now.Add(2500 * time.Millisecond)
		s.c.tick(s.now)
	}
	got := lost(s.c.exited(s.now, 0, killedBy(syscall.SIGKILL)))
	if got != "0: killed by signal: killed: did not answer for 10s and was killed" {
		t.Errorf("of a node that did not answer: %q", got)
	}
}

// The last line of the log of a preempted job has its outcome and the exit code.
func TestRulesTheReportOfAPreemptedJob(t *testing.T) {
	for _, c := range []struct {
		signals          []syscall.Signal
		recovers, shared bool
		want             string
	}{
		{[]syscall.Signal{syscall.SIGTERM}, false, false, "the job was preempted: exit code 75; --resume continues from its checkpoints\n"},
		{[]syscall.Signal{syscall.SIGTERM}, true, false, "the job was preempted: exit code 75; --resume continues from its checkpoints\n"},
		{[]syscall.Signal{syscall.SIGTERM}, true, true, "this launcher was preempted, and its nodes have left the job: exit code 75\n"},
		{[]syscall.Signal{syscall.SIGINT}, false, true, "the job was interrupted: exit code 130; --resume continues from its checkpoints\n"},
		{[]syscall.Signal{syscall.SIGINT}, true, true, "this launcher was interrupted, and its nodes have left the job: exit code 130\n"},
		{[]syscall.Signal{syscall.SIGINT, syscall.SIGINT}, false, false,
			"the job was interrupted again, and its nodes were killed: exit code 130\n"},
	} {
		s := newScript(t, 1, c.recovers, false)
		s.c.shared = c.shared
		s.wait(0, "start0")
		for _, sig := range c.signals {
			s.c.received(s.now, sig)
		}
		e := exit{code: 75}
		if len(c.signals) > 1 {
			e = killedBy(syscall.SIGKILL)
		}
		s.c.exited(s.now, 0, e)
		var b strings.Builder
		if err := s.c.result().Report(&b); err != nil || b.String() != c.want {
			t.Errorf("%+v: %q, want %q; %v", c, b.String(), c.want, err)
		}
	}
}
