package c51

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// TestConformance with each of the options, and with all.
func TestConformance(t *testing.T) {
	for name, cfg := range map[string]Config{
		"plain": {}, "double": {Double: true}, "dueling": {Dueling: true}, "noisy": {Noisy: true}, "soft target": {Tau: 0.1},
		"all": {Double: true, Dueling: true, Noisy: true, NStep: 3, TargetEvery: 3, MaxGradNorm: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Obs, cfg.Action, cfg.Hidden = envs.NewBox(-1, 1, 2), two, []int{5}
			cfg.Atoms, cfg.Low, cfg.High = 5, -2, 3
			policytest.Run(t, policytest.Config{
				New: func(seed uint64) policies.Policy {
					c := cfg
					c.Seed = seed
					return New(c)
				},
				Losses: func(rng *rand.Rand) []policytest.Loss { return losses(cfg, rng) },
			})
		})
	}
}

// losses returns the loss of a C51 whose gradients are not clipped, with equal noise at each call.
func losses(cfg Config, rng *rand.Rand) []policytest.Loss {
	cfg.MaxGradNorm, cfg.Tau, cfg.TargetEvery = 0, 0, 1<<30
	c := New(cfg)
	b := policytest.RandomBatch(c.Spec(), rng, 8)
	var fresh nn.Archive
	saved := c.Save(&fresh)
	return []policytest.Loss{{Name: "c51", Nets: []*nn.Net{c.Online}, Eval: func() (float64, error) {
		w := slices.Clone(c.Online.Weights())
		if err := errors.Join(saved, c.Restore(&fresh)); err != nil { // the state of the noise
			return 0, err
		}
		copy(c.Online.Weights(), w)
		m, err := c.Learn(b)
		if err != nil {
			return 0, err
		}
		return m[0].Value, nil
	}}}
}
