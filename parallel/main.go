package parallel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"strings"
	"time"

	"github.com/ditask/ditask/internal/printable"
	"github.com/ditask/ditask/parallel/connect"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// The exit codes of a node.
const (
	ExitSuccess   = 0  // done
	ExitFailure   = 1  // an error or a panic, this node's or another's
	ExitUsage     = 2  // the environment is invalid
	ExitPreempted = 75 // stopped: drained, and saved by its hooks; may be run again
)

// Main runs one of fns as this process's node and exits. The environment gives the node's id; without
// one the process runs alone. DITASK_MAIN names the function; without it, or with "main", Main runs
// the first one.
func Main(fns ...Func) {
	os.Exit(runMain(os.LookupEnv, os.Stderr, fns))
}

func runMain(lookup func(string) (string, bool), stderr io.Writer, fns []Func) int {
	env, launched, err := control.Parse(lookup)
	if err != nil {
		writeLinef(stderr, "ditask: bad environment: %v", err)
		return ExitUsage
	}
	fn, err := pick(env.Main, fns)
	if err != nil {
		writeLinef(stderr, "ditask: %v", err)
		return ExitUsage
	}
	n, err := join(env, launched, newLogger(env, launched, stderr))
	if err != nil {
		writeLinef(stderr, "ditask: node.%d: %v", env.NodeID, err)
		return ExitUsage
	}
	client, err := control.Open(env)
	if err != nil {
		writeLinef(stderr, "ditask: node.%d: %v", env.NodeID, err)
		return ExitUsage
	}
	p := newProcess(n, client, stderr)
	defer p.close()
	return p.run(fn)
}

// Join makes the node that the environment describes, read through lookup, which
// is os.LookupEnv in a program; without one, a lone node. It is for programs that
// cannot leave their process to [Main]: they answer to signals themselves, and end
// with [Node.End].
func Join(lookup func(string) (string, bool), log *slog.Logger) (*Node, error) {
	env, launched, err := control.Parse(lookup)
	if err != nil {
		return nil, err
	}
	return join(env, launched, log)
}

// End reports to the launcher, if there is one, that the program of a node that was
// made by [Join] has ended with err, and returns the exit code that goes with it:
//
//	os.Exit(node.End(err))
//
// Without that report an exit with code 0 is a failure to the launcher. End logs a
// failure to write the report, and is called once, at the end of the program.
func (n *Node) End(err error) (code int) {
	client, openErr := control.Open(n.env)
	if openErr != nil {
		n.log.Error("no report to the launcher", "err", openErr)
		client = &control.Client{}
	}
	defer n.releaseFolder()
	p := newProcess(n, client, os.Stderr)
	defer p.close()
	return p.ended(err)
}

func join(env control.Env, launched bool, log *slog.Logger) (*Node, error) {
	if !launched {
		env.JobID, env.Nodes = "local", 1
	}
	run, lock, err := ownFolder(&env, launched, log)
	if err != nil {
		return nil, err
	}
	if env.Replay != "" {
		return newNode(env, nil, log), nil
	}
	if !launched || env.Nodes == 1 && len(env.Attach) == 0 {
		if env.Trace != "" {
			log.Warn("nothing is recorded: a lone node has no other to receive from")
		}
		n := newNode(env, nil, log)
		n.runID, n.lock = run, lock
		return n, nil
	}
	rec, err := record(env, log)
	if err != nil {
		return nil, err
	}
	r, below, err := newRouter(env, rec, log)
	if err != nil {
		return nil, err
	}
	n := newNode(env, r, log)
	n.bus.rec = rec
	n.bus.below = below
	return n, nil
}

// pick finds the function that name names.
func pick(name string, fns []Func) (Func, error) {
	if len(fns) == 0 {
		return nil, errors.New("parallel.Main has no function to run")
	}
	if name == "" || name == "main" {
		return fns[0], nil
	}
	var have []string
	for _, fn := range fns {
		full := runtime.FuncForPC(reflect.ValueOf(fn).Pointer()).Name()
		short := full[strings.LastIndexByte(full, '.')+1:]
		if name == short || name == full {
			return fn, nil
		}
		have = append(have, short)
	}
	return nil, fmt.Errorf("no function %q: parallel.Main was given %s", name, strings.Join(have, ", "))
}

func newLogger(env control.Env, launched bool, w io.Writer) *slog.Logger {
	drop := func(_ []string, a slog.Attr) slog.Attr { // the launcher's lines have a time of their own
		if a.Key == slog.TimeKey && launched {
			return slog.Attr{}
		}
		return a
	}
	opts := &slog.HandlerOptions{ReplaceAttr: drop}
	if env.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(printable.JSONWriter(w), opts)).With("node", env.NodeID)
	}
	return slog.New(slog.NewTextHandler(printable.Writer(w), opts))
}

