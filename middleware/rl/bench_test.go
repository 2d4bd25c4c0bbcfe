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
			q := dqn.New(dqn.Config{Obs: 4, Actions: 2, Seed: 1})
			tk := task.New[rl.Online](quiet{task.Alone()})
			tk.Use(rl.Exchange(tk, q),
				rl.EpsGreedy(q, policies.Constant(0.1)), rl.Collect(q, envs.CartPole(8)))
			if updates > 0 {
				buf := data.NewUniform(data.UniformConfig{Capacity: 20_000})
				tk.Use(rl.Push(buf), rl.Learn(q, buf, rl.LearnConfig{StartAt: 64}))
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
