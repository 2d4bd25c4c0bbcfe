package bc

import (
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance for each kind of action.
func TestConformance(t *testing.T) {
	for kind, edit := range kinds {
		t.Run(kind, func(t *testing.T) {
			policytest.Run(t, policytest.Config{
				New: func(seed uint64) policies.Policy { return small(edit, func(c *Config) { c.Seed = seed }) },
				Losses: func(rng *rand.Rand) []policytest.Loss {
					p := small(edit)
					b := policytest.RandomBatch(p.Spec(), rng, 8)
					return []policytest.Loss{{Name: "bc", Nets: []*nn.Net{p.actor}, Eval: func() (float64, error) {
						m, err := p.Learn(b)
						if err != nil {
							return 0, err
						}
						return m[0].Value, nil
					}}}
				},
			})
		})
	}
}
