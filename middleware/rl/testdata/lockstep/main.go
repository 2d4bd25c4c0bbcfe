// Lockstep is a job for tests: its nodes learn in lockstep up to the number of updates that
// is its first argument, and write what they have then to the file result. With the further argument
// rarely there is no checkpoint before the end, and with together two nodes learn.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	const seed = 7
	updates, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	saves := rl.CheckpointConfig{EveryUpdates: 25, Every: time.Second}
	if slices.Contains(os.Args, "rarely") {
		saves = rl.CheckpointConfig{EveryUpdates: updates, Every: -1}
	}
	learners := 1
	if slices.Contains(os.Args, "together") {
		learners = 2
	}
	fmt.Printf("node %d pid %d\n", node.ID(), os.Getpid())
	q := dqn.New(dqn.Config{
		Obs: envs.CartPole(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, NStep: 3, TargetEvery: 20,
		Epsilon: policies.Linear(1, 0.1, 1000),
	})
	t := task.New[rl.Online](node, rl.LearnerRoles(node.Size(), learners)...)
	r := rl.New(t, q, rl.Config{Seed: seed, Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 300, Seed: seed}), data.ReplayConfig{Batch: 16, StartAt: 100, Every: 2})
	t.Use(
		r.Exchange(rl.ExchangeConfig{Synchronous: node.Size(), Learners: learners}),
		r.Evaluate(envs.CartPole(3), rl.EvalConfig{EverySteps: 100, Episodes: 4}),
		r.Collect(envs.CartPole(2), rl.CollectConfig{}),
		r.Learn(replay, rl.LearnConfig{}),
	)
	if node.ID() > 0 {
		t.Use(r.Checkpoint(saves))
		return t.Run(ctx)
	}
	t.Use(task.Step(func(_ context.Context, c *rl.Online) error {
		if c.Updates >= updates {
			t.Finish("enough")
		}
		return nil
	}), r.Checkpoint(saves), func(ctx context.Context, c *rl.Online, next task.Next) error {
		err := next(ctx)
		fmt.Printf("updates %d\n", c.Updates)
		return err
	})
	if err := t.Run(ctx); err != nil {
		return err
	}
	c := t.Context()
	text := fmt.Sprintln(c.EnvSteps, c.Episodes, c.Updates, c.Explored, c.Eval, c.Best.Evaluation, c.Best.Weights, q.Weights())
	return os.WriteFile(filepath.Join(node.Dir(), "result"), []byte(text), 0o600)
}
