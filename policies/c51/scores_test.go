//go:build scores

package c51

import (
	"errors"
	"flag"
	"math"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/internal/offpolicy"
)

var (
	seeds = flag.Int("c51.seeds", 1, "runs of TestReproducesCleanRL on each environment")
	first = flag.Uint64("c51.first", 1, "seed of the first of them")
)

// TestReproducesCleanRL trains 500,000 env steps with the settings of CleanRL's c51.py. Its documentation
// (April 2026) has the mean returns of 3 seeds: CartPole-v1 481.2 +- 20.5, Acrobot-v1 -87.7 +- 5.5,
// MountainCar-v0 -166.4 +- 27.9. Here it is the mean of the last 100 episodes, with exploration, and of
// 100 greedy episodes after them.
//
//	go test -tags scores ./policies/c51 -run ReproducesCleanRL -v -args -c51.seeds=3
func TestReproducesCleanRL(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   func() envs.Env[int]
		least float64 // of the mean of all seeds
	}{
		{"CartPole-v1", func() envs.Env[int] { return envs.NewCartPole(envs.CartPoleConfig{}) }, 440},
		{"Acrobot-v1", func() envs.Env[int] { return envs.NewAcrobot(envs.AcrobotConfig{}) }, -110},
		{"MountainCar-v0", func() envs.Env[int] { return envs.NewMountainCar(envs.MountainCarConfig{}) }, -200},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sum, squares float64
			for i := range uint64(*seeds) {
				seed, began := *first+i, time.Now()
				got, greedy := score(t, func(int) envs.Env[int] { return c.env() }, seed)
				t.Logf("seed %d: %.1f, greedy %.1f, in %v", seed, got, greedy, time.Since(began).Round(10*time.Millisecond))
				sum += got
				squares += got * got
			}
			n := float64(*seeds)
			t.Logf("%.1f +- %.1f", sum/n, math.Sqrt(max(squares/n-sum/n*sum/n, 0)))
			if sum/n < c.least {
				t.Errorf("mean return %v, want at least %v", sum/n, c.least)
			}
		})
	}
}

// score trains, and returns the mean returns of the last 100 episodes and of 100 greedy ones.
func score(t *testing.T, env func(int) envs.Env[int], seed uint64) (got, greedy float64) {
	t.Helper()
	one := envs.NewSync(1, envs.SameStep, env)
	c := New(Config{
		Obs: one.ObservationSpace(), Action: one.ActionSpace().(envs.Discrete), Seed: seed, Epsilon: policies.Linear(1, 0.05, 250_000),
	})
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 10_000, Seed: seed}),
		data.ReplayConfig{Batch: 128, Every: 10, StartAt: 10_000})
	r, err := offpolicy.New(c, one, offpolicy.Config{Source: replay, Seed: seed})
	if err := errors.Join(err, r.Run(500_000)); err != nil {
		t.Fatal(err)
	}
	greedy, err = offpolicy.Evaluate(c, envs.NewSync(10, envs.SameStep, env), 10, 1000+seed)
	if err != nil {
		t.Fatal(err)
	}
	return r.Last(100), greedy
}
