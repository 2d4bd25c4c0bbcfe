package ddpg

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's ddpg_continuous_action.py"

// Algorithm describes DDPG for a config: see package algorithm. The defaults are those of
// CleanRL's ddpg_continuous_action.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "ddpg", About: "learns a deterministic actor by the gradient of its critic",
		Source: "Lillicrap et al. 2016; defaults: " + cleanRL, Envs: 1, Steps: 100_000, Continuous: true, Declare: declare,
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
	return func(t algorithm.Task) (algorithm.Setup, error) {
		box, err := t.Box()
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: box, Seed: t.Seed, Hidden: *hidden, Gamma: *gamma, Tau: *tau, ActorEvery: *delay,
			ExplorationNoise: exploration.Std(), OrnsteinUhlenbeck: exploration.OrnsteinUhlenbeck(),
			Actor: nn.AdamConfig{Rate: *rate}, Critic: nn.AdamConfig{Rate: *rate},
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.RandomSteps = *random
		return s, err
	}
}
