// Dqn learns to balance CartPole-v1, alone or with many processes: node 0
// learns, node 1 evaluates, the rest collect; of two nodes the second does both,
// a lone node does all three. It stops by itself when 100 episodes of the greedy
// policy have a mean return of at least 475.
package main

import (
	"context"
	"os"

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
	q := dqn.New(dqn.Config{
		Obs: 4, Actions: 2, Seed: node.Seed(),
		Double: true, Dueling: true, NStep: 5, Tau: 0.01,
	})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	t.Use(rl.Exchange(t, q))
	if t.Has(rl.Evaluator) {
		t.Use(rl.Evaluate(q, envs.CartPole(8), rl.EvalConfig{EverySteps: 1000, StopAt: 475}))
	}
	if t.Has(rl.Collector) {
		t.Use(rl.EpsGreedy(q, policies.Linear(1, 0.05, 10_000)), rl.Collect(q, envs.CartPole(8)))
	}
	if t.Has(rl.Learner) {
		buf := data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: node.Seed()})
		t.Use(rl.Push(buf), rl.Learn(q, buf, rl.LearnConfig{Batch: 64, UpdatesPerCollect: 4}))
		t.Use(rl.Checkpoint(q, node.Dir()), rl.Log(rl.LogConfig{Terminal: os.Stdout}))
	}
	if node.Resume() && t.Has(rl.Learner) {
		if _, err := rl.Resume(t, node.Dir(), q, rl.ResumeConfig{Required: node.MustResume()}); err != nil {
			return err
		}
	}
	return t.Run(ctx, task.MaxSteps(100_000))
}
