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
)

// script drives the rules without processes: the clock moves only by wait.
type script struct {
	t   *testing.T
	c   *core
	now time.Time
}

func newScript(t *testing.T, nodes int, recovering, independent bool) *script {
	cfg := Config{MaxBackoff: 4 * time.Second, Backoff: time.Second}
	cfg.Env.AutoRecover = recovering
	cfg.ensureDefaults()
	ids := make([]int, nodes)
	for i := range ids {
		ids[i] = i
	}
	s := &script{t: t, c: newCore(cfg, ids, independent), now: time.Unix(1000, 0)}
	s.c.begin(s.now, 0)
	return s
}

// words is actions in short: "start0 term1 kill2 retire0 restart1", notes left out.
func words(actions []action) string {
	var out []string
	for _, a := range actions {
		switch a.do {
		case start:
			out = append(out, fmt.Sprint("start", a.node))
		case sendSignal:
			out = append(out, fmt.Sprintf("%v%d", a.signal, a.node))
		case kill:
			out = append(out, fmt.Sprint("kill", a.node))
		case retire:
			out = append(out, fmt.Sprint("retire", a.node))
		case restart:
			out = append(out, fmt.Sprint("restart", a.node))
		}
	}
	return strings.Join(out, " ")
}

// noted are the notes of the actions for the user.
func noted(actions []action) string {
	var out []string
	for _, a := range actions {
		if a.do == logNote {
			out = append(out, a.note)
		}
	}
	return strings.Join(out, "\n")
}

// lost are the actions that notify the other nodes of the end of one: "1: exit code 3".
func lost(actions []action) string {
	var out []string
	for _, a := range actions {
		if a.do == lose {
			out = append(out, fmt.Sprintf("%d: %s", a.node, a.note))
		}
	}
	return strings.Join(out, "; ")
}

