package ppo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/policytest"
)

// spaces are those of actions. The box has no bounds, as that of envs.ClipAction: a Gaussian leaves
// any.
var spaces = map[string]envs.Space{
	"discrete": envs.Discrete{N: 3}, "multi-discrete": envs.MultiDiscrete{N: []int{2, 3}},
	"box": envs.NewBox(float32(math.Inf(-1)), float32(math.Inf(1)), 2),
}

// TestConformance for each kind of action and of value clip.
func TestConformance(t *testing.T) {
	for name, space := range spaces {
		for _, clip := range []ValueClip{ClipValue, ClipError, NoValueClip} {
			t.Run(fmt.Sprint(name, "/", clip), func(t *testing.T) {
				cfg := Config{Obs: envs.NewBox(-1, 1, 2), Action: space, Hidden: []int{3}, ValueClip: clip}
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
}

// TestStateNoiseConformance: with an LSTM too, and without hidden layers for the gradients, which end at the deviations.
func TestStateNoiseConformance(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"hidden": func(c *Config) { c.Hidden = []int{3} }, "lstm": func(c *Config) { c.Hidden, c.LSTM, c.Length = []int{3}, 2, 2 },
		"gradient": nil,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Obs: envs.NewBox(-1, 1, 2), Action: spaces["box"], Hidden: []int{}, DrawEvery: 3, LogStd: -1, Init: nn.FanIn}
			test := policytest.Config{}
			if edit != nil {
				edit(&cfg)
			} else {
				test.Losses = func(rng *rand.Rand) []policytest.Loss { return losses(cfg, rng) }
			}
			test.New = func(seed uint64) policies.Policy {
				c := cfg
				c.Seed = seed
				return New(c)
			}
			if cfg.LSTM > 0 {
				test.Batch = func(p policies.Policy, rng *rand.Rand) *policies.Batch {
					return policytest.RandomBatch(p.Spec(), rng, 4+2*rng.IntN(6))
				}
			}
			policytest.Run(t, test)
		})
	}
}

// losses returns the whole loss of a PPO with random weights, whose gradients are not clipped.
func losses(cfg Config, rng *rand.Rand) []policytest.Loss {
	cfg.MaxGradNorm = -1
	p := New(cfg)
	nets := []*nn.Net{p.actor, p.critic}
	for _, net := range nets {
		for i := range net.Weights() {
			net.Weights()[i] = 0.5 * float32(rng.NormFloat64())
		}
	}
	b := policytest.RandomBatch(p.Spec(), rng, 6)
	return []policytest.Loss{{Name: "ppo", Nets: nets, Eval: func() (float64, error) {
		m, err := p.Learn(b)
		if err != nil {
			return 0, err
		}
		return m[0].Value, nil
	}}}
}
