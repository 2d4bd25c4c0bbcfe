package reinforce

import (
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance holds the algorithm to all that ditask needs of one.
func TestConformance(t *testing.T) {
	policytest.Run(t, policytest.Config{New: func(seed uint64) policies.Policy {
		return New(Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 4}, Hidden: []int{6}, Seed: seed})
	}})
}
