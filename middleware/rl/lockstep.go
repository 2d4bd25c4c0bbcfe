package rl

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ditask/ditask/task"
)

// leader is the exchange of the learner in lockstep.
//
// It publishes a Turn, in which every other node takes one step and sends one trajectory with its
// state after that step. When the leader has all of them, it takes its own step and publishes the
// next Turn. So a checkpoint of its step holds the states of all nodes at one moment. A node that
// is new to the run asks for its state and receives it with the Turn.
type leader struct {
	r     *Run
	t     *task.Task[Online]
	peers int // nodes besides the learner
	inbox inbox
	run   uint64
	began bool
	turn  uint64       // steps of this run
	asked map[int]bool // nodes that asked for their state in this turn
}

func newLeader(r *Run, cfg ExchangeConfig) *leader {
	t := r.t
	r.lockstep = true
	return &leader{r: r, t: t, peers: cfg.Synchronous - max(cfg.Learners, 1), inbox: newInbox(t), run: rand.Uint64() | 1,
		asked: map[int]bool{}}
}

func (x *leader) step(ctx context.Context, c *Online, next task.Next) error {
	if !x.began {
		x.began = true
		for node := range x.r.others {
			x.asked[node] = true
		}
		if err := x.publish(ctx, c); err != nil {
			return err
		}
	}
	if err := x.gather(ctx, c); err != nil {
		return err
	}
	c.PolicyVersion = x.r.policy.Version()
	if err := next(ctx); err != nil {
		return err
	}
	c.PolicyVersion = x.r.policy.Version()
	if c.Stopped {
		x.t.Finish(fmt.Sprintf("the evaluator reached a mean return of %.1f over %d episodes", c.Eval.Mean, c.Eval.Episodes))
	}
	x.turn++
	clear(x.asked)
	if err := x.publish(ctx, c); err != nil || x.r.group == nil {
		return err
	}
	return x.r.group.reenter(ctx, c, x.r.group.end(ctx, c))
}

// publish begins a turn of the other nodes, or repeats it for those that asked for their states.
func (x *leader) publish(ctx context.Context, c *Online) error {
	turn, err := x.now(c)
	if err != nil {
		return err
	}
	return emit(ctx, x.t, Turns, turn)
}

// now returns the turn that the other nodes must take.
func (x *leader) now(c *Online) (Turn, error) {
	w, err := x.r.weights()
	turn := Turn{
		Run: x.run, Number: x.turn, EnvSteps: c.EnvSteps, Episodes: c.Episodes, Updates: c.Updates, Eval: c.Eval, Weights: w,
	}
	for _, node := range slices.Sorted(maps.Keys(x.asked)) {
		turn.Nodes, turn.States = append(turn.Nodes, node), append(turn.States, x.r.others[node])
	}
	if x.turn == 0 || len(turn.Nodes) > 0 {
		turn.Best = c.Best
	}
	return turn, err
}

// gather takes one trajectory of every other node, in the order of their ids.
func (x *leader) gather(ctx context.Context, c *Online) error {
	got := make(map[int]arrival, x.peers)
	var fault error
	err := waitFor(ctx, x.t, "all nodes that go in lockstep", x.inbox.ch, func(a arrival) bool {
		switch {
		case a.tr.Asks:
			x.asked[a.from] = true
			delete(got, a.from) // the node takes the turn again, and can receive it only while it is the newest
			fault = x.publish(ctx, c)
		case a.tr.Run == x.run && a.tr.Seq == x.turn+1:
			got[a.from] = a
		} // else it belongs to an earlier run of the learner, or a restarted node has sent it twice
		return fault != nil || len(got) == x.peers
	})
	if err != nil || fault != nil {
		return cmp.Or(fault, err)
	}
	x.r.torn = true
	var all []*Trajectory
	for _, node := range slices.Sorted(maps.Keys(got)) {
		a := got[node] // a copy, which remains
		if err := x.r.count(c, node, &a.tr); err != nil {
			return err
		}
		x.r.others[node] = a.tr.State
		if a.tr.Collects > 0 {
			a.tr.State, a.tr.Best, a.tr.Scores = "", nil, nil // another learner does not need them
			all = append(all, &a.tr)
		}
	}
	if g := x.r.group; g != nil {
		if all, err = g.passOn(ctx, all); err != nil {
			return err
		}
	}
	for _, tr := range all {
		c.collected(tr)
	}
	return nil
}

// follower is the exchange of the other nodes in lockstep.
type follower struct {
	r      *Run
	t      *task.Task[Online]
	run    uint64 // of the learner that this node follows; 0: none yet
	turn   uint64 // the newest turn that it has taken, plus 1
	asked  uint64 // the run in which it asked for its state
	best   *Best  // the newest that was received
	warned bool
	fresh  chan struct{} // 1: a turn was received

	mu     sync.Mutex
	heard  *Turn
	leader string // label of the node that sent it
}

