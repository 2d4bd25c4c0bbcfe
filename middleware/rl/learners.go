package rl

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// LearnerRoles is the division of work in a job of so many nodes of which several learn: the first
// ones learn, the next one evaluates, and the rest collect. If only one is left it does both. If none is
// left, each learner collects in environments of its own, and node 0 evaluates as well. A lone
// node does everything. nodes may be 0 as for [Roles]. See [ExchangeConfig.Learners].
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

// Join is what a learner of several says of itself when it starts.
type Join struct {
	Run      uint64   // differs between starts of the learner
	Learners int      // how many it expects
	Tensors  []string // names and shapes of all that its policy saves
}

// Share is what one of several learners sends to the others. They send the same kinds in the same order.
type Share struct {
	Group uint64 // of the starts of all learners
	Kind  ShareKind

	// Of ShareEnter.
	Member bool // the sender was in a group before, and goes on
	Saves  bool // it makes checkpoints
	// Of ShareCount: what the step has brought to the sender.
	EnvSteps int
	Ended    int            // episodes
	Episodes []envs.Episode // of those that count in the log
	Stopped  bool
	// Of ShareGradients.
	Rows    int
	Grads   [][]float32
	Numbers []float64
	// Of ShareDone and ShareEnter: the updates behind the weights.
	Version uint64
	// Of ShareState, ShareSaved and ShareAsk.
	State       []byte // of the policy: an archive
	Own         []byte // of what the receiver or, of ShareSaved, the sender saves: an archive, or nothing
	Counters    string
	Best        *Best
	WithoutData bool
	Finished    bool // of ShareEnd and ShareAsk: the first learner has finished
	Torn        bool // of ShareAsk and ShareSaved: the sender is in the middle of the updates of a step
	// Of ShareStep: what the receiver has to learn from, or nil.
	Collected *Trajectory
}

// ShareKind says what a [Share] is.
type ShareKind uint8

// The kinds of a Share.
const (
	ShareEnter     ShareKind = iota + 1 // the first of a group
	ShareState                          // what another learner goes on from
	ShareCount                          // the step's counters, before its first update
	ShareGradients                      // one of an update
	ShareDone                           // no more updates in this step
	ShareAsk                            // the first learner makes a checkpoint
	ShareSaved                          // the answer, and what a learner has at its end
	ShareEnd                            // the first learner has ended its step
	ShareStep                           // in lockstep, the first learner begins a step
)

var shareKinds = [...]string{"nothing", "enter", "state", "count", "gradients", "done", "ask", "saved", "end", "step"}

// String is the kind in lower case.
func (k ShareKind) String() string { return shareKinds[min(int(k), len(shareKinds)-1)] }

// The events between learners.
var (
	Joins  = task.NewEvent[Join]("rl.join", task.Latest())
	Shares = task.NewEvent[Share]("rl.share")
)

// errTorn says that a checkpoint would not hold the states of all nodes after the same step.
var errTorn = errors.New("the states of the learners are not those after one step")

// errRegroup says that a learner was started again: what this one waits for does not come.
var errRegroup = errors.New("another learner was started again")

// group is what one of several learners knows of the others.
//
// The learners of a group are those of which each has heard a [Join]; its key follows from their ids
// and runs, so that a restart of one of them makes another group. They enter a group together: one
// gives its state to all others. Then each step of theirs is: count, gradients as often as updates
// average something, done, and end. Each kind but the last waits for that of all other learners.
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
	// first is whether the first learner makes checkpoints, and how.
	first  Share
	ids    []int
	key    uint64
	done   map[int]uint64 // learners that make no more updates in this step, with their versions
	agreed counters       // of the job, equal on all learners
	own    map[int][]byte // of the checkpoint, for the other learners
	passed uint64         // steps in lockstep, of the whole run
	out    Share
	shares []Share // of an update
	sum    []float32
	sums   []float64

	changed chan struct{} // 1: something was heard

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

// others are the ids of the other learners.
func (g *group) others() []int {
	return slices.DeleteFunc(slices.Clone(g.ids), func(id int) bool { return id == g.t.NodeID() })
}

// stale reports whether a learner of the group was started again.
func (g *group) stale() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.key != 0 && g.key != g.keyNow()
}

// keyNow is the key of the learners that were heard of, or 0 if they are too few. The caller holds mu.
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
		_, _ = h.Write(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(id)), run)) //nolint:gosec // positive
	}
	return h.Sum64() | 1
}

