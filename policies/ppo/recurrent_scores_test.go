//go:build scores

package ppo

import (
	"flag"
	"testing"
	"time"
)

var recurrentSeeds = flag.Int("ppo.recurrent-seeds", 1, "runs of TestRecurrentSolvesHiddenCartPole")

// TestRecurrentSolvesHiddenCartPole trains with an LSTM of 32 units on CartPole-v1 without its velocities,
// until the mean return of 100 episodes is 450, RLlib's threshold for CartPole-v1 with them. Not every seed
// reaches it: seed 1, with which the settings were chosen, after 475,648 env steps, seed 2 after 620,544,
// and seed 3 has 324.6 after 800,256.
//
//	go test -tags scores ./policies/ppo -run RecurrentSolves -v -args -ppo.recurrent-seeds=5
func TestRecurrentSolvesHiddenCartPole(t *testing.T) {
	for seed := range uint64(*recurrentSeeds) {
		began := time.Now()
		r := trainRecurrent(t, 32, seed+1, recurrentSteps, 450)
		t.Logf("seed %d: %.1f after %d env steps, in %v", seed+1, r.Mean(100), r.EnvSteps, time.Since(began).Round(10*time.Millisecond))
		if r.Mean(100) < 450 {
			t.Errorf("seed %d: mean return %v after %d env steps, want 450", seed+1, r.Mean(100), r.EnvSteps)
		}
	}
}
