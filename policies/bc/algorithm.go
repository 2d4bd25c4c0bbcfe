package bc

import (
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/nn"
)

// Algorithm describes behaviour cloning for a config: see package algorithm.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "bc", About: "learns the actions of a dataset as labels: behaviour cloning",
		Source: "Pomerleau 1989; defaults: d3rlpy's BC", Steps: 20_000, Discrete: true, Continuous: true, Offline: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	const d3rlpy = "d3rlpy's BC"
	hidden := p.Hidden([]int{256, 256}, d3rlpy)
	rate := p.Rate("0.001", d3rlpy)
	batch := p.Int("batch_size", 256, "rows", "rows of an update", "ditask; d3rlpy: 100", algorithm.AtLeast(1))
	beta := p.Float("beta", 0.5, "", "weight of the mean square of the logits of discrete actions", d3rlpy, algorithm.AtLeast(0))
	return func(t algorithm.Task) (algorithm.Setup, error) {
		c := Config{
			Obs: t.Obs, Action: t.Action, Seed: t.Seed, Hidden: *hidden, Beta: algorithm.OrNone(*beta),
			Adam: nn.AdamConfig{Rate: algorithm.Positive(rate.First())},
		}
		if err := c.Validate(); err != nil {
			return algorithm.Setup{}, err
		}
		return algorithm.Setup{Policy: New(c), Batch: *batch, Rate: rate.Following(t.Steps)}, nil
	}
}
