package ppo

import (
	"github.com/ditask/ditask/policies/algorithm"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

const cleanRL = "CleanRL's ppo.py"

// Algorithm describes PPO for a config: see package algorithm. The defaults are those of CleanRL's ppo.py.
func Algorithm() algorithm.Algorithm {
	return algorithm.Algorithm{
		Name: "ppo", About: "learns a policy by gradients of a clipped surrogate objective, on-policy",
		Source: "Schulman et al. 2017; defaults: " + cleanRL, Envs: 4, Steps: 500_000, Discrete: true, Continuous: true, Declare: declare,
	}
}

func declare(p *algorithm.Params) algorithm.Build {
	zero, positive := algorithm.AtLeast(0), algorithm.Above(0)
	hidden := p.Hidden([]int{64, 64}, cleanRL)
	lstm := p.Int("lstm", 0, "units", "units of a recurrent layer; 0: none", "CleanRL's ppo_atari_lstm.py: 128", zero)
	rate := p.Rate("linear(0.00025, 0)", cleanRL)
	epsAdam := p.Float("adam_eps", 1e-5, "", "epsilon of Adam", cleanRL, positive)
	grad := p.MaxGradNorm(0.5, cleanRL)
	length := p.Int("n_steps", 128, "time steps", "time steps of a rollout in each environment", cleanRL, algorithm.AtLeast(1))
	epochs := p.Int("n_epochs", 4, "passes", "passes over a rollout", cleanRL, algorithm.AtLeast(1))
	minibatches := p.Int("n_minibatches", 4, "minibatches", "updates of one pass", cleanRL, algorithm.AtLeast(1))
	gamma := p.Gamma(0.99, cleanRL)
	lambda := p.Float("gae_lambda", 0.95, "", "lambda of the generalised advantage estimates", cleanRL, zero, algorithm.AtMost(1))
	clip := p.Schedule("clip_range", "0.2", "", "epsilon of the clipped objective", cleanRL, zero, algorithm.Below(1))
	valueClip := p.OneOf("value_clip", "value", []string{"value", "error", "none"},
		"what of the value loss is clipped: the change of a value by clip_range (CleanRL), the squared error (RLlib), or nothing (SB3)", cleanRL)
	valueClipParam := p.Float("vf_clip_param", 10, "", "greatest squared error that counts, with value_clip error", "RLlib", positive)
	entropy := p.Float("ent_coef", 0.01, "", "weight of the entropy", cleanRL, zero)
	value := p.Float("vf_coef", 0.5, "", "weight of the value loss", cleanRL, zero)
	normalise := p.Bool("normalize_advantage", true, "standardise the advantages of each minibatch", cleanRL)
	stopKL := p.Float("target_kl", 0, "nats", "divergence after which a rollout is learned from no more; 0: never", cleanRL, zero)
	klCoef := p.Float("kl_coef", 0, "", "first coefficient of an adaptive penalty on the divergence; 0: none", "RLlib: 0.2", zero)
	klTarget := p.Float("kl_target", 0.01, "nats", "divergence that the penalty aims at", "RLlib", positive)
	logStd := p.Float("log_std_init", 0, "", "logarithm of the first standard deviation of continuous actions", cleanRL)
	sde := p.StateNoise()
	ortho := p.Bool("ortho_init", true, "orthogonal initial weights; else those of PyTorch", cleanRL)
	return func(t algorithm.Task) (algorithm.Setup, error) {
		kinds := map[string]ValueClip{"value": ClipValue, "error": ClipError, "none": NoValueClip}
		c := Config{
			Obs: t.Obs, Action: t.Action, Seed: t.Seed, Hidden: *hidden, LSTM: *lstm, Length: *length, Clip: algorithm.Positive(clip.First()),
			EntropyCoef: algorithm.OrNone(*entropy), ValueCoef: *value, ValueClip: kinds[*valueClip], ValueClipParam: *valueClipParam,
			RawAdvantages: !*normalise, KLCoef: *klCoef, KLTarget: *klTarget, StopKL: *stopKL, LogStd: *logStd, Threads: t.Threads,
			Adam: nn.AdamConfig{Rate: algorithm.Positive(rate.First()), Epsilon: *epsAdam}, MaxGradNorm: algorithm.OrNone(*grad),
		}
		if *value == 0 {
			c.ValueCoef = 1e-12
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
		rollout := data.RolloutConfig{
			Length: *length, Gamma: *gamma, Lambda: *lambda, Epochs: *epochs, Minibatches: *minibatches, Seed: t.Seed, Sequences: *lstm > 0,
		}
		if *lambda == 0 {
			rollout.Lambda = 1e-12
		}
		return algorithm.Setup{
			Policy: New(c), Source: data.NewRollout(rollout), VectorSteps: *length, Rate: rate.Following(t.Steps),
			Clip: clip.Following(t.Steps), OnPolicy: true, ClipActions: true,
		}, nil
	}
}
