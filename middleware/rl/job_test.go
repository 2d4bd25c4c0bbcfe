package rl_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// member is one node of a job of tests.
type member struct {
	node task.Node
	seen *observed // node, as the task has it
	tk   *task.Task[rl.Online]
	q    *dqn.DQN
	run  *rl.Run

	policy policies.Policy
	buf    *data.Replay

	episodes map[int]string // see stepper
}

// jobOf assembles n nodes as the example does: node 0 learns, node 1
// evaluates, the others collect.
func jobOf(t *testing.T, n int, stopAt float64) []*member {
	t.Helper()
	return savingJobOf(t, n, stopAt, "")
}

// savingJobOf is jobOf with the folder of the checkpoints.
func savingJobOf(t *testing.T, n int, stopAt float64, dir string) []*member {
	t.Helper()
	all, release := membersOf(n, stopAt, dir)
	t.Cleanup(func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	return all
}

func membersOf(n int, stopAt float64, dir string) (all []*member, release func() error) {
	nodes, release := nodesOf(n)
	for _, node := range nodes {
		all = append(all, memberOf(node, n, stopAt, dir))
	}
	return all, release
}

func memberOf(node task.Node, n int, stopAt float64, dir string) *member {
	m := &member{node: node, q: tiny(1, func(c *dqn.Config) { c.Epsilon = policies.Linear(1, 0, 200) })}
	m.seen = &observed{Node: m.node}
	m.tk = task.New[rl.Online](m.seen, rl.Roles(n)...)
	m.run = runOf(m.tk, m.q, dir)
	m.buf = replay(data.UniformConfig{Capacity: 1000}, data.ReplayConfig{Batch: 4, StartAt: 4, Every: 2})
	m.tk.Use(
		m.run.Exchange(rl.ExchangeConfig{EveryUpdates: 2}),
		m.run.Evaluate(walks(envs.SameStep, &walk{length: 7}), rl.EvalConfig{EverySteps: 40, Episodes: 2, StopAt: stopAt, Confirm: 3}),
		m.run.Collect(walks(envs.SameStep, &walk{length: 5}, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}),
		m.run.Learn(m.buf, rl.LearnConfig{}),
	)
	return m
}

func TestP3JobInLockstepGivesTheSameFiles(t *testing.T) {
	files := func(seed uint64) string {
		const nodes = 4
		stopAt := 9.0
		if seed == 9 {
			stopAt = 0
		}
		made, release := nodesOf(nodes)
		table := filepath.Join(t.TempDir(), "progress.csv")
		all := make([]*member, nodes)
		for i := range all {
			m := &member{node: made[i]}
			m.q = dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: seed, Hidden: []int{16}, NStep: 2, Epsilon: policies.Linear(1, 0.1, 1000)})
			m.tk = task.New[rl.Online](m.node, task.ByID(rl.Learner, rl.Evaluator, rl.Collector))
			m.run = runOf(m.tk, m.q, "")
			m.tk.Use(
				m.run.Exchange(rl.ExchangeConfig{Synchronous: nodes}),
				m.run.Evaluate(envs.CartPole(2), rl.EvalConfig{EverySteps: 200, Episodes: 2, StopAt: stopAt, Confirm: 3}),
				m.run.Collect(envs.CartPole(2), rl.CollectConfig{VectorSteps: 1}),
				m.run.Learn(replay(data.UniformConfig{Capacity: 500, Seed: seed}, data.ReplayConfig{Batch: 16, StartAt: 100, Every: 2}),
					rl.LearnConfig{}),
				m.run.Log(rl.LogConfig{EverySteps: 100, CSV: table, Untimed: true}),
			)
			all[i] = m
		}
		if err := errors.Join(append(run(t.Context(), all, task.MaxSteps(300)), release())...); err != nil {
			t.Fatal(err)
		}
		return contentOf(t, table)
	}
	// With one seed the evaluator ends the run, with the other the steps do.
	stopped, ran := files(7), files(9)
	if again := files(7); stopped != again {
		t.Errorf("two runs with one seed differ:\n%s\n%s", stopped, again)
	}
	if again := files(9); ran != again {
		t.Errorf("two runs with one seed differ:\n%s\n%s", ran, again)
	}
	if n, m := strings.Count(stopped, "\n"), strings.Count(ran, "\n"); n < 3 || m < 12 {
		t.Errorf("%d and %d rows:\n%s\n%s", n, m, stopped, ran)
	}
}

// run runs all nodes and returns their errors.
func run(ctx context.Context, all []*member, opts ...task.RunOption) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() { errs[i] = m.tk.Run(ctx, opts...) })
	}
	wg.Wait()
	return errs
}

