package rl_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/task"
)

// pair is a learner whose first step waits until the test releases it, and a
// collector whose log can be read.
type pair struct {
	learner, collector *task.Task[rl.Online]
	letGo              chan struct{}
	release            func() error
	log                bytes.Buffer
}

func newPair() *pair {
	nodes, release := nodesOf(2)
	p := &pair{letGo: make(chan struct{}), release: release}
	roles := task.ByID(rl.Learner, rl.Collector)
	p.learner = task.New[rl.Online](nodes[0], roles)
	p.learner.Use(runOf(p.learner, tiny(1), "").Exchange(rl.ExchangeConfig{}), task.Step(func(ctx context.Context, _ *rl.Online) error {
		select {
		case <-p.letGo:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}))
	node := logged{nodes[1], slog.New(slog.NewTextHandler(&p.log, nil))}
	p.collector = task.New[rl.Online](node, roles)
	run := runOf(p.collector, tiny(1), "")
	p.collector.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
	return p
}

// settle returns when the nodes are connected, which dial again a little later if the
// other is not there yet, and all wait.
func settle() {
	<-time.After(time.Second)
	synctest.Wait()
}

func TestCollectorWaitsForTheLearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		var errs [2]error
		var wg sync.WaitGroup
		wg.Go(func() { errs[0] = p.learner.Run(t.Context(), task.MaxSteps(50)) })
		wg.Go(func() { errs[1] = p.collector.Run(t.Context()) })
		settle()
		if n := p.collector.Steps(); n != rl.Ahead {
			t.Errorf("%d steps of the collector before the learner's first, want %d", n, rl.Ahead)
		}
		<-time.After(15 * time.Second) // on the clock of the test: the wait is long now
		synctest.Wait()
		if !strings.Contains(p.log.String(), "waiting for the learner to take what was sent") {
			t.Errorf("log %q", p.log.String())
		}
		close(p.letGo)
		wg.Wait()
		if err := errors.Join(errs[0], errs[1], p.release()); err != nil {
			t.Error(err)
		}
		if c := p.learner.Context(); c.EnvSteps != 50 {
			t.Errorf("the learner took %d env steps, want 50", c.EnvSteps)
		}
		if n := p.collector.Steps(); n < 50 || n > 50+rl.Ahead {
			t.Errorf("%d steps of the collector", n)
		}
	})
}

func TestCollectorGoesOnWithARestartedLearner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		defer close(p.letGo)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var own uint64 // of the learner, which announces it before it has taken anything
		rl.Progressed.Once(p.collector, func(_ context.Context, p rl.Progress) error {
			own = p.Run
			return nil
		})
		wg.Go(func() { _ = p.learner.Run(ctx) })
		wg.Go(func() { _ = p.collector.Run(ctx) })
		settle()
		tell := func(progress rl.Progress) int {
			if err := rl.Progressed.Emit(ctx, p.learner, progress, task.OnlyRemote()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return p.collector.Steps()
		}
		// The first learner has taken one; another one begins, and knows no other learner.
		if n := tell(rl.Progress{Run: own, Nodes: []int{1}, Taken: []uint64{1}}); n != rl.Ahead+1 {
			t.Errorf("%d steps, want %d", n, rl.Ahead+1)
		}
		if n := tell(rl.Progress{Run: own + 1}); n != 2*rl.Ahead+1 {
			t.Errorf("%d steps after the restart, want %d", n, 2*rl.Ahead+1)
		}
		// The count of those that it has taken continues from there.
		if n := tell(rl.Progress{Run: own + 1, Nodes: []int{1}, Taken: []uint64{2 * rl.Ahead}}); n != 3*rl.Ahead {
			t.Errorf("%d steps, want %d", n, 3*rl.Ahead)
		}
		cancel()
		wg.Wait()
		if err := p.release(); err != nil {
			t.Error(err)
		}
	})
}

