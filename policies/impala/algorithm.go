package impala

import (
	"errors"

	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

const rllib = "RLlib's IMPALA"

// Algorithm describes IMPALA for a config: see package algorithm. The defaults are those of RLlib.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "impala", About: "learns a policy from sequences of older weights, corrected by V-trace",
		Source: "Espeholt et al. 2018; defaults: " + rllib, Envs: 10, Steps: 1_000_000, Discrete: true, Continuous: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{64, 64}, "ditask")
	rate := p.Rate("0.0005", rllib)
	grad := p.MaxGradNorm(40, rllib)
	length := p.Int("n_steps", 50, "time steps", "time steps of a sequence", rllib, algorithm.AtLeast(1))
	batch := p.Int("batch_sequences", 10, "sequences", "sequences of an update", rllib, algorithm.AtLeast(1))
	gamma := p.Gamma(0.99, rllib)
	rho := p.Float("vtrace_clip_rho", 1, "", "greatest importance ratio of temporal differences", rllib, positive)
	c := p.Float("vtrace_clip_c", 1, "", "greatest ratio by which differences reach back in time", "Espeholt et al. 2018", positive)
	entropy := p.Float("ent_coef", 0.01, "", "weight of the entropy", rllib, zero)
	value := p.Float("vf_coef", 0.5, "", "weight of the value loss", rllib, positive)
	logStd := p.Float("log_std_init", 0, "", "logarithm of the first standard deviation of continuous actions", "ditask")
	return func(t algorithm.Task) (algorithm.Setup, error) {
		cfg := Config{
			Obs: t.Obs, Action: t.Action, Seed: t.Seed, Hidden: *hidden, Length: *length, Gamma: *gamma, MaxRho: *rho, MaxC: *c,
			EntropyCoef: algorithm.OrNone(*entropy), ValueCoef: *value, LogStd: *logStd,
			Adam: nn.AdamConfig{Rate: algorithm.Positive(rate.First())}, MaxGradNorm: algorithm.OrNone(*grad),
		}
		sequences := data.SequencesConfig{Length: *length, Batch: *batch}
		if err := errors.Join(cfg.Validate(), sequences.Validate()); err != nil {
			return algorithm.Setup{}, err
		}
		return algorithm.Setup{
			Policy: New(cfg), Source: data.NewSequences(sequences), VectorSteps: *length, Rate: rate.Following(t.Steps), ClipActions: true,
		}, nil
	}
}
