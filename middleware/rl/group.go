package rl

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// errTorn reports that a checkpoint would not hold the states of all nodes after the same step.
var errTorn = errors.New("the states of the learners are not those after one step")

// errRegroup reports that a learner was restarted, so that the awaited message will not arrive.
var errRegroup = errors.New("another learner was started again")

// group is the state of one of several learners about the others.
//
// The learners of a group have received a [Join] of each other; the key of the group depends on their ids
// and runs, so that a restart of one of them makes another group. They enter a group together: one sends
// its state to all others. Then each of their steps has these messages: count, gradients as often as
// updates average values, done, and end. For each kind except the last, a learner waits for the messages
// of all other learners.
type group struct {
	r      *Run
	t      *task.Task[Online]
	policy policies.Parallel
	size   int    // learners of the job
	run    uint64 // of this start

	began  bool
	member bool // of this group or of one before it
	torn   bool // this learner is between the first update of a step and the last
	broken bool // another learner was started again in this step, which has no end
	// first has the settings of the first learner's checkpoints, if it makes any.
	first  Share
	ids    []int
	key    uint64
	done   map[int]uint64 // learners that make no more updates in this step, with their versions
	agreed counters       // of the job, equal on all learners
	own    map[int][]byte // of the checkpoint, for the other learners
	passed uint64         // steps in lockstep, of the whole run
	last   map[int]Share  // final states of learners that have finished, on the first one
	out    Share
	shares []Share // of an update
	sum    []float32
	sums   []float64

	changed chan struct{} // 1: a message was received

	mu     sync.Mutex
	heard  map[int]Join
	queues map[int][]Share
	past   map[uint64]bool // keys
}

func newGroup(r *Run, size int) *group {
	p, ok := r.policy.(policies.Parallel)
	if !ok {
		panic(fmt.Sprintf("rl: Learners is %d, but %T is not a policies.Parallel: give 1 node the role learner", size, r.policy))
	}
	t := r.t
	g := &group{
		r: r, t: t, policy: p, size: size, run: rand.Uint64() | 1, done: map[int]uint64{}, own: map[int][]byte{},
		changed: make(chan struct{}, 1), heard: map[int]Join{}, queues: map[int][]Share{}, past: map[uint64]bool{},
	}
	Joins.On(t, g.hearJoin)
	Shares.On(t, g.hearShare)
	t.OnFinish(g.finish)
	return g
}

func (g *group) hearJoin(ctx context.Context, j Join) error {
	g.mu.Lock()
	g.heard[task.Sender(ctx)] = j
	g.mu.Unlock()
	notify(g.changed)
	return nil
}

func (g *group) hearShare(ctx context.Context, s Share) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.past[s.Group] {
		return nil
	}
	from := task.Sender(ctx)
	g.queues[from] = append(g.queues[from], s)
	notify(g.changed)
	return nil
}

// leads reports whether this learner is the first one, which publishes, logs and saves.
func (g *group) leads() bool { return g.t.NodeID() == g.ids[0] }

// others returns the ids of the other learners.
func (g *group) others() []int {
	return slices.DeleteFunc(slices.Clone(g.ids), func(id int) bool { return id == g.t.NodeID() })
}

// stale reports whether a learner of the group was started again.
func (g *group) stale() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.key != 0 && g.key != g.keyNow()
}

// keyNow returns the key of the known learners, or 0 if not all are known. The caller holds mu.
func (g *group) keyNow() uint64 {
	if len(g.heard) < g.size-1 {
		return 0
	}
	h := fnv.New64a()
	for _, id := range g.known() {
		run := g.run
		if j, ok := g.heard[id]; ok {
			run = j.Run
		}
		_, _ = h.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(id)), run))
	}
	return h.Sum64() | 1
}

// known returns the ids of the learners whose Join was received, and of this one. The caller holds mu.
func (g *group) known() []int {
	return slices.Sorted(func(yield func(int) bool) {
		if yield(g.t.NodeID()) {
			maps.Keys(g.heard)(yield)
		}
	})
}

