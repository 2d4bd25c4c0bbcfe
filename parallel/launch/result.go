package launch

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// Result describes the end of a job, for the nodes of this launcher.
type Result struct {
	Kind     control.Kind // of the job
	First    *Failure     // the first failure, with Kind Failure
	Restarts int          // of all nodes together
	Nodes    []NodeResult // in order of local id
	Deadline time.Time    // when nodes that had not ended would have been signalled or killed; zero: none were to end, or all were killed

	signal syscall.Signal
	forced bool // the user wanted the nodes killed
	leaves bool // the job continues with the nodes of other launchers
}

// NodeResult describes the end of one node.
type NodeResult struct {
	ID       int
	Kind     control.Kind // of its last attempt; empty: it was never started
	ExitCode int          // of its last attempt; 128 + signal if a signal ended it
	Restarts int
}

// Failure is one failure of one node.
type Failure struct {
	Node     int      // whose process it was
	Cause    int      // the node that this one has named as the cause; Node itself unless another
	Role     string   // its roles, or else labels
	Attempt  int      // from 0
	ExitCode int      // 128 + signal if a signal ended it
	Signal   string   // such as "killed"; empty: it exited
	Error    string   // the node's own report of it; may be empty
	Lines    []string // the last lines that it wrote

	ours   bool // the launcher has killed the node: the exit code has no meaning
	late   bool // the same, at the end of the job
	logged bool // the log has the error already
}

func newFailure(n coreNode, e exit) Failure {
	f := Failure{Node: n.id, Cause: n.id, Role: e.role, Attempt: n.attempt, ExitCode: e.code, Lines: e.lines}
	if e.signal != 0 {
		f.Signal = e.signal.String()
	}
	switch {
	case e.err != nil:
		f.Error = e.err.Error()
	case e.outcome != nil && e.outcome.Kind == control.Failure:
		f.Cause, f.Error = e.outcome.Node, e.outcome.Error
	}
	head, _, _ := strings.Cut(f.Error, "\n")
	f.logged = head != "" && slices.ContainsFunc(f.Lines, func(l string) bool { return strings.Contains(l, head) })
	f.Lines = f.Lines[max(len(f.Lines)-reportLines, 0):]
	return f
}

// reportLines is the number of the last lines of a node that are reported.
const reportLines = 12

// ExitCode is the exit code for the process of the launcher: 0 success, 75
// preempted (drained and checkpointed after SIGTERM: run again with --resume), 130
// interrupted, and after a failure the code of the node that failed first, or
// 1 if that says nothing.
func (r Result) ExitCode() int {
	switch {
	case r.Kind == control.Success:
		return 0
	case r.Kind == control.Preempted && r.signal == syscall.SIGINT:
		return codeInterrupted
	case r.Kind == control.Preempted:
		return codePreempted
	case r.First == nil || r.First.ExitCode == 0 || r.First.ours:
		return 1
	}
	return r.First.ExitCode
}

// restarts describes how often which node was started again; empty: none was.
func (r Result) restarts() string {
	var out []string
	for _, n := range r.Nodes {
		if n.Restarts > 0 {
			out = append(out, fmt.Sprintf("node %d: %d", n.ID, n.Restarts))
		}
	}
	if len(out) == 0 {
		return ""
	}
	return "restarts: " + strings.Join(out, ", ")
}

// Report writes to w one line that closes the log of a job that has not succeeded, with the
// exit code: which node's failure ended the job, or that it was interrupted or preempted. The
// log has that failure, with its reason, at the place where it happened. If the node gave no
// reason, its last lines follow, unless it was the only node: the log ends with them then.
func (r Result) Report(w io.Writer) error {
	if r.Kind == control.Preempted {
		_, err := fmt.Fprintf(w, "%s: exit code %d%s\n", r.given(), r.ExitCode(), r.advice())
		return err
	}
	if r.First == nil {
		return nil
	}
	text := fmt.Sprintf("the job failed because of node %d: exit code %d", r.First.Cause, r.ExitCode())
	if f := r.First; f.Error == "" && len(f.Lines) > 0 && len(r.Nodes) > 1 {
		text += fmt.Sprintf("; the last lines of node %d:\n    %s", f.Node, strings.Join(f.Lines, "\n    "))
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

// given describes the end of a job that was stopped.
func (r Result) given() string {
	switch {
	case r.forced:
		return "the job was interrupted again, and its nodes were killed"
	case r.signal == syscall.SIGINT && r.leaves:
		return "this launcher was interrupted, and its nodes have left the job"
	case r.signal == syscall.SIGINT:
		return "the job was interrupted"
	case r.leaves:
		return "this launcher was preempted, and its nodes have left the job"
	}
	return "the job was preempted"
}

// advice describes how to continue a job that was stopped.
func (r Result) advice() string {
	if r.forced || r.leaves {
		return ""
	}
	return "; --resume continues from its checkpoints"
}

// Headline is the failure in one line: node, role, attempt, exit code or
// signal, and the first line of its error.
func (f Failure) Headline() string {
	head, _, _ := strings.Cut(f.Error, "\n")
	return strings.TrimSuffix(f.how()+": "+head, ": ")
}

func (f Failure) how() string {
	s := "node " + strconv.Itoa(f.Node)
	if f.Role != "" {
		s += " (" + f.Role + ")"
	}
	if f.Attempt > 0 {
		s += fmt.Sprintf(", attempt %d,", f.Attempt)
	}
	switch {
	case f.ours:
		return s
	case f.Cause != f.Node:
		s += fmt.Sprintf(" failed because of node %d", f.Cause)
	default:
		s += " failed"
	}
	if f.Signal != "" {
		return s + ": " + f.Signal
	}
	return fmt.Sprintf("%s: exit code %d", s, f.ExitCode)
}

// after names the attempt that has failed, if it is not the first: " (attempt 1)".
func (f Failure) after() string {
	if f.Attempt == 0 {
		return ""
	}
	return fmt.Sprintf(" (attempt %d)", f.Attempt)
}

// line is the failure as the log has it, once, followed by the consequence for the job. The reason is
// left out where the log has it already. A stack and the like stand below.
func (f Failure) line(then string) string {
	if f.logged {
		return f.how() + then
	}
	text := f.Headline() + then
	if _, rest, ok := strings.Cut(strings.TrimRight(f.Error, "\n"), "\n"); ok {
		text += "\n" + rest
	}
	return text
}

// nodesText names nodes: "node 3", "nodes 1, 2".
func nodesText(ids []int) string {
	if len(ids) == 1 {
		return "node " + strconv.Itoa(ids[0])
	}
	var words []string
	for _, id := range ids {
		words = append(words, strconv.Itoa(id))
	}
	return "nodes " + strings.Join(words, ", ")
}

func signalName(sig syscall.Signal) string {
	switch sig {
	case syscall.SIGINT:
		return "interrupted"
	case syscall.SIGTERM:
		return "SIGTERM"
	default:
		return sig.String()
	}
}
