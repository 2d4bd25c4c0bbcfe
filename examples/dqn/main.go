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
		Obs: envs.CartPole(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: node.Seed(),
		Double: true, Dueling: true, NStep: 5, Tau: 0.01, Epsilon: policies.Linear(1, 0.05, 10_000),
	})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 20_000, Seed: node.Seed()}), data.ReplayConfig{Batch: 64, Every: 2})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, q, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}),
		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 1000, StopAt: 475}),
		r.Collect(envs.CartPole(8), rl.CollectConfig{}),
		r.Learn(replay, rl.LearnConfig{}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{Terminal: os.Stdout}),
	)
	return t.Run(ctx, task.MaxSteps(100_000))
}