// A collector fills its messages, unless its environments are slow or it must take that many steps.
func TestCollectorSendsFullMessages(t *testing.T) {
	for name, c := range map[string]struct {
		collect rl.CollectConfig
		took    time.Duration // each step
		rows    int           // in a message
	}{
		"quick":      {rows: 64},
		"slow":       {took: 300 * time.Microsecond, rows: 4},
		"very slow":  {took: time.Second, rows: 1},
		"so many":    {collect: rl.CollectConfig{VectorSteps: 3}, rows: 3},
		"an episode": {collect: rl.CollectConfig{Episodes: 1}, rows: 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := &walk{length: 5, fault: func(*walk) { time.Sleep(c.took) }}
				nodes, release := nodesOf(2)
				var sizes []int
				both(t, nodes, func(node task.Node) *task.Task[rl.Online] {
					tk := task.New[rl.Online](node, task.ByID(rl.Learner, rl.Collector))
					run := runOf(tk, tiny(1), "")
					tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(walks(envs.SameStep, env), c.collect))
					tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
						if tk.Has(rl.Learner) {
							sizes = append(sizes, c.Collected.Batch.Len())
							if len(sizes) == 10 {
								tk.Finish("enough")
							}
						}
						return nil
					}))
					return tk
				})
				for i, n := range sizes {
					if n != c.rows {
						t.Errorf("message %d has %d rows, want %d", i, n, c.rows)
					}
				}
				if err := release(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// both runs a task on each node.
func both(t *testing.T, nodes []*parallel.Node, newTask func(task.Node) *task.Task[rl.Online]) {
	t.Helper()
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Go(func() {
			if err := newTask(node).Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A malformed message ends the collector with an error.
func TestCollectorRefusesMalformedProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair()
		defer close(p.letGo)
		var errs [2]error
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() { errs[0] = p.learner.Run(ctx) })
		wg.Go(func() { errs[1] = p.collector.Run(ctx) })
		settle()
		if err := rl.Progressed.Emit(ctx, p.learner, rl.Progress{Run: 1, Nodes: []int{1}}, task.OnlyRemote()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if err := errs[1]; err == nil || !strings.Contains(err.Error(), "progress of the learner: 0 numbers for 1 nodes") {
			t.Error(err)
		}
		_ = p.release()
	})
}

// TestLearnerSendsProgressOnlyToNodesThatNeedIt: a message to a node wakes its process. A collector is notified of every second
// its own trajectory, and all nodes when weights are published and at the end.
func TestLearnerSendsProgressOnlyToNodesThatNeedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, release := nodesOf(4)
		roles := task.ByID(rl.Learner, rl.Evaluator, rl.Collector)
		all := make([]*member, len(nodes))
		heard := make([][]rl.Progress, len(nodes))
		for i, node := range nodes {
			m := &member{node: node, q: tiny(1)}
			m.tk = task.New[rl.Online](node, roles)
			m.run = runOf(m.tk, m.q, "")
			m.tk.Use(m.run.Exchange(rl.ExchangeConfig{EveryUpdates: 10}),
				m.run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
			if i > 0 {
				rl.Progressed.On(m.tk, func(_ context.Context, p rl.Progress) error {
					heard[i] = append(heard[i], p)
					return nil
				})
			}
			all[i] = m
		}
		learner, goOn := all[0], make(chan func())
		learner.tk.Use(task.Step(func(context.Context, *rl.Online) error {
			(<-goOn)()
			return nil
		}))
		var errs []error
		var wg sync.WaitGroup
		wg.Go(func() { errs = run(t.Context(), all) })
		settle()
		step := func(what string, do func(), want ...int) {
			goOn <- do
			synctest.Wait()
			for i, n := range want {
				if len(heard[i+1]) != n {
					t.Errorf("%s: node %d has received progress %d times, want %d", what, i+1, len(heard[i+1]), n)
				}
			}
		}
		nothing := func() {}
		sum := func() int { return len(heard[2]) + len(heard[3]) }
		for range 20 {
			step("without new weights", nothing, 1)
		}
		// Ten each, or one more and one less.
		if n := sum(); n < 2+9 || n > 2+10 {
			t.Errorf("the collectors have received progress %d times after 20 trajectories, want 11 or 12", n)
		}
		before := sum()
		step("with new weights", func() {
			if err := learner.q.Load(nn.State{Version: 10, Tensors: learner.q.Weights().Tensors}); err != nil {
				t.Error(err)
			}
		}, 2)
		if n := sum(); n != before+2 {
			t.Errorf("the collectors have received progress %d times with new weights, want once each", n-before)
		}
		if p := heard[1][1]; p.EnvSteps != 21 {
			t.Errorf("with the weights, the evaluator received %d env steps, want 21", p.EnvSteps)
		}
		step("at the end", func() { learner.tk.Finish("enough") }, 3)
		wg.Wait()
		if err := errors.Join(append(errs, release())...); err != nil {
			t.Error(err)
		}
	})
}

// TestCollectorsGoOnWithoutNewWeights: they receive the number of taken trajectories though nothing is published.
func TestCollectorsGoOnWithoutNewWeights(t *testing.T) {
	for _, collectors := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(collectors), func(t *testing.T) {
			nodes, release := nodesOf(1 + collectors)
			roles := task.ByID(rl.Learner, rl.Collector)
			all := make([]*member, len(nodes))
			for i, node := range nodes {
				m := &member{node: node, q: tiny(1)}
				m.tk = task.New[rl.Online](node, roles)
				m.run = runOf(m.tk, m.q, "")
				m.tk.Use(m.run.Exchange(rl.ExchangeConfig{EveryUpdates: 1 << 30}),
					m.run.Collect(walks(envs.SameStep, &walk{length: 5}), rl.CollectConfig{VectorSteps: 1}))
				all[i] = m
			}
			steps := 100 * collectors
			all[0].tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
				if c.EnvSteps >= steps {
					all[0].tk.Finish("enough")
				}
				return nil
			}))
			if err := errors.Join(append(run(within(t), all), release())...); err != nil {
				t.Fatal(err)
			}
			if c := all[0].tk.Context(); c.EnvSteps != steps {
				t.Errorf("%d env steps, want %d", c.EnvSteps, steps)
			}
		})
	}
}
