package rl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/policytest"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qlearning"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/task"
)

// steps are the batches of each step of a learner.
type steps [][]*policies.Batch

// script is a source of known batches: Next returns those of one step, and then false once.
type script struct {
	steps steps
	at    int
}

func (s *script) Next(dst *policies.Batch) bool {
	if len(s.steps) == 0 {
		return false
	}
	if s.at == len(s.steps[0]) {
		s.steps, s.at = s.steps[1:], 0
		return false
	}
	b := s.steps[0][s.at]
	s.at++
	dst.InitLike(b)
	dst.AppendBatch(b)
	return true
}

func (*script) Add(*policies.Batch) error     { return nil }
func (*script) Learned(*policies.Batch) error { return nil }
func (*script) Save(*nn.Archive) error        { return nil }
func (*script) Restore(*nn.Archive) error     { return nil }

// scripted runs learners that learn from known batches, each that many steps, and returns their
// policies.
func scripted(t *testing.T, newPolicy func(seed uint64) policies.Policy, sources []steps, n int) []policies.Policy {
	t.Helper()
	all, release := make([]policies.Policy, len(sources)), func() error { return nil }
	nodes := []task.Node{quiet{task.Alone()}}
	if len(sources) > 1 {
		made, r := nodesOf(len(sources))
		nodes, release = nodes[:0], r
		for _, node := range made {
			nodes = append(nodes, node)
		}
	}
	ctx := within(t)
	errs := make([]error, len(nodes), len(nodes)+1)
	var wg sync.WaitGroup
	for i, node := range nodes {
		all[i] = newPolicy(uint64(1 + i)) // they begin with the state of the first one
		tk := task.New[rl.Online](node, rl.LearnerRoles(len(nodes), len(nodes))...)
		r := rl.New(tk, all[i], rl.Config{})
		tk.Use(r.Exchange(rl.ExchangeConfig{Learners: len(nodes)}), r.Learn(&script{steps: sources[i]}, rl.LearnConfig{}))
		wg.Go(func() { errs[i] = tk.Run(ctx, task.MaxSteps(n)) })
	}
	wg.Wait()
	if err := errors.Join(append(errs, release())...); err != nil {
		t.Fatal(err)
	}
	return all
}

// algorithms are those of which several learners are one with all rows, with the rows of a unit that
// must not be torn.
var algorithms = map[string]struct {
	unit int
	make func(seed uint64) policies.Policy
}{
	"dqn": {1, func(seed uint64) policies.Policy {
		return dqn.New(dqn.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}, Double: true, TargetEvery: 2})
	}},
	"ppo": {1, func(seed uint64) policies.Policy {
		return ppo.New(ppo.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}})
	}},
	"a2c": {1, func(seed uint64) policies.Policy {
		return a2c.New(a2c.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}})
	}},
	"impala": {4, func(seed uint64) policies.Policy {
		return impala.New(impala.Config{Obs: box(3), Action: two, Seed: seed, Hidden: []int{16}, Length: 4})
	}},
}

// batchesOf are n random batches for a policy, with observations near 0.
func batchesOf(p policies.Policy, rng *rand.Rand, rows, n int) []*policies.Batch {
	out := make([]*policies.Batch, n)
	for i := range out {
		out[i] = policytest.RandomBatch(p.Spec(), rng, rows)
		for _, name := range []string{policies.Obs, policies.NextObs} {
			for k := range out[i].Floats(name) {
				out[i].Floats(name)[k] = float32(rng.NormFloat64())
			}
		}
	}
	return out
}

// learnersTolerance is how far the weights of several learners may be from those of one with all rows,
// relative to 1 plus the weight: sums of float32 in another order.
const learnersTolerance = 1e-5