func (s *script) expect(what string, actions []action, want string) {
	s.t.Helper()
	if got := words(actions); got != want {
		s.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (s *script) wait(d time.Duration, want string) {
	s.t.Helper()
	s.now = s.now.Add(d)
	s.expect(fmt.Sprint("after ", d), s.c.tick(s.now), want)
}

func (s *script) exit(i int, e exit, want string) {
	s.t.Helper()
	s.expect(fmt.Sprint("exit of ", i), s.c.exited(s.now, i, e), want)
}

func (s *script) signal(sig syscall.Signal, want string) {
	s.t.Helper()
	s.expect(sig.String(), s.c.received(s.now, sig), want)
}

func (s *script) end(kind control.Kind, code int) Result {
	s.t.Helper()
	if !s.c.done() {
		s.t.Fatal("not done")
	}
	if !s.c.next().IsZero() && s.c.phase == running {
		s.t.Error("done, but an action is due")
	}
	r := s.c.result()
	if r.Kind != kind || r.ExitCode() != code {
		s.t.Errorf("%s, exit code %d; want %s, %d", r.Kind, r.ExitCode(), kind, code)
	}
	return r
}

func said(kind control.Kind, code, cause int, text string) exit {
	return exit{code: code, outcome: &control.Outcome{Kind: kind, Node: cause, Error: text}}
}

// won is the end of a node that has reported its success.
var won = said(control.Success, 0, 0, "")

func killedBy(sig syscall.Signal) exit { return exit{code: 128 + int(sig), signal: sig} }

func TestRulesSuccessEndsTheJobInOrder(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	s.exit(0, said(control.Success, 0, 0, ""), "retire0")
	s.exit(2, won, "retire2")
	s.exit(1, won, "retire1")
	s.end(control.Success, 0)
}

func TestRulesAfterASuccessTheOthersHaveTheGracePeriod(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	s.exit(0, won, "retire0")
	s.wait(9*time.Second, "")
	s.wait(time.Second, "terminated1 terminated2")
	s.exit(1, said(control.Preempted, 75, 1, ""), "retire1")
	s.wait(10*time.Second, "kill2")
	s.exit(2, killedBy(syscall.SIGKILL), "retire2")
	s.end(control.Success, 0)
}

func TestRulesAStragglerDoesNotSpoilASuccess(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	s.exit(0, said(control.Success, 0, 0, ""), "retire0")
	s.wait(10*time.Second, "terminated1 terminated2")
	// It was stopped, and now detects the end of node 0, which has succeeded.
	actions := s.c.exited(s.now, 1, said(control.Failure, 1, 0, "node.0: lost"))
	s.expect("exit of 1", actions, "retire1")
	if note := noted(actions); note != "node 1 failed because of node 0: exit code 1; the job had succeeded before" {
		t.Error(note)
	}
	s.wait(10*time.Second, "kill2")
	actions = s.c.exited(s.now, 2, killedBy(syscall.SIGKILL))
	s.expect("exit of 2", actions, "retire2")
	if note := noted(actions); note != "node 2: did not end in time and was killed; the job had succeeded before" {
		t.Error(note)
	}
	r := s.end(control.Success, 0)
	if r.Nodes[2].Kind != control.Failure || r.Nodes[2].ExitCode != 137 {
		t.Errorf("%+v", r.Nodes)
	}
}

func TestRulesAnIndependentFailureSpoilsASuccess(t *testing.T) {
	for _, e := range []exit{
		killedBy(syscall.SIGKILL), // by another process
		said(control.Failure, 1, 1, "checkpoint: no space left"),
		said(control.Failure, 1, 2, "node.2: lost: 3 messages not acknowledged"), // which did not succeed
	} {
		s := newScript(t, 3, true, false)
		s.wait(0, "start0 start1 start2")
		s.exit(0, said(control.Success, 0, 0, ""), "retire0")
		s.exit(1, e, "retire1 terminated2")
		s.exit(2, exit{code: 75}, "retire2")
		s.end(control.Failure, e.code)
	}
}

func TestRulesASilentNodeIsKilledAndStartedAgain(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.c.answered(0, s.now)
	s.c.answered(1, s.now)
	for range 3 {
		s.wait(2500*time.Millisecond, "")
		s.c.answered(1, s.now)
	}
	s.wait(2500*time.Millisecond, "kill0")
	s.wait(time.Second, "")
	actions := s.c.exited(s.now, 0, killedBy(syscall.SIGKILL))
	s.expect("exit of 0", actions, "restart0")
	if note := noted(actions); note != "node 0: did not answer for 10s and was killed; restart 1 of 3 in 1s" {
		t.Error(note)
	}
	s.wait(time.Second, "start0")
	for range 20 { // it is not ready yet: that may take long
		s.wait(2500*time.Millisecond, "")
		s.c.answered(1, s.now)
	}
	s.c.answered(0, s.now)
	for range 3 {
		s.wait(2500*time.Millisecond, "")
		s.c.answered(1, s.now)
	}
	s.wait(2500*time.Millisecond, "kill0") // the second time like the first
	s.exit(0, killedBy(syscall.SIGKILL), "restart0")
	s.wait(2*time.Second, "start0")
	s.exit(0, won, "retire0")
	s.exit(1, won, "retire1")
	s.end(control.Success, 0)
}

func TestRulesASilentNodeEndsTheJob(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	s.c.answered(0, s.now)
	for range 3 {
		s.wait(2500*time.Millisecond, "")
	}
	s.wait(2500*time.Millisecond, "kill0")
	actions := s.c.exited(s.now, 0, killedBy(syscall.SIGKILL))
	s.expect("exit of 0", actions, "retire0 terminated1")
	if note := noted(actions); note != "node 0: did not answer for 10s and was killed; the job ends" {
		t.Error(note)
	}
	s.exit(1, exit{code: 75}, "retire1")
	if r := s.end(control.Failure, 1); r.First.Node != 0 {
		t.Errorf("first: %+v", r.First)
	}
}

func TestRulesPausedLauncherIsNotSilenceOfItsNodes(t *testing.T) {
	s := newScript(t, 1, true, false)
	s.wait(0, "start0")
	s.c.answered(0, s.now)
	s.wait(2500*time.Millisecond, "")
	s.wait(time.Hour, "") // no process ran: the messages of the node have not been read yet
	s.wait(2500*time.Millisecond, "")
	s.wait(2500*time.Millisecond, "kill0")
}

// The time for which the launcher did not run is not added to the silence of a node: it is killed 10 s
// after its newest message was received.
func TestRulesAPausedLauncherStillSeesASilentNode(t *testing.T) {
	s := newScript(t, 1, true, false)
	s.wait(0, "start0")
	s.c.answered(0, s.now)
	s.wait(2500*time.Millisecond, "")
	s.now = s.now.Add(time.Hour)
	s.c.answered(0, s.now.Add(-time.Second))
	s.wait(0, "")
	for range 3 {
		s.wait(2500*time.Millisecond, "")
	}
	s.wait(2500*time.Millisecond, "kill0")
}

// The rules check a silent node at the moment at which it must be killed.
func TestRulesASilentNodeIsKilledInTime(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.c.answered(0, s.now.Add(100*time.Millisecond))
	end := s.now.Add(10100 * time.Millisecond)
	for at := s.c.next(); at.Before(end); at = s.c.next() {
		if !at.After(s.now) {
			t.Fatalf("the next check is at %v", at)
		}
		s.wait(at.Sub(s.now), "")
		s.c.answered(1, s.now)
	}
	s.wait(s.c.next().Sub(s.now), "kill0")
	if !s.now.Equal(end) {
		t.Errorf("killed at %v, want %v", s.now, end)
	}
	if at := s.c.next(); !at.After(s.now) {
		t.Errorf("after the kill the next check is at %v", at)
	}
}

func TestRulesAPreemptedNodeDoesNotSpoilASuccess(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	s.exit(0, won, "retire0")
	s.signal(syscall.SIGTERM, "terminated1")
	s.exit(1, killedBy(syscall.SIGTERM), "retire1")
	s.end(control.Success, 0)
}

func TestRulesIndependentNodesRunToTheirEnds(t *testing.T) {
	s := newScript(t, 2, false, true)
	s.wait(0, "start0 start1")
	s.exit(0, won, "retire0")
	s.wait(time.Hour, "")
	s.exit(1, won, "retire1")
	s.end(control.Success, 0)
}

func TestRulesFirstFailureEndsTheJob(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	s.exit(1, exit{code: 3}, "retire1 terminated0 terminated2")
	s.exit(0, said(control.Failure, 1, 0, "torn down"), "retire0")
	s.wait(failGrace, "kill2")
	s.exit(2, killedBy(syscall.SIGKILL), "retire2")
	r := s.end(control.Failure, 3)
	if r.First.Node != 1 {
		t.Errorf("first is node %d", r.First.Node)
	}
}

func TestRulesOwnFailureBeatsOneCausedByAnotherNode(t *testing.T) {
	s := newScript(t, 4, false, false)
	s.wait(0, "start0 start1 start2 start3")
	s.exit(0, said(control.Failure, 1, 2, "node 2 is lost"), "retire0 terminated1 terminated2 terminated3")
	s.exit(1, said(control.Failure, 1, 1, "context canceled"), "retire1")
	s.exit(2, exit{code: 7, lines: []string{"boom"}}, "retire2")
	s.exit(3, exit{code: 143}, "retire3")
	r := s.end(control.Failure, 7)
	if r.First.Node != 2 || r.First.Lines[0] != "boom" {
		t.Errorf("first: %+v", r.First)
	}
}

func TestRulesABlamedNodeElsewhereIsNamed(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	s.exit(0, said(control.Failure, 1, 9, "node 9 is lost"), "retire0 terminated1")
	s.exit(1, said(control.Preempted, 75, 1, ""), "retire1")
	if r := s.end(control.Failure, 1); r.First.Headline() != "node 0 failed because of node 9: exit code 1: node 9 is lost" {
		t.Error(r.First.Headline())
	}
}

func TestRulesL12RestartWithBackoffAndBound(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	for attempt, backoff := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		s.exit(1, killedBy(syscall.SIGKILL), "restart1")
		if got := s.c.nodes[1].attempt; got != attempt+1 {
			t.Errorf("attempt %d", got)
		}
		s.wait(backoff-time.Millisecond, "")
		s.wait(time.Millisecond, "start1")
	}
	s.exit(1, exit{code: 5}, "retire1 terminated0")
	s.exit(0, exit{code: 75}, "retire0")
	r := s.end(control.Failure, 5)
	if r.Restarts != 3 || r.Nodes[1].Restarts != 3 || r.restarts() != "restarts: node 1: 3" {
		t.Errorf("%d restarts, %q", r.Restarts, r.restarts())
	}
}

// The job receives its end once: a node that fails while the job ends does not change it.
func TestRulesASuccessCancelsARestart(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.exit(1, exit{code: 1}, "restart1")
	actions := s.c.exited(s.now, 0, won)
	s.expect("exit of 0", actions, "retire0 retire1")
	if note := noted(actions); note != "node 1 is not started again: the job has succeeded" {
		t.Error(note)
	}
	if r := s.end(control.Success, 0); r.Restarts != 0 || r.restarts() != "" {
		t.Errorf("%d restarts, %q", r.Restarts, r.restarts())
	}
}

// wonWithAll is the end of a node that has succeeded under task.WaitForAll.
var wonWithAll = exit{outcome: &control.Outcome{Kind: control.Success, All: true}}

func TestRulesASuccessUnderWaitForAllCancelsNoRestart(t *testing.T) {
	s := newScript(t, 3, true, false)
	s.wait(0, "start0 start1 start2")
	s.exit(1, exit{code: 1}, "restart1")
	s.exit(0, wonWithAll, "retire0") // it had never met node 1; node 2 has
	s.wait(time.Second, "start1")
	s.wait(time.Minute, "") // nor does the success end the others
	s.exit(2, wonWithAll, "retire2")
	s.exit(1, wonWithAll, "retire1")
	s.end(control.Success, 0)
}

// A node that is started again when all others are done connects to no other node.
func TestRulesAFailureAfterAllAreDoneIsThatOfTheJob(t *testing.T) {
	for _, first := range []bool{true, false} {
		s := newScript(t, 2, true, false)
		s.wait(0, "start0 start1")
		if first {
			s.exit(1, exit{code: 3}, "restart1")
			s.exit(0, wonWithAll, "retire0 retire1")
		} else {
			s.exit(0, wonWithAll, "retire0")
			s.exit(1, exit{code: 3}, "restart1 retire1")
		}
		s.end(control.Failure, 3)
	}
	s := newScript(t, 2, true, false) // but there may be nodes elsewhere
	s.c.shared = true
	s.wait(0, "start0 start1")
	s.exit(1, exit{code: 3}, "restart1")
	s.exit(0, wonWithAll, "retire0")
	s.wait(time.Second, "start1")
}

func TestRulesBackoffIsBounded(t *testing.T) {
	s := newScript(t, 1, true, false)
	for attempt, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 3: 4 * time.Second, 1000: 4 * time.Second,
	} {
		if got := s.c.delay(attempt); got != want {
			t.Errorf("attempt %d: %v", attempt, got)
		}
	}
}

