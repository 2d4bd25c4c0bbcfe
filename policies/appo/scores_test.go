package appo

import (
	"flag"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

var seeds = flag.Int("appo.seeds", 1, "runs of TestReachesIMPALAsScore for each lag")

// TestReachesIMPALAsScore trains on CartPole-v1 until the mean return of 100 episodes is 450, for which
// RLlib's tuned example of IMPALA has 2,000,000 env steps (April 2026). The settings are the defaults,
// with 10 environments, and the data is some updates old.
//
//	go test ./policies/appo -run ReachesIMPALAsScore -v -args -appo.seeds=5
func TestReachesIMPALAsScore(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	for _, lag := range []int{4, 16} {
		for seed := range uint64(*seeds) {
			began := time.Now()
			c := train(t, Config{Seed: seed + 1}, envs.CartPole(10, envs.SameStep), lag, 2_000_000, 450)
			t.Logf("%d updates old, seed %d: %.1f after %d env steps, in %v", lag, seed+1, c.Mean(100), c.EnvSteps,
				time.Since(began).Round(10*time.Millisecond))
			if c.Mean(100) < 450 {
				t.Errorf("%d updates old, seed %d: mean return %v after %d env steps, want 450", lag, seed+1, c.Mean(100), c.EnvSteps)
			}
		}
	}
}
