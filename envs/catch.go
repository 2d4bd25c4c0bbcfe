package envs

// The sizes of Catch-v0 in pixels.
const (
	catchSide   = 42
	catchBall   = 3
	catchPaddle = 9
	catchFall   = 2 // a step
	catchMove   = 2 // a step
	catchBright = 255
	catchGrey   = 160
)

// CatchSteps is the time limit of Catch-v0. An episode is over before it.
const CatchSteps = 200

// CatchConfig describes a Catch. The zero value is Catch-v0.
type CatchConfig struct {
	// Balls is how many balls fall in an episode. 0 means 5.
	Balls int
	// Frames is how many images an observation has, the newest last. 0 means
	// 4; 1 hides where the ball drifts.
	Frames int
	// MaxSteps is the time limit in time steps. 0 means CatchSteps, a negative
	// number none.
	MaxSteps int
}

// NewCatch returns one Catch-v0, a small game of this package that is seen as
// pixels: balls fall one after the other from a random place, each drifting to
// the left, straight down or to the right, and turning at the sides. The paddle
// below stays, goes left or goes right (actions 0, 1, 2). A ball that is caught
// is worth 1, one that is not -1; five balls end the episode.
//
// The observation is Frames images of 42 x 42 pixels in whole numbers from 0 to
// 255, as they are in [Box.Pixels].
func NewCatch(cfg CatchConfig) Env[int] {
	if cfg.Balls <= 0 {
		cfg.Balls = 5
	}
	if cfg.Frames <= 0 {
		cfg.Frames = 4
	}
	var env Env[int] = &catch{core: core{name: "Catch-v0"}, balls: cfg.Balls, obs: make([]float32, catchSide*catchSide)}
	if cfg.Frames > 1 {
		env = FrameStack(env, cfg.Frames)
	}
	return limited(env, cfg.MaxSteps, CatchSteps)
}

type catch struct {
	core
	balls               int
	x, y, drift, paddle int // the left and upper corners
	fallen              int
	obs                 []float32
}

func (c *catch) ObservationSpace() Space { return NewPixels(catchSide, catchSide) }

func (c *catch) ActionSpace() Space { return Discrete{N: 3} }

func (c *catch) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := c.begin(seed); err != nil {
		return nil, Info{}, err
	}
	c.paddle, c.fallen = (catchSide-catchPaddle)/2, 0
	c.throw()
	c.draw()
	return c.obs, Info{}, nil
}

// throw puts a ball at the top.
func (c *catch) throw() {
	c.x, c.y, c.drift = c.rng.Choice(catchSide-catchBall+1), 0, c.rng.Choice(3)-1
}

func (c *catch) Step(action int) (Step, error) {
	if err := c.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action > 2 {
		return Step{}, actionError(c.name, action, c.ActionSpace())
	}
	c.paddle = min(max(c.paddle+[3]int{0, -catchMove, catchMove}[action], 0), catchSide-catchPaddle)
	c.y += catchFall
	if c.x += c.drift; c.x < 0 || c.x > catchSide-catchBall {
		c.drift = -c.drift
		c.x += 2 * c.drift
	}
	reward := 0.0
	if c.y >= catchSide-catchBall-1 { // at the paddle
		reward = -1
		if c.x+catchBall > c.paddle && c.x < c.paddle+catchPaddle {
			reward = 1
		}
		if c.fallen++; c.fallen >= c.balls {
			c.over = true
		} else {
			c.throw()
		}
	}
	c.draw()
	return Step{Obs: c.obs, Reward: reward, Terminated: c.over}, nil
}

func (c *catch) draw() {
	clear(c.obs)
	c.fill(c.paddle, catchSide-2, catchPaddle, 2, catchGrey)
	c.fill(c.x, c.y, catchBall, catchBall, catchBright)
}

func (c *catch) fill(x, y, width, height int, v float32) {
	for row := y; row < min(y+height, catchSide); row++ {
		for col := x; col < x+width; col++ {
			c.obs[row*catchSide+col] = v
		}
	}
}

func (c *catch) fields() []*int { return []*int{&c.x, &c.y, &c.drift, &c.paddle, &c.fallen} }

func (c *catch) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = c.appendCore(dst)
	for _, v := range c.fields() {
		dst = appendWords(dst, uint64(*v))
	}
	return dst, nil
}

func (c *catch) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := c.restoreInts(src, c.fields()...)
	if err != nil {
		return nil, err
	}
	if c.x < 0 || c.x > catchSide-catchBall || c.y < 0 || c.y >= catchSide || c.drift < -1 || c.drift > 1 ||
		c.paddle < 0 || c.paddle > catchSide-catchPaddle || c.fallen < 0 {
		*c = catch{core: core{name: c.name}, balls: c.balls, obs: c.obs}
		return nil, badSnapshot(c.name)
	}
	c.draw()
	return rest, nil
}