func TestRulesL13PreemptionAndInterruption(t *testing.T) {
	for _, c := range []struct {
		sig  syscall.Signal
		told string
		code int
	}{
		{syscall.SIGTERM, "terminated", 75},
		{syscall.SIGHUP, "terminated", 75},
		{syscall.SIGINT, "interrupt", 130},
	} {
		s := newScript(t, 2, true, false)
		s.wait(0, "start0 start1")
		s.signal(c.sig, c.told+"0 "+c.told+"1")
		s.signal(syscall.SIGTERM, "")
		s.exit(0, said(control.Preempted, c.code, 0, ""), "retire0")
		s.exit(1, exit{code: c.code}, "retire1")
		s.end(control.Preempted, c.code)
	}
}

func TestRulesANodeThatDoesNotEndInTimeIsNamed(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.signal(syscall.SIGTERM, "terminated0 terminated1")
	s.exit(0, said(control.Preempted, 75, 0, ""), "retire0")
	s.wait(10*time.Second, "kill1")
	s.exit(1, killedBy(syscall.SIGKILL), "retire1")
	if r := s.end(control.Failure, 1); r.First.Headline() != "node 1: did not end in time and was killed" {
		t.Error(r.First.Headline())
	}
}

func TestRulesSecondInterruptKills(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	s.signal(syscall.SIGINT, "interrupt0 interrupt1")
	s.signal(syscall.SIGINT, "kill0 kill1")
	s.exit(0, killedBy(syscall.SIGKILL), "retire0")
	s.exit(1, killedBy(syscall.SIGKILL), "retire1")
	s.end(control.Preempted, 130)
}