// TestLearnersAreOneWithAllRows: 2 and 4 learners with parts of a batch, which differ in size, have the
// weights of one that has all of it, and all have the same bits.
func TestLearnersAreOneWithAllRows(t *testing.T) {
	for name, algorithm := range algorithms {
		for _, k := range []int{2, 4} {
			t.Run(fmt.Sprint(name, "/", k), func(t *testing.T) {
				const updates = 6
				rng := rand.New(rand.NewPCG(3, uint64(k)))
				probe := algorithm.make(1)
				sources, whole := make([]steps, k), make(steps, updates)
				for u := range updates {
					all := new(policies.Batch)
					for i := range sources {
						b := batchesOf(probe, rng, algorithm.unit*(4+3*i), 1)[0]
						if i == 0 {
							all.InitLike(b)
						}
						all.AppendBatch(b)
						sources[i] = append(sources[i], []*policies.Batch{b})
					}
					whole[u] = []*policies.Batch{all}
				}
				want := scripted(t, algorithm.make, []steps{whole}, updates)[0]
				got := scripted(t, algorithm.make, sources, updates)
				for i, p := range got {
					if p.Version() != updates || fmt.Sprint(p.Weights()) != fmt.Sprint(got[0].Weights()) {
						t.Errorf("learner %d has made %d updates, want %d and the weights of learner 0", i, p.Version(), updates)
					}
				}
				d, moved := distance(want, got[0]), distance(probe, got[0])
				t.Logf("learning has moved the weights by %.3g, and several learners are off by %.3g", moved, d)
				if d > learnersTolerance || moved < 1e-3 {
					t.Errorf("the weights differ by %v from those of one learner; learning has moved them by %v", d, moved)
				}
			})
		}
	}
}

// distance is the greatest difference of two weights, relative to 1 plus the weight.
func distance(a, b policies.Policy) float64 {
	far, other := 0.0, b.Weights()
	for i, tensor := range a.Weights().Tensors {
		for k, v := range tensor.Data {
			d := math.Abs(float64(v)-float64(other.Tensors[i].Data[k])) / (1 + math.Abs(float64(v)))
			far = max(far, d)
		}
	}
	return far
}

// TestLearnersWithUnequalNumbersOfUpdates do not wait for missing batches, and end with equal
// weights: a learner without a batch takes over the state of the others.
func TestLearnersWithUnequalNumbersOfUpdates(t *testing.T) {
	algorithm := algorithms["dqn"]
	rng := rand.New(rand.NewPCG(5, 5))
	probe := algorithm.make(1)
	counts := [][3]int{{0, 0, 0}, {1, 0, 2}, {3, 1, 0}, {0, 0, 1}, {0, 2, 2}, {4, 0, 0}, {1, 1, 1}}
	sources := make([]steps, 3)
	total := 0
	for _, count := range counts {
		for i, n := range count {
			sources[i] = append(sources[i], batchesOf(probe, rng, 8, n))
		}
		total += max(count[0], count[1], count[2])
	}
	got := scripted(t, algorithm.make, sources, len(counts))
	for i, p := range got {
		var a, b nn.Archive
		if err := errors.Join(got[0].Save(&a), p.Save(&b)); err != nil {
			t.Fatal(err)
		}
		if p.Version() != uint64(total) || fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("learner %d has made %d updates, want %d, and all that learner 0 has", i, p.Version(), total)
		}
	}
	// The last round, with all of them, is that of one learner with all rows.
	last := len(counts) - 1
	before := make([]steps, 3)
	all := new(policies.Batch)
	all.InitLike(sources[0][last][0])
	for i := range before {
		before[i] = sources[i][:last]
		all.AppendBatch(sources[i][last][0])
	}
	one := scripted(t, algorithm.make, before, last)[1]
	if _, err := one.Learn(all); err != nil {
		t.Fatal(err)
	}
	if d := distance(one, got[0]); d > learnersTolerance {
		t.Errorf("the weights differ by %v from those of one learner", d)
	}
}

// ddppo assembles a learner of k, each of which collects in its own environments, and the first of
// which evaluates.
func ddppo(node task.Node, k int, dir string, resume resuming, table string) *member {
	const seed, length = 7, 16
	m := &member{node: node}
	p := normalize.New(ppo.New(ppo.Config{Obs: box(4), Action: two, Seed: seed, Hidden: []int{16}}), normalize.Config{Rewards: true})
	rollout := data.NewRollout(data.RolloutConfig{Length: length, Seed: seed + uint64(node.ID())})
	rollout.ScaleRewards(p.ScaleRewards)
	m.tk = task.New[rl.Online](node, rl.LearnerRoles(k, k)...)
	m.run = rl.New(m.tk, p, rl.Config{Seed: seed, Dir: dir, Resume: resume != no, MustResume: resume == must})
	m.policy = p
	m.tk.Use(
		m.run.Exchange(rl.ExchangeConfig{Learners: k}),
		m.run.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 300, Episodes: 4}),
		m.run.Collect(envs.CartPole(2, envs.SameStep), rl.CollectConfig{VectorSteps: length}),
		m.run.Learn(rollout, rl.LearnConfig{Rate: policies.Linear(1e-2, 1e-3, 2000)}),
		m.run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 50}),
	)
	if table != "" {
		m.tk.Use(m.run.Log(rl.LogConfig{EverySteps: 100, CSV: table, Untimed: true}))
	}
	return m
}

