package sac

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's sac_continuous_action.py"

// Algorithm describes SAC for a config: see package algorithm. The defaults are those of CleanRL's
// sac_continuous_action.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "sac", About: "learns an actor that is as random as it can afford to be, and its values, off-policy",
		Source: "Haarnoja et al. 2018, Christodoulou 2019 (discrete); defaults: " + cleanRL, Envs: 1, Steps: 100_000,
		Discrete: true, Continuous: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{256, 256}, cleanRL)
	rate := p.Float("learning_rate", 3e-4, "", "step size of the actor's optimiser", cleanRL, positive)
	p.Alias("rate", "lr")
	critic := p.Float("critic_learning_rate", 1e-3, "", "step size of the optimisers of the critics and of alpha", cleanRL, positive)
	gamma := p.Gamma(0.99, cleanRL)
	replay := p.Replay(algorithm.ReplayDefaults{Source: cleanRL, Capacity: 1_000_000, Batch: 256, StartAt: 5000, Every: 1, Updates: 1})
	random := p.Int("random_steps", 5000, "env steps", "env steps with actions at random, before the policy chooses them", cleanRL, zero)
	tau := p.Float("tau", 0.005, "", "part of the way that the target critics go at each of their updates", cleanRL, positive,
		algorithm.AtMost(1))
	target := p.Int("target_update_interval", 1, "updates", "updates between those of the target critics", cleanRL, algorithm.AtLeast(1))
	actorEvery := p.Int("policy_delay", 0, "updates", "updates between those of the actor, of which as many are then made; 0: 2, discrete 1",
		cleanRL, zero)
	alpha := p.Float("ent_coef", 0, "", "weight of the entropy; 0: it is learned", cleanRL, zero)
	entropy := p.Float("target_entropy", 0, "nats",
		"entropy that the learned weight aims at; 0: minus the number of action values, discrete 0.89 of the greatest", cleanRL)
	sde := p.StateNoise()
	logStd := p.Float("log_std_init", -3, "", "logarithm of the first deviations of the noise, with use_sde", "Stable-Baselines3")
	return func(t algorithm.Task) (algorithm.Setup, error) {
		c := Config{
			Obs: t.Obs, Action: t.Action, Seed: t.Seed, Hidden: *hidden, Gamma: *gamma, Tau: *tau, TargetEvery: *target,
			Alpha: *alpha, TargetEntropy: *entropy, ActorEvery: *actorEvery, Threads: t.Threads,
			Actor: nn.AdamConfig{Rate: *rate}, Critic: nn.AdamConfig{Rate: *critic},
		}
		var err error
		if c.DrawEvery, err = sde.DrawEvery(t, max(replay.Every()/max(t.Envs, 1), 1)); err != nil {
			return algorithm.Setup{}, err
		}
		if c.LogStd = *logStd; *logStd == 0 {
			c.LogStd = 1e-12
		}
		if err := c.Validate(); err != nil {
			return algorithm.Setup{}, err
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.RandomSteps = *random
		return s, err
	}
}