func TestRulesOneInterruptIsEnoughAfterAFailure(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	s.exit(0, exit{code: 4}, "retire0 terminated1")
	s.signal(syscall.SIGINT, "kill1")
	s.exit(1, killedBy(syscall.SIGKILL), "retire1")
	s.end(control.Failure, 4)
}

func TestRulesASignalBeforeTheStartStartsNothing(t *testing.T) {
	s := newScript(t, 2, false, false)
	s.c.begin(s.now, time.Second)
	s.wait(0, "start0")
	s.signal(syscall.SIGTERM, "retire1 terminated0")
	s.exit(0, exit{code: 75}, "retire0")
	s.end(control.Preempted, 75)
}

func TestRulesAnOutsiderPreemptsOneNode(t *testing.T) {
	s := newScript(t, 2, true, false)
	s.wait(0, "start0 start1")
	s.exit(0, said(control.Preempted, 75, 0, ""), "retire0 terminated1")
	s.exit(1, won, "retire1")
	s.end(control.Preempted, 75)
}

func TestRulesUseOutcomeAndExitCode(t *testing.T) {
	for _, c := range []struct {
		told bool
		e    exit
		want control.Kind
	}{
		{e: won, want: control.Success},
		{e: exit{}, want: control.Failure},
		{e: exit{spoke: true}, want: control.Failure},
		{told: true, e: exit{}, want: control.Preempted},
		{e: said(control.Success, 2, 0, ""), want: control.Failure},
		{e: said(control.Failure, 0, 0, ""), want: control.Failure},
		{e: said(control.Preempted, 75, 0, ""), want: control.Preempted},
		{e: said(control.Preempted, 3, 0, ""), want: control.Failure},
		{e: exit{code: 75}, want: control.Preempted},
		{e: exit{code: 130}, want: control.Failure},
		{told: true, e: exit{code: 130}, want: control.Preempted},
		{told: true, e: exit{code: 143}, want: control.Preempted},
		{told: true, e: exit{code: 1}, want: control.Failure},
		{e: killedBy(syscall.SIGTERM), want: control.Failure},
		{told: true, e: killedBy(syscall.SIGTERM), want: control.Preempted},
		{told: true, e: exit{signal: syscall.SIGTERM, code: 1}, want: control.Preempted},
		{told: true, e: killedBy(syscall.SIGINT), want: control.Preempted},
		{told: true, e: exit{signal: syscall.SIGINT, code: 1}, want: control.Preempted},
		{told: true, e: killedBy(syscall.SIGHUP), want: control.Preempted},
		{told: true, e: exit{signal: syscall.SIGKILL}, want: control.Failure},
		{told: true, e: said(control.Success, 0, 0, ""), want: control.Success},
		{e: killedBy(syscall.SIGHUP), want: control.Failure},
		{e: said(control.Preempted, 0, 0, ""), want: control.Preempted},
		{e: said(control.Preempted, 130, 0, ""), want: control.Preempted},
		{e: said(control.Failure, 75, 0, ""), want: control.Failure},
		{told: true, e: exit{err: errors.New("wait")}, want: control.Failure},
		{told: true, e: killedBy(syscall.SIGSEGV), want: control.Failure},
		{e: exit{err: errors.New("start")}, want: control.Failure},
	} {
		n := &coreNode{signalled: c.told}
		if got := (&core{}).classify(n, c.e); got != c.want {
			t.Errorf("%+v, asked to end %v: %s, want %s", c.e, c.told, got, c.want)
		}
	}
}

