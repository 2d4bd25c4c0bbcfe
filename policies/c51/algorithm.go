package c51

import (
	"errors"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's c51.py"

// Algorithm describes C51 for a config: see package algorithm. The defaults are those of CleanRL's c51.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "c51", About: "learns the distribution of returns of each discrete action, on fixed atoms",
		Source: "Bellemare et al. 2017; defaults: " + cleanRL, Envs: 1, Steps: 500_000, Discrete: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	hidden := p.Hidden([]int{120, 84}, cleanRL)
	rate := p.Rate("0.00025", cleanRL)
	epsAdam := p.Float("adam_eps", 0.01/128, "", "epsilon of Adam", cleanRL+": 0.01 / batch size", algorithm.Above(0))
	grad := p.MaxGradNorm(0, cleanRL)
	gamma := p.Gamma(0.99, cleanRL)
	replay := p.Replay(algorithm.ReplayDefaults{Source: cleanRL, Capacity: 10_000, Batch: 128, StartAt: 10_000, Every: 10, Updates: 1})
	target := p.Int("target_update_interval", 500, "env steps", "env steps between copies to the target network", cleanRL,
		algorithm.AtLeast(1))
	epsilon := p.Schedule("epsilon", "linear(1, 0.05, 50%)", "", "probability of a random action", cleanRL, algorithm.AtLeast(0),
		algorithm.AtMost(1))
	atoms := p.Int("n_atoms", 101, "atoms", "returns that the distributions are made of", cleanRL, algorithm.AtLeast(2))
	low := p.Float("v_min", -100, "return", "the least of the atoms", cleanRL)
	high := p.Float("v_max", 100, "return", "the greatest of the atoms", cleanRL)
	double := p.Bool("double", false, "choose the next action by the online network (van Hasselt et al. 2016)", cleanRL)
	dueling := p.Bool("dueling", false, "streams of value and advantage (Wang et al. 2016)", cleanRL)
	noisy := p.Bool("noisy", false, "noisy weights explore in place of epsilon (Fortunato et al. 2018)", cleanRL)
	nstep := p.Int("n_steps", 1, "rewards", "rewards in a return", cleanRL, algorithm.AtLeast(1), algorithm.AtMost(255))
	return func(t algorithm.Task) (algorithm.Setup, error) {
		action, err := t.Discrete()
		if *low >= *high {
			err = errors.Join(err, errors.New("v_min: want less than v_max"))
		}
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: action, Seed: t.Seed, Hidden: *hidden, Atoms: *atoms, Low: *low, High: *high,
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
