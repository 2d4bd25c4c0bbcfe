package rl

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// paced is the exchange of nodes that do not work in lockstep.
type paced struct {
	r                *Run
	t                *task.Task[Online]
	group            *group // of the learners; nil: one learns, or this node does not
	learns, sends    bool   // sends trajectories to the learner
	collects         bool
	every            uint64 // updates between publications of weights
	inbox            inbox
	run              uint64
	taken            map[int]uint64 // of each collector, the newest sequence number
	untold           map[int]int    // of each collector, how many were taken since the last message to it
	published        uint64         // version of the newest weights that were published
	told             uint64         // key of the newest counters that were sent to all nodes; 0: none
	reported         Evaluation     // the newest that was sent
	praised          *Best          // the newest best that was sent
	warned           bool           // the log has a warning that there is no learner
	changed, renewed chan struct{}  // 1: progress was received; weights were received

	mu      sync.Mutex
	sent    uint64 // trajectories
	base    uint64 // of those, sent to an earlier run of the learner
	heard   Progress
	weights *nn.State
	eval    *Evaluation
	scores  []Scores // those that the step has not processed; at most maxUnlogged
	newBest *Best
}

func newPaced(r *Run, cfg ExchangeConfig) *paced {
	t := r.t
	x := &paced{
		r: r, t: t, group: r.group, learns: t.Has(Learner), collects: t.Has(Collector), every: 10,
		taken: map[int]uint64{}, untold: map[int]int{}, run: rand.Uint64() | 1,
		changed: make(chan struct{}, 1), renewed: make(chan struct{}, 1),
	}
	x.sends = x.collects && !x.learns
	r.sends = x.sends
	if cfg.EveryUpdates > 0 {
		x.every = uint64(cfg.EveryUpdates)
	}
	if x.learns {
		x.inbox = newInbox(t)
		t.OnFinish(func(context.Context, task.Outcome) error {
			x.hear(t.Context()) // such as the weights that ended the run
			return nil
		})
		BestFound.On(t, x.hearBest)
	} else {
		Progressed.On(t, x.hearProgress)
		Weights.On(t, x.hearWeights)
	}
	if !t.Has(Evaluator) {
		Evaluated.On(t, x.hearEvaluation)
	}
	return x
}

func (x *paced) hearProgress(_ context.Context, p Progress) error {
	if len(p.Taken) != len(p.Nodes) {
		return fmt.Errorf("progress of the learner: %d numbers for %d nodes", len(p.Taken), len(p.Nodes))
	}
	x.mu.Lock()
	if x.heard.Run != 0 && x.heard.Run != p.Run {
		x.base = x.sent // the restarted learner will not take those
	}
	x.heard = p
	x.mu.Unlock()
	notify(x.changed)
	return nil
}

func (x *paced) hearWeights(_ context.Context, s nn.State) error {
	x.mu.Lock()
	x.weights = &s
	x.mu.Unlock()
	notify(x.renewed)
	return nil
}

func (x *paced) hearEvaluation(_ context.Context, s Scores) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.eval = &s.Evaluation
	if x.r.logsScores {
		x.scores = x.r.keepNewest(append(x.scores, s))
	}
	return nil
}

func (x *paced) hearBest(_ context.Context, b Best) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newBest = &b
	return nil
}

func (x *paced) step(ctx context.Context, c *Online, next task.Next) error {
	if err := x.begin(ctx, c); err != nil {
		return err
	}
	if err := x.receive(ctx, c); err != nil {
		return err
	}
	if x.group != nil {
		x.group.broken = false
	}
	if err := x.install(ctx); err != nil {
		return err
	}
	x.hear(c) // after a wait for weights: the counters that belong to these weights
	c.PolicyVersion = x.r.policy.Version()
	if !x.learns {
		x.t.ReportLag(float64(lag(uint64(c.Updates), c.PolicyVersion)))
	}
	if err := next(ctx); err != nil {
		return err
	}
	c.PolicyVersion = x.r.policy.Version()
	if err := x.send(ctx, c); err != nil || x.group == nil {
		return err
	}
	return x.group.reenter(ctx, c, x.group.end(ctx, c))
}

