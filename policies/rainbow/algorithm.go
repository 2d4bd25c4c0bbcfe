package rainbow

import (
	"errors"

	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const paper = "Hessel et al. 2018"

// Algorithm describes Rainbow for a config: see package algorithm. The defaults are the paper's, for Atari
// games, except for a smaller network.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "rainbow", About: "is deep Q-learning with six extensions: C51, double, dueling, noisy, n-step and prioritised",
		Source: paper, Envs: 1, Steps: 500_000, Discrete: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	hidden := p.Hidden([]int{128, 128}, "ditask; "+paper+": 512 behind convolutions")
	rate := p.Rate("0.0000625", paper)
	epsAdam := p.Float("adam_eps", 1.5e-4, "", "epsilon of Adam", paper, algorithm.Above(0))
	gamma := p.Gamma(0.99, paper)
	replay := p.Replay(algorithm.ReplayDefaults{
		Source: paper, Capacity: 1_000_000, Batch: 32, StartAt: 20_000, Every: 4, Updates: 1, Prioritised: true,
	})
	target := p.Int("target_update_interval", 8000, "env steps", "env steps between copies to the target network", paper, algorithm.AtLeast(1))
	atoms := p.Int("n_atoms", 51, "atoms", "returns that the distributions are made of", paper, algorithm.AtLeast(2))
	low := p.Float("v_min", -10, "return", "the least of the atoms", paper)
	high := p.Float("v_max", 10, "return", "the greatest of the atoms", paper)
	nstep := p.Int("n_steps", 3, "rewards", "rewards in a return", paper, algorithm.AtLeast(1), algorithm.AtMost(255))
	return func(t algorithm.Task) (algorithm.Setup, error) {
		action, err := t.Discrete()
		if *low >= *high {
			err = errors.Join(err, errors.New("v_min: want less than v_max"))
		}
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: action, Seed: t.Seed, Hidden: *hidden, Atoms: *atoms, Low: *low, High: *high, NStep: *nstep, Gamma: *gamma,
			Adam:        nn.AdamConfig{Rate: algorithm.Positive(rate.First()), Epsilon: *epsAdam},
			TargetEvery: replay.TargetEvery(*target),
		}
		s, err := replay.Setup(t, func() policies.Policy { return New(c) })
		s.Rate = rate.Following(t.Steps)
		return s, err
	}
}
