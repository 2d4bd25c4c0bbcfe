package task

import "time"

// Option configures a task.
type Option func(*config)

type config struct {
	roles   []string
	byID    []string
	byLabel []labelRoles
	async   bool
	isolate bool
	drain   time.Duration
	hooks   time.Duration
	grace   time.Duration

	listenerGrace time.Duration

	tracer Tracer // nil: none
}

type labelRoles struct {
	glob  string
	roles []string
}

// ByID gives node 0 the first role, node 1 the second, and so on; all further
// nodes have the last one. A standalone node is given none, which is all.
func ByID(roles ...string) Option {
	if len(roles) == 0 {
		panic("task: ByID without a role")
	}
	return func(c *config) { c.byID = roles }
}

// WithRoles gives this node the roles, wherever it runs.
func WithRoles(roles ...string) Option {
	return func(c *config) { c.roles = append(c.roles, roles...) }
}

// ByLabel gives the roles to the nodes that have a label which matches glob. A
// node of a job that no rule gives a role has none; a standalone node has all.
func ByLabel(glob string, roles ...string) Option {
	return func(c *config) { c.byLabel = append(c.byLabel, labelRoles{glob: glob, roles: roles}) }
}

// Async runs the forward halves of a step concurrently and, once all have ended,
// the backward halves in reverse order, one after the other. An error of one
// cancels the context of the others. See [Locked] to keep some from overlapping.
func Async() Option { return func(c *config) { c.async = true } }

// Isolate makes every listener of the task [Isolated].
func Isolate() Option { return func(c *config) { c.isolate = true } }

// DrainTimeout bounds how long the end of a run waits for events to arrive, here
// and at the other nodes, and for listeners to return. The default is 30 s, and half of the grace period, if
// that is less, where a launcher has asked the node to end.
func DrainTimeout(d time.Duration) Option { return func(c *config) { c.drain = d } }

// HookTimeout bounds the [Task.OnFinish] hooks together. The default is 30 s.
func HookTimeout(d time.Duration) Option { return func(c *config) { c.hooks = d } }

// FinishGrace bounds how long the step in which this node called Finish may continue to wait for
// events before its context ends with [ErrFinished], as it does at once when the finish comes from
// another node. The default is 1 s.
func FinishGrace(d time.Duration) Option { return func(c *config) { c.grace = d } }

// ListenerGrace bounds how long a listener may take over one message once this
// node's step loop and hooks have ended. After it the context of this event's
// listeners ends with [ErrFinished], for this message and those that follow, and the
// log names event and listener. A listener that does not look at its context continues
// to receive every message. While a listener waits in [Event.WaitFor] or in an Emit, the
// bound is half of the drain timeout. The default is 1 s.
func ListenerGrace(d time.Duration) Option { return func(c *config) { c.listenerGrace = d } }

func newConfig(opts []Option) *config {
	c := &config{drain: 30 * time.Second, hooks: 30 * time.Second, grace: time.Second, listenerGrace: time.Second}
	for _, o := range opts {
		o(c)
	}
	return c
}

// RunOption configures one Run.
type RunOption func(*runConfig)

type runConfig struct {
	max int
	all bool // the job ends when all nodes are done
}

// MaxSteps ends the run after n steps, with success. During the last step the
// task is already finished before the first backward half. Without this option a
// run ends by Finish, its context or an error.
func MaxSteps(n int) RunOption {
	if n < 0 {
		panic("task: MaxSteps is negative")
	}
	return func(c *runConfig) { c.max = n }
}

// WaitForAll lets the job continue until all nodes are done. Without it the first success
// of a node ends the job, which is right where one node, such as a learner, knows when
// the work is done. Where all nodes do the same work, give it to all of them.
//
// Finish and MaxSteps then mean that this node is done: its steps end, and its listeners
// continue, and may emit, until every other node is done too or has left. A node without
// middleware is done at once, and so only listens. Listeners then have the [FinishGrace] to
// receive and answer what is left, the OnFinish hooks run, and all nodes end in order. A
// failure or a preemption of any node ends all of them as usual, and so does the success of
// a node that runs without this option. A node that is restarted after it was done is
// waited for again. The log names the nodes that are not done after 10 s.
func WaitForAll() RunOption { return func(c *runConfig) { c.all = true } }
