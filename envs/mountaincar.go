package envs

import "math"

// The constants of MountainCar-v0 and MountainCarContinuous-v0.
const (
	carLeft     = -1.2 // the wall
	carRight    = 0.6
	carMaxSpeed = 0.07
	carSlope    = 0.0025
	carForce    = 0.001  // MountainCar
	carGoal     = 0.5    // MountainCar
	carPower    = 0.0015 // MountainCarContinuous
	carGoalFar  = 0.45   // MountainCarContinuous
)

// The time limits of MountainCar-v0 and of MountainCarContinuous-v0.
const (
	MountainCarSteps           = 200
	MountainCarContinuousSteps = 999
)

// MountainCarConfig describes a MountainCar or a MountainCarContinuous. The
// zero value is that of Gymnasium.
type MountainCarConfig struct {
	// MaxSteps is the time limit in time steps. 0 means MountainCarSteps or
	// MountainCarContinuousSteps, a negative number none.
	MaxSteps int
	// GoalVelocity is the least velocity at the goal that ends the episode.
	GoalVelocity float64
}

// NewMountainCar returns one MountainCar-v0: a car in a valley, too weak to
// climb the right hill at once, is pushed to the left, not at all, or to the
// right (actions 0, 1, 2). Every step costs 1. The episode terminates at
// position 0.5 and is truncated after [MountainCarSteps].
//
// The observation is position and velocity. An episode starts at rest, at a
// position from [-0.6, -0.4).
//
// Source: A. W. Moore, "Efficient Memory-based Learning for Robot Control"
// (1990), with the constants of Gymnasium's MountainCar-v0.
func NewMountainCar(cfg MountainCarConfig) Env[int] {
	return limited[int](&mountainCar{car{core{name: "MountainCar-v0"}, cfg.GoalVelocity, [2]float64{}, [2]float32{}}},
		cfg.MaxSteps, MountainCarSteps)
}

// car is the part that both kinds share.
type car struct {
	core
	goalVelocity float64
	state        [2]float64 // position, velocity
	obs          [2]float32
}

func (c *car) ObservationSpace() Space {
	return Box{Low: []float32{carLeft, -carMaxSpeed}, High: []float32{carRight, carMaxSpeed}}
}

func (c *car) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := c.begin(seed); err != nil {
		return nil, Info{}, err
	}
	c.rng.Uniform(c.state[:1], -0.6, -0.4)
	c.state[1] = 0
	c.observe(c.obs[:])
	return c.obs[:], Info{}, nil
}

// move adds an acceleration to the velocity, and the velocity to the position.
func (c *car) move(acceleration, goal float64) {
	position, velocity := c.state[0], c.state[1]
	velocity = min(max(velocity+acceleration, -carMaxSpeed), carMaxSpeed)
	position = min(max(position+velocity, carLeft), carRight)
	if position == carLeft && velocity < 0 {
		velocity = 0
	}
	c.state = [2]float64{position, velocity}
	c.over = position >= goal && velocity >= c.goalVelocity
}

func (c *car) observe(dst []float32) {
	dst[0], dst[1] = float32(c.state[0]), float32(c.state[1])
}

func (c *car) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendFloats(c.appendCore(dst), c.state[:]...), nil
}

func (c *car) RestoreSnapshot(src []byte) ([]byte, error) {
	return c.restoreFloats(src, c.state[:])
}

type mountainCar struct{ car }

func (c *mountainCar) ActionSpace() Space { return Discrete{N: 3} }

func (c *mountainCar) Step(action int) (Step, error) {
	if err := c.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action > 2 {
		return Step{}, actionError(c.name, action, c.ActionSpace())
	}
	c.advance(action)
	c.observe(c.obs[:])
	return Step{Obs: c.obs[:], Reward: -1, Terminated: c.over}, nil
}

func (c *mountainCar) advance(action int) {
	c.move(float64(float64(action-1)*carForce)-float64(math.Cos(3*c.state[0])*carSlope), carGoal)
}

// NewBatch implements Batcher.
func (c *mountainCar) NewBatch(envs []Env[int]) Batch {
	return batchOf(envs, func(c *mountainCar, r *Rows, i int) bool {
		c.advance(int(r.Actions[i]))
		c.observe(r.Obs[2*i : 2*i+2])
		r.Rewards[i] = -1
		return c.over
	})
}

// NewMountainCarContinuous returns one MountainCarContinuous-v0: the car of
// [NewMountainCar] with a force from [-1, 1], which the environment clips. A
// step costs a tenth of the square of the action (before it is clipped), and
// the one that ends the episode, at position 0.45, is worth 100. It is
// truncated after [MountainCarContinuousSteps].
//
// As in Gymnasium the state is rounded to float32 after every step.
//
// Source: as [NewMountainCar], with the constants of Gymnasium's
// MountainCarContinuous-v0.
func NewMountainCarContinuous(cfg MountainCarConfig) Env[[]float32] {
	env := &mountainCarContinuous{car{core: core{name: "MountainCarContinuous-v0"}, goalVelocity: cfg.GoalVelocity}}
	return limited[[]float32](env, cfg.MaxSteps, MountainCarContinuousSteps)
}

type mountainCarContinuous struct{ car }

func (c *mountainCarContinuous) ActionSpace() Space { return NewBox(-1, 1, 1) }

// ClipsActions implements ActionClipper.
func (c *mountainCarContinuous) ClipsActions() {}

func (c *mountainCarContinuous) Step(action []float32) (Step, error) {
	if err := c.ready(); err != nil {
		return Step{}, err
	}
	if len(action) != 1 || action[0] != action[0] {
		return Step{}, actionError(c.name, action, c.ActionSpace())
	}
	reward := c.advance(action[0])
	c.observe(c.obs[:])
	return Step{Obs: c.obs[:], Reward: reward, Terminated: c.over}, nil
}

func (c *mountainCarContinuous) advance(action float32) float64 {
	force := min(max(float64(action), -1), 1)
	c.move(float64(force*carPower)-float64(carSlope*math.Cos(3*c.state[0])), carGoalFar)
	for i, v := range c.state {
		c.state[i] = float64(float32(v))
	}
	reward := 0.0
	if c.over {
		reward = 100
	}
	return reward - float64(float64(action)*float64(action)*0.1)
}

// NewBatch implements Batcher.
func (c *mountainCarContinuous) NewBatch(envs []Env[[]float32]) Batch {
	return batchOf(envs, func(c *mountainCarContinuous, r *Rows, i int) bool {
		r.Rewards[i] = c.advance(r.Actions[i])
		c.observe(r.Obs[2*i : 2*i+2])
		return c.over
	})
}