// A message that is read late does not extend the silence of its node.
func TestRulesALaterSignOfLifeCounts(t *testing.T) {
	s := newScript(t, 1, false, false)
	s.wait(0, "start0")
	for _, at := range []time.Duration{2 * time.Second, time.Second} {
		s.c.answered(0, s.now.Add(at))
	}
	if got := s.c.nodes[0].receivedAt.Sub(s.now); got != 2*time.Second {
		t.Errorf("received last after %v", got)
	}
}

func TestRulesAnExitWithoutAnOutcomeIsAFailure(t *testing.T) {
	for _, c := range []struct {
		main  string
		spoke bool
		want  string
	}{
		{"", false,
			"node 1 failed: exit code 0: the program did not call parallel.Main: pass the node's function to parallel.Main, or run a " +
				"program that is not a node without ditask"},
		{"Play", false,
			"node 1 failed: exit code 0: the program did not call parallel.Main, so --main Play had no effect: pass the function to " +
				"parallel.Main, or run a program that is not a node without ditask"},
		{"Play", true,
			"node 1 failed: exit code 0: the program ended before its function returned: return from the function instead of calling os.Exit"},
	} {
		s := newScript(t, 2, false, false)
		s.c.main = c.main
		s.wait(0, "start0 start1")
		s.exit(1, exit{spoke: c.spoke}, "retire1 terminated0")
		s.exit(0, exit{code: 75}, "retire0")
		if r := s.end(control.Failure, 1); r.First.Headline() != c.want {
			t.Errorf("got %q", r.First.Headline())
		}
	}
}