// ddppoJob runs k such learners for that many steps, and returns their states at the end and the log.
func ddppoJob(t *testing.T, k int, dir string, resume resuming, n int) (end, table string) {
	t.Helper()
	made, release := nodesOf(k)
	path := filepath.Join(t.TempDir(), "progress.csv")
	all := make([]*member, k)
	for i := range all {
		all[i] = ddppo(made[i], k, dir, resume, path)
	}
	if err := errors.Join(append(run(within(t), all, task.MaxSteps(n)), release())...); err != nil {
		t.Fatal(err)
	}
	for i, m := range all {
		c := m.tk.Context()
		got := fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, *m.policy.(*normalize.Policy).Returns(), m.policy.Weights())
		if i > 0 && got != end {
			t.Errorf("learner %d ends with %.200s\nand learner 0 with %.200s", i, got, end)
		}
		end = got
	}
	return end, contentOf(t, path)
}

// TestP3LearnersThatCollectGiveTheSameFiles, and count the data of all of them.
func TestP3LearnersThatCollectGiveTheSameFiles(t *testing.T) {
	const k, n = 3, 12
	end, table := ddppoJob(t, k, "", no, n)
	end2, table2 := ddppoJob(t, k, "", no, n)
	if end != end2 || table != table2 {
		t.Errorf("two runs with one seed differ:\n%.200s\n%.200s\n%s\n%s", end, end2, table, table2)
	}
	if envSteps := k * n * 2 * 16; !strings.HasPrefix(end, fmt.Sprint(envSteps, " ")) || strings.Count(table, "\n") < 8 {
		t.Errorf("want %d env steps: %.200s\n%s", envSteps, end, table)
	}
}

// TestP4LearnersThatCollectGoOnExactly: the checkpoint of the first learner has the states of all of
// them.
func TestP4LearnersThatCollectGoOnExactly(t *testing.T) {
	const k, n = 2, 14
	want, _ := ddppoJob(t, k, "", no, n)
	for _, cut := range []int{1, 5, 13} {
		dir := t.TempDir()
		ddppoJob(t, k, dir, no, cut)
		if got, _ := ddppoJob(t, k, dir, must, n-cut); got != want {
			t.Errorf("a run cut at step %d ends with %.200s\n%d steps with %.200s", cut, got, n, want)
		}
	}
}

// together assembles a node of a job of n: two learners, an evaluator and collectors.
func together(node task.Node, n int, dir string, change ...func(*dqn.Config)) *member {
	return publishing(2, node, n, dir, change...)
}

// publishing is together with another number of updates between publications.
func publishing(every int, node task.Node, n int, dir string, change ...func(*dqn.Config)) *member {
	const learners = 2
	m := &member{node: node, q: tiny(uint64(node.ID()), append(change, func(c *dqn.Config) { c.Epsilon = policies.Linear(1, 0, 200) })...)}
	m.policy = m.q
	m.tk = task.New[rl.Online](m.node, rl.LearnerRoles(n, learners)...)
	m.run = runOf(m.tk, m.q, dir)
	m.buf = replay(data.UniformConfig{Capacity: 1000}, data.ReplayConfig{Batch: 4, StartAt: 4 + 3*node.ID(), Every: 2})
	m.tk.Use(
		m.run.Exchange(rl.ExchangeConfig{EveryUpdates: every, Learners: learners}),
		m.run.Evaluate(walks(envs.SameStep, &walk{length: 7}), rl.EvalConfig{EverySteps: 40, Episodes: 2}),
		m.run.Collect(walks(envs.SameStep, &walk{length: 5}, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}),
		m.run.Learn(m.buf, rl.LearnConfig{}),
	)
	return m
}

// equalWeights reports learners whose weights are not the same. In a step that was cut short at the end one of
// them may have made the last update, and others not.
func equalWeights(t *testing.T, learners ...*member) {
	t.Helper()
	for _, m := range learners[1:] {
		v, w := learners[0].q.Version(), m.q.Version()
		if v == w && fmt.Sprint(m.q.Weights()) != fmt.Sprint(learners[0].q.Weights()) || v > w+1 || w > v+1 {
			t.Errorf("node %d ends with other weights than node %d: of %d and %d updates", m.tk.NodeID(), learners[0].tk.NodeID(), w, v)
		}
	}
}

