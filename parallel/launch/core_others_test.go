package launch

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

func TestRulesL12TheEndOfTheJobElsewhereIsNoReasonToRestart(t *testing.T) {
	s := newScript(t, 3, true, false)
	s.wait(0, "start0 start1 start2")
	lost := said(control.Failure, 1, 7, "node.7: lost: silent for 8s")
	s.exit(0, lost, "restart0") // of its own accord, because it could not go on without the other
	over := said(control.Failure, 1, 7, "node.7 failed: out of luck")
	over.outcome.Over = true
	s.exit(1, over, "retire1 retire0 terminated2")
	s.exit(2, over, "retire2")
	if r := s.end(control.Failure, 1); r.First == nil || r.First.Cause != 7 {
		t.Errorf("%+v", r.First)
	}
}

func TestRulesL12TheLastFailureIsToldToOtherLaunchers(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.c.shared, s.c.maxRetries = true, 1
	s.wait(0, "start0 start1")
	s.exit(1, killedBy(syscall.SIGKILL), "restart1")
	s.wait(time.Second, "start1")
	s.exit(1, killedBy(syscall.SIGKILL), "terminated0")
	if got, want := s.c.nodes[1].farewell, "node 1, attempt 1, failed: killed"; got != want {
		t.Errorf("the job is told %q, want %q", got, want)
	}
	s.wait(0, "start1")
	s.exit(0, exit{code: 75}, "retire0")
	s.exit(1, won, "retire1")
	if r := s.end(control.Failure, 137); r.Restarts != 1 || r.Nodes[1].ExitCode != 137 {
		t.Errorf("%+v", r)
	}
}

func TestRulesL12OnlyTheFailureThatEndsTheJobIsToldToOtherLaunchers(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.c.shared, s.c.maxRetries = true, 0
	s.wait(0, "start0 start1")
	s.exit(1, killedBy(syscall.SIGKILL), "terminated0")
	s.exit(0, exit{code: 4}, "retire0")
	s.wait(0, "start1")
	s.exit(1, won, "retire1")
	s.end(control.Failure, 137)
}

func TestRulesTheOthersHearOfAnEndWithoutALeave(t *testing.T) {
	for _, c := range []struct {
		e    exit
		want string
	}{
		{killedBy(syscall.SIGKILL), "1: killed by signal: killed"},
		{killedBy(syscall.SIGSEGV), "1: killed by signal: segmentation fault"},
		{exit{code: 3}, "1: exit code 3"},
		{said(control.Failure, 3, 1, "no memory\nstack"), "1: exit code 3"},
		{exit{spoke: true}, "1: exit code 0"},
		{exit{code: 75}, "1: exit code 75"}, // without a report it has not drained
		{exit{code: 1, err: errors.New("cannot start")}, ""},
		{said(control.Preempted, 75, 1, ""), ""},
		{won, ""},
	} {
		for _, recovering := range []bool{true, false} {
			s := newScript(t, 2, recovering, false)
			s.wait(0, "start0 start1")
			actions := s.c.exited(s.now, 1, c.e)
			if got := lost(actions); got != c.want {
				t.Errorf("%+v: the others hear %q, want %q", c.e, got, c.want)
			}
			if c.want != "" && actions[0].do != lose {
				t.Errorf("%+v: the others hear of it after %v", c.e, words(actions))
			}
		}
	}
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.c.heard(0, s.now)
	for range 5 {
		s.now = s.now.Add(2500 * time.Millisecond)
		s.c.tick(s.now)
	}
	if got := lost(s.c.exited(s.now, 0, killedBy(syscall.SIGKILL))); got != "0: killed by signal: killed: did not answer for 10s and was killed" {
		t.Errorf("of a node that did not answer: %q", got)
	}
}
