package rl

import (
	"fmt"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/task"
)

// LearnerRoles returns the roles in a job of that many nodes with several learners: the first nodes
// learn, the next one evaluates, and the rest collect. A single remaining node evaluates and collects.
// If none remains, each learner collects in its own environments, and node 0 also evaluates. A lone node
// has all roles. nodes may be 0 as for [Roles]. See [ExchangeConfig.Learners].
func LearnerRoles(nodes, learners int) []task.Option {
	if learners <= 1 {
		return Roles(nodes)
	}
	label := func(node int, roles ...string) task.Option {
		return task.ByLabel(fmt.Sprintf("node.%d", node), roles...)
	}
	var options []task.Option
	for node := range learners {
		options = append(options, label(node, Learner))
	}
	switch {
	case nodes == 0 || nodes > learners+1:
		return []task.Option{task.ByID(append(slices.Repeat([]string{Learner}, learners), Evaluator, Collector)...)}
	case nodes == learners+1:
		return append(options, label(learners, Evaluator, Collector))
	}
	return append(options, task.ByLabel("node.*", Collector), label(0, Evaluator))
}

// Join is the message of one of several learners when it starts.
type Join struct {
	Run      uint64   // differs between starts of the learner
	Learners int      // expected number of learners
	Tensors  []string // names and shapes of all tensors that its policy saves
}

// Share is a message of one of several learners to the others. They send the same kinds in the same
// order.
type Share struct {
	Group uint64 // of the starts of all learners
	Kind  ShareKind

	// Of ShareEnter.
	Member bool // the sender was in a group before, and continues
	Saves  bool // the sender makes checkpoints
	// Of ShareCount: the results of the step for the sender.
	EnvSteps int
	Ended    int            // episodes
	Episodes []envs.Episode // of those that count in the log
	Infos    []float64      // of Episodes, as in Trajectory
	Returns  []float64      // as in Trajectory, of all that the sender has collected
	Stopped  bool
	// Of ShareGradients.
	Rows    int
	Grads   [][]float32
	Numbers []float64 // of ShareCount: the summary of a policies.Observer
	// Of ShareDone and ShareEnter: the updates behind the weights.
	Version uint64
	// Of ShareState, ShareSaved and ShareAsk.
	State       []byte // of the policy: an archive
	Own         []byte // the state that the receiver or, in ShareSaved, the sender saves: an archive, or empty
	Counters    string
	Best        *Best
	WithoutData bool
	Finished    bool // of ShareEnd and ShareAsk: the first learner has finished; of ShareSaved: the sender has, and saves nothing more
	Torn        bool // of ShareAsk and ShareSaved: the sender is in the middle of the updates of a step
	// Of ShareStep: the data that the receiver learns from, or nil.
	Collected *Trajectory
}

// ShareKind is the kind of a [Share].
type ShareKind uint8

// The kinds of a Share.
const (
	ShareEnter     ShareKind = iota + 1 // the first of a group
	ShareState                          // the state from which another learner continues
	ShareCount                          // the step's counters, before its first update
	ShareGradients                      // a gradient of an update
	ShareDone                           // no more updates in this step
	ShareAsk                            // the first learner makes a checkpoint
	ShareSaved                          // the answer, and the state of a learner at its end
	ShareEnd                            // the first learner has ended its step; the answer if it has finished
	ShareStep                           // in lockstep, the first learner begins a step
)

var shareKinds = [...]string{"nothing", "enter", "state", "count", "gradients", "done", "ask", "saved", "end", "step"}

// String returns the kind in lower case.
func (k ShareKind) String() string { return shareKinds[min(int(k), len(shareKinds)-1)] }

// The events between learners.
var (
	Joins  = task.NewEvent[Join]("rl.join", task.Latest())
	Shares = task.NewEvent[Share]("rl.share")
)