// known are the ids of the learners that were heard of, and of this one. The caller holds mu.
func (g *group) known() []int {
	return slices.Sorted(func(yield func(int) bool) {
		if yield(g.t.NodeID()) {
			maps.Keys(g.heard)(yield)
		}
	})
}

// assemble waits until all learners were heard of, and has them be the group.
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

// tensorsOf are the names and shapes of all that a policy saves.
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

// check reports how another learner does not fit this one. The caller holds mu.
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

// wait returns when look reports true or an error. What was heard comes before the end of ctx.
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

// pop takes the first share of a learner that accept takes, if there is one.
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

// next takes the next share of a learner, which must be of one of the kinds.
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

// enter makes the learners a group in which all have the same state: that of the first one at the
// beginning of a run, and else that of one which goes on, the one with most updates. It enters again when a
// learner is started again meanwhile.
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
	g.own = map[int][]byte{}
	g.agreed = counters{EnvSteps: c.EnvSteps, Episodes: c.Episodes}
	return nil
}

// equalize gives the state of one learner to others, which are new to the group or were behind in a step.
func (g *group) equalize(ctx context.Context, c *Online, source int, others []int, enters bool) error {
	if source != g.t.NodeID() {
		s, err := g.next(ctx, source, ShareState)
		if err == nil {
			err = g.adopt(c, &s)
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

// state is what another learner goes on from.
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

// adopt takes over the state of another learner.
func (g *group) adopt(c *Online, s *Share) error {
	var a nn.Archive
	err := a.UnmarshalBinary(s.State)
	if err == nil {
		err = g.r.policy.Restore(&a)
	}
	if err == nil && len(s.Own) > 0 {
		var own nn.Archive
		if err = own.UnmarshalBinary(s.Own); err == nil {
			err = g.r.takeOver(c, &own)
		}
	}
	var n counters
	if err == nil {
		err = json.Unmarshal([]byte(s.Counters), &n)
	}
	if err != nil {
		return g.r.onNode(fmt.Errorf("take over the state of another learner: %w", err))
	}
	c.EnvSteps, c.Episodes, c.Updates, c.Eval = n.EnvSteps, n.Episodes, n.Updates, n.Eval
	if s.Best != nil {
		c.Best = s.Best
	}
	return nil
}

// reenter has this learner enter the group of a learner that was started again, if err says so.
// The step then has no more updates.
func (g *group) reenter(ctx context.Context, c *Online, err error) error {
	if !errors.Is(err, errRegroup) {
		return err
	}
	g.t.Logger().Warn("a learner was started again: the learners go on together from the state of one of them")
	if g.r.lockstep {
		return g.r.onNode(fmt.Errorf("%w: in lockstep all learners go back to the checkpoint, so this one ends too", err))
	}
	g.broken, g.torn = true, false
	return g.enter(ctx, c)
}

// count makes the counters of all learners the same, before the first update of a step.
func (g *group) count(ctx context.Context, c *Online) error {
	clear(g.done)
	mine := Share{Kind: ShareCount, EnvSteps: c.EnvSteps - g.agreed.EnvSteps, Ended: c.Episodes - g.agreed.Episodes, Stopped: c.Stopped}
	if c.Collected != nil {
		mine.Episodes = c.Collected.Episodes
	}
	if err := g.send(ctx, &mine); err != nil {
		return err
	}
	steps, ended := mine.EnvSteps, mine.Ended
	var episodes []envs.Episode
	for _, id := range g.others() {
		s, err := g.next(ctx, id, ShareCount)
		if err != nil {
			return err
		}
		steps += s.EnvSteps
		ended += s.Ended
		episodes = append(episodes, s.Episodes...)
		c.Stopped = c.Stopped || s.Stopped
	}
	g.torn = true
	g.agreed.EnvSteps += steps
	g.agreed.Episodes += ended
	c.EnvSteps, c.Episodes = g.agreed.EnvSteps, g.agreed.Episodes
	if len(episodes) > 0 {
		if c.Collected == nil {
			c.Collected = new(Trajectory)
		}
		c.Collected.Episodes = append(slices.Clone(c.Collected.Episodes), episodes...)
	}
	return nil
}

// allReduce averages over the learners that make this update. All add up in the order of the ids.
func (g *group) allReduce(ctx context.Context, rows int, grads [][]float32, numbers []float64) error {
	g.out = Share{Kind: ShareGradients, Rows: rows, Grads: grads, Numbers: numbers}
	if err := g.send(ctx, &g.out); err != nil {
		return err
	}
	self, total := g.t.NodeID(), 0
	g.shares = g.shares[:0]
	for _, id := range g.ids {
		s := g.out
		if _, done := g.done[id]; done {
			continue
		}
		if id != self {
			var err error
			if s, err = g.next(ctx, id, ShareGradients, ShareDone); err != nil {
				return err
			}
			if s.Kind == ShareDone {
				g.done[id] = s.Version
				continue
			}
			if err := g.fits(id, &s); err != nil {
				return err
			}
		}
		total += s.Rows
		g.shares = append(g.shares, s)
	}
	g.average(grads, numbers, total)
	return nil
}

// average makes gradients and numbers the means of g.shares, which have so many rows.
func (g *group) average(grads [][]float32, numbers []float64, total int) {
	for i, dst := range grads {
		g.sum = slices.Grow(g.sum[:0], len(dst))[:len(dst)]
		clear(g.sum)
		for _, s := range g.shares {
			weight := float32(s.Rows) / float32(total)
			for k, x := range s.Grads[i] {
				g.sum[k] += float32(weight * x)
			}
		}
		copy(dst, g.sum)
	}
	g.sums = g.sums[:0]
	for i := range numbers {
		var sum float64
		for _, s := range g.shares {
			sum += float64(float64(s.Rows) * s.Numbers[i])
		}
		g.sums = append(g.sums, sum/float64(total))
	}
	copy(numbers, g.sums) // not before: the share of this learner has the numbers themselves
}

// fits reports a share that is not of the update that this learner makes.
func (g *group) fits(id int, s *Share) error {
	same := len(s.Grads) == len(g.out.Grads) && len(s.Numbers) == len(g.out.Numbers) && s.Rows > 0
	for i := range s.Grads {
		same = same && len(s.Grads[i]) == len(g.out.Grads[i])
	}
	if same {
		return nil
	}
	return fmt.Errorf("node %d averages %s, and learner %d %s: do both have the same policy?", g.t.NodeID(), sizes(&g.out), id, sizes(s))
}

func sizes(s *Share) string {
	var n []int
	for _, grad := range s.Grads {
		n = append(n, len(grad))
	}
	return fmt.Sprintf("gradients of %v values and %d numbers over %d rows", n, len(s.Numbers), s.Rows)
}

// settle waits until no learner makes updates in this step, and has those that made fewer take over the
// state of the first one that has made all.
func (g *group) settle(ctx context.Context, c *Online) error {
	version := g.r.policy.Version()
	if err := g.send(ctx, &Share{Kind: ShareDone, Version: version}); err != nil {
		return err
	}
	for _, id := range g.others() {
		for _, done := g.done[id]; !done; _, done = g.done[id] {
			s, err := g.next(ctx, id, ShareGradients, ShareDone)
			if err != nil {
				return err
			}
			if s.Kind == ShareDone {
				g.done[id] = s.Version
			}
		}
	}
	g.done[g.t.NodeID()] = version
	source := g.ids[0]
	for _, id := range g.ids {
		if g.done[id] > g.done[source] {
			source = id
		}
	}
	behind := slices.DeleteFunc(slices.Clone(g.ids), func(id int) bool { return g.done[id] == g.done[source] })
	if slices.Contains(behind, g.t.NodeID()) || g.t.NodeID() == source && len(behind) > 0 {
		if err := g.equalize(ctx, c, source, behind, false); err != nil {
			return err
		}
	}
	g.torn = false
	return nil
}

// follow is the step in lockstep of a learner that is not the first one.
func (g *group) follow(ctx context.Context, c *Online, next task.Next) error {
	s, err := g.next(ctx, g.ids[0], ShareStep)
	if err != nil {
		return g.reenter(ctx, c, err)
	}
	if tr := s.Collected; tr != nil {
		if err := tr.Batch.Check(g.r.columns...); err != nil {
			return g.r.onNode(fmt.Errorf("what learner %d has passed on is not what this policy learns from: %w", g.ids[0], err))
		}
		c.Collected = tr
	}
	c.PolicyVersion = g.r.policy.Version()
	if err := next(ctx); err != nil {
		return err
	}
	c.PolicyVersion = g.r.policy.Version()
	return g.reenter(ctx, c, g.end(ctx, c))
}

// passOn gives the trajectories of a step to the learners in turn, and returns those of this one, the first.
func (g *group) passOn(ctx context.Context, all []*Trajectory) (mine []*Trajectory, err error) {
	shares := make([]Share, len(g.ids))
	g.passed++
	for i, tr := range all {
		k := (uint64(i) + g.passed) % uint64(len(g.ids)) //nolint:gosec // positive
		if k == 0 {
			mine = append(mine, tr)
			continue
		}
		joined := Online{Collected: shares[k].Collected}
		joined.collected(tr)
		shares[k].Collected = joined.Collected
	}
	for k, id := range g.ids[1:] {
		shares[k+1].Kind = ShareStep
		if err := g.send(ctx, &shares[k+1], id); err != nil {
			return nil, err
		}
	}
	return mine, nil
}

// end ends a step of the learners: that of the first one ends first. The others answer it meanwhile if it makes
// a checkpoint, and do not begin another step if it has finished.
func (g *group) end(ctx context.Context, c *Online) error {
	if g.broken {
		return nil
	}
	if g.leads() {
		return g.send(ctx, &Share{Kind: ShareEnd, Finished: g.t.Finished()})
	}
	for {
		s, err := g.next(ctx, g.ids[0], ShareAsk, ShareEnd)
		if err != nil {
			return err
		}
		switch {
		case s.Kind == ShareAsk:
			if err := g.saved(ctx, c, s.WithoutData); err != nil {
				return err
			}
		case s.Finished && !g.t.Finished():
			return g.wait(ctx, "the end of the job", func() (bool, error) { return false, g.answerLast(ctx) })
		default:
			return nil
		}
	}
}

// answerLast answers the first learner when that has finished and makes its last checkpoint: this one may not have
// heard of it yet, and wait for something else. In the middle of its updates it goes on, unless the first one
// was there too.
func (g *group) answerLast(ctx context.Context) error {
	s, ok := g.pop(g.ids[0], func(s *Share) bool { return s.Kind == ShareAsk && s.Finished && (s.Torn || !g.torn) })
	if !ok {
		return nil
	}
	return g.saved(ctx, g.t.Context(), s.WithoutData)
}

// saved sends the first learner what this one needs to go on.
func (g *group) saved(ctx context.Context, c *Online, withoutData bool) error {
	var a nn.Archive
	err := g.r.archive(&a, c, withoutData)
	var own []byte
	if err == nil {
		own, err = a.AppendBinary(nil)
	}
	if err != nil {
		return g.r.onNode(fmt.Errorf("checkpoint: %w", err))
	}
	return g.send(ctx, &Share{Kind: ShareSaved, Own: own, Torn: g.torn}, g.ids[0])
}

// finish sends the first learner what this one has at its end, which it may not be asked for any more.
func (g *group) finish(ctx context.Context, o task.Outcome) error {
	if o.Kind == task.Failure || !g.member || g.leads() || !g.first.Saves {
		return nil
	}
	return g.saved(ctx, g.t.Context(), g.first.WithoutData)
}

// learnerKey is the name in an archive of what a learner has.
func learnerKey(node int) string { return fmt.Sprintf("rl/learner.%d", node) }

// collect asks the other learners for what they have and puts it into the archive of the first one. At the end
// of the run, one that does not answer is left out.
func (g *group) collect(ctx context.Context, a *nn.Archive, withoutData, ended bool) error {
	if err := g.send(ctx, &Share{Kind: ShareAsk, WithoutData: withoutData, Finished: ended, Torn: g.torn}); err != nil {
		return err
	}
	if ended {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	for _, id := range g.others() {
		s, err := g.next(ctx, id, ShareSaved)
		if g.r.lockstep && (err != nil && ended || s.Torn) {
			return errTorn
		}
		if err != nil && ended {
			g.t.Logger().Warn("the checkpoint has no state of a learner that has not answered", slog.Int("node", id), slog.Any("err", err))
			continue
		}
		if err != nil {
			return err
		}
		a.Put(learnerKey(id), nn.State{Tensors: []nn.Tensor{{Name: "archive", Shape: []int{len(s.Own)}, Bytes: s.Own}}})
	}
	return nil
}

// passedKey is the name in an archive of group.passed.
const passedKey = "rl/passed"

// restore finds in the archive of the first learner what the others have.
func (g *group) restore(a *nn.Archive) {
	g.passed, _ = a.Number(passedKey) // one learner has saved none
	for _, id := range g.others() {
		if s, err := a.State(learnerKey(id)); err == nil && len(s.Tensors) == 1 {
			g.own[id] = s.Tensors[0].Bytes
		} else {
			g.t.Logger().Warn("the checkpoint has no state of a learner, which begins without data", slog.Int("node", id))
		}
	}
}
