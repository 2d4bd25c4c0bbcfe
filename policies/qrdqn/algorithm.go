package qrdqn

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const (
	contrib = "SB3-contrib's QRDQN"
	paper   = "Dabney et al. 2018"
)

// Algorithm describes QR-DQN for a config: see package algorithm. The defaults are those of
// Stable-Baselines3's contributed QRDQN.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "qrdqn", About: "learns quantiles of the returns of each discrete action",
		Source: paper + "; defaults: " + contrib, Envs: 1, Steps: 500_000, Discrete: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	hidden := p.Hidden([]int{64, 64}, contrib)
	rate := p.Rate("0.00005", contrib)
	epsAdam := p.Float("adam_eps", 0.01/32, "", "epsilon of Adam", paper, algorithm.Above(0))
	grad := p.MaxGradNorm(0, contrib)
	gamma := p.Gamma(0.99, contrib)
	replay := p.Replay(algorithm.ReplayDefaults{Source: contrib, Capacity: 1_000_000, Batch: 32, StartAt: 100, Every: 4, Updates: 1})
	target := p.Int("target_update_interval", 10_000, "env steps", "env steps between copies to the target network", contrib,
		algorithm.AtLeast(1))
	epsilon := p.Schedule("epsilon", "linear(1, 0.01, 0.5%)", "", "probability of a random action", contrib, algorithm.AtLeast(0),
		algorithm.AtMost(1))
	quantiles := p.Int("n_quantiles", 200, "quantiles", "quantiles of the distribution of each action", contrib, algorithm.AtLeast(1))
	kappa := p.Float("kappa", 1, "return", "the difference up to which Huber's function is a square", paper, algorithm.Above(0))
	double := p.Bool("double", false, "choose the next action by the online network (van Hasselt et al. 2016)", contrib)
	dueling := p.Bool("dueling", false, "streams of value and advantage (Wang et al. 2016)", contrib)
	noisy := p.Bool("noisy", false, "noisy weights explore in place of epsilon (Fortunato et al. 2018)", contrib)
	nstep := p.Int("n_steps", 1, "rewards", "rewards in a return", contrib, algorithm.AtLeast(1), algorithm.AtMost(255))
	return func(t algorithm.Task) (algorithm.Setup, error) {
		action, err := t.Discrete()
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: action, Seed: t.Seed, Hidden: *hidden, Quantiles: *quantiles, Kappa: *kappa,
			Double: *double, Dueling: *dueling, Noisy: *noisy, NStep: *nstep, Gamma: *gamma,
			Adam:        nn.AdamConfig{Rate: algorithm.Positive(rate.First()), Epsilon: *epsAdam},
			MaxGradNorm: *grad, TargetEvery: replay.TargetEvery(*target),
		}
		if !*noisy {
			c.Epsilon = epsilon.Over(t.Steps)
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.Rate = rate.Following(t.Steps)
		return s, err
	}
}
