package a2c

import (
	"math"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance for each kind of action.
func TestConformance(t *testing.T) {
	for name, space := range spaces {
		if _, ok := space.(envs.Box); ok { // a Gaussian leaves any bounds
			space = envs.NewBox(float32(math.Inf(-1)), float32(math.Inf(1)), space.Dim())
		}
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Config{
				New: func(seed uint64) policies.Policy {
					return New(Config{Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, Seed: seed})
				},
			})
		})
	}
	t.Run("state-dependent noise", func(t *testing.T) {
		policytest.Run(t, policytest.Config{New: func(seed uint64) policies.Policy {
			unbounded := envs.NewBox(float32(math.Inf(-1)), float32(math.Inf(1)), 2)
			return New(Config{Obs: envs.NewBox(-1, 1, 2), Action: unbounded, Hidden: []int{3}, DrawEvery: 2, Seed: seed})
		}})
	})
}
