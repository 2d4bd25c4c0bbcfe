package algorithm

import (
	"errors"

	"github.com/ditask/ditask/envs"
)

const sb3 = "Stable-Baselines3"

// StateNoise are the hyperparameters of generalised state-dependent exploration.
type StateNoise struct {
	use   *bool
	every *int
}

// StateNoise declares the hyperparameters of generalised state-dependent exploration.
func (p *Params) StateNoise() *StateNoise {
	return &StateNoise{
		use: p.Bool("use_sde", false, "explore with noise that depends on the state and lasts for several steps (Raffin et al. 2021)", sb3),
		every: p.Int("sde_sample_freq", -1, "time steps", "time steps between draws of that noise; -1: as many as are between updates", sb3,
			AtLeast(-1)),
	}
}

// DrawEvery returns the number of time steps between draws, of which as many as between are between updates; 0: there is
// no such noise. The error is that of actions which it does not suit.
func (s *StateNoise) DrawEvery(t Task, between int) (int, error) {
	if !*s.use {
		return 0, nil
	}
	if _, ok := t.Action.(envs.Box); !ok {
		return 0, errors.New("use_sde: it is noise on continuous actions, and the environment has discrete ones")
	}
	if *s.every > 0 {
		return *s.every, nil
	}
	return between, nil
}

// ActionNoise are the hyperparameters of the noise on the actions of a deterministic policy.
type ActionNoise struct {
	kind *string
	std  *float64
}

// The kinds of noise on actions.
const (
	normalNoise = "normal"
	ouNoise     = "ornstein-uhlenbeck"
)

// ActionNoise declares the hyperparameters of the noise on the actions of a deterministic policy.
func (p *Params) ActionNoise(def float64, source string) *ActionNoise {
	return &ActionNoise{
		std: p.Float("exploration_noise", def, "half the action's interval", "standard deviation of the noise on actions", source, AtLeast(0)),
		kind: p.OneOf("noise_type", normalNoise, []string{normalNoise, ouNoise},
			"noise on actions: independent numbers, or a process that moves a tenth of the deviation in a time step", source),
	}
}

// Std returns the standard deviation, negative for no noise.
func (n *ActionNoise) Std() float64 { return OrNone(*n.std) }

// OrnsteinUhlenbeck reports whether the noise is of an Ornstein-Uhlenbeck process.
func (n *ActionNoise) OrnsteinUhlenbeck() bool { return *n.kind == ouNoise }
