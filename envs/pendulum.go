package envs

import "math"

// The constants of Pendulum-v1, in SI units. Mass and length are 1.
const (
	pendulumMaxSpeed  = 8.0
	pendulumMaxTorque = 2.0
	pendulumDt        = 0.05
	pendulumGravity   = 10.0
)

// PendulumSteps is the time limit of Pendulum-v1.
const PendulumSteps = 200

// PendulumConfig describes a Pendulum. The zero value is Pendulum-v1.
type PendulumConfig struct {
	// MaxSteps is the time limit in time steps. 0 means PendulumSteps, a
	// negative number none.
	MaxSteps int
	// Gravity is in m/s². 0 means 10.
	Gravity float64
}

// NewPendulum returns one Pendulum-v1: a rod swings about one end and is to be
// held upright by a torque from [-2, 2] N m, which the environment clips. A
// step costs angle² + 0.1 velocity² + 0.001 torque², with the angle from the
// upright in [-pi, pi). An episode never terminates and is truncated after
// [PendulumSteps].
//
// The observation is the cosine and the sine of the angle, and the angular
// velocity (rad/s). An episode starts at any angle, with a velocity from
// [-1, 1).
//
// Source: the equations of Gymnasium's Pendulum-v1.
func NewPendulum(cfg PendulumConfig) Env[[]float32] {
	if cfg.Gravity == 0 {
		cfg.Gravity = pendulumGravity
	}
	return limited[[]float32](&pendulum{core: core{name: "Pendulum-v1"}, gravity: cfg.Gravity}, cfg.MaxSteps, PendulumSteps)
}

type pendulum struct {
	core
	gravity float64
	state   [3]float64 // angle, angular velocity, last torque (which is only drawn)
	obs     [3]float32
}

func (p *pendulum) ObservationSpace() Space {
	return Box{Low: []float32{-1, -1, -pendulumMaxSpeed}, High: []float32{1, 1, pendulumMaxSpeed}}
}

func (p *pendulum) ActionSpace() Space { return NewBox(-pendulumMaxTorque, pendulumMaxTorque, 1) }

// ClipsActions implements ActionClipper.
func (p *pendulum) ClipsActions() {}

func (p *pendulum) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := p.begin(seed); err != nil {
		return nil, Info{}, err
	}
	p.rng.Uniform(p.state[:1], -math.Pi, math.Pi)
	p.rng.Uniform(p.state[1:2], -1, 1)
	p.state[2] = 0
	p.observe(p.obs[:])
	return p.obs[:], Info{}, nil
}

func (p *pendulum) Step(action []float32) (Step, error) {
	if err := p.ready(); err != nil {
		return Step{}, err
	}
	if len(action) != 1 || action[0] != action[0] {
		return Step{}, actionError(p.name, action, p.ActionSpace())
	}
	reward := p.advance(action[0])
	p.observe(p.obs[:])
	return Step{Obs: p.obs[:], Reward: reward}, nil
}

func (p *pendulum) advance(action float32) float64 {
	angle, speed := p.state[0], p.state[1]
	torque := min(max(float64(action), -pendulumMaxTorque), pendulumMaxTorque)
	lean := upright(angle)
	cost := float64(lean*lean) + float64(0.1*float64(speed*speed)) + float64(0.001*float64(torque*torque))
	speed += float64((float64(3*p.gravity/2*math.Sin(angle)) + float64(3*torque)) * pendulumDt)
	speed = min(max(speed, -pendulumMaxSpeed), pendulumMaxSpeed)
	p.state = [3]float64{angle + float64(speed*pendulumDt), speed, torque}
	return -cost
}

// upright returns an angle in [-pi, pi) with Python's modulo, whose result has
// the sign of the divisor.
func upright(angle float64) float64 {
	m := math.Mod(angle+math.Pi, 2*math.Pi)
	if m < 0 {
		m += 2 * math.Pi
	}
	return m - math.Pi
}

func (p *pendulum) observe(dst []float32) {
	_ = dst[2]
	sin, cos := math.Sincos(p.state[0])
	dst[0], dst[1], dst[2] = float32(cos), float32(sin), float32(p.state[1])
}

// NewBatch implements Batcher.
func (p *pendulum) NewBatch(envs []Env[[]float32]) Batch {
	return batchOf(envs, func(p *pendulum, r *Rows, i int) bool {
		r.Rewards[i] = p.advance(r.Actions[i])
		p.observe(r.Obs[3*i : 3*i+3])
		return false
	})
}

func (p *pendulum) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendFloats(p.appendCore(dst), p.state[:]...), nil
}

func (p *pendulum) RestoreSnapshot(src []byte) ([]byte, error) {
	return p.restoreFloats(src, p.state[:])
}
