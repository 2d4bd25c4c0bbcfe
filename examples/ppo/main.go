// Ppo learns to balance CartPole-v1 with proximal policy optimisation, alone or with many processes:
// node 0 learns, node 1 evaluates, the rest collect. With several processes they go in lockstep, so
// that the learner has the sequences of all collectors in each step, made with its newest weights. With
// -learners the first nodes learn together; if all do, each collects for itself.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/task"
)

func main() {
	learners := flag.Int("learners", 1, "number of nodes that learn together")
	flag.Parse()
	parallel.Main(func(ctx context.Context, node *parallel.Node) error { return play(ctx, node, *learners) })
}

func play(ctx context.Context, node *parallel.Node, learners int) error {
	const length = 128 // steps of a sequence
	env := envs.CartPole(4, envs.SameStep)
	p := ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: node.Seed()})
	learners = min(learners, node.Size())
	t := task.New[rl.Online](node, rl.LearnerRoles(node.Size(), learners)...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	exchange := rl.ExchangeConfig{Learners: learners}
	if node.Size() > learners {
		exchange.Synchronous = node.Size()
	}
	rollout := data.NewRollout(data.RolloutConfig{Length: length, Seed: node.Seed()})
	t.Use(
		r.Exchange(exchange),
		r.Collect(env, rl.CollectConfig{VectorSteps: length}),
		r.Learn(rollout, rl.LearnConfig{Rate: policies.Linear(2.5e-4, 0, 500_000)}),
		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 10_000, StopAt: 475}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 10_000, Terminal: os.Stdout}),
	)
	return t.Run(ctx, task.MaxSteps(2000))
}
