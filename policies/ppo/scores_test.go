package ppo

import (
	"flag"
	"math"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/data"
)

var seeds = flag.Int("ppo.seeds", 1, "runs of TestReproducesCleanRL on each environment")

// TestReproducesCleanRL trains 500,000 env steps with the settings of CleanRL's ppo.py, the learning
// rate going to 0 in a straight line. Its documentation (April 2026) has the mean returns of 3
// seeds: CartPole-v1 490.0 +- 6.1, Acrobot-v1 -86.4 +- 1.3, MountainCar-v0 -200 +- 0, which PPO is
// known not to learn without more exploration. Here it is the mean of the last 100 episodes.
//
//	go test ./policies/ppo -run ReproducesCleanRL -v -args -ppo.seeds=5
func TestReproducesCleanRL(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	for _, c := range []struct {
		name        string
		env         func() envs.Env[int]
		least, most float64
	}{
		{"CartPole-v1", func() envs.Env[int] { return envs.NewCartPole(envs.CartPoleConfig{}) }, 475, 500},
		{"Acrobot-v1", func() envs.Env[int] { return envs.NewAcrobot(envs.AcrobotConfig{}) }, -100, 0},
		{"MountainCar-v0", func() envs.Env[int] { return envs.NewMountainCar(envs.MountainCarConfig{}) }, -200, -190},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sum, squares float64
			for seed := range uint64(*seeds) {
				began := time.Now()
				got := score(t, envs.NewSync(4, envs.SameStep, func(int) envs.Env[int] { return c.env() }), seed+1)
				t.Logf("seed %d: %.1f, in %v", seed+1, got, time.Since(began).Round(10*time.Millisecond))
				if got < c.least || got > c.most {
					t.Errorf("seed %d: mean return %v, want %v to %v", seed+1, got, c.least, c.most)
				}
				sum += got
				squares += got * got
			}
			n := float64(*seeds)
			t.Logf("%.1f +- %.1f", sum/n, math.Sqrt(max(squares/n-sum/n*sum/n, 0)))
		})
	}
}

// score trains, and returns the mean return of the last 100 episodes.
func score(t *testing.T, env envs.Vector, seed uint64) float64 {
	t.Helper()
	p := New(Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: seed})
	r := newTrainer(t, p, env, data.RolloutConfig{Length: 128, Seed: seed})
	const iterations = 500_000 / (4 * 128)
	for i := range iterations {
		p.SetRate(2.5e-4 * (1 - float64(i)/iterations))
		if err := r.step(); err != nil {
			t.Fatal(err)
		}
	}
	return r.Mean(100)
}
