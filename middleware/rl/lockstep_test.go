package rl_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// deadline is more than any of these tests takes on a machine that others share.
const deadline = time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// steppers are the nodes of these jobs.
const steppers = 4

// stepper assembles a node of a job in lockstep: node 0 learns, node 1 evaluates, the
// others collect. dir is the folder of the learner's checkpoints.
func stepper(t *testing.T, node task.Node, dir string, resume resuming) *member {
	t.Helper()
	const seed = 7
	m := &member{node: node}
	m.q = dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: seed, Hidden: []int{16}, NStep: 3, TargetEvery: 20,
		Epsilon: policies.Linear(1, 0.1, 1000)})
	m.tk = task.New[rl.Online](m.node, task.ByID(rl.Learner, rl.Evaluator, rl.Collector))
	m.run = rl.New(m.tk, m.q, rl.Config{Seed: seed, Dir: dir, Resume: resume != no, MustResume: resume == must})
	m.buf = replay(data.UniformConfig{Capacity: 300, Seed: seed}, data.ReplayConfig{Batch: 16, StartAt: 100, Every: 2})
	m.episodes = map[int]string{}
	m.tk.Use(
		m.run.Exchange(rl.ExchangeConfig{Synchronous: steppers}),
		m.run.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 100, Episodes: 4}),
		m.run.Collect(envs.CartPole(2), rl.CollectConfig{}),
		task.Step(func(_ context.Context, c *rl.Online) error {
			if c.Collected != nil && m.tk.Has(rl.Learner) {
				m.episodes[c.EnvSteps] = fmt.Sprint(c.Collected.Episodes, c.Explored)
			}
			return nil
		}),
		m.run.Learn(m.buf, rl.LearnConfig{}), m.run.Checkpoint(rl.CheckpointConfig{EveryUpdates: 7}),
	)
	return m
}

// Whether a stepper continues from a checkpoint.
type resuming int

const (
	no resuming = iota
	may
	must
)

// until ends the learner's run after that many updates.
func (m *member) until(updates int) {
	m.tk.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates >= updates {
			m.tk.Finish("enough")
		}
		return nil
	}))
}

// result is the state of the learner that must be equal at the end.
type result struct {
	text     string
	episodes map[int]string // that were collected, by the env steps after them
}

// equal reports an error unless the run that ended with got, or the part of it that got
// has, is the one that ended with want.
func (want result) equal(t *testing.T, got result) {
	t.Helper()
	if got.text != want.text {
		t.Errorf("the run ends with %.200s\nand straight with %.200s", got.text, want.text)
	}
	for envSteps, e := range got.episodes {
		if e != want.episodes[envSteps] {
			t.Errorf("at env step %d the run has collected %s, and straight %s", envSteps, e, want.episodes[envSteps])
		}
	}
}

func (m *member) result() result {
	c := m.tk.Context()
	var best rl.Best
	if c.Best != nil {
		best = *c.Best
	}
	return result{fmt.Sprint(c.EnvSteps, c.Episodes, c.Updates, c.Explored, c.Eval, best, m.q.Weights()), m.episodes}
}

// lockstepJob runs a job in lockstep to that many updates.
func lockstepJob(t *testing.T, dir string, resume resuming, updates int) result {
	t.Helper()
	const nodes = steppers
	made, release := nodesOf(nodes)
	all := make([]*member, nodes)
	for i := range all {
		all[i] = stepper(t, made[i], dir, resume)
	}
	all[0].until(updates)
	if err := errors.Join(append(run(within(t), all), release())...); err != nil {
		t.Fatal(err)
	}
	return all[0].result()
}

func TestP4LockstepGoesOnExactly(t *testing.T) {
	const updates = 150
	want := lockstepJob(t, t.TempDir(), no, updates)
	for _, cut := range []int{0, 1, 40, 140} {
		dir := t.TempDir()
		lockstepJob(t, dir, no, cut)
		want.equal(t, lockstepJob(t, dir, must, updates))
	}
}

