package td3

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's td3_continuous_action.py"

// Algorithm describes TD3 for a config: see package algorithm. The defaults are those of
// CleanRL's td3_continuous_action.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "td3", About: "learns a deterministic actor with two critics, noise on targets and delayed updates",
		Source: "Fujimoto et al. 2018; defaults: " + cleanRL, Envs: 1, Steps: 100_000, Continuous: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{256, 256}, cleanRL)
	rate := p.ConstantRate(3e-4, cleanRL)
	gamma := p.Gamma(0.99, cleanRL)
	replay := p.Replay(algorithm.ReplayDefaults{Source: cleanRL, Capacity: 1_000_000, Batch: 256, StartAt: 25_000, Every: 1, Updates: 1})
	random := p.Int("random_steps", 25_000, "env steps", "env steps with actions at random, before the policy chooses them", cleanRL, zero)
	tau := p.Float("tau", 0.005, "", "part of the way that the targets go at each of their updates", cleanRL, positive, algorithm.AtMost(1))
	delay := p.Int("policy_delay", 2, "updates", "updates of the critics for each one of the actor and the targets", cleanRL,
		algorithm.AtLeast(1))
	exploration := p.ActionNoise(0.1, cleanRL)
	policyNoise := p.Float("policy_noise", 0.2, "half the action's interval", "standard deviation of the noise on the actions of targets",
		cleanRL, zero)
	noiseClip := p.Float("noise_clip", 0.5, "half the action's interval", "greatest magnitude of that noise", cleanRL, positive)
	return func(t algorithm.Task) (algorithm.Setup, error) {
		box, err := t.Box()
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: box, Seed: t.Seed, Hidden: *hidden, Gamma: *gamma, Tau: *tau, ActorEvery: *delay,
			ExplorationNoise: exploration.Std(), OrnsteinUhlenbeck: exploration.OrnsteinUhlenbeck(),
			PolicyNoise: algorithm.OrNone(*policyNoise), NoiseClip: *noiseClip,
			Actor: nn.AdamConfig{Rate: *rate}, Critic: nn.AdamConfig{Rate: *rate},
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.RandomSteps = *random
		return s, err
	}
}