// TestLearnersShareTheCollectors: three collectors feed two learners evenly, whose replay buffers are
// ready at different moments; the first learner publishes, and counts the data of both.
func TestLearnersShareTheCollectors(t *testing.T) {
	const nodes, learners = 6, 2
	made, release := nodesOf(nodes)
	dir := t.TempDir()
	all := make([]*member, nodes)
	for i := range all {
		all[i] = together(made[i], nodes, dir)
		all[i].tk.Use(all[i].run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 30}))
	}
	first := all[0].tk
	var taken [nodes]int
	rl.Transitions.On(all[1].tk, func(ctx context.Context, _ rl.Trajectory) error {
		taken[task.Sender(ctx)]++
		return nil
	})
	var progress, weights [nodes]int
	rl.Progressed.On(all[2].tk, func(ctx context.Context, _ rl.Progress) error {
		progress[task.Sender(ctx)]++
		return nil
	})
	rl.Weights.On(all[2].tk, func(ctx context.Context, _ nn.State) error {
		weights[task.Sender(ctx)]++
		return nil
	})
	first.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates >= 100 && c.Best != nil {
			first.Finish("enough")
		}
		return nil
	}))
	if err := errors.Join(append(run(within(t), all), release())...); err != nil {
		t.Fatal(err)
	}
	c := first.Context()
	if c.EnvSteps != 2*learners*first.Steps() || all[0].buf.Len() != 2*first.Steps() || all[1].buf.Len() < 2*first.Steps() {
		t.Errorf("%d steps: %d env steps, %d and %d rows", first.Steps(), c.EnvSteps, all[0].buf.Len(), all[1].buf.Len())
	}
	if c.Updates != int(all[0].q.Version()) || c.Updates < 100 {
		t.Errorf("%d updates of version %d", c.Updates, all[0].q.Version())
	}
	equalWeights(t, all[0], all[1])
	if taken[3] == 0 || taken[4] == 0 || taken[5] == 0 || taken[2] != 0 {
		t.Errorf("trajectories of the second learner by node: %v", taken)
	}
	if progress[0] == 0 || progress[1] != 0 || weights[0] == 0 || weights[1] != 0 {
		t.Errorf("progress and weights by learner: %v, %v", progress[:2], weights[:2])
	}
	for _, m := range all[2:] {
		if m.q.Version() == 0 {
			t.Errorf("node %d has no weights", m.tk.NodeID())
		}
	}
	if best, err := rl.LoadBest(dir); err != nil || best.Mean != 7 {
		t.Errorf("best %+v, %v", best, err)
	}
}

// inLockstep assembles a node of a job of 5 in lockstep, of which the first two learn.
func inLockstep(node task.Node, dir string, resume resuming, table string) *member {
	const nodes, learners, seed = 5, 2, 7
	m := &member{node: node}
	m.q = dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: seed, Hidden: []int{16}, NStep: 3, TargetEvery: 20,
		Epsilon: policies.Linear(1, 0.1, 1000)})
	m.policy = m.q
	m.tk = task.New[rl.Online](m.node, rl.LearnerRoles(nodes, learners)...)
	m.run = rl.New(m.tk, m.q, rl.Config{Seed: seed, Dir: dir, Resume: resume != no, MustResume: resume == must})
	m.buf = replay(data.UniformConfig{Capacity: 300, Seed: seed + uint64(node.ID())}, data.ReplayConfig{Batch: 16, StartAt: 60, Every: 2})
	m.tk.Use(
		m.run.Exchange(rl.ExchangeConfig{Synchronous: nodes, Learners: learners}),
		m.run.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 100, Episodes: 4}),
		m.run.Collect(envs.CartPole(2), rl.CollectConfig{}),
		m.run.Learn(m.buf, rl.LearnConfig{}), m.run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 7}),
		m.run.Log(rl.LogConfig{EverySteps: 50, CSV: table, Untimed: true}),
	)
	return m
}