// begin publishes the first weights of the learner, or of a new group of learners. The other nodes send nothing
// before they have received them: data that they sent to a learner that has ended does not count.
func (x *paced) begin(ctx context.Context, c *Online) error {
	if !x.known() {
		return x.publish(ctx, c)
	}
	return nil
}

// known reports whether this learner, or its group, has been announced to the other nodes. It is true for a node that does
// not lead.
func (x *paced) known() bool { return !x.r.leads() || x.told == x.key() }

// publish sends weights and counters to all nodes. The weights come first: a collector that waits for
// the counters then acts with the new weights.
func (x *paced) publish(ctx context.Context, c *Online) error {
	s, err := x.r.weights()
	if err != nil {
		return err
	}
	x.published = s.Version
	if err := emit(ctx, x.t, Weights, s); err != nil {
		return err
	}
	clear(x.untold)
	x.told = x.key()
	return emit(ctx, x.t, Progressed, x.report(c))
}

// tell sends counters to the collectors that may wait for them: to each after every Ahead/2 trajectories, so that a
// waiting collector continues before the learner has taken all of its trajectories. Each message wakes a process, and the
// credit that it returns wakes this one: counters that no node waits for are sent with the next weights.
//
// With several learners, a collector receives a message for each trajectory. A step takes one for every learner, and
// after a restart the learners have unequal numbers of trajectories, so that one may have none while others have many.
func (x *paced) tell(ctx context.Context, c *Online) error {
	every := Ahead / 2
	if x.group != nil {
		every = 1
	}
	for node, n := range x.untold {
		if n < every {
			continue
		}
		delete(x.untold, node)
		if err := emit(ctx, x.t, Progressed, x.report(c), fmt.Sprintf("node.%d", node)); err != nil {
			return err
		}
	}
	return nil
}

// hear processes the messages received since the last step.
func (x *paced) hear(c *Online) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.learns {
		c.EnvSteps = max(c.EnvSteps, x.heard.EnvSteps)
		c.Episodes = max(c.Episodes, x.heard.Episodes)
		c.Updates = max(c.Updates, x.heard.Updates)
	}
	if x.eval != nil {
		c.Eval = *x.eval
	}
	for _, s := range x.scores {
		x.r.heard(s)
	}
	x.scores = nil
	// An evaluator that was restarted, or evaluates for a resumed learner, does not have the
	// earlier best.
	if x.newBest != nil && !c.Best.better(x.newBest) {
		c.Best = x.newBest
	}
	x.newBest = nil
}

// receive waits for the messages that this node needs for its step.
func (x *paced) receive(ctx context.Context, c *Online) error {
	if !x.learns {
		x.warnWithoutLearner()
		if x.sends {
			return x.awaitRoom(ctx)
		}
		return nil
	}
	var fault error
	got := func(a arrival) bool {
		x.taken[a.from] = a.tr.Seq
		x.untold[a.from]++
		fault = x.r.take(c, a.from, &a.tr)
		return true
	}
	select {
	case a := <-x.inbox.ch:
		got(a)
		return fault
	default:
	}
	if x.collects {
		return nil // it has its own data
	}
	const what = "transitions of the collectors"
	if x.group == nil {
		return cmp.Or(waitFor(ctx, x.t, what, x.inbox.ch, got), fault)
	}
	for fault == nil && c.Collected == nil {
		if x.group.stale() { // no node collects before the learners have entered a group
			if err := x.group.enter(ctx, c); err != nil {
				return err
			}
			if err := x.begin(ctx, c); err != nil {
				return err
			}
		}
		var asked error
		woken := func() bool {
			asked = x.group.answerLast(ctx)
			return asked != nil || x.group.stale()
		}
		if err := cmp.Or(waitForEither(ctx, x.t, what, x.inbox.ch, got, x.group.changed, woken), asked); err != nil {
			return err
		}
	}
	return fault
}