// assemble waits for the Join of all learners, which then form the group.
func (g *group) assemble(ctx context.Context) error {
	tensors, err := tensorsOf(g.r.policy)
	if err != nil {
		return g.r.onNode(err)
	}
	if !g.began {
		g.began = true
		if err := emit(ctx, g.t, Joins, Join{Run: g.run, Learners: g.size, Tensors: tensors}); err != nil {
			return err
		}
	}
	complete := func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.heard) >= g.size-1
	}
	what := fmt.Sprintf("all of the %d learners", g.size)
	if err := g.wait(ctx, what, func() (bool, error) { return complete(), nil }); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.key != 0 {
		g.past[g.key] = true
	}
	g.key, g.ids = g.keyNow(), g.known()
	for id, queue := range g.queues {
		g.queues[id] = slices.DeleteFunc(queue, func(s Share) bool { return g.past[s.Group] })
	}
	return g.check(tensors)
}

// tensorsOf returns the names and shapes of all tensors that a policy saves.
func tensorsOf(p policies.Policy) ([]string, error) {
	var a nn.Archive
	if err := p.Save(&a); err != nil {
		return nil, err
	}
	var out []string
	for _, t := range a.Tensors {
		out = append(out, fmt.Sprint(t.Name, " ", t.Shape))
	}
	return out, nil
}

// check returns the differences between another learner and this one. The caller holds mu.
func (g *group) check(tensors []string) error {
	self := g.t.NodeID()
	if len(g.ids) > g.size {
		return fmt.Errorf("node %d: nodes %v are learners, but ExchangeConfig.Learners is %d", self, g.ids, g.size)
	}
	for _, id := range g.others() {
		j := g.heard[id]
		if j.Learners != g.size {
			return fmt.Errorf("node %d is one of %d learners, and node %d one of %d: ExchangeConfig.Learners must be the same",
				self, g.size, id, j.Learners)
		}
		for i := range max(len(tensors), len(j.Tensors)) {
			a, b := "nothing", "nothing"
			if i < len(tensors) {
				a = tensors[i]
			}
			if i < len(j.Tensors) {
				b = j.Tensors[i]
			}
			if a != b {
				return fmt.Errorf("learners train different networks: node %d has %q where node %d has %q", self, a, id, b)
			}
		}
	}
	return nil
}

