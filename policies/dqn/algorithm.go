package dqn

import (
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's dqn.py"

// Algorithm describes DQN for a config: see package algorithm. The defaults are those of CleanRL's dqn.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "dqn", About: "learns the value of each discrete action: deep Q-learning, with its extensions as options",
		Source: "Mnih et al. 2015; defaults: " + cleanRL, Envs: 1, Steps: 500_000, Discrete: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	hidden := p.Hidden([]int{120, 84}, cleanRL)
	rate := p.Rate("0.00025", cleanRL)
	epsAdam := p.Float("adam_eps", 1e-8, "", "epsilon of Adam", cleanRL, algorithm.Above(0))
	grad := p.MaxGradNorm(0, cleanRL)
	gamma := p.Gamma(0.99, cleanRL)
	replay := p.Replay(algorithm.ReplayDefaults{Source: cleanRL, Capacity: 10_000, Batch: 128, StartAt: 10_000, Every: 10, Updates: 1})
	target := p.Int("target_update_interval", 500, "env steps", "env steps between copies to the target network", cleanRL,
		algorithm.AtLeast(1))
	tau := p.Float("tau", 1, "", "part of the way that the target network goes at each copy; below 1 it follows every update", cleanRL,
		algorithm.Above(0), algorithm.AtMost(1))
	epsilon := p.Schedule("epsilon", "linear(1, 0.05, 50%)", "", "probability of a random action", cleanRL, algorithm.AtLeast(0),
		algorithm.AtMost(1))
	loss := p.OneOf("loss", "mse", []string{"mse", "huber"}, "how a temporal-difference error counts", cleanRL)
	initial := p.OneOf("init", "pytorch", []string{"pytorch", "kaiming"}, "initial weights: PyTorch's of a linear layer, or He et al.",
		cleanRL)
	double := p.Bool("double", false, "choose the next action by the online network (van Hasselt et al. 2016)", cleanRL)
	dueling := p.Bool("dueling", false, "streams of value and advantage (Wang et al. 2016)", cleanRL)
	noisy := p.Bool("noisy", false, "noisy weights explore in place of epsilon (Fortunato et al. 2018)", cleanRL)
	nstep := p.Int("n_steps", 1, "rewards", "rewards in a return", cleanRL, algorithm.AtLeast(1), algorithm.AtMost(255))
	return func(t algorithm.Task) (algorithm.Setup, error) {
		action, err := t.Discrete()
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: action, Seed: t.Seed, Hidden: *hidden, Double: *double, Dueling: *dueling, Noisy: *noisy, NStep: *nstep,
			Gamma: *gamma, Adam: nn.AdamConfig{Rate: algorithm.Positive(rate.First()), Epsilon: *epsAdam}, MaxGradNorm: algorithm.OrNone(*grad),
		}
		if *initial == "pytorch" {
			c.Init = nn.FanIn
		}
		if *loss == "mse" {
			c.Loss = MSE
		}
		if !*noisy {
			c.Epsilon = epsilon.Over(t.Steps)
		}
		if *tau < 1 {
			c.Tau = *tau
		} else {
			c.TargetEvery = replay.TargetEvery(*target)
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.Rate = rate.Following(t.Steps)
		return s, err
	}
}
