package launch

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// The exit codes that a node gives a meaning, besides 0.
const (
	codePreempted   = 75  // drained and checkpointed after SIGTERM
	codeInterrupted = 130 // the same after SIGINT
)

// core is the rules of supervision, without processes and without a clock: it
// receives events with their times, and returns actions. It is for one
// goroutine.
type core struct {
	recover     bool
	maxRetries  int
	backoff     time.Duration
	maxBackoff  time.Duration
	grace       time.Duration
	silence     time.Duration // how long a ready node may be silent
	independent bool          // a success does not end the others
	main        string        // the function that the user asked for; empty: none
	shared      bool          // other launchers have nodes in the job, which must learn of the end of a process
	replaced    bool          // no failure of a node is its last: the launcher is started again

	nodes    []coreNode
	phase    phase
	deadline time.Time      // when the phase has lasted too long; zero: never
	ticked   time.Time      // the last tick; zero: none
	signal   syscall.Signal // the first signal that was received; 0: none
	finished bool           // a node had succeeded before anything went wrong
	all      bool           // a node has succeeded whose job ends when all nodes are done
	forced   bool           // the user wanted the nodes killed
	failures []Failure      // in order of time, restarted ones left out
}

// phase of a job. It only grows.
type phase int

const (
	running   phase = iota
	finishing       // a node has succeeded: the others may end by themselves
	stopping        // all nodes were signalled to end
	killing         // all were killed
)

// coreNode is one node as the rules see it.
type coreNode struct {
	id           int
	state        nodeState
	startAt      time.Time // while pending
	attempt      int       // of the current or next start
	starts       int       // so far
	receivedAt   time.Time // time of its newest message; zero: it has not been ready
	signalled    bool      // was sent a signal to end
	killed       bool      // was killed by the launcher
	unresponsive bool      // the same, because it did not answer
	verdict      control.Kind
	code         int
	last         Failure // after which it is started again
}

type nodeState int

const (
	pending nodeState = iota // waits for its start
	alive
	ended
)

// exit describes the end of one process.
type exit struct {
	code    int              // exit code; 128 + signal if a signal ended it
	signal  syscall.Signal   // 0: it exited
	outcome *control.Outcome // the outcome that the node has reported; nil: none
	spoke   bool             // the node has opened its control socket
	err     error            // it could not be started
	lines   []string         // its last lines
	role    string
}

// action is one thing to do.
type action struct {
	do     verb
	node   int            // index in nodes
	signal syscall.Signal // with sendSignal
	note   string         // with logNote; the reason, with lose and part
	final  bool           // with lose and part: the job has failed
}

type verb int

const (
	start      verb = iota // start the node, as its attempt
	sendSignal             // send the node a signal
	kill                   // kill the node's process group
	retire                 // the node will not be started again
	logNote                // write the note to the log
	restart                // the node will be started again later
	lose                   // notify the other nodes that the process of this one has ended
	part                   // notify the nodes of other launchers of it
)

func newCore(cfg Config, ids []int, independent bool) *core {
	c := &core{
		recover: cfg.Env.AutoRecover, maxRetries: cfg.MaxRetries,
		backoff: cfg.Backoff, maxBackoff: cfg.MaxBackoff, grace: cfg.Env.Grace,
		silence: cfg.Silence, independent: independent, main: cfg.Env.Main,
	}
	for _, id := range ids {
		c.nodes = append(c.nodes, coreNode{id: id})
	}
	return c
}

// begin plans the first starts, interval apart.
func (c *core) begin(now time.Time, interval time.Duration) {
	for i := range c.nodes {
		c.nodes[i].startAt = now.Add(time.Duration(i) * interval)
	}
}

// done reports whether all nodes have ended.
func (c *core) done() bool {
	return !slices.ContainsFunc(c.nodes, func(n coreNode) bool { return n.state != ended })
}

// next returns the time of the next due action; zero: none.
func (c *core) next() time.Time {
	at := c.deadline
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for _, n := range c.nodes {
		switch {
		case n.state == pending:
			sooner(n.startAt)
		case n.state == alive && c.phase == running:
			sooner(c.ticked.Add(c.every()))
			if at := n.receivedAt.Add(c.silence); !n.receivedAt.IsZero() && at.After(c.ticked) {
				sooner(at)
			}
		}
	}
	return at
}

// every is the longest interval between two checks of the nodes' answers.
func (c *core) every() time.Duration { return c.silence / 4 }

