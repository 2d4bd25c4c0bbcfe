package a2c

import (
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

const sb3 = "SB3's A2C"

// Algorithm describes A2C for a config: see package algorithm. The defaults are those of Stable-Baselines3.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "a2c", About: "learns a policy and its values by the advantages of short rollouts, on-policy",
		Source: "Mnih et al. 2016; defaults: " + sb3, Envs: 8, Steps: 500_000, Discrete: true, Continuous: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{64, 64}, sb3)
	rate := p.Rate("0.0007", sb3)
	decay := p.Float("rmsprop_alpha", 0.99, "", "decay of the squares in RMSprop", sb3, positive, algorithm.Below(1))
	epsilon := p.Float("rmsprop_eps", 1e-5, "", "epsilon of RMSprop", sb3, positive)
	tensorflow := p.Bool("rmsprop_tf_like", false, "RMSprop as TensorFlow has it, with the epsilon inside the root", sb3)
	grad := p.MaxGradNorm(0.5, sb3)
	length := p.Int("n_steps", 5, "time steps", "time steps of a rollout in each environment", sb3, algorithm.AtLeast(1))
	gamma := p.Gamma(0.99, sb3)
	lambda := p.Float("gae_lambda", 1, "", "lambda of the generalised advantage estimates", sb3, positive, algorithm.AtMost(1))
	entropy := p.Float("ent_coef", 0, "", "weight of the entropy", sb3, zero)
	value := p.Float("vf_coef", 0.5, "", "weight of the value loss", sb3, positive)
	logStd := p.Float("log_std_init", 0, "", "logarithm of the first standard deviation of continuous actions", sb3)
	sde := p.StateNoise()
	ortho := p.Bool("ortho_init", true, "orthogonal initial weights; else those of PyTorch", sb3)
	return func(t algorithm.Task) (algorithm.Setup, error) {
		c := Config{
			Obs: t.Obs, Action: t.Action, Seed: t.Seed, Hidden: *hidden, EntropyCoef: *entropy, ValueCoef: *value, LogStd: *logStd,
			RMSprop:     nn.RMSpropConfig{Rate: algorithm.Positive(rate.First()), Alpha: *decay, Epsilon: *epsilon, TensorFlow: *tensorflow},
			MaxGradNorm: algorithm.OrNone(*grad),
		}
		var err error
		if c.DrawEvery, err = sde.DrawEvery(t, *length); err != nil {
			return algorithm.Setup{}, err
		}
		if !*ortho {
			c.Init = nn.FanIn
		}
		if err := c.Validate(); err != nil {
			return algorithm.Setup{}, err
		}
		rollout := data.RolloutConfig{Length: *length, Gamma: *gamma, Lambda: *lambda, Epochs: 1, Minibatches: 1, Seed: t.Seed}
		return algorithm.Setup{
			Policy: New(c), Source: data.NewRollout(rollout), VectorSteps: *length, Rate: rate.Following(t.Steps), OnPolicy: true, ClipActions: true,
		}, nil
	}
}