// wait returns when look reports true or an error. If ctx ends, it looks once more before it returns the error.
func (g *group) wait(ctx context.Context, what string, look func() (bool, error)) error {
	ok, err := look()
	if ok || err != nil {
		return err
	}
	waited := waitFor(ctx, g.t, what, g.changed, func(struct{}) bool {
		ok, err = look()
		return ok || err != nil
	})
	if waited != nil {
		if ok, err = look(); ok {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return waited
}

// pop removes and returns the first share of a learner for which accept is true, if there is one.
func (g *group) pop(from int, accept func(*Share) bool) (s Share, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	queue := g.queues[from]
	i := slices.IndexFunc(queue, func(s Share) bool { return s.Group == g.key && accept(&s) })
	if i < 0 {
		return s, false
	}
	s = queue[i]
	g.queues[from] = slices.Delete(queue, i, i+1)
	return s, true
}

// next removes and returns the next share of a learner, which must be of one of the kinds.
func (g *group) next(ctx context.Context, from int, kinds ...ShareKind) (s Share, err error) {
	err = g.wait(ctx, fmt.Sprintf("learner %d", from), func() (ok bool, err error) {
		if g.stale() {
			return false, errRegroup
		}
		if err := g.answerLast(ctx); err != nil {
			return false, err
		}
		s, ok = g.pop(from, func(s *Share) bool { // at the end the order does not hold
			last := s.Kind == ShareSaved || s.Kind == ShareAsk && s.Finished
			return !last && !slices.Contains(kinds, ShareSaved) || s.Kind == ShareSaved && slices.Contains(kinds, ShareSaved)
		})
		return ok, nil
	})
	if err == nil && !slices.Contains(kinds, s.Kind) {
		err = fmt.Errorf("node %d: learner %d sent %v, want %v: do all learners have the same middleware?", g.t.NodeID(), from, s.Kind, kinds)
	}
	return s, err
}

// send sends s to the other learners, or to one of them.
func (g *group) send(ctx context.Context, s *Share, to ...int) error {
	s.Group = g.key
	if len(to) == 0 {
		return emit(ctx, g.t, Shares, *s, Learner)
	}
	return emit(ctx, g.t, Shares, *s, fmt.Sprintf("node.%d", to[0]))
}

// enter makes the learners a group with one state: that of the first learner at the beginning of a run, and
// otherwise that of a continuing learner, the one with the most updates. It enters again if a learner is
// started again meanwhile.
func (g *group) enter(ctx context.Context, c *Online) error {
	for {
		if err := g.tryEnter(ctx, c); !errors.Is(err, errRegroup) {
			return err
		}
	}
}

func (g *group) tryEnter(ctx context.Context, c *Online) error {
	if err := g.assemble(ctx); err != nil {
		return err
	}
	if g.leads() && !g.r.resumed && !g.member {
		if err := g.r.takeUp(c); err != nil {
			return err
		}
	}
	mine := Share{Kind: ShareEnter, Member: g.member, Saves: g.r.saves, WithoutData: g.r.withoutData, Version: g.r.policy.Version()}
	if err := g.send(ctx, &mine); err != nil {
		return err
	}
	source, best := g.ids[0], Share{}
	for _, id := range g.ids {
		s := mine
		if id != g.t.NodeID() {
			var err error
			if s, err = g.next(ctx, id, ShareEnter); err != nil {
				return err
			}
		}
		if id == g.ids[0] {
			g.first = s
		}
		if s.Member && (!best.Member || s.Version > best.Version) {
			source, best = id, s
		}
	}
	if err := g.equalize(ctx, c, source, g.others(), true); err != nil {
		return err
	}
	g.member = true
	g.own, g.last = map[int][]byte{}, map[int]Share{}
	g.agreed = counters{EnvSteps: c.EnvSteps, Episodes: c.Episodes}
	return nil
}

// equalize sends the state of one learner to others, which are new to the group or were behind in a step.
func (g *group) equalize(ctx context.Context, c *Online, source int, others []int, enters bool) error {
	if source != g.t.NodeID() {
		s, err := g.next(ctx, source, ShareState)
		if err == nil {
			err = g.adopt(c, &s, enters)
		}
		return err
	}
	state, err := g.state(c)
	if err != nil {
		return g.r.onNode(err)
	}
	if enters {
		state.Best = c.Best
	}
	for _, id := range others {
		state.Own = g.own[id]
		if err := g.send(ctx, &state, id); err != nil {
			return err
		}
	}
	return nil
}

// state returns the state from which another learner continues.
func (g *group) state(c *Online) (Share, error) {
	s := Share{Kind: ShareState}
	var a nn.Archive
	if err := errors.Join(g.r.policy.Save(&a), putCounters(&a, c)); err != nil {
		return s, err
	}
	s.Counters = a.Meta[countersKey]
	var err error
	s.State, err = a.AppendBinary(nil)
	return s, err
}

// adopt takes over the state of another learner. It takes over the newest evaluation only if this learner enters: during
// a step only the first learner has received it.
func (g *group) adopt(c *Online, s *Share, enters bool) error {
	var a nn.Archive
	err := a.UnmarshalBinary(s.State)
	if err == nil {
		err = g.r.policy.Restore(&a)
	}
	if err == nil && len(s.Own) > 0 {
		var own nn.Archive
		if err = own.UnmarshalBinary(s.Own); err == nil {
			err = g.r.takeOverOwn(c, &own)
		}
	}
	var n counters
	if err == nil {
		err = json.Unmarshal([]byte(s.Counters), &n)
	}
	if err != nil {
		return g.r.onNode(fmt.Errorf("take over the state of another learner: %w", err))
	}
	c.EnvSteps, c.Episodes, c.Updates = n.EnvSteps, n.Episodes, n.Updates
	if enters {
		c.Eval = n.Eval
	}
	if s.Best != nil {
		c.Best = s.Best
	}
	return nil
}

// reenter makes this learner enter the group of a restarted learner, if err reports a restart. The
// step then makes no more updates.
func (g *group) reenter(ctx context.Context, c *Online, err error) error {
	if !errors.Is(err, errRegroup) {
		return err
	}
	g.t.Logger().Warn("a learner was started again: the learners continue together from the state of one of them")
	if g.r.lockstep {
		return g.r.onNode(fmt.Errorf("%w: in lockstep all learners go back to the checkpoint, so this one ends too", err))
	}
	g.broken, g.torn = true, false
	return g.enter(ctx, c)
}