// answered records the time of the newest message of a node's current attempt, which has been ready.
func (c *core) answered(i int, at time.Time) {
	if n := &c.nodes[i]; at.After(n.receivedAt) {
		n.receivedAt = at
	}
}

// tick performs the actions that are due.
func (c *core) tick(now time.Time) []action {
	var out []action
	for i := range c.nodes {
		if n := &c.nodes[i]; n.state == pending && !n.startAt.After(now) {
			n.state, n.receivedAt = alive, time.Time{}
			n.starts++
			out = append(out, action{do: start, node: i})
		}
	}
	out = append(out, c.killUnresponsive(now)...)
	if c.deadline.IsZero() || c.deadline.After(now) {
		return out
	}
	switch c.phase {
	case finishing:
		out = append(out, c.stop(now, syscall.SIGTERM, c.grace,
			fmt.Sprintf("%s still running %v after the first success: SIGTERM", c.aliveIDs(), c.grace))...)
	case stopping:
		out = append(out, c.killAll(fmt.Sprintf("%s did not end in time: killed", c.aliveIDs()))...)
	}
	return out
}

// killUnresponsive kills the nodes that have not answered for too long: that is their failure. The
// time for which the launcher itself did not run does not count.
func (c *core) killUnresponsive(now time.Time) []action {
	slept := time.Duration(0)
	if between := now.Sub(c.ticked); !c.ticked.IsZero() && between >= 2*c.every() {
		slept = between - c.every()
	}
	c.ticked = now
	var out []action
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.state != alive || n.receivedAt.IsZero() {
			continue
		}
		if n.receivedAt = n.receivedAt.Add(slept); n.receivedAt.After(now) {
			n.receivedAt = now
		}
		if c.phase == running && !n.unresponsive && now.Sub(n.receivedAt) >= c.silence {
			n.unresponsive = true
			out = append(out, action{do: kill, node: i})
		}
	}
	return out
}

// received handles a signal to the launcher itself.
func (c *core) received(now time.Time, sig syscall.Signal) []action {
	again := c.signal != 0 || c.phase >= stopping
	if c.signal == 0 {
		c.signal = sig
	}
	switch {
	case again && sig == syscall.SIGINT:
		c.forced = true
		return c.killAll("interrupted again: killed")
	case again:
		return nil
	}
	forward, hint := syscall.SIGTERM, ""
	if sig == syscall.SIGINT {
		forward, hint = sig, "; interrupt again to kill them"
	}
	return c.stop(now, forward, c.grace, fmt.Sprintf("%s: the nodes have %v to end%s", signalName(sig), c.grace, hint))
}

// exited handles the end of a node's process.
func (c *core) exited(now time.Time, i int, e exit) []action {
	n := &c.nodes[i]
	n.state = ended
	n.code = e.code
	n.verdict = c.classify(n, e)
	switch n.verdict {
	case control.Success:
		return slices.Concat(c.retired(i), c.succeeded(now, e.outcome.All), c.forsake())
	case control.Preempted:
		here, elsewhere := e.reason(""), ""
		if c.announces(e) {
			elsewhere = here
		}
		return slices.Concat(c.lost(i, e, here, elsewhere, false), c.retired(i), c.preempted(now))
	default:
		return append(c.failed(now, i, e), c.forsake()...)
	}
}

// lost announces an end without a leave, before anything else is done: the other nodes, and
// those of other launchers unless elsewhere, the reason for them, is empty. They would wait
// for the node until it has been silent for long. A node that has reported its success or
// its preemption has taken leave.
func (c *core) lost(i int, e exit, here, elsewhere string, final bool) []action {
	if e.outcome != nil && e.outcome.Kind != control.Failure {
		return nil
	}
	if e.err != nil && !final { // there was no process, and there will be one
		return nil
	}
	out := []action{{do: lose, node: i, note: here, final: final}}
	if elsewhere != "" {
		out = append(out, action{do: part, node: i, note: elsewhere, final: final})
	}
	return out
}

// announces reports whether the nodes of other launchers are to learn of an end now: not
// where they know that the job has failed, nor after this launcher signalled its nodes to end.
func (c *core) announces(e exit) bool {
	return c.shared && c.phase < stopping && (e.outcome == nil || !e.outcome.Over)
}