// inLockstepJob runs such a job to that many updates, and returns the states of the learners at the
// end and the log.
func inLockstepJob(t *testing.T, dir string, resume resuming, updates int) (end, table string) {
	t.Helper()
	made, release := nodesOf(5)
	path := filepath.Join(t.TempDir(), "progress.csv")
	all := make([]*member, len(made))
	for i := range all {
		all[i] = inLockstep(made[i], dir, resume, path)
	}
	all[0].until(updates)
	if err := errors.Join(append(run(within(t), all), release())...); err != nil {
		t.Fatal(err)
	}
	for i, m := range all[:2] {
		var a nn.Archive
		if err := errors.Join(m.q.Save(&a), m.buf.Save(&a)); err != nil {
			t.Fatal(err)
		}
		c := m.tk.Context()
		end += fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, a)
		if m.q.Version() != all[0].q.Version() || updates > 1 && m.buf.Len() == 0 || fmt.Sprint(m.q.Weights()) != fmt.Sprint(all[0].q.Weights()) {
			t.Errorf("learner %d has %d updates and %d rows, and other weights than learner 0", i, m.q.Version(), m.buf.Len())
		}
	}
	return end, contentOf(t, path)
}

// TestP3LearnersInLockstepGiveTheSameFiles, with two collectors.
func TestP3LearnersInLockstepGiveTheSameFiles(t *testing.T) {
	end, table := inLockstepJob(t, "", no, 60)
	if end2, table2 := inLockstepJob(t, "", no, 60); end != end2 || table != table2 {
		t.Errorf("two runs with one seed differ:\n%.200s\n%.200s\n%s\n%s", end, end2, table, table2)
	}
	if strings.Count(table, "\n") < 5 {
		t.Error(table)
	}
}

// TestP4LearnersInLockstepGoOnExactly, with all that both have in their replay buffers.
func TestP4LearnersInLockstepGoOnExactly(t *testing.T) {
	const updates = 80
	want, _ := inLockstepJob(t, t.TempDir(), no, updates)
	for _, cut := range []int{1, 40, 73} {
		dir := t.TempDir()
		inLockstepJob(t, dir, no, cut)
		if got, _ := inLockstepJob(t, dir, must, updates); got != want {
			t.Errorf("cut at update %d, the run ends with %.200s\nand straight with %.200s", cut, got, want)
		}
	}
}

// TestLearnersInLockstepEndWithOneThatIsStartedAgain: the state of that one is in the checkpoint of
// the first only.
func TestLearnersInLockstepEndWithOneThatIsStartedAgain(t *testing.T) {
	ctx, sockets := within(t), t.TempDir()
	all := make([]*member, 5)
	for i := range all {
		all[i] = inLockstep(restartable(t, sockets, len(all), i, 1), "", no, "")
	}
	dying, kill := context.WithCancel(ctx)
	crashed := make(chan struct{})
	all[1].tk.Use(task.Step(func(ctx context.Context, c *rl.Online) error {
		if c.Updates < 20 {
			return nil
		}
		crash(t, all[1].node)
		kill()
		close(crashed)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	others, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var first error
	wg.Go(func() {
		first = all[0].tk.Run(ctx)
		end()
	})
	wg.Go(func() { _ = all[1].tk.Run(dying) })
	for _, m := range all[2:] {
		wg.Go(func() { _ = m.tk.Run(others) })
	}
	<-crashed
	again := inLockstep(restartable(t, sockets, len(all), 1, 2), "", no, "")
	wg.Go(func() { _ = again.tk.Run(others) })
	wg.Wait()
	const want = "node 0: another learner was started again: in lockstep all learners go back to the checkpoint"
	if first == nil || !strings.Contains(first.Error(), want) {
		t.Errorf("%v, want %q", first, want)
	}
}

// TestLostLearnerEndsAJobThatDoesNotRecover, with an error that names the learner.
func TestLostLearnerEndsAJobThatDoesNotRecover(t *testing.T) {
	const nodes, learners = 4, 2
	for victim := range learners {
		cfg := parallel.Config{Nodes: nodes, Logger: slog.New(slog.DiscardHandler)}
		cause := errors.New("no power")
		errs := make([]error, nodes)
		err := parallel.Run(within(t), cfg, func(ctx context.Context, node *parallel.Node) error {
			m := together(node, nodes, "")
			m.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
				if node.ID() == victim && c.Updates >= 20 {
					return cause
				}
				return nil
			}))
			errs[node.ID()] = m.tk.Run(ctx)
			return errs[node.ID()]
		})
		if !errors.Is(err, cause) {
			t.Errorf("victim %d: %v", victim, err)
		}
		for id, err := range errs {
			if e, ok := errors.AsType[*task.RemoteError](err); id != victim && (!ok || e.Node != victim) {
				t.Errorf("victim %d: node %d: %v", victim, id, err)
			}
		}
	}
}

