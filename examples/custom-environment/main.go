// Custom-environment learns to land in its own environment, lander.go, with PPO: alone, or with a
// learner, an evaluator and collectors. It stops by itself when 100 greedy episodes have a mean return of
// at least 8.
package main

import (
	"context"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func landers(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] { return newLander() })
}

func play(ctx context.Context, node *parallel.Node) error {
	const length = 128
	env := landers(8)
	// Heights and speeds are of different size: the policy gets them at mean 0 and variance 1.
	p := normalize.New(ppo.New(ppo.Config{
		Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: node.Seed(), Adam: nn.AdamConfig{Rate: 1e-3},
	}), normalize.Config{})
	rollout := data.NewRollout(data.RolloutConfig{Length: length, Gamma: 0.999, Seed: node.Seed()})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{Synchronous: node.Size()}),
		r.Collect(env, rl.CollectConfig{VectorSteps: length}),
		r.Learn(rollout, rl.LearnConfig{}),
		r.Evaluate(landers(10), rl.EvalConfig{EverySteps: 20_000, StopAt: 8}),
		r.Stop(rl.StopConfig{EnvSteps: 3_000_000}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 20_000, Terminal: os.Stdout}),
	)
	return t.Run(ctx)
}
