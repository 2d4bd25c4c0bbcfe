package envs

import "math"

// The constants of CartPole-v1, in SI units.
const (
	gravity    = 9.8
	massCart   = 1.0
	massPole   = 0.1
	totalMass  = massPole + massCart
	halfPole   = 0.5 // half the pole's length
	poleMoment = massPole * halfPole
	forceMag   = 10.0
	tau        = 0.02 // seconds between updates

	thetaLimit = 12 * 2 * math.Pi / 360 // radians
	xLimit     = 2.4
)

// CartPoleSteps is the time limit of CartPole-v1.
const CartPoleSteps = 500

// CartPoleConfig describes a CartPole. The zero value is CartPole-v1.
type CartPoleConfig struct {
	// MaxSteps is the time limit in time steps. 0 means CartPoleSteps, a
	// negative number none.
	MaxSteps int
	// SuttonBarto makes the reward 0 for every step, and -1 for the one that
	// ends the episode: Gymnasium's sutton_barto_reward.
	SuttonBarto bool
}

// CartPole returns a vector of n CartPole-v1 with episode statistics, in the
// given autoreset mode, or NextStep if none is given.
func CartPole(n int, mode ...AutoresetMode) *Sync {
	m := NextStep
	if len(mode) > 0 {
		m = mode[0]
	}
	return NewSync(n, m, func(int) Env[int] {
		return RecordEpisodeStatistics(NewCartPole(CartPoleConfig{}))
	})
}

// NewCartPole returns one CartPole-v1: a pole stands on a cart that is pushed
// to the left (action 0) or to the right (action 1). Every step is worth 1.
// The episode terminates when the pole leans more than 12 degrees or the cart
// leaves [-2.4, 2.4], and is truncated after [CartPoleSteps].
//
// The observation is cart position (m), cart velocity (m/s), pole angle (rad),
// pole angular velocity (rad/s). The state is kept in float64 and observed in
// float32, as in Gymnasium.
//
// Source: A. G. Barto, R. S. Sutton, C. W. Anderson, "Neuronlike Adaptive
// Elements That Can Solve Difficult Learning Control Problems" (1983), with
// the corrected equations of R. V. Florian (2007), integrated by Euler's
// method in the order of Gymnasium's CartPole-v1.
func NewCartPole(cfg CartPoleConfig) Env[int] {
	c := &cartPole{core: core{name: "CartPole-v1"}, going: 1, ending: 1}
	if cfg.SuttonBarto {
		c.going, c.ending = 0, -1
	}
	return limited[int](c, cfg.MaxSteps, CartPoleSteps)
}

type cartPole struct {
	core
	state         [4]float64 // x, x', theta, theta'
	obs           [4]float32
	going, ending float64 // rewards
}

func (c *cartPole) ObservationSpace() Space {
	inf := float32(math.Inf(1))
	high := []float32{xLimit * 2, inf, thetaLimit * 2, inf}
	return Box{Low: []float32{-high[0], -inf, -high[2], -inf}, High: high}
}

func (c *cartPole) ActionSpace() Space { return Discrete{N: 2} }

func (c *cartPole) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := c.begin(seed); err != nil {
		return nil, Info{}, err
	}
	c.rng.Uniform(c.state[:], -0.05, 0.05)
	c.observe(c.obs[:])
	return c.obs[:], Info{}, nil
}

func (c *cartPole) Step(action int) (Step, error) {
	if err := c.ready(); err != nil {
		return Step{}, err
	}
	if action != 0 && action != 1 {
		return Step{}, actionError(c.name, action, c.ActionSpace())
	}
	reward := c.advance(action)
	c.observe(c.obs[:])
	return Step{Obs: c.obs[:], Reward: reward, Terminated: c.over}, nil
}

// advance advances the state by tau and returns the reward. The conversions of
// products keep a compiler from fusing them with a sum, which would round
// differently from Python.
func (c *cartPole) advance(action int) float64 {
	force := float64(2*action-1) * forceMag
	x, xDot, theta, thetaDot := c.state[0], c.state[1], c.state[2], c.state[3]
	sin, cos := sincos(theta)
	temp := (force + float64(float64(poleMoment*float64(thetaDot*thetaDot))*sin)) / totalMass
	thetaAcc := (float64(gravity*sin) - float64(cos*temp)) /
		(halfPole * (4.0/3.0 - float64(massPole*float64(cos*cos))/totalMass))
	xAcc := temp - float64(float64(poleMoment*thetaAcc)*cos)/totalMass
	x, theta = x+float64(tau*xDot), theta+float64(tau*thetaDot)
	c.state = [4]float64{x, xDot + float64(tau*xAcc), theta, thetaDot + float64(tau*thetaAcc)}
	c.over = math.Abs(x) > xLimit || math.Abs(theta) > thetaLimit
	if c.over {
		return c.ending
	}
	return c.going
}

func (c *cartPole) observe(dst []float32) {
	_ = dst[3]
	for i, v := range c.state {
		dst[i] = float32(v)
	}
}

// NewBatch implements Batcher.
func (c *cartPole) NewBatch(envs []Env[int]) Batch {
	return batchOf(envs, func(c *cartPole, r *Rows, i int) bool {
		r.Rewards[i] = c.advance(int(r.Actions[i]))
		c.observe(r.Obs[4*i : 4*i+4])
		return c.over
	})
}

func (c *cartPole) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendFloats(c.appendCore(dst), c.state[:]...), nil
}

func (c *cartPole) RestoreSnapshot(src []byte) ([]byte, error) {
	return c.restoreFloats(src, c.state[:])
}

// newCartPolePositions returns one CartPolePositions-v1: CartPole-v1 of which only the positions of cart and pole
// are observed, so that a policy must remember them to know how fast they move.
func newCartPolePositions() Env[int] {
	cartPole := NewCartPole(CartPoleConfig{})
	box := cartPole.ObservationSpace().(Box)
	seen := Box{Low: []float32{box.Low[0], box.Low[2]}, High: []float32{box.High[0], box.High[2]}}
	return &renamed[int]{wrapped[int]{TransformObservation(cartPole, seen, func(dst, obs []float32) { dst[0], dst[1] = obs[0], obs[2] })},
		"CartPolePositions-v1"}
}
