// Custom-algorithm trains the algorithm of this module, REINFORCE with a baseline, on CartPole-v1: alone,
// or with a learner, an evaluator and collectors. It stops by itself when 100 greedy episodes have a mean
// return of at least 475.
package main

import (
	"context"
	"os"

	"example.com/reinforce/reinforce"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	const length = 256
	env := envs.CartPole(8, envs.SameStep)
	p := reinforce.New(reinforce.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace().(envs.Discrete), Seed: node.Seed()})
	rollout := data.NewRollout(data.RolloutConfig{Length: length, Lambda: 1, Epochs: 1, Minibatches: 1, Seed: node.Seed()})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{Synchronous: node.Size()}),
		r.Collect(env, rl.CollectConfig{VectorSteps: length}),
		r.Learn(rollout, rl.LearnConfig{}),
		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 20_000, StopAt: 475}),
		r.Stop(rl.StopConfig{EnvSteps: 2_000_000}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 20_000, Terminal: os.Stdout}),
	)
	return t.Run(ctx)
}
