package envs

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs/nprand"
)

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

// CartPole returns a vector of n CartPole-v1 with episode statistics, in the
// given autoreset mode, or NextStep if none is given.
func CartPole(n int, mode ...AutoresetMode) *Sync[int] {
	m := NextStep
	if len(mode) > 0 {
		m = mode[0]
	}
	return NewSync(n, m, func(int) Env[int] {
		return RecordEpisodeStatistics(NewCartPole())
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
func NewCartPole() Env[int] { return TimeLimit[int](&cartPole{}, CartPoleSteps) }

type cartPole struct {
	rng     *nprand.PCG64
	state   [4]float64 // x, x', theta, theta'
	obs     [4]float32
	started bool
	over    bool
}

func (c *cartPole) Name() string { return "CartPole-v1" }

func (c *cartPole) ObservationSpace() Box {
	inf := float32(math.Inf(1))
	high := []float32{xLimit * 2, inf, thetaLimit * 2, inf}
	return Box{Low: []float32{-high[0], -inf, -high[2], -inf}, High: high}
}

func (c *cartPole) ActionSpace() Space[int] { return Discrete{N: 2} }

func (c *cartPole) Reset(seed ...uint64) ([]float32, Info, error) {
	switch {
	case len(seed) > 1:
		return nil, Info{}, fmt.Errorf("%s: %w", c.Name(), ErrSeeds)
	case len(seed) == 1:
		c.rng = nprand.New(seed[0])
	case c.rng == nil:
		c.rng = nprand.New(rand.Uint64())
	}
	c.rng.Uniform(c.state[:], -0.05, 0.05)
	c.started, c.over = true, false
	return c.observe(), Info{}, nil
}

func (c *cartPole) Step(action int) (Step, error) {
	switch {
	case !c.started:
		return Step{}, fmt.Errorf("%s: %w", c.Name(), ErrNotReset)
	case c.over:
		return Step{}, fmt.Errorf("%s: %w", c.Name(), ErrEpisodeOver)
	case action != 0 && action != 1:
		return Step{}, actionError(c.Name(), action, c.ActionSpace())
	}
	c.integrate(action)
	x, theta := c.state[0], c.state[2]
	c.over = x < -xLimit || x > xLimit || theta < -thetaLimit || theta > thetaLimit
	return Step{Obs: c.observe(), Reward: 1, Terminated: c.over}, nil
}

// integrate advances the state by tau. The conversions of products keep a
// compiler from fusing them with a sum, which would round differently from
// Python.
func (c *cartPole) integrate(action int) {
	force := -forceMag
	if action == 1 {
		force = forceMag
	}
	x, xDot, theta, thetaDot := c.state[0], c.state[1], c.state[2], c.state[3]
	sin, cos := math.Sincos(theta)
	temp := (force + float64(float64(poleMoment*float64(thetaDot*thetaDot))*sin)) / totalMass
	thetaAcc := (float64(gravity*sin) - float64(cos*temp)) /
		(halfPole * (4.0/3.0 - float64(massPole*float64(cos*cos))/totalMass))
	xAcc := temp - float64(float64(poleMoment*thetaAcc)*cos)/totalMass
	c.state = [4]float64{
		x + float64(tau*xDot),
		xDot + float64(tau*xAcc),
		theta + float64(tau*thetaDot),
		thetaDot + float64(tau*thetaAcc),
	}
}

func (c *cartPole) observe() []float32 {
	for i, v := range c.state {
		c.obs[i] = float32(v)
	}
	return c.obs[:]
}
