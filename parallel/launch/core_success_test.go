package launch

import (
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// A success names the nodes that would have been started again, and no others.
func TestRulesASuccessNamesOnlyNodesThatWereToStartAgain(t *testing.T) {
	s := newScript(t, 4, true, false)
	s.c.begin(s.now, time.Second)
	for _, started := range []string{"start0", "start1", "start2"} {
		s.wait(0, started)
		s.now = s.now.Add(time.Second)
	}
	s.now = s.now.Add(-time.Second)
	s.exit(1, exit{code: 1}, "restart1")
	s.c.nodes[1].startAt = s.now
	s.wait(0, "start1")
	s.exit(2, exit{code: 1}, "restart2")
	actions := s.c.exited(s.now, 0, won)
	s.expect("exit of 0", actions, "retire0 retire2 retire3")
	if note := noted(actions); note != "node 2 is not started again: the job has succeeded" {
		t.Errorf("noted %q", note)
	}
	s.exit(1, won, "retire1")
	s.end(control.Success, 0)
}

// The grace period begins with the first success.
func TestRulesASecondSuccessGrantsNoMoreTime(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	s.exit(0, won, "retire0")
	s.wait(9*time.Second, "")
	s.exit(1, won, "retire1")
	s.wait(time.Second, "terminated2")
	s.exit(2, exit{code: 75}, "retire2")
	s.end(control.Success, 0)
}

// A node that depends on no other is started again, though all others are done.
func TestRulesIndependentNodesAreStartedAgain(t *testing.T) {
	s := newScript(t, 2, true, true)
	s.wait(0, "start0 start1")
	s.exit(1, exit{code: 3}, "restart1")
	s.exit(0, wonWithAll, "retire0")
	s.wait(time.Second, "start1")
	s.exit(1, wonWithAll, "retire1")
	s.end(control.Success, 0)
}

// A job continues while a node runs, or has not been started yet.
func TestRulesANodeThatIsThereKeepsTheOthersWaiting(t *testing.T) {
	for _, late := range []bool{false, true} {
		s := newScript(t, 3, true, false)
		first := "start0 start1 start2"
		if late {
			first = "start0 start1"
			s.c.nodes[2].startAt = s.now.Add(time.Minute)
		}
		s.wait(0, first)
		s.exit(0, wonWithAll, "retire0")
		actions := s.c.exited(s.now, 1, exit{code: 3})
		s.expect("exit of 1", actions, "restart1")
		if late {
			continue
		}
		actions = s.c.exited(s.now, 2, wonWithAll)
		s.expect("exit of 2", actions, "retire2 retire1")
		if note := noted(actions); note != "node 1 is not started again: all other nodes are done and have ended; the job ends" {
			t.Errorf("noted %q", note)
		}
		if r := s.end(control.Failure, 3); r.Restarts != 0 || r.First.Node != 1 || r.First.Attempt != 0 {
			t.Errorf("%+v, %+v", r, r.First)
		}
	}
}
