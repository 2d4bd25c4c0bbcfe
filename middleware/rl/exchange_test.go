package rl_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// TestRestartedCollectorSendsAgain: it first receives that the learner has taken more from its earlier
// run than it has sent.
func TestRestartedCollectorSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, release := nodesOf(2)
		ctx, cancel := context.WithCancel(t.Context())
		roles := task.ByID(rl.Learner, rl.Collector)
		learner, collector := task.New[rl.Online](nodes[0], roles), task.New[rl.Online](nodes[1], roles)
		run := runOf(collector, tiny(1), "")
		learner.Use(stopped())
		rl.Transitions.On(learner, func(context.Context, rl.Trajectory) error { return nil })
		collector.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
		var wg sync.WaitGroup
		wg.Go(func() { _ = learner.Run(ctx) })
		wg.Go(func() { _ = collector.Run(ctx) })
		settle()
		for _, c := range []struct{ taken, want int }{{1000, rl.Ahead}, {1001, rl.Ahead}, {2, 2 + rl.Ahead}} {
			progress := rl.Progress{Run: 1, Nodes: []int{1}, Taken: []uint64{uint64(c.taken)}}
			if err := rl.Progressed.Emit(ctx, learner, progress, task.OnlyRemote()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := collector.Steps(); n != c.want {
				t.Errorf("%d steps when the learner has taken up to %d, want %d", n, c.taken, c.want)
			}
		}
		cancel()
		wg.Wait()
		if err := release(); err != nil {
			t.Error(err)
		}
	})
}

// TestEvaluatorEndsAJobInLockstep: nodes with higher ids, which do not evaluate, do not
// change that the evaluator has asked the learner for the end.
func TestEvaluatorEndsAJobInLockstep(t *testing.T) {
	const nodes = 4
	made, release := nodesOf(nodes)
	all := make([]*member, nodes)
	for i := range all {
		m := &member{node: made[i], q: tiny(1)}
		m.tk = task.New[rl.Online](m.node, task.ByID(rl.Learner, rl.Evaluator, rl.Collector))
		run := runOf(m.tk, m.q, "")
		m.tk.Use(run.Exchange(rl.ExchangeConfig{Synchronous: nodes}),
			run.Evaluate(walks(envs.SameStep, &walk{length: 7}), rl.EvalConfig{EverySteps: 40, Episodes: 2, StopAt: 6.5, Confirm: 3}),
			run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
		all[i] = m
	}
	if err := errors.Join(append(run(within(t), all, task.MaxSteps(200)), release())...); err != nil {
		t.Fatal(err)
	}
	learner := all[0].tk
	c := learner.Context()
	if o := learner.Outcome(); o.Reason != "the evaluator reached a mean return of 7.0 over 3 episodes" {
		t.Errorf("outcome %+v", o)
	}
	// Two collectors take a step in each turn: there are 40 env steps after 20 turns, and the evaluation
	// is in the next one.
	if c.EnvSteps != 42 || learner.Steps() != 21 || c.Best == nil || c.Best.Mean != 7 || !c.Best.Reached {
		t.Errorf("%d env steps, %d steps, best %+v", c.EnvSteps, learner.Steps(), c.Best)
	}
}

// stopped is a step that ends only with its context.
func stopped() task.Middleware[rl.Online] {
	return task.Step(func(ctx context.Context, _ *rl.Online) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// TestWeightsArePublishedBeforeTheFirstStep: the evaluator and the collector have the weights of
// a learner that has not made its first step.
func TestWeightsArePublishedBeforeTheFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, release := nodesOf(3)
		roles := task.ByID(rl.Learner, rl.Evaluator, rl.Collector)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		policies := make([]*member, len(nodes))
		for i, node := range nodes {
			m := &member{node: node, q: tiny(uint64(i))}
			m.tk = task.New[rl.Online](node, roles)
			m.tk.Use(runOf(m.tk, m.q, "").Exchange(rl.ExchangeConfig{}), stopped())
			policies[i] = m
		}
		if err := policies[0].q.Load(nn.State{Version: 40, Tensors: policies[0].q.Weights().Tensors}); err != nil {
			t.Fatal(err)
		}
		for _, m := range policies {
			wg.Go(func() { _ = m.tk.Run(ctx) })
		}
		settle()
		cancel()
		wg.Wait()
		for i, m := range policies {
			if v := m.q.Version(); v != 40 {
				t.Errorf("node %d has weights of %d updates, want 40", i, v)
			}
		}
		if err := release(); err != nil {
			t.Error(err)
		}
	})
}

// TestNodeWithoutALearnerWarns: nothing else explains why a job does not begin.
func TestNodeWithoutALearnerWarns(t *testing.T) {
	const want = "no node of this job has the role learner"
	for name, c := range map[string]struct {
		roles  []string // of node 0 and node 1
		cfg    rl.ExchangeConfig
		warned bool
	}{
		"collectors":             {[]string{rl.Collector, rl.Collector}, rl.ExchangeConfig{}, true},
		"an evaluator":           {[]string{rl.Collector, rl.Evaluator}, rl.ExchangeConfig{}, true},
		"lockstep":               {[]string{rl.Collector, rl.Collector}, rl.ExchangeConfig{Synchronous: 2}, true},
		"a learner":              {[]string{rl.Learner, rl.Collector}, rl.ExchangeConfig{}, false},
		"a learner, in lockstep": {[]string{rl.Learner, rl.Collector}, rl.ExchangeConfig{Synchronous: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, release := nodesOf(2)
				ctx, cancel := context.WithCancel(t.Context())
				var log bytes.Buffer
				var wg sync.WaitGroup
				for i, node := range nodes {
					var n task.Node = node
					if i == 1 {
						n = logged{node, slog.New(slog.NewTextHandler(&log, nil))}
					}
					tk := task.New[rl.Online](n, task.ByID(c.roles...))
					tk.Use(runOf(tk, tiny(1), "").Exchange(c.cfg), stopped())
					wg.Go(func() { _ = tk.Run(ctx) })
				}
				settle()
				cancel()
				wg.Wait()
				if n := strings.Count(log.String(), want); n > 1 || (n == 1) != c.warned {
					t.Errorf("log %s", log.String())
				}
				if err := release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestLastWeightsArePublished, even after fewer updates than ExchangeConfig.EveryUpdates.
func TestLastWeightsArePublished(t *testing.T) {
	nodes, release := nodesOf(2)
	roles := task.ByID(rl.Learner, rl.Collector)
	all := []*member{{node: nodes[0], q: tiny(1)}, {node: nodes[1], q: tiny(1)}}
	for _, m := range all {
		m.tk = task.New[rl.Online](m.node, roles)
		run := runOf(m.tk, m.q, "")
		m.tk.Use(run.Exchange(rl.ExchangeConfig{EveryUpdates: 1000}),
			run.Learn(replay(data.UniformConfig{Capacity: 100}, data.ReplayConfig{Batch: 2, StartAt: 2}), rl.LearnConfig{}),
			run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
	}
	all[0].until(20)
	var versions []uint64
	rl.Weights.On(all[1].tk, func(_ context.Context, s nn.State) error {
		versions = append(versions, s.Version)
		return nil
	})
	if err := errors.Join(append(run(within(t), all), release())...); err != nil {
		t.Fatal(err)
	}
	if n := len(versions); n == 0 || versions[n-1] != 20 || n > 2 {
		t.Errorf("received weights of %v updates, want the first and those of 20", versions)
	}
}