// TestP4LockstepRecoversExactly crashes nodes of a running job and starts them again:
// the learner from its last checkpoint, or from 0 if there is none.
func TestP4LockstepRecoversExactly(t *testing.T) {
	const updates = 60
	want := lockstepJob(t, t.TempDir(), no, updates)
	for _, c := range []struct{ node, at int }{{0, 0}, {0, 3}, {0, 30}, {1, 30}, {2, 0}, {3, 30}} {
		t.Run(fmt.Sprintf("node %d at update %d", c.node, c.at), func(t *testing.T) {
			want.equal(t, recovered(t, c.node, c.at, updates))
		})
	}
}

// recovered is the result of a job in lockstep of which one node crashes in the middle
// of the learner's step after that many updates, and is started again.
func recovered(t *testing.T, victim, at, updates int) result {
	t.Helper()
	const nodes = steppers
	ctx, dir, sockets := within(t), t.TempDir(), t.TempDir()
	all := make([]*member, nodes)
	for i := range all {
		all[i] = stepper(t, restartable(t, sockets, nodes, i, 1), dir, no)
	}
	dying, kill := context.WithCancel(ctx)
	crashed := make(chan struct{})
	var once sync.Once
	all[0].tk.Use(task.Step(func(ctx context.Context, c *rl.Online) error {
		if c.Updates < at || all[0].tk.Steps() < 2 {
			return nil
		}
		once.Do(func() {
			crash(t, all[victim].node)
			kill()
			close(crashed)
		})
		if victim == 0 {
			<-ctx.Done() // the crash is now, before the step is over
			return context.Cause(ctx)
		}
		return nil
	}))
	if victim != 0 {
		all[0].until(updates)
	}
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
	again := stepper(t, restartable(t, sockets, nodes, victim, 2), dir, may)
	if victim == 0 {
		again.until(updates)
		all[0] = again
	}
	errs[victim] = again.tk.Run(ctx)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return all[0].result()
}

var errProbe = errors.New("looked at")

// TestP4LockstepSavesWholeSteps preempts the learner in the middle of a step, and between
// two steps: the checkpoint is that of a whole one.
func TestP4LockstepSavesWholeSteps(t *testing.T) {
	const nodes, updates = steppers, 60
	want := lockstepJob(t, t.TempDir(), no, updates)
	for name, saved := range map[string]int{"rl.Learn": 29, "rl.Checkpoint": 29, "rl.Exchange": 33} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			made, release := nodesOf(nodes)
			ctx, cancel := context.WithCancelCause(within(t))
			all := make([]*member, nodes)
			for i := range all {
				all[i] = stepper(t, made[i], dir, no)
			}
			learner := all[0].tk
			learner.Wrap(func(n string, m task.Middleware[rl.Online]) task.Middleware[rl.Online] {
				return func(ctx context.Context, c *rl.Online, next task.Next) error {
					if n == name && c.Updates >= 30 {
						cancel(&task.PreemptError{Reason: "test"})
						return context.Cause(ctx)
					}
					return m(ctx, c, next)
				}
			})
			errs := append(run(ctx, all), release())
			for i, err := range errs[:nodes] {
				if !errors.Is(err, task.ErrPreempted) {
					t.Fatalf("node %d: %v", i, err)
				}
			}
			probe := stepper(t, quiet{task.Alone()}, dir, must)
			seen := -1
			probe.tk.Use(func(context.Context, *rl.Online, task.Next) error { return errProbe })
			probe.tk.Wrap(func(n string, m task.Middleware[rl.Online]) task.Middleware[rl.Online] {
				if n == "rl.Exchange" {
					return m
				}
				return func(_ context.Context, c *rl.Online, _ task.Next) error {
					seen = c.Updates
					return errProbe
				}
			})
			if err := probe.tk.Run(t.Context()); !errors.Is(err, errProbe) || seen != saved {
				t.Errorf("the checkpoint has %d updates, want %d: %v", seen, saved, err)
			}
			want.equal(t, lockstepJob(t, dir, must, updates))
		})
	}
}
