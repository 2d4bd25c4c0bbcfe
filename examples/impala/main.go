// Impala learns to balance CartPole-v1 with an importance weighted actor-learner, alone or with many
// processes, each at its own pace: node 0 learns, node 1 evaluates, the rest collect with weights that
// are a little old, and V-trace corrects for that. The column train/policy_lag has their age in updates.
package main

import (
	"context"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	const length = 50 // steps of a sequence
	env := envs.CartPole(8, envs.SameStep)
	p := impala.New(impala.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: node.Seed(), Length: length})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{EveryUpdates: 1}),
		r.Collect(env, rl.CollectConfig{VectorSteps: length}),
		r.Learn(data.NewSequences(data.SequencesConfig{Length: length, Batch: env.Num()}), rl.LearnConfig{}),
		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 20_000, StopAt: 475}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 20_000, Terminal: os.Stdout}),
	)
	return t.Run(ctx, task.MaxSteps(5000))
}