// TestLearnersGoOnWithARestartedOne, from the state of a learner that did not crash, whichever does:
// its weights are not those of its checkpoint. The collectors are notified of the new group though no weights
// are published for a long time.
func TestLearnersGoOnWithARestartedOne(t *testing.T) {
	const nodes, learners = 5, 2
	for i := range 2 * learners {
		victim, every := i%learners, 2
		if i >= learners {
			every = 1 << 30
		}
		t.Run(fmt.Sprintf("node %d every %d", victim, every), func(t *testing.T) {
			ctx, sockets := within(t), t.TempDir()
			all := make([]*member, nodes)
			for i := range all {
				all[i] = publishing(every, restartable(t, sockets, nodes, i, 1), nodes, "")
			}
			dying, kill := context.WithCancel(ctx)
			crashed := make(chan struct{})
			at := 0
			all[victim].tk.Use(task.Step(func(ctx context.Context, c *rl.Online) error {
				if c.Updates < 40 {
					return nil
				}
				at = c.Updates
				crash(t, all[victim].node)
				kill()
				close(crashed)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			errs := make([]error, nodes)
			var wg sync.WaitGroup
			for i, m := range all {
				if i == victim {
					wg.Go(func() { _ = m.tk.Run(dying) })
					continue
				}
				wg.Go(func() { errs[i] = m.tk.Run(ctx) })
			}
			select {
			case <-crashed:
			case <-ctx.Done():
				t.Fatal(ctx.Err())
			}
			again := publishing(every, restartable(t, sockets, nodes, victim, 2), nodes, "")
			all[victim] = again
			begins := -1
			again.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
				if begins < 0 {
					begins = c.Updates
				}
				if c.Updates >= begins+60 {
					again.tk.Finish("enough")
				}
				return nil
			}))
			errs[victim] = again.tk.Run(ctx)
			wg.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			if begins < at {
				t.Errorf("the learner crashed at update %d and continues with %d", at, begins)
			}
			equalWeights(t, all[0], all[1])
		})
	}
}

// TestLearnersLogTheirWait: the log names a learner that has not begun, and one that is in a
// long step.
func TestLearnersLogTheirWait(t *testing.T) {
	for _, c := range []struct {
		want   string
		second func(*member)
	}{
		{"waiting for all of the 2 learners", func(m *member) { m.tk.Use(stopped()) }},
		{"waiting for learner 1", func(m *member) { m.tk.Use(m.run.Exchange(rl.ExchangeConfig{Learners: 2}), stopped()) }},
	} {
		t.Run(c.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, release := nodesOf(2)
				var log bytes.Buffer
				ctx, cancel := context.WithCancel(t.Context())
				first, second := &member{}, &member{}
				for i, m := range []*member{first, second} {
					node := logged{nodes[i], slog.New(slog.DiscardHandler)}
					if i == 0 {
						node.log = slog.New(slog.NewTextHandler(&log, nil))
					}
					m.tk = task.New[rl.Online](node, rl.LearnerRoles(2, 2)...)
					m.run = runOf(m.tk, tiny(1), "")
				}
				first.tk.Use(first.run.Exchange(rl.ExchangeConfig{Learners: 2}), first.run.Learn(&script{}, rl.LearnConfig{}))
				c.second(second)
				var wg sync.WaitGroup
				wg.Go(func() { _ = first.tk.Run(ctx) })
				wg.Go(func() { _ = second.tk.Run(ctx) })
				<-time.After(15 * time.Second) // on the clock of the test
				cancel()
				wg.Wait()
				if text := log.String(); !strings.Contains(text, c.want) {
					t.Errorf("log %q, want %q", text, c.want)
				}
				_ = release()
			})
		})
	}
}