func TestJobLearnsAsOneNode(t *testing.T) {
	all := jobOf(t, 4, 0)
	learner := all[0].tk
	var collectors [4]int
	lag := rl.Lag{}
	learner.Use(func(ctx context.Context, c *rl.Online, next task.Next) error {
		if c.Collected == nil {
			t.Error("a step of the learner has nothing to learn from")
			return nil
		}
		if c.Lag.Max > lag.Max {
			lag = c.Lag
		}
		if c.Updates >= 100 && c.Best != nil {
			learner.Finish("enough")
		}
		return next(ctx)
	})
	rl.Transitions.On(learner, func(ctx context.Context, _ rl.Trajectory) error {
		collectors[task.Sender(ctx)]++
		return nil
	})
	if err := errors.Join(run(t.Context(), all)...); err != nil {
		t.Fatal(err)
	}
	c := learner.Context()
	// Every trajectory has two transitions and, from the second on, one update.
	if c.EnvSteps != 2*learner.Steps() || c.Updates != learner.Steps()-1 || all[0].buf.Len() != min(1000, c.EnvSteps) {
		t.Errorf("%d steps: %d env steps, %d updates, %d kept", learner.Steps(), c.EnvSteps, c.Updates, all[0].buf.Len())
	}
	if collectors[2] == 0 || collectors[3] == 0 || collectors[1] != 0 {
		t.Errorf("trajectories by node: %v", collectors)
	}
	if lag.Max == 0 { // how far depends on the processors; that collectors wait for the learner is in pace_test.go
		t.Error("trajectories that were queued for a learner at work were never behind")
	}
	if c.Eval.Mean != 7 || c.Best == nil || c.Best.Mean != 7 || len(c.Best.Weights.Tensors) == 0 {
		t.Errorf("the learner received evaluation %+v, best %+v", c.Eval, c.Best)
	}
	for _, m := range all[1:] {
		if m.q.Version() == 0 || m.tk.Context().PolicyVersion == 0 || m.tk.Context().Updates == 0 {
			t.Errorf("node %d acts with version %d and has received counters of %d updates", m.tk.NodeID(), m.q.Version(), m.tk.Context().Updates)
		}
	}
}

// TestP5LagIsReported: the table of nodes shows by how many updates the weights with which a collector
// acts are behind.
func TestP5LagIsReported(t *testing.T) {
	all := jobOf(t, 3, 0)
	learner, collector := all[0], all[2]
	var behind atomic.Bool
	collector.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		got := collector.seen.snapshot().Lag
		if want := float64(c.Updates) - float64(collector.q.Version()); got != max(want, 0) {
			t.Errorf("lag %v with %d updates and weights of %d", got, c.Updates, collector.q.Version())
		}
		if got > 0 {
			behind.Store(true)
		}
		return nil
	}))
	learner.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates >= 100 && behind.Load() || c.Updates >= 20_000 {
			learner.tk.Finish("enough")
		}
		return nil
	}))
	if err := errors.Join(run(t.Context(), all)...); err != nil {
		t.Fatal(err)
	}
	if !behind.Load() {
		t.Error("weights published every second update were never behind")
	}
}

func TestJobStopsWhenTheEvaluatorReachesTheReturn(t *testing.T) {
	all := jobOf(t, 4, 6.5)
	if err := errors.Join(run(t.Context(), all)...); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if o := m.tk.Outcome(); o.Kind != task.Success || o.Node != 1 || o.Reason != "mean return 7.0 over 3 episodes reached 6.5" {
			t.Errorf("node %d: %+v", m.tk.NodeID(), o)
		}
	}
	e := all[1].tk.Context()
	if e.Best == nil || e.Best.Episodes != 3 || e.Best.Version != all[1].q.Version() {
		t.Errorf("best %+v", e.Best)
	}
}

// TestJobOfTwoHasACollector: node 1 evaluates and collects, as there is no other node that could.
func TestJobOfTwoHasACollector(t *testing.T) {
	all := jobOf(t, 2, 6.5)
	if err := errors.Join(run(t.Context(), all)...); err != nil {
		t.Fatal(err)
	}
	if roles := all[1].tk.Roles(); !slices.Equal(roles, []string{rl.Collector, rl.Evaluator}) || all[0].tk.Context().EnvSteps == 0 {
		t.Errorf("node 1 is %v, and %d env steps were learned from", roles, all[0].tk.Context().EnvSteps)
	}
}

func TestBestReachesTheLearnersCheckpoint(t *testing.T) {
	dir := t.TempDir()
	all := savingJobOf(t, 3, 6.5, dir)
	all[0].tk.Use(all[0].run.Checkpoint(rl.CheckpointConfig{}))
	if err := errors.Join(run(t.Context(), all)...); err != nil {
		t.Fatal(err)
	}
	best, err := rl.LoadBest(dir)
	if err != nil || best.Mean != 7 || best.Weights.Version != best.Version {
		t.Errorf("best %+v, %v", best, err)
	}
}

