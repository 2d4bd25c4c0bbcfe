//go:build scores

package dqn

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
	"github.com/ditask/ditask/policies/nn"
)

var (
	seeds = flag.Int("dqn.seeds", 1, "runs of TestReproducesCleanRL and TestComesNearRLZoo on each environment")
	first = flag.Uint64("dqn.first", 1, "seed of the first of them")
)

// run is a training run.
type run struct {
	env      func() envs.Env[int]
	envSteps int
	cfg      Config
	replay   data.ReplayConfig
	capacity int     // of the replay buffer
	greedy   bool    // the score is that of greedy episodes, not of the last ones
	least    float64 // score, as the mean of all seeds
}

func cartPole() envs.Env[int]    { return envs.NewCartPole(envs.CartPoleConfig{}) }
func acrobot() envs.Env[int]     { return envs.NewAcrobot(envs.AcrobotConfig{}) }
func mountainCar() envs.Env[int] { return envs.NewMountainCar(envs.MountainCarConfig{}) }

// TestReproducesCleanRL trains 500,000 env steps with the settings of CleanRL's dqn.py. Its documentation
// (April 2026) has the mean returns of 3 seeds: CartPole-v1 488.7 +- 16.1, Acrobot-v1 -91.5 +- 7.2,
// MountainCar-v0 -195.0 +- 8.5. Here it is the mean of the last 100 episodes, with exploration, and of
// 100 greedy episodes after them.
//
//	go test -tags scores ./policies/dqn -run ReproducesCleanRL -v -args -dqn.seeds=3
func TestReproducesCleanRL(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   func() envs.Env[int]
		least float64
	}{{"CartPole-v1", cartPole, 440}, {"Acrobot-v1", acrobot, -110}, {"MountainCar-v0", mountainCar, -200}} {
		t.Run(c.name, func(t *testing.T) {
			scores(t, run{
				env: c.env, least: c.least, envSteps: 500_000, capacity: 10_000, replay: data.ReplayConfig{Batch: 128, Every: 10, StartAt: 10_000},
				cfg: Config{
					Hidden: []int{120, 84}, Loss: MSE, Adam: nn.AdamConfig{Rate: 2.5e-4}, MaxGradNorm: -1, TargetEvery: 50,
					Epsilon: policies.Linear(1, 0.05, 250_000),
				},
			})
		})
	}
}

// TestComesNearRLZoo trains with the settings of RL Baselines3 Zoo. Its table (April 2026) has the mean
// returns of one tuned run each: Acrobot-v1 -76.6 after 100,000 env steps, MountainCar-v0 -100.8 after
// 120,000. Here it is that of 100 greedy episodes: -71.7 and -114.5 in the mean of the seeds 1 to 3. The
// target network is copied after as many updates as belong to its interval in env steps.
//
// The table's 500 on CartPole-v1 after 50,000 env steps is not reproduced: with those settings the greedy
// score goes up and down to the end, and is 189.4, 203.8 and 72.8 there for the seeds 1 to 3.
//
//	go test -tags scores ./policies/dqn -run ComesNearRLZoo -v -args -dqn.seeds=3
func TestComesNearRLZoo(t *testing.T) {
	for name, c := range map[string]run{
		"Acrobot-v1": {
			env: acrobot, envSteps: 100_000, capacity: 50_000, replay: data.ReplayConfig{Batch: 128, Updates: 4, Every: 4, StartAt: 128},
			cfg:    Config{Hidden: []int{256, 256}, Adam: nn.AdamConfig{Rate: 6.3e-4}, TargetEvery: 250, Epsilon: policies.Linear(1, 0.1, 12_000)},
			greedy: true, least: -85,
		},
		"MountainCar-v0": {
			env: mountainCar, envSteps: 120_000, capacity: 10_000, replay: data.ReplayConfig{Batch: 128, Updates: 8, Every: 16, StartAt: 1000},
			cfg: Config{
				Hidden: []int{256, 256}, Gamma: 0.98, Adam: nn.AdamConfig{Rate: 4e-3}, TargetEvery: 300, Epsilon: policies.Linear(1, 0.07, 24_000),
			},
			greedy: true, least: -140,
		},
	} {
		t.Run(name, func(t *testing.T) { scores(t, c) })
	}
}

// scores makes a run for each seed, and reports their scores.
func scores(t *testing.T, c run) {
	var sum, squares float64
	for i := range uint64(*seeds) {
		seed, began := *first+i, time.Now()
		env := envs.NewSync(1, envs.SameStep, func(int) envs.Env[int] { return c.env() })
		cfg := c.cfg
		cfg.Obs, cfg.Action, cfg.Seed = env.ObservationSpace(), env.ActionSpace().(envs.Discrete), seed
		q := New(cfg)
		replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: c.capacity, Seed: seed}), c.replay)
		r, err := offpolicy.New(q, env, offpolicy.Config{Source: replay, Seed: seed})
		if err := errors.Join(err, r.Run(c.envSteps)); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		got, greedy := r.Last(100), greedyScore(t, q, c, seed)
		t.Logf("seed %d: %.1f, greedy %.1f, in %v", seed, got, greedy, took.Round(10*time.Millisecond))
		if c.greedy {
			got = greedy
		}
		sum += got
		squares += got * got
	}
	n := float64(*seeds)
	t.Logf("%.1f +- %.1f", sum/n, math.Sqrt(max(squares/n-sum/n*sum/n, 0)))
	if sum/n < c.least {
		t.Errorf("mean return %v, want at least %v", sum/n, c.least)
	}
}

// greedyScore is the mean return of 100 greedy episodes.
func greedyScore(t *testing.T, q *DQN, c run, seed uint64) float64 {
	t.Helper()
	got, err := offpolicy.Evaluate(q, envs.NewSync(10, envs.SameStep, func(int) envs.Env[int] { return c.env() }), 10, 1000+seed)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