// TestLearnersThatDoNotFit end with an error that names both.
func TestLearnersThatDoNotFit(t *testing.T) {
	wide := func(c *dqn.Config) { c.Hidden = []int{9} }
	for _, c := range []struct {
		name, want string
		make       func(node task.Node) *member
	}{
		{"another network", `learners train different networks: node %d has "dqn/dense0.weight [`, func(node task.Node) *member {
			if node.ID() == 1 {
				return together(node, 2, "", wide)
			}
			return together(node, 2, "")
		}},
		{"another number", "node %d is one of ", func(node task.Node) *member {
			m := &member{node: node, q: tiny(1)}
			m.tk = task.New[rl.Online](node, task.WithRoles(rl.Learner))
			m.tk.Use(runOf(m.tk, m.q, "").Exchange(rl.ExchangeConfig{Learners: 2 + node.ID()}))
			return m
		}},
		{"one too many", "node %d and node ", func(node task.Node) *member {
			m := &member{node: node, q: tiny(1)}
			m.tk = task.New[rl.Online](node, task.WithRoles(rl.Learner))
			m.tk.Use(runOf(m.tk, m.q, "").Exchange(rl.ExchangeConfig{}))
			return m
		}},
		{"too many", "node %d: nodes [0 1 2] are learners, but ExchangeConfig.Learners is 2", func(node task.Node) *member {
			m := &member{node: node, q: tiny(1)}
			m.tk = task.New[rl.Online](node, task.WithRoles(rl.Learner))
			m.tk.Use(runOf(m.tk, m.q, "").Exchange(rl.ExchangeConfig{Learners: 2}))
			return m
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 2
			if c.name != "another network" {
				n = 3
			}
			made, release := nodesOf(n)
			all := make([]*member, n)
			for i := range all {
				all[i] = c.make(made[i])
			}
			errs := run(within(t), all)
			_ = release()
			found := 0
			for i, err := range errs {
				if err == nil {
					t.Errorf("node %d has no error", i)
				} else if strings.Contains(err.Error(), fmt.Sprintf(c.want, i)) {
					found++
				}
			}
			if found == 0 {
				t.Errorf("no error %q: %v", c.want, errors.Join(errs...))
			}
		})
	}
}

// TestLearnersNeedAParallelPolicy: a table has no gradients to average.
func TestLearnersNeedAParallelPolicy(t *testing.T) {
	nodes, release := nodesOf(2)
	defer func() {
		p := fmt.Sprint(recover())
		if want := "rl: Learners is 2, but *qlearning.QLearning is not a policies.Parallel"; !strings.HasPrefix(p, want) {
			t.Errorf("panic %q, want %q", p, want)
		}
		_ = release()
	}()
	q := qlearning.New(qlearning.Config{Obs: envs.Discrete{N: 4}, Action: two})
	tk := task.New[rl.Online](nodes[0], rl.LearnerRoles(2, 2)...)
	rl.New(tk, q, rl.Config{}).Exchange(rl.ExchangeConfig{Learners: 2})
}

// TestLearnersWithNoiseStayEqual: SAC draws actions for each row.
func TestLearnersWithNoiseStayEqual(t *testing.T) {
	newSAC := func(seed uint64) policies.Policy {
		return sac.New(sac.Config{Obs: box(3), Action: envs.NewBox(-1, 1, 2), Seed: seed, Hidden: []int{8}})
	}
	rng := rand.New(rand.NewPCG(3, 3))
	probe := newSAC(1)
	sources := []steps{{}, {}}
	for range 4 {
		for i := range sources {
			sources[i] = append(sources[i], batchesOf(probe, rng, 6, 1))
		}
	}
	one := scripted(t, newSAC, sources, 4)
	two := scripted(t, newSAC, sources, 4)
	a, b := fmt.Sprint(one[0].Weights()), fmt.Sprint(two[1].Weights())
	if a != b || a != fmt.Sprint(one[1].Weights()) || one[0].Version() != 4 {
		t.Errorf("%.200s\n%.200s", a, b)
	}
}

func TestLearnerRoles(t *testing.T) {
	for _, c := range []struct {
		nodes, learners int
		want            []string // by node
	}{
		{1, 2, []string{""}},
		{4, 1, []string{"learner", "evaluator", "collector", "collector"}},
		{2, 2, []string{"collector+evaluator+learner", "collector+learner"}},
		{3, 2, []string{"learner", "learner", "collector+evaluator"}},
		{5, 2, []string{"learner", "learner", "evaluator", "collector", "collector"}},
	} {
		made, release := nodesOf(c.nodes)
		for i, node := range made {
			got := strings.Join(task.New[rl.Online](node, rl.LearnerRoles(c.nodes, c.learners)...).Roles(), "+")
			if got != c.want[i] {
				t.Errorf("node %d of %d with %d learners is %q, want %q", i, c.nodes, c.learners, got, c.want[i])
			}
		}
		_ = release() // of nodes that have not run
	}
}