// maxSaid bounds in bytes a message of the node itself on stderr: an error with its stack.
const maxSaid = 64 << 10

// writeLinef writes a line, or several, of the node itself. Errors may hold text from outside.
func writeLinef(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintln(w, printable.Block(fmt.Sprintf(format, args...), maxSaid)) // an error cannot be reported
}

// newRouter makes the router that env asks for, and what is to be called after it.
func newRouter(env control.Env, rec *recorder, log *slog.Logger) (*router.Router, func(), error) {
	if rec == nil {
		return connect.Router(env, nil, log)
	}
	r, below, err := connect.Router(env, rec, log)
	if err != nil {
		return nil, nil, err
	}
	r.Watch(rec.changed)
	return r, below, nil
}

// process is this process as a node.
type process struct {
	node   *Node
	client *control.Client
	stderr io.Writer
	losses losses

	preempted error // how it ended, if it was preempted and that is not written yet
}

func newProcess(n *Node, client *control.Client, stderr io.Writer) *process {
	return &process{node: n, client: client, stderr: stderr, losses: losses{node: n, client: client}}
}

// close ends the connection with the launcher, which has received the outcome. All messages of the
// launcher have been read then: if the job has failed, they give the reason why this node was
// preempted.
func (p *process) close() {
	_ = p.client.Close()
	p.logPreempted()
}

// logPreempted writes once why a preempted node has ended.
func (p *process) logPreempted() {
	p.losses.rest()
	switch failed := p.losses.failed; {
	case p.preempted == nil:
	case failed != nil:
		writeLinef(p.stderr, "%s: ended, because node %d failed", p.node.name(), failed.Node)
	default:
		writeLinef(p.stderr, "%v", p.preempted)
	}
	p.preempted = nil
}

func (p *process) run(fn Func) int {
	orders := newOrders(p.node.env, p.client)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan error, 1) // one result
	go func() { done <- call(ctx, p.node, fn) }()
	defer during((&reporter{node: p.node, client: p.client}).run)()
	defer during(p.losses.run)()
	o, err := orders.await(done)
	if o == nil {
		return p.ended(err)
	}
	cancel(&task.PreemptError{Node: p.node.ID(), Reason: o.reason})
	code := p.within(orders, o.limit, done)
	if o.gone { // the client has removed the socket
		if p.preempted != nil {
			writeLinef(p.stderr, "%v", p.preempted)
		}
		control.KillGroup()
	}
	return code
}

// within waits up to a limit for the end of a function that was asked to end.
func (p *process) within(o *orders, limit time.Duration, done <-chan error) int {
	missed, err := o.within(limit, done)
	if missed == "" {
		return p.ended(err)
	}
	writeLinef(p.stderr, "%s: %s", p.node.name(), missed)
	_ = p.client.Outcome(control.Outcome{Kind: control.Failure, Node: p.node.ID(), Error: "did not end within the grace period"})
	return ExitFailure
}

// ended describes how the function ended, and returns the exit code.
func (p *process) ended(err error) int {
	o := control.Outcome{Kind: control.Success, Node: cause(err, p.node.ID()), Over: failedElsewhere(err) || p.node.hasTold()}
	o.All = err == nil && p.node.bus != nil && p.node.bus.all.Load()
	code := ExitSuccess
	switch {
	case errors.Is(err, task.ErrPreempted):
		o.Kind, code, p.preempted = control.Preempted, ExitPreempted, err
	case err != nil:
		o.Kind, o.Error, code = control.Failure, err.Error(), ExitFailure
		writeLinef(p.stderr, "%s", p.lastWords(err, o))
	}
	_ = p.client.Outcome(o)
	return code
}

// lastWords returns the message that a node writes about its failure. Where another node has failed, the log
// has its error already: that node, or else the launcher of this one, writes it.
func (p *process) lastWords(err error, o control.Outcome) string {
	switch {
	case o.Node == p.node.ID():
		return strings.TrimRight(o.Error, "\n")
	case failedElsewhere(err) && p.node.env.ControlFD != 0:
		return fmt.Sprintf("%s: ended, because node %d failed", p.node.name(), o.Node)
	}
	head, _, _ := strings.Cut(o.Error, "\n")
	return head
}

// failedElsewhere reports whether an error is that of another node, and all nodes know it.
func failedElsewhere(err error) bool {
	_, remote := errors.AsType[*task.RemoteError](err)
	_, lost := errors.AsType[*router.FailedError](err)
	return remote || lost
}

// cause is the node that an error of node own comes from.
func cause(err error, own int) int {
	if _, ok := errors.AsType[*router.RefusedError](err); ok {
		return own // the others do not want it, whatever it has lost by that
	}
	if remote, ok := errors.AsType[*task.RemoteError](err); ok {
		return remote.Node
	}
	if lost, ok := errors.AsType[*router.PeerError](err); ok {
		return lost.Node
	}
	return own
}