func newFollower(r *Run) *follower {
	t := r.t
	r.lockstep = true
	x := &follower{r: r, t: t, fresh: make(chan struct{}, 1)}
	Turns.On(t, x.hear)
	return x
}

func (x *follower) hear(ctx context.Context, turn Turn) error {
	x.mu.Lock()
	x.heard, x.leader = &turn, fmt.Sprintf("node.%d", task.Sender(ctx))
	x.mu.Unlock()
	notify(x.fresh)
	return nil
}

func (x *follower) newest() *Turn {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heard
}

func (x *follower) step(ctx context.Context, c *Online, next task.Next) error {
	turn, err := x.await(ctx, c)
	if err != nil {
		return err
	}
	c.PolicyVersion = x.r.policy.Version()
	x.t.ReportLag(float64(lag(uint64(c.Updates), c.PolicyVersion)))
	if err := next(ctx); err != nil {
		return err
	}
	if err := x.deliver(ctx, c, turn); err != nil {
		return err
	}
	// This step ends after the learner's, so that a node that ends the run by its number of steps
	// does not cut the learner's step short.
	return x.wait(ctx, func(newest *Turn) bool { return newest.Run != x.run || newest.Number >= x.turn })
}

// await waits for the next turn, and restores this node's state at the beginning of the turn if the
// turn has it.
func (x *follower) await(ctx context.Context, c *Online) (*Turn, error) {
	var turn *Turn
	var fault error
	if x.newest() == nil && !x.warned {
		x.warned = true
		warnWithoutLearner(x.t)
	}
	err := x.wait(ctx, func(newest *Turn) bool {
		turn = newest
		if newest.Run == x.run {
			return newest.Number >= x.turn
		}
		// A new learner, or a new node.
		if newest.Number == 0 || slices.Contains(newest.Nodes, x.t.NodeID()) {
			return true
		}
		if x.asked != newest.Run {
			x.asked = newest.Run
			fault = x.ask(ctx, newest)
		}
		return fault != nil
	})
	if err != nil || fault != nil {
		return nil, cmp.Or(fault, err)
	}
	if turn.Run != x.run {
		if err := x.enter(c, turn); err != nil {
			return nil, err
		}
	}
	x.turn = turn.Number + 1
	c.EnvSteps, c.Episodes, c.Updates, c.Eval = turn.EnvSteps, turn.Episodes, turn.Updates, turn.Eval
	return turn, x.r.install(turn.Weights)
}

// ask makes the learner repeat the turn with the state of this node.
func (x *follower) ask(ctx context.Context, turn *Turn) error {
	return x.send(ctx, &Trajectory{Run: turn.Run, Asks: true})
}

// enter restores this node's state in the learner's checkpoint, or that of a new node if the learner
// begins at 0: this node had been ahead of a restarted learner.
func (x *follower) enter(c *Online, turn *Turn) error {
	state := ""
	if i := slices.Index(turn.Nodes, x.t.NodeID()); i >= 0 && i < len(turn.States) {
		state = turn.States[i]
	}
	if x.run != 0 {
		x.t.Logger().Info("go back to the state of the restarted learner",
			slog.Int("updates", turn.Updates), slog.Int("env_steps", turn.EnvSteps))
	}
	c.EnvSteps, c.Episodes, c.Updates, c.Eval = turn.EnvSteps, turn.Episodes, turn.Updates, turn.Eval
	c.Best, x.best = turn.Best, turn.Best
	x.run = turn.Run
	return x.r.goBack(c, state)
}

// wait waits for a turn for which done is true.
func (x *follower) wait(ctx context.Context, done func(*Turn) bool) error {
	look := func(struct{}) bool {
		newest := x.newest()
		return newest != nil && done(newest)
	}
	if look(struct{}{}) {
		return nil
	}
	return waitFor(ctx, x.t, "the learner's next step", x.fresh, look)
}

// deliver sends the data of this node's turn, and its state after the turn.
func (x *follower) deliver(ctx context.Context, c *Online, turn *Turn) error {
	tr := c.Collected
	if tr == nil {
		tr = new(Trajectory)
	}
	state, err := x.r.states()
	if err != nil {
		return x.r.onNode(err)
	}
	tr.Run, tr.Seq, tr.State = turn.Run, x.turn, state
	if x.t.Has(Evaluator) {
		tr.Eval, tr.Stopped, tr.Scores = c.Eval, c.Stopped, x.r.takeUnsent()
		if c.Best != x.best {
			x.best, tr.Best = c.Best, c.Best
		}
	}
	return x.send(ctx, tr)
}

// send sends tr to the learner that publishes the turns.
func (x *follower) send(ctx context.Context, tr *Trajectory) error {
	x.mu.Lock()
	leader := x.leader
	x.mu.Unlock()
	return emit(ctx, x.t, Transitions, *tr, leader)
}
