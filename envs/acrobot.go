package envs

import "math"

// The constants of Acrobot-v1, in SI units. Both links are equal.
const (
	acrobotDt      = 0.2 // seconds between steps
	acrobotLink    = 1.0 // length of a link
	acrobotMass    = 1.0
	acrobotCentre  = 0.5 // of mass, from the joint
	acrobotInertia = 1.0
	acrobotMaxVel1 = 4 * math.Pi
	acrobotMaxVel2 = 9 * math.Pi
)

// AcrobotSteps is the time limit of Acrobot-v1.
const AcrobotSteps = 500

// AcrobotConfig describes an Acrobot. The zero value is Acrobot-v1.
type AcrobotConfig struct {
	// MaxSteps is the time limit in time steps. 0 means AcrobotSteps, a
	// negative number none.
	MaxSteps int
	// TorqueNoise is the largest noise that is added to the torque, in N m,
	// uniform to both sides.
	TorqueNoise float64
	// NIPS takes the equations of Sutton's paper (1996) instead of those of
	// Sutton's and Barto's book, which have one more term.
	NIPS bool
}

// NewAcrobot returns one Acrobot-v1: two links hang from a joint, and the
// second joint gives a torque of -1, 0 or 1 N m (actions 0, 1, 2). Every step
// costs 1, except for the one in which the free end is higher than one link above
// the first joint, which ends the episode. It is truncated after
// [AcrobotSteps].
//
// The observation is the cosine and the sine of the first angle, those of the
// second, which is relative to the first, and the two angular velocities
// (rad/s). An episode starts with four numbers from [-0.1, 0.1), rounded to
// float32 as in Gymnasium.
//
// Source: R. S. Sutton, "Generalization in Reinforcement Learning: Successful
// Examples Using Sparse Coarse Coding" (1996); R. S. Sutton, A. G. Barto,
// "Reinforcement Learning: An Introduction" (2018), integrated by one step of
// the classical Runge-Kutta method in the order of Gymnasium's Acrobot-v1.
func NewAcrobot(cfg AcrobotConfig) Env[int] {
	return limited[int](&acrobot{core: core{name: "Acrobot-v1"}, cfg: cfg}, cfg.MaxSteps, AcrobotSteps)
}

type acrobot struct {
	core
	cfg   AcrobotConfig
	state [4]float64 // theta1, theta2, and their derivatives
	obs   [6]float32
}

func (a *acrobot) ObservationSpace() Space {
	high := []float32{1, 1, 1, 1, acrobotMaxVel1, acrobotMaxVel2}
	low := make([]float32, len(high))
	for i, h := range high {
		low[i] = -h
	}
	return Box{Low: low, High: high}
}

func (a *acrobot) ActionSpace() Space { return Discrete{N: 3} }

func (a *acrobot) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := a.begin(seed); err != nil {
		return nil, Info{}, err
	}
	a.rng.Uniform(a.state[:], -0.1, 0.1)
	for i, v := range a.state {
		a.state[i] = float64(float32(v))
	}
	a.observe(a.obs[:])
	return a.obs[:], Info{}, nil
}

func (a *acrobot) Step(action int) (Step, error) {
	if err := a.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action > 2 {
		return Step{}, actionError(a.name, action, a.ActionSpace())
	}
	reward := a.advance(action)
	a.observe(a.obs[:])
	return Step{Obs: a.obs[:], Reward: reward, Terminated: a.over}, nil
}

// advance integrates one step and returns the reward.
func (a *acrobot) advance(action int) float64 {
	torque := [1]float64{float64(action - 1)}
	if noise := a.cfg.TorqueNoise; noise > 0 {
		before := torque[0]
		a.rng.Uniform(torque[:], -noise, noise)
		torque[0] += before
	}
	s := &a.state
	k1 := a.derivative(s, torque[0])
	k2 := a.derivative(ahead(s, acrobotDt/2, &k1), torque[0])
	k3 := a.derivative(ahead(s, acrobotDt/2, &k2), torque[0])
	k4 := a.derivative(ahead(s, acrobotDt, &k3), torque[0])
	for i := range s {
		s[i] += float64(acrobotDt / 6 * (k1[i] + float64(2*k2[i]) + float64(2*k3[i]) + k4[i]))
	}
	s[0], s[1] = wrapAngle(s[0]), wrapAngle(s[1])
	s[2] = min(max(s[2], -acrobotMaxVel1), acrobotMaxVel1)
	s[3] = min(max(s[3], -acrobotMaxVel2), acrobotMaxVel2)
	if a.over = -math.Cos(s[0])-math.Cos(s[1]+s[0]) > 1; a.over {
		return 0
	}
	return -1
}

// ahead returns s + h*k.
func ahead(s *[4]float64, h float64, k *[4]float64) *[4]float64 {
	var out [4]float64
	for i := range s {
		out[i] = s[i] + float64(h*k[i])
	}
	return &out
}

// derivative returns the derivative of the state. The conversions of products
// keep a compiler from fusing them with a sum.
func (a *acrobot) derivative(s *[4]float64, torque float64) [4]float64 {
	const m, l, lc, inertia = acrobotMass, acrobotLink, acrobotCentre, acrobotInertia
	v1, v2 := s[2], s[3]
	sin2, cos2 := math.Sincos(s[1])
	d1 := m*lc*lc + float64(m*(l*l+lc*lc+float64(2*l*lc*cos2))) + inertia + inertia
	d2 := m*(lc*lc+float64(l*lc*cos2)) + inertia
	phi2 := float64(m * lc * gravity * math.Cos(s[0]+s[1]-math.Pi/2))
	phi1 := -float64(float64(m*l*lc*float64(v2*v2))*sin2) - float64(float64(2*m*l*lc*v2*v1)*sin2) +
		float64((m*lc+m*l)*gravity*math.Cos(s[0]-math.Pi/2)) + phi2
	pull := torque + float64(d2/d1*phi1)
	if !a.cfg.NIPS {
		pull -= float64(float64(m*l*lc*float64(v1*v1)) * sin2)
	}
	acc2 := (pull - phi2) / (m*lc*lc + inertia - float64(d2*d2)/d1)
	acc1 := -(float64(d2*acc2) + phi1) / d1
	return [4]float64{v1, v2, acc1, acc2}
}

// wrapAngle returns x, moved by whole turns into [-pi, pi].
func wrapAngle(x float64) float64 {
	for x > math.Pi {
		x -= 2 * math.Pi
	}
	for x < -math.Pi {
		x += 2 * math.Pi
	}
	return x
}

func (a *acrobot) observe(dst []float32) {
	_ = dst[5]
	s, c := math.Sincos(a.state[0])
	dst[0], dst[1] = float32(c), float32(s)
	s, c = math.Sincos(a.state[1])
	dst[2], dst[3] = float32(c), float32(s)
	dst[4], dst[5] = float32(a.state[2]), float32(a.state[3])
}

// NewBatch implements Batcher.
func (a *acrobot) NewBatch(envs []Env[int]) Batch {
	return batchOf(envs, func(a *acrobot, r *Rows, i int) bool {
		r.Rewards[i] = a.advance(int(r.Actions[i]))
		a.observe(r.Obs[6*i : 6*i+6])
		return a.over
	})
}

func (a *acrobot) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendFloats(a.appendCore(dst), a.state[:]...), nil
}

func (a *acrobot) RestoreSnapshot(src []byte) ([]byte, error) {
	return a.restoreFloats(src, a.state[:])
}