// reason describes an exit to the other nodes: as a signal or an exit code, and said if
// the launcher has a reason of its own. The log has the node's reason once, without them.
func (e exit) reason(said string) string {
	how := fmt.Sprintf("exit code %d", e.code)
	if e.signal != 0 {
		how = "killed by signal: " + e.signal.String()
	}
	head, _, _ := strings.Cut(said, "\n")
	return strings.TrimSuffix(how+": "+head, ": ")
}

func (c *core) retired(i int) []action { return []action{{do: retire, node: i}} }

// classify returns the meaning of an exit: the outcome that the node has reported,
// unless the exit code contradicts it. A success needs an outcome: a process that
// exits with code 0 and reports none has crashed in the middle of its work, or was
// never a node. Only a node that was signalled to end may exit with 0 and no outcome.
func (c *core) classify(n *coreNode, e exit) control.Kind {
	asked := n.signalled && (e.signal == syscall.SIGTERM || e.signal == syscall.SIGINT || e.signal == syscall.SIGHUP ||
		e.code == codeInterrupted || e.code == 128+int(syscall.SIGTERM) || e.code == 0 && e.signal == 0 && e.outcome == nil)
	switch {
	case e.err != nil:
		return control.Failure
	case e.outcome != nil && e.outcome.Kind == control.Failure:
		return control.Failure
	case e.outcome != nil && e.outcome.Kind == control.Success && e.code == 0:
		return control.Success
	case e.outcome != nil && e.outcome.Kind == control.Preempted && (e.code == 0 || e.code == codePreempted || e.code == codeInterrupted):
		return control.Preempted
	case e.outcome == nil && e.code == codePreempted, asked:
		return control.Preempted
	}
	return control.Failure
}

// preempted ends the job as SIGTERM would: a node that this launcher did not stop was
// stopped by another process.
func (c *core) preempted(now time.Time) []action {
	if c.phase != running {
		return nil
	}
	c.signal = syscall.SIGTERM
	return c.stop(now, syscall.SIGTERM, c.grace, "")
}

func (c *core) failed(now time.Time, i int, e exit) []action {
	f, tells, before := c.failure(i, e), c.announces(e), len(c.failures)
	then := c.afterFailure(now, i, e, f)
	final := len(c.failures) > before && !c.replaced
	here, elsewhere := e.reason(""), ""
	if f.ours { // the signal alone does not tell why
		here = e.reason(f.Error)
	}
	switch {
	case !tells:
	case final: // their logs do not have the error of the node
		elsewhere = e.reason(f.Error) + f.after()
	case c.nodes[i].state == pending:
		elsewhere = here + ", and will be restarted"
	default:
		elsewhere = here
	}
	return append(c.lost(i, e, here, elsewhere, final), then...)
}

// failure describes the failure of a node.
func (c *core) failure(i int, e exit) Failure {
	n := &c.nodes[i]
	f := newFailure(*n, e)
	if e.code == 0 && e.outcome == nil && e.err == nil {
		f.Error = c.unreported(e)
	}
	if f.Cause != f.Node { // the log has the reason from that node, if it is one of this launcher
		f.logged = f.logged || slices.ContainsFunc(c.nodes, func(n coreNode) bool { return n.id == f.Cause })
	}
	switch {
	case e.signal != syscall.SIGKILL:
	case n.unresponsive:
		f.Error, f.ours, f.logged = fmt.Sprintf("did not answer for %v and was killed", c.silence), true, false
	case n.killed:
		// It is reported only if nothing else went wrong.
		f.Error, f.ours, f.late, f.logged = "did not end in time and was killed", true, true, false
	}
	return f
}

// afterFailure decides how the job continues after a failure of a node.
func (c *core) afterFailure(now time.Time, i int, e exit, f Failure) []action {
	n := &c.nodes[i]
	if n.killed && c.forced && e.signal == syscall.SIGKILL {
		n.verdict = control.Preempted
		return c.retired(i)
	}
	if c.finished && (f.ours || c.blamesSuccess(f)) {
		return append(c.retired(i), action{do: logNote, note: f.line("; the job had succeeded before")})
	}
	over := e.outcome != nil && e.outcome.Over
	if c.recover && c.phase == running && n.attempt < c.maxRetries && !over {
		delay := c.delay(n.attempt)
		n.state, n.startAt, n.unresponsive, n.last = pending, now.Add(delay), false, f
		n.attempt++
		return []action{
			{do: restart, node: i},
			{do: logNote, note: f.line(fmt.Sprintf("; restart %d of %d in %v", n.attempt, c.maxRetries, delay))},
		}
	}
	c.failures = append(c.failures, f)
	out := c.retired(i)
	switch {
	case c.phase < stopping:
		out = append(out, c.stop(now, syscall.SIGTERM, min(c.grace, failGrace), f.line("; the job ends"))...)
	case f.Cause == f.Node && !f.late: // killAll has named those that were killed late
		out = append(out, action{do: logNote, note: f.line("")})
	}
	return out
}