func TestFailureHasItsReasonOnce(t *testing.T) {
	outcome := &control.Outcome{Kind: control.Failure, Node: 2, Error: "no memory\nstack"}
	for _, c := range []struct {
		f    Failure
		want string
	}{
		{Failure{Node: 2, Cause: 2, Role: "learner", ExitCode: 1, Error: "no memory\nstack\n"},
			"node 2 (learner) failed: exit code 1: no memory; the job ends\nstack"},
		{newFailure(coreNode{id: 2}, exit{code: 1, outcome: outcome, lines: append([]string{"x", "error: no memory"}, make([]string, 100)...)}),
			"node 2 failed: exit code 1; the job ends"},
		{Failure{Node: 2, Cause: 2, Attempt: 3, ExitCode: 137, Signal: "killed", Lines: []string{"a", "b"}},
			"node 2, attempt 3, failed: killed; the job ends"},
		{Failure{Node: 2, Cause: 2, ExitCode: 4}, "node 2 failed: exit code 4; the job ends"},
		{Failure{Node: 2, Cause: 2, ExitCode: 137, ours: true, Error: "did not answer"}, "node 2: did not answer; the job ends"},
	} {
		if got := c.f.line("; the job ends"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestReportIsOneLineWithTheExitCode(t *testing.T) {
	one, two := []NodeResult{{ID: 2}}, []NodeResult{{ID: 2}, {ID: 3}}
	for _, c := range []struct {
		f     Failure
		nodes []NodeResult
		want  string
	}{
		{Failure{Node: 2, Cause: 2, ExitCode: 1, Error: "no memory\nstack\n", Lines: []string{"a"}}, two,
			"the job failed because of node 2: exit code 1\n"},
		{Failure{Node: 2, Cause: 9, ExitCode: 1, Error: "node 9 failed: no memory"}, two, "the job failed because of node 9: exit code 1\n"},
		{Failure{Node: 2, Cause: 2, ExitCode: 137, Signal: "killed", Lines: []string{"a", "b"}}, two,
			"the job failed because of node 2: exit code 137; the last lines of node 2:\n    a\n    b\n"},
		{Failure{Node: 2, Cause: 2, ExitCode: 137, Signal: "killed", Lines: []string{"a", "b"}}, one,
			"the job failed because of node 2: exit code 137\n"},
		{Failure{Node: 2, Cause: 2, ExitCode: 0, Error: "the program did not call parallel.Main"}, one,
			"the job failed because of node 2: exit code 1\n"},
	} {
		var b strings.Builder
		if err := (Result{Kind: control.Failure, First: &c.f, Nodes: c.nodes}).Report(&b); err != nil || b.String() != c.want {
			t.Errorf("got %q, want %q", b.String(), c.want)
		}
	}
	var b strings.Builder
	if err := (Result{}).Report(&b); err != nil || b.Len() > 0 {
		t.Errorf("of a success: %q", b.String())
	}
}

// The reason of one failure is in the notes once, whichever of its consequences comes
// before it, and so is that of another launcher's node.
func TestRulesLogEachFailureOnce(t *testing.T) {
	s := newScript(t, 3, false, false)
	s.wait(0, "start0 start1 start2")
	var notes []string
	for _, e := range []struct {
		node int
		exit exit
	}{
		{2, said(control.Failure, 1, 1, "node.2: node 1 failed: no memory")},
		{1, said(control.Failure, 3, 1, "no memory")},
		{0, said(control.Failure, 1, 1, "node.0: node 1 failed: no memory")},
	} {
		if note := noted(s.c.exited(s.now, e.node, e.exit)); note != "" {
			notes = append(notes, note)
		}
	}
	want := []string{"node 2 failed because of node 1: exit code 1; the job ends", "node 1 failed: exit code 3: no memory"}
	if !slices.Equal(notes, want) {
		t.Errorf("got %q, want %q", notes, want)
	}
	s = newScript(t, 2, false, false)
	s.wait(0, "start0 start1")
	away := "node 1 failed because of node 9: exit code 1: node.1: node 9 failed: no memory; the job ends"
	if note := noted(s.c.exited(s.now, 1, said(control.Failure, 1, 9, "node.1: node 9 failed: no memory"))); note != away {
		t.Errorf("of another launcher: %q", note)
	}
}
