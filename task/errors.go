package task

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// The conditions that callers test for with errors.Is.
var (
	// ErrNotStarted is wrapped by the errors of calls that need a started task: call Start or Run first.
	ErrNotStarted = errors.New("task is not started")
	// ErrClosed is wrapped by the errors of calls after the task has been closed.
	ErrClosed = errors.New("task is closed")
	// ErrFinished is the cause with which waits and blocked emits end once the
	// task has finished.
	ErrFinished = errors.New("task is finished")
	// ErrPreempted is wrapped by the error of every preemption.
	ErrPreempted = errors.New("task is preempted")
)

// PreemptError means that a run was asked to end, as by SIGTERM. To preempt a run from outside, cancel
// Run's context with one as the cause. Where nodes may come and go (see [Bus]), the other nodes
// continue without this one, which first receives all messages that they had for it; otherwise the
// whole job is preempted. It wraps [ErrPreempted].
type PreemptError struct {
	Node   int    // id of the node that was preempted first
	Reason string // such as "SIGTERM"
}

// Error names the node and the reason.
func (e *PreemptError) Error() string {
	return fmt.Sprintf("%v on node %d: %s", ErrPreempted, e.Node, e.Reason)
}

// Unwrap returns [ErrPreempted].
func (e *PreemptError) Unwrap() error { return ErrPreempted }

// RemoteError means that another node of the job failed, which ends this one.
type RemoteError struct {
	Node   int    // id of the node that failed
	Reason string // its error
}

// Error names the node and its error.
func (e *RemoteError) Error() string {
	return fmt.Sprintf("node %d failed: %s", e.Node, e.Reason)
}

// ListenerError is an error or a panic of an event's listener.
type ListenerError struct {
	Event    string // name of the event
	Listener string // given by [Named], or the name of the function
	Err      error  // its error, or its panic
	Stack    []byte // of the panic; nil for an error
}

// Error names event and listener, and ends with the stack of a panic.
func (e *ListenerError) Error() string {
	s := fmt.Sprintf("listener %s of event %q: %v", e.Listener, e.Event, e.Err)
	if e.Stack != nil {
		s += "\n" + string(e.Stack)
	}
	return s
}

// Unwrap returns the error or the panic of the listener.
func (e *ListenerError) Unwrap() error { return e.Err }

// PanicError is a panic of a middleware or of a finish hook.
type PanicError struct {
	Name  string   // of the function, such as "rl.Collect"
	Node  int      // id of the node
	Roles []string // roles of the node; nil if it has all
	Value any      // the value of the panic
	Stack []byte   // of the goroutine that panicked
}

// Error names the function, the node and its roles, and ends with the stack.
func (e *PanicError) Error() string {
	roles := "all roles"
	if e.Roles != nil {
		roles = "roles " + strings.Join(e.Roles, ", ")
	}
	return fmt.Sprintf("%s panicked on node %d (%s): %v\n%s", e.Name, e.Node, roles, e.Value, e.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// WaitError means that a wait for an event ended without it.
type WaitError struct {
	Event string // name of the event
	Node  int    // id of this node, which may emit the event too
	Peers []int  // ids of the other nodes that could have sent it
	Err   error  // the cause with which the context ended, or [ErrFinished]
}

// Error names the event and the nodes that could have sent it.
func (e *WaitError) Error() string {
	return fmt.Sprintf("wait for event %q from %s: %v", e.Event, senders(e.Node, e.Peers), e.Err)
}

// Unwrap returns the cause.
func (e *WaitError) Unwrap() error { return e.Err }

func senders(self int, peers []int) string {
	s := "this node (" + strconv.Itoa(self) + ")"
	for _, p := range peers {
		s += ", node " + strconv.Itoa(p)
	}
	return s
}

// PayloadError means that a message from another node is not of the event's type: its payload
// does not decode.
type PayloadError struct {
	Event   string // name of the event
	Node    int    // id of the node that sent it
	Version uint64 // its number among those of its sender and event
	Err     error  // of the codec
}

// Error names the event, the message and its sender.
func (e *PayloadError) Error() string {
	return fmt.Sprintf("event %q, message %d from node %d: %v", e.Event, e.Version, e.Node, e.Err)
}

// Unwrap returns the error of the codec.
func (e *PayloadError) Unwrap() error { return e.Err }

// carries reports whether err is target or wraps it. Errors of types that cannot be compared,
// such as slices, are distinguished by text. An err that is not nil carries no nil.
func carries(err, target error) bool {
	return errors.Is(err, target) || target != nil && !reflect.TypeOf(target).Comparable() && err.Error() == target.Error()
}

// panicValue turns a recovered value into an error, keeping what it wraps.
func panicValue(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w", err)
	}
	return fmt.Errorf("panic: %v", v)
}

// Calls that come twice.
var (
	errStarted = errors.New("start: task is started already")
	errRan     = fmt.Errorf("run: the task has been run: %w", ErrClosed)
)
