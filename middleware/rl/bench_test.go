package rl_test

import (
	"context"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/task"
)

// BenchmarkStep is a step of a lone node with eight CartPole: collecting only,
// and with one update of batch 64, net 128-128.
func BenchmarkStep(b *testing.B) {
	for _, updates := range []int{0, 1} {
		name := "collect"
		if updates > 0 {
			name = "collect+update"
		}
		b.Run(name, func(b *testing.B) {
			q := dqn.New(dqn.Config{Obs: box(4), Action: two, Seed: 1, Epsilon: policies.Constant(0.1)})
			tk := task.New[rl.Online](quiet{task.Alone()})
			run := runOf(tk, q, "")
			tk.Use(run.Exchange(rl.ExchangeConfig{}), run.Collect(envs.CartPole(8), rl.CollectConfig{}))
			if updates > 0 {
				tk.Use(run.Learn(replay(data.UniformConfig{Capacity: 20_000}, data.ReplayConfig{StartAt: 64, Every: 8}), rl.LearnConfig{}))
			}
			tk.Use(func(ctx context.Context, _ *rl.Online, next task.Next) error {
				if !b.Loop() {
					tk.Finish("measured")
				}
				return next(ctx)
			})
			b.ReportAllocs()
			if err := tk.Run(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(tk.Context().EnvSteps)/b.Elapsed().Seconds(), "envsteps/s")
		})
	}
}
