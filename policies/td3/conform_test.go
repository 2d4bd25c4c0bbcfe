package td3

import (
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/policytest"
)

func TestConformance(t *testing.T) {
	for name, ou := range map[string]bool{"normal": false, "Ornstein-Uhlenbeck": true} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Config{Sampled: true, New: func(seed uint64) policies.Policy {
				return New(Config{
					Obs: envs.NewBox(-1, 1, 3), Action: envs.Box{Low: []float32{-1, 0}, High: []float32{1, 4}}, Hidden: []int{6, 5}, Seed: seed,
					OrnsteinUhlenbeck: ou,
				})
			}})
		})
	}
}