// unreported describes an exit with code 0 that no outcome explains.
func (c *core) unreported(e exit) string {
	const helper = ", or run a program that is not a node without ditask"
	switch {
	case e.spoke:
		return "the program ended before its function returned: return from the function instead of calling os.Exit"
	case c.main != "":
		return fmt.Sprintf("the program did not call parallel.Main, so --main %s had no effect: "+
			"pass the function to parallel.Main", c.main) + helper
	}
	return "the program did not call parallel.Main: pass the node's function to parallel.Main" + helper
}

// blamesSuccess reports whether a node has failed only because another one, which
// has ended with success, is gone.
func (c *core) blamesSuccess(f Failure) bool {
	return f.Cause != f.Node && slices.ContainsFunc(c.nodes, func(n coreNode) bool {
		return n.id == f.Cause && n.state == ended && n.verdict == control.Success
	})
}

// delay is the back-off before the restart that follows an attempt.
func (c *core) delay(attempt int) time.Duration {
	d := c.backoff
	for range attempt {
		if d >= c.maxBackoff/2 {
			return c.maxBackoff
		}
		d *= 2
	}
	return min(d, c.maxBackoff)
}

// stop signals all nodes to end.
func (c *core) stop(now time.Time, sig syscall.Signal, grace time.Duration, note string) []action {
	c.phase, c.deadline = stopping, now.Add(grace)
	out := c.cancelStarts()
	if note != "" {
		out = append(out, action{do: logNote, note: note})
	}
	for i := range c.nodes {
		if n := &c.nodes[i]; n.state == alive {
			n.signalled = true
			out = append(out, action{do: sendSignal, node: i, signal: sig})
		}
	}
	return out
}

func (c *core) killAll(note string) []action {
	c.phase, c.deadline = killing, time.Time{}
	out := c.cancelStarts()
	if slices.ContainsFunc(c.nodes, func(n coreNode) bool { return n.state == alive }) {
		out = append(out, action{do: logNote, note: note})
	}
	for i := range c.nodes {
		if n := &c.nodes[i]; n.state == alive {
			n.killed = true
			out = append(out, action{do: kill, node: i})
		}
	}
	return out
}

// cancelStarts ends the nodes that wait for a start.
func (c *core) cancelStarts() []action {
	var out []action
	for i := range c.nodes {
		if n := &c.nodes[i]; n.state == pending {
			n.state = ended
			out = append(out, c.retired(i)...)
		}
	}
	return out
}

func (c *core) aliveIDs() string {
	var ids []int
	for _, n := range c.nodes {
		if n.state == alive {
			ids = append(ids, n.id)
		}
	}
	return nodesText(ids)
}

// result returns the result of the job, once it is done.
func (c *core) result() Result {
	r := Result{First: first(c.failures), Deadline: c.deadline, signal: c.signal, forced: c.forced, leaves: c.recover && c.shared}
	success := true
	for _, n := range c.nodes {
		restarts := max(n.starts-1, 0)
		r.Restarts += restarts
		r.Nodes = append(r.Nodes, NodeResult{ID: n.id, Kind: n.verdict, ExitCode: n.code, Restarts: restarts})
		success = success && n.verdict == control.Success
	}
	switch {
	case r.First != nil:
		r.Kind = control.Failure
	case c.signal != 0 && !success && !c.finished:
		r.Kind = control.Preempted
	default:
		r.Kind = control.Success
	}
	return r
}

// first chooses the failure that caused all others: a node's own before one that a node blames on
// another, unless the blamed one has failed too.
func first(failures []Failure) *Failure {
	if len(failures) == 0 {
		return nil
	}
	at := 0
	if f := failures[0]; f.Cause != f.Node {
		at = max(at, slices.IndexFunc(failures, func(g Failure) bool { return g.Cause == g.Node && !g.late }))
		at = max(at, slices.IndexFunc(failures, func(g Failure) bool { return g.Node == f.Cause && g.Cause == g.Node && !g.late }))
	}
	f := failures[at]
	return &f
}
