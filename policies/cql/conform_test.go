package cql

import (
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance with a learned alpha and a fixed one.
func TestConformance(t *testing.T) {
	for name, alpha := range map[string]float64{"learned alpha": 0, "fixed alpha": 0.3} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Config{
				New:    func(seed uint64) policies.Policy { return small(func(c *Config) { c.Seed, c.Alpha = seed, alpha }) },
				Losses: losses,
			})
		})
	}
}

// losses returns the losses of the actor, through both critics, and of the critics, with equal noise at each call.
func losses(rng *rand.Rand) []policytest.Loss {
	c := small(func(c *Config) { c.Alpha = 0.3 })
	b := policytest.RandomBatch(c.Spec(), rng, 8)
	return []policytest.Loss{
		{Name: "actor", Nets: []*nn.Net{c.actor}, Eval: func() (float64, error) {
			c.source.Seed(1, 1)
			loss, _, err := c.learnActor(b)
			return loss, err
		}},
		{Name: "critics", Nets: c.critics[:], Eval: func() (float64, error) {
			c.source.Seed(1, 1)
			step, err := c.learnCritics(b)
			return step.loss, err
		}},
	}
}

// TestDiscreteConformance with the conservative term and without.
func TestDiscreteConformance(t *testing.T) {
	for name, weight := range map[string]float64{"conservative": 2, "double DQN": -1} {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, policytest.Config{
				New: func(seed uint64) policies.Policy {
					return smallDiscrete(func(c *DiscreteConfig) { c.Seed, c.ConservativeWeight, c.TargetEvery = seed, weight, 3 })
				},
				Losses: func(rng *rand.Rand) []policytest.Loss {
					q := smallDiscrete(func(c *DiscreteConfig) { c.ConservativeWeight = weight })
					q.target.Weights()[0] += 0.5 // a loss in which the two networks differ
					b := policytest.RandomBatch(q.Spec(), rng, 8)
					return []policytest.Loss{{Name: "cql", Nets: []*nn.Net{q.online}, Eval: func() (float64, error) {
						m, err := q.Learn(b)
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
