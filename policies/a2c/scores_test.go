package a2c

import (
	"flag"
	"math"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

var seeds = flag.Int("a2c.seeds", 1, "runs of TestReproducesRLZoo")

// TestReproducesRLZoo trains 500,000 env steps with the settings of RL Zoo for CartPole-v1, which are
// the defaults in 8 environments. Its benchmark (April 2026) has a mean return of 500 for one run, that
// of the policy that acts greedily. Here it is the mean of the last 100 episodes, with exploration.
//
//	go test ./policies/a2c -run ReproducesRLZoo -v -args -a2c.seeds=5
func TestReproducesRLZoo(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	var sum, squares float64
	for seed := range uint64(*seeds) {
		began := time.Now()
		got := train(t, envs.CartPole(8, envs.SameStep), seed+1, 500_000, math.Inf(1)).Mean(100)
		t.Logf("seed %d: %.1f, in %v", seed+1, got, time.Since(began).Round(10*time.Millisecond))
		if got < 475 {
			t.Errorf("seed %d: mean return %v, want 475", seed+1, got)
		}
		sum += got
		squares += got * got
	}
	n := float64(*seeds)
	t.Logf("%.1f +- %.1f", sum/n, math.Sqrt(max(squares/n-sum/n*sum/n, 0)))
}
