package parallel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/rundir"
	"github.com/ditask/ditask/payload"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/task"
)

// Func is the function of a node. Its error ends the job.
type Func func(ctx context.Context, node *Node) error

// Node is one process of a job, or one of the nodes that [Run] makes. It
// satisfies task.Node.
type Node struct {
	env    control.Env
	labels []string
	log    *slog.Logger
	codec  codec
	bus    *bus      // nil for a lone node
	replay *replayer // instead of a bus, in a replay

	claimed atomic.Bool // a task was made on it
	called  atomic.Bool // call runs its function, and takes the error of a Run that does not return
	exits   chan error  // 1: such errors; there is one task

	runID string       // names the run in its folder, if the job's id does not
	claim sync.Once    // of the folder
	lock  *rundir.Lock // of the folder of a run without a launcher; nil: none yet

	began time.Time
	ready chan struct{} // closed when the node is connected to those that it expects

	mu      sync.Mutex
	words   []string // labels and roles, once the task has started
	observe func() task.Snapshot
}

// newNode makes a node of env; r is nil for a lone one.
func newNode(env control.Env, r *router.Router, log *slog.Logger) *Node {
	n := &Node{env: env, log: log, codec: codec{payload.New(payload.Limits{})}, began: time.Now(), ready: make(chan struct{}),
		exits: make(chan error, 1)}
	if r == nil && env.Replay == "" {
		close(n.ready)
		n.labels = append([]string{"standalone"}, env.Labels...)
		return n
	}
	n.labels = append([]string{"distributed", "node." + strconv.Itoa(env.NodeID), topologyOf(env.Topology)}, env.Labels...)
	if env.Replay != "" {
		n.replay = newReplayer(n, env.Replay, env.ReplayFast, log)
		return n
	}
	n.bus = &bus{n: n, r: r, below: func() {}}
	return n
}

// ID is the node id, 0..N-1 over the whole job.
func (n *Node) ID() int { return n.env.NodeID }

// LocalID is the node's number among those of one launcher.
func (n *Node) LocalID() int { return n.env.LocalID }

// Size is the number of nodes in the job, 1 for a lone node, 0 if it is not
// known.
func (n *Node) Size() int {
	if n.bus == nil && n.replay == nil {
		return 1
	}
	return n.env.Nodes
}

// JobID is the job's id.
func (n *Node) JobID() string { return n.env.JobID }

// Attempt is 0 when the node is started for the first time, and counts its
// restarts.
func (n *Node) Attempt() int { return n.env.Attempt }

// JobSeed is the seed of the whole job.
func (n *Node) JobSeed() uint64 { return uint64(n.env.Seed) } //nolint:gosec // any bits will do

// Seed is this node's own seed: a mix of the job's seed and the node id, so that
// two nodes do not see the same episodes. The same job seed gives the same seeds.
func (n *Node) Seed() uint64 {
	// splitmix64, Steele, Lea, Flood: Fast splittable pseudorandom number
	// generators, OOPSLA 2014.
	z := n.JobSeed() + (uint64(n.env.NodeID)+1)*0x9e3779b97f4a7c15 //nolint:gosec // not negative
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Labels are the words given to this node: "standalone", or "distributed",
// "node.<id>" and the topology, then the user's own.
func (n *Node) Labels() []string { return slices.Clone(n.labels) }

// Logger is the node's logger.
func (n *Node) Logger() *slog.Logger { return n.log }

// Codec encodes payloads.
func (n *Node) Codec() task.Codec { return n.codec }

// Bus reaches the other nodes; it is nil for a lone node.
func (n *Node) Bus() task.Bus {
	switch {
	case n.replay != nil:
		return n.replay
	case n.bus == nil:
		return nil
	}
	return n.bus
}

// Barrier returns when every node of the job has called it with the same name as
// often as this one. It fails at once if a node is lost, and names those that
// are missing when ctx ends first. The task must have started. In a replay of one
// node it returns at once.
//
// A listener that enters a barrier at the end of the job may wait for a node that does not
// enter it any more. The error then wraps [task.ErrClosed], and a listener that returns it
// does not fail the job.
func (n *Node) Barrier(ctx context.Context, name string) error {
	if n.bus == nil {
		return nil
	}
	err := n.bus.r.Barrier(ctx, name)
	if errors.Is(err, router.ErrClosed) {
		err = fmt.Errorf("%w: %w", task.ErrClosed, err)
	}
	return err
}

// Claim is called by task.New, and is true for the first task of the node only.
func (n *Node) Claim() bool { return !n.claimed.Swap(true) }

// RunExited is called by the node's task with the error of a Run that does not return.
func (n *Node) RunExited(err error) bool {
	if !n.called.Load() {
		return false
	}
	select {
	case n.exits <- err:
		return true
	default: // a hook has exited too, after a step
		return false
	}
}

// Observe is called by the node's task: fn returns its status.
func (n *Node) Observe(fn func() task.Snapshot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observe = fn
}

// status is the report to the launcher.
func (n *Node) status() control.Status {
	n.mu.Lock()
	observe := n.observe
	n.mu.Unlock()
	var s control.Status
	if observe != nil {
		o := observe()
		s = control.Status{Role: o.Role, Step: o.Steps, Queue: o.Queued, Lag: o.Lag}
		for _, e := range o.Events {
			s.Drops += e.Dropped[task.DropReasonOldest] + e.Dropped[task.DropReasonNewest]
		}
	}
	if n.bus != nil {
		network(&s, n.bus.r.Stats())
	}
	return s
}

func (n *Node) announce(words []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.words = words
}

// name is the node in messages: "node.2 (collector)".
func (n *Node) name() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := "node." + strconv.Itoa(n.env.NodeID)
	for _, w := range n.words {
		if !slices.Contains(n.labels, w) {
			name += " (" + w + ")"
		}
	}
	return name
}

// codec gives package task the encoding of package payload.
type codec struct{ c *payload.Codec }

func (c codec) Payload(t reflect.Type) (task.PayloadCodec, error) {
	p, err := c.c.Plan(t)
	if err != nil {
		return nil, err
	}
	return p, nil
}
