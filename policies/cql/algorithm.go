package cql

import (
	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

const paper = "Kumar et al. 2020"

// Algorithm describes CQL for a config: see package algorithm. The defaults are the paper's.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "cql", About: "learns from a dataset values that do not overestimate actions outside of it: conservative Q-learning",
		Source: paper, Steps: 100_000, Discrete: true, Continuous: true, Offline: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{256, 256, 256}, paper+"'s code")
	rate := p.Float("learning_rate", 3e-4, "", "step size of the optimiser of the critics", paper, positive)
	p.Alias("rate", "lr")
	actor := p.Float("actor_learning_rate", 3e-5, "", "step size of the actor's optimiser, with continuous actions", paper, positive)
	batch := p.Int("batch_size", 256, "rows", "rows of an update", paper+"'s code", algorithm.AtLeast(1))
	gamma := p.Gamma(0.99, paper)
	tau := p.Float("tau", 0.005, "", "part of the way that the target critics go at each update, with continuous actions", paper+"'s code",
		positive, algorithm.AtMost(1))
	target := p.Int("target_update_interval", 8000, "updates", "updates between copies to the target network, with discrete actions",
		paper+"'s code", algorithm.AtLeast(1))
	weight := p.Float("conservative_weight", 1, "", "weight of the conservative term", paper+": 1 discrete, 5 or 10 continuous", zero)
	samples := p.Int("n_actions", 10, "actions", "actions from each of three distributions that the term is estimated by", paper+"'s code",
		algorithm.AtLeast(1))
	alpha := p.Float("ent_coef", 0, "", "weight of the entropy, with continuous actions; 0: it is learned", paper+"'s code", zero)
	return func(t algorithm.Task) (algorithm.Setup, error) {
		if d, ok := t.Action.(envs.Discrete); ok {
			c := DiscreteConfig{
				Obs: t.Obs, Action: d, Seed: t.Seed, Hidden: *hidden, Gamma: *gamma, TargetEvery: *target,
				ConservativeWeight: algorithm.OrNone(*weight), Adam: nn.AdamConfig{Rate: *rate},
			}
			return algorithm.Setup{Policy: NewDiscrete(c), Batch: *batch}, nil
		}
		box, err := t.Box()
		if err != nil {
			return algorithm.Setup{}, err
		}
		c := Config{
			Obs: t.Obs, Action: box, Seed: t.Seed, Hidden: *hidden, Gamma: *gamma, Tau: *tau, ConservativeWeight: algorithm.OrNone(*weight),
			Samples: *samples, Alpha: *alpha, Actor: nn.AdamConfig{Rate: *actor}, Critic: nn.AdamConfig{Rate: *rate},
		}
		return algorithm.Setup{Policy: New(c), Batch: *batch}, nil
	}
}
