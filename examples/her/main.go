// Her learns to flip 15 bits until they equal a goal with double DQN and hindsight experience replay, alone or
// with many processes: node 0 learns, node 1 evaluates, the rest collect. Only the step that reaches the goal
// is rewarded, which random actions hardly ever do. It stops by itself when 100 episodes of the greedy policy
// have a mean return of at least -7; the least number of flips gives about -6.5.
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
	"github.com/ditask/ditask/policies/her"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func bits() envs.Env[int] { return envs.NewBitFlip(envs.BitFlipConfig{Bits: 15}) }

func vector() envs.Vector {
	return envs.NewSync(8, envs.SameStep, func(int) envs.Env[int] { return bits() })
}

func play(ctx context.Context, node *parallel.Node) error {
	env := vector()
	q := dqn.New(dqn.Config{
		Obs: env.ObservationSpace(), Action: envs.Discrete{N: 15}, Seed: node.Seed(), Hidden: []int{256}, Double: true, Gamma: 0.98, Tau: 0.01,
		Epsilon: policies.Linear(1, 0.1, 10_000),
	})
	// Each env step is 5 rows: itself, and with 4 goals in hindsight. An update for 4 of them.
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 250_000, Seed: node.Seed()}), data.ReplayConfig{Batch: 128,
		Every: 5 * 4})
	goal, _ := envs.As[envs.Goal](bits())
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, q, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{}),
		r.Evaluate(vector(), rl.EvalConfig{EverySteps: 2000, StopAt: -7}),
		r.Collect(env, rl.CollectConfig{}),
		r.Learn(her.New(replay, her.Config{Goal: goal, Seed: node.Seed()}), rl.LearnConfig{}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 2000, Terminal: os.Stdout}),
	)
	return t.Run(ctx, task.MaxSteps(20_000))
}
