package qlearning

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/data"
)

const book = "Sutton and Barto 2018, example 6.5"

// Algorithm describes tabular Q-learning for a config: see package algorithm.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "qlearning", About: "learns the value of each action in each state of a table",
		Source: "Watkins 1989; defaults: " + book, Envs: 1, Steps: 300_000, Discrete: true, Tabular: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	rate := p.Rate("linear(0.5, 0.01)", "ditask; "+book+": 0.5")
	gamma := p.Gamma(0.99, "ditask; "+book+": 1")
	epsilon := p.Schedule("epsilon", "0.1", "", "probability of a random action", book, algorithm.AtLeast(0), algorithm.AtMost(1))
	initial := p.Float("initial", 0, "return", "first value of every action", book)
	return func(t algorithm.Task) (algorithm.Setup, error) {
		action, err := t.Discrete()
		if err != nil {
			return algorithm.Setup{}, err
		}
		obs, ok := t.Obs.(envs.Discrete)
		if !ok {
			return algorithm.Setup{}, fmt.Errorf("observations are %v, and it learns from those of a Discrete", t.Obs)
		}
		policy := New(Config{
			Obs: obs, Action: action, Rate: min(algorithm.Positive(rate.First()),
				1), Gamma: *gamma, Epsilon: epsilon.Over(t.Steps), Initial: *initial,
		})
		return algorithm.Setup{
			Policy: policy, Source: data.NewSequences(data.SequencesConfig{Length: 1}), VectorSteps: 1, Rate: rate.Following(t.Steps),
		}, nil
	}
}