func (x *paced) warnWithoutLearner() {
	x.mu.Lock()
	known := x.heard.Run != 0
	x.mu.Unlock()
	if known || x.warned {
		return
	}
	x.warned = true
	warnWithoutLearner(x.t)
}

func (x *paced) awaitRoom(ctx context.Context) error {
	if x.room() {
		return nil
	}
	return waitFor(ctx, x.t, "the learner to take what was sent", x.changed, func(struct{}) bool { return x.room() })
}

// room reports whether there is a learner that has taken enough of the trajectories. A number that
// this node has not yet sent was taken from an earlier run of this node.
func (x *paced) room() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.heard.Run == 0 {
		return false
	}
	taken := x.base
	if i := slices.Index(x.heard.Nodes, x.t.NodeID()); i >= 0 && x.heard.Taken[i] <= x.sent {
		taken = max(taken, x.heard.Taken[i])
	}
	return x.sent-taken < Ahead*uint64(max(1, len(x.heard.Learners)))
}

// install makes the policy act with the newest received weights, if there are new
// ones. A node that only evaluates waits for them.
func (x *paced) install(ctx context.Context) error {
	if x.learns {
		return nil
	}
	var s *nn.State
	taken := func(struct{}) bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.weights != nil {
			s, x.weights = x.weights, nil
		}
		return s != nil
	}
	if !taken(struct{}{}) && !x.collects {
		if err := waitFor(ctx, x.t, "weights of the learner", x.renewed, taken); err != nil {
			return err
		}
	}
	if s == nil {
		return nil
	}
	return x.r.install(*s)
}

// send sends the results of this step to the others.
func (x *paced) send(ctx context.Context, c *Online) error {
	if x.sends && c.Collected != nil {
		if err := x.deliver(ctx, c.Collected); err != nil {
			return err
		}
	}
	if x.r.leads() {
		told := x.tell
		if x.r.policy.Version()-x.published >= x.every || x.t.Finished() || !x.known() {
			told = x.publish
		}
		if err := told(ctx, c); err != nil {
			return err
		}
	}
	if !x.t.Has(Evaluator) {
		return nil
	}
	unsent := x.r.takeUnsent()
	if !c.Eval.Equal(&x.reported) && len(unsent) == 0 { // the evaluation of the checkpoint
		unsent = append(unsent, Scores{Evaluation: c.Eval})
	}
	x.reported = c.Eval
	for _, s := range unsent {
		if err := emit(ctx, x.t, Evaluated, s); err != nil {
			return err
		}
	}
	if c.Best != x.praised {
		x.praised = c.Best
		return emit(ctx, x.t, BestFound, *c.Best, Learner)
	}
	return nil
}

// learners returns the ids of the learners to which the collectors send in turn.
func (x *paced) learners() []int {
	if x.group == nil {
		return nil
	}
	return x.group.ids
}

// deliver sends the collected data to the learner.
func (x *paced) deliver(ctx context.Context, tr *Trajectory) error {
	x.mu.Lock()
	x.sent++
	tr.Seq = x.sent
	learners := x.heard.Learners
	x.mu.Unlock()
	if n := len(learners); n > 0 {
		return emit(ctx, x.t, Transitions, *tr, fmt.Sprintf("node.%d", learners[(x.t.NodeID()+int(tr.Seq%uint64(n)))%n]))
	}
	return Transitions.Emit(ctx, x.t, *tr, task.OnlyRemote(), task.To(Learner))
}

// key differs between starts of the learner, or of any of several learners: data that was sent to a learner of
// another group does not count.
func (x *paced) key() uint64 {
	if x.group != nil {
		return x.group.key
	}
	return x.run
}

func (x *paced) report(c *Online) Progress {
	p := Progress{Run: x.key(), Learners: x.learners(), EnvSteps: c.EnvSteps, Episodes: c.Episodes, Updates: c.Updates}
	for node, seq := range x.taken {
		p.Nodes, p.Taken = append(p.Nodes, node), append(p.Taken, seq)
	}
	return p
}
