// Recurrent balances the pole of CartPole-v1 without seeing velocities: PPO with an LSTM remembers where
// cart and pole were. It runs alone, or with a learner, an evaluator and collectors, and stops by itself
// when 100 greedy episodes have a mean return of at least 475.
package main

import (
	"context"
	"os"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/task"
)

func main() { parallel.Main(play) }

// hidden returns a CartPole of which only the positions of cart and pole are observed.
func hidden() envs.Env[int] {
	cartPole := envs.NewCartPole(envs.CartPoleConfig{})
	box := cartPole.ObservationSpace().(envs.Box)
	positions := envs.Box{Low: []float32{box.Low[0], box.Low[2]}, High: []float32{box.High[0], box.High[2]}}
	seen := func(dst, obs []float32) { dst[0], dst[1] = obs[0], obs[2] }
	return envs.RecordEpisodeStatistics(envs.TransformObservation(cartPole, positions, seen))
}

func vector(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] { return hidden() })
}

func play(ctx context.Context, node *parallel.Node) error {
	const (
		length = 32
		rate   = 1e-3 // at first; it goes to 0 over all env steps
		steps  = 400_000
	)
	env := vector(8)
	p := normalize.New(ppo.New(ppo.Config{
		Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: node.Seed(), Hidden: []int{64}, LSTM: 64, Length: length,
		EntropyCoef: -1, ValueClip: ppo.NoValueClip, StopKL: 0.02, Adam: nn.AdamConfig{Rate: rate},
	}), normalize.Config{})
	rollout := data.NewRollout(data.RolloutConfig{
		Length: length, Gamma: 0.98, Lambda: 0.8, Epochs: 20, Minibatches: 1, Seed: node.Seed(),
		Sequences: true, // a minibatch has whole sequences, in their order
	})
	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
	r := rl.New(t, p, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
	t.Use(
		r.Exchange(rl.ExchangeConfig{Synchronous: node.Size()}),
		r.Collect(env, rl.CollectConfig{VectorSteps: length}),
		r.Learn(rollout, rl.LearnConfig{Rate: policies.Linear(rate, 0, steps)}),
		r.Evaluate(vector(10), rl.EvalConfig{EverySteps: 20_000, StopAt: 475}),
		r.Stop(rl.StopConfig{EnvSteps: steps}),
		r.Checkpoint(rl.CheckpointConfig{}),
		r.Log(rl.LogConfig{EverySteps: 20_000, Terminal: os.Stdout}),
	)
	return t.Run(ctx)
}