func TestLostCollectorDoesNotStopTheLearner(t *testing.T) {
	all := jobOf(t, 4, 0)
	learner := all[0].tk
	ctx, kill := context.WithCancel(t.Context())
	runs := make(chan struct{})
	all[3].tk.Use(task.Step(func(context.Context, *rl.Online) error {
		if all[3].tk.Steps() == 0 {
			close(runs)
		}
		return nil
	}))
	var after int
	learner.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		switch {
		case c.Updates == 50:
			<-runs // the node must have joined
			crash(t, all[3].node)
			kill()
		case c.Updates > 50:
			after++
		}
		if after == 100 {
			learner.Finish("enough")
		}
		return nil
	}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = all[3].tk.Run(ctx) })
	err := errors.Join(run(t.Context(), all[:3])...)
	wg.Wait()
	if err != nil || after != 100 {
		t.Errorf("after the loss: %d updates, %v", after, err)
	}
}

// TestRestartedLearnerReceivesNewTrajectories kills the learner before it has taken the trajectories of the
// collectors: these wait for messages that its successor does not send.
func TestRestartedLearnerReceivesNewTrajectories(t *testing.T) {
	const nodes = 3
	dir := t.TempDir()
	var all [nodes]*member
	for i := range all {
		all[i] = memberOf(restartable(t, dir, nodes, i, 1), nodes, 0, "")
	}
	first, collector := all[0], all[2]
	ctx, kill := context.WithCancel(t.Context())
	killed := make(chan struct{})
	first.tk.Use(task.Step(func(context.Context, *rl.Online) error {
		if first.tk.Steps() == 3 {
			crash(t, first.node)
			kill()
			close(killed)
		}
		return nil
	}))
	var wg sync.WaitGroup
	wg.Go(func() { _ = first.tk.Run(ctx) })
	var errs [3]error
	for i, m := range all[1:] {
		wg.Go(func() { errs[i+1] = m.tk.Run(t.Context()) })
	}
	<-killed
	second := memberOf(restartable(t, dir, nodes, 0, 2), nodes, 0, "")
	second.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates >= 20 {
			second.tk.Finish("enough")
		}
		return nil
	}))
	errs[0] = second.tk.Run(t.Context())
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	if v := collector.q.Version(); v == 0 {
		t.Error("the collector has no weights of the second learner")
	}
}

func TestP7NonFiniteWeightsAreNotPublished(t *testing.T) {
	nodes, release := nodesOf(2)
	defer func() { _ = release() }()
	learner := task.New[rl.Online](nodes[0], task.ByID(rl.Learner, rl.Collector))
	collector := task.New[rl.Online](nodes[1], task.ByID(rl.Learner, rl.Collector))
	learner.Use(rl.New(learner, broken{tiny(1)}, rl.Config{}).Exchange(rl.ExchangeConfig{}))
	heard := 0
	rl.Weights.On(collector, func(context.Context, nn.State) error {
		heard++
		return nil
	})
	collector.Use(runOf(collector, tiny(1), "").Exchange(rl.ExchangeConfig{}), task.Step(func(_ context.Context, c *rl.Online) error {
		c.Collected = new(rl.Trajectory)
		return nil
	}))
	var errs [2]error
	var wg sync.WaitGroup
	wg.Go(func() { errs[0] = learner.Run(t.Context()) })
	wg.Go(func() { errs[1] = collector.Run(t.Context()) })
	wg.Wait()
	var e *nn.NonFiniteError
	if !errors.As(errs[0], &e) || !strings.Contains(errs[0].Error(), "node 0: publish weights of update 7: tensor w is not finite") {
		t.Errorf("learner: %v", errs[0])
	}
	var remote *task.RemoteError
	if !errors.As(errs[1], &remote) || heard != 0 {
		t.Errorf("the collector received %d weights: %v", heard, errs[1])
	}
}

type broken struct{ *dqn.DQN }

func (broken) Version() uint64     { return 7 }
func (broken) Load(nn.State) error { return nil }
func (broken) Weights() nn.State {
	return nn.State{Version: 7, Tensors: []nn.Tensor{{Name: "w", Shape: []int{1}, Data: []float32{float32(math.NaN())}}}}
}

// Example_job runs a learner, an evaluator and two collectors in one process.
func Example_job() {
	all, release := membersOf(4, 6.5, "")
	err := errors.Join(append(run(context.Background(), all), release())...)
	fmt.Println(err, all[0].tk.Outcome().Reason)
	// Output: <nil> mean return 7.0 over 3 episodes reached 6.5
}
