// Sac learns to swing up and hold Pendulum-v1 with soft actor-critic, alone or with many processes:
// node 0 learns, node 1 evaluates, the rest collect. It stops by itself when 100 episodes of the mean
// actions have a mean return of at least -200.
package main

import (
	"context"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func pendulums(n int) envs.Vector {
	return envs.NewSync(n, envs.NextStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
}

func play(ctx context.Context, node *parallel.Node) error {
	env := pendulums(1)
	rate := nn.AdamConfig{Rate: 1e-3} // RL Zoo's for Pendulum-v1
	p := sac.New(sac.Config{
		Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: node.Seed(), Hidden: []int{64, 64}, Actor: rate, Critic: rate,
	})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 50_000, Seed: node.Seed()}), data.ReplayConfig{Batch: 256})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}),
		r.Collect(env, rl.CollectConfig{RandomSteps: 1000}),
		r.Learn(replay, rl.LearnConfig{}),
		r.Evaluate(pendulums(10), rl.EvalConfig{EverySteps: 1000, StopAt: -200}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{Terminal: os.Stdout}),
	)
	return t.Run(ctx, task.MaxSteps(30_000))
}
