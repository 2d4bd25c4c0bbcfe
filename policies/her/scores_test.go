//go:build scores

package her

import (
	"flag"
	"testing"
)

var seeds = flag.Int("her.seeds", 1, "runs of TestFlipsManyBits")

// TestFlipsManyBits: with hindsight, double DQN reaches 9 of 10 goals of 15 bits within 40,000 env steps, and of
// 20 bits within 60,000; without, at most 1 in 10.
//
//	go test -tags scores ./policies/her -run ManyBits -v -args -her.seeds=5
func TestFlipsManyBits(t *testing.T) {
	for _, c := range []struct{ bits, envSteps int }{{15, 40_000}, {20, 60_000}} {
		for seed := range uint64(*seeds) {
			with, without := flip(t, c.bits, c.envSteps, seed+1, true), flip(t, c.bits, c.envSteps, seed+1, false)
			t.Logf("%d bits, seed %d: with hindsight %.3f of the goals are reached, without %.3f", c.bits, seed+1, with, without)
			if with < 0.9 || without > 0.1 {
				t.Errorf("%d bits, seed %d: want 0.9 and at most 0.1", c.bits, seed+1)
			}
		}
	}
}
