package sac

import (
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance with a learned alpha and a fixed one, for each kind of action.
func TestConformance(t *testing.T) {
	for name, alpha := range map[string]float64{"learned alpha": 0, "fixed alpha": 0.3} {
		for kind, edit := range kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				policytest.Run(t, policytest.Config{
					New: func(seed uint64) policies.Policy {
						return small(func(c *Config) { edit(c); c.Seed, c.Alpha = seed, alpha })
					},
					Sampled: kind != "discrete",
					Losses:  func(rng *rand.Rand) []policytest.Loss { return losses(edit, rng) },
				})
			})
		}
	}
}

// losses returns the losses of the actor, through both critics, and of the critics, with equal noise at
// each call.
func losses(edit func(*Config), rng *rand.Rand) []policytest.Loss {
	s := small(func(c *Config) { edit(c); c.Alpha = 0.3 })
	b := policytest.RandomBatch(s.Spec(), rng, 8)
	return []policytest.Loss{
		{Name: "actor", Nets: []*nn.Net{s.actor}, Eval: func() (float64, error) {
			s.source.Seed(1, 1)
			err := s.learnActor(b)
			return float64(s.actorWas[0]), err
		}},
		{Name: "critics", Nets: s.critics[:], Eval: func() (float64, error) {
			s.source.Seed(1, 1)
			loss, _, err := s.learnCritics(b)
			return loss, err
		}},
	}
}
