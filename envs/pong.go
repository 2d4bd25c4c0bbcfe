package envs

import (
	"math"

	"github.com/ditask/ditask/envs/nprand"
)

// The constants of Pong-v0. The court is 1 wide and 1 high; speeds are per time
// step.
const (
	pongOurs     = 0.95 // where our paddle is
	pongTheirs   = 0.05
	pongHalf     = 0.08 // half a paddle's height
	pongOurSpeed = 0.04
	pongOppSpeed = 0.018
	pongServe    = 0.03 // horizontal speed
	pongFaster   = 1.05 // with each hit of a paddle
	pongMaxX     = 0.06
	pongMaxY     = 0.045
)

// PongSteps is the time limit of Pong-v0.
const PongSteps = 5000

// PongConfig describes a Pong. The zero value is Pong-v0.
type PongConfig struct {
	// Points is how many points end the episode. 0 means 5.
	Points int
	// MaxSteps is the time limit in time steps. 0 means PongSteps, a negative
	// number none.
	MaxSteps int
}

// NewPong returns one Pong-v0, a game of this package with cheap steps: two
// paddles keep a ball in the court. Ours, on the right, stays, goes up or goes
// down (actions 0, 1, 2). The opponent follows the ball while it approaches, but
// is slower than a steep ball. A point is worth 1 for us and -1 for the opponent;
// five points end the episode. It is truncated after [PongSteps].
//
// A ball leaves a paddle the steeper the farther from the paddle's middle it
// was hit, and 5 % faster. Only serves are random.
//
// The observation has six values: the ball's position (x, y; 0 to 1) and its
// velocity in units of the greatest, our paddle's y, and the opponent's. y
// points down.
func NewPong(cfg PongConfig) Env[int] {
	if cfg.Points <= 0 {
		cfg.Points = 5
	}
	return limited[int](&pong{core: core{name: "Pong-v0"}, target: cfg.Points}, cfg.MaxSteps, PongSteps)
}

type pong struct {
	core
	target       int
	ours, theirs int        // points
	s            [6]float64 // x, y, dx, dy, our paddle, the opponent's
	obs          [6]float32
}

func (p *pong) ObservationSpace() Space {
	return Box{Low: []float32{0, 0, -1, -1, 0, 0}, High: []float32{1, 1, 1, 1, 1, 1}}
}

func (p *pong) ActionSpace() Space { return Discrete{N: 3} }

func (p *pong) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := p.begin(seed); err != nil {
		return nil, Info{}, err
	}
	p.ours, p.theirs = 0, 0
	p.s[4], p.s[5] = 0.5, 0.5
	p.serve()
	p.observe(p.obs[:])
	return p.obs[:], Info{}, nil
}

// serve starts a ball from the middle, to a random side and height.
func (p *pong) serve() {
	if p.rng == nil { // restored from a snapshot that is no state of a game
		p.rng = &nprand.PCG64{IncLo: 1}
	}
	var r [3]float64
	p.rng.Uniform(r[:], -1, 1)
	p.s[0], p.s[1] = 0.5, 0.5+float64(0.3*r[0])
	p.s[2], p.s[3] = math.Copysign(pongServe, r[1]), float64(0.02*r[2])
}

func (p *pong) Step(action int) (Step, error) {
	if err := p.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action > 2 {
		return Step{}, actionError(p.name, action, p.ActionSpace())
	}
	reward := p.advance(action)
	p.observe(p.obs[:])
	return Step{Obs: p.obs[:], Reward: reward, Terminated: p.over}, nil
}

func (p *pong) advance(action int) float64 {
	s := &p.s
	// 0 stays, 1 goes up and 2 down; in a table, for a random action defeats
	// the processor's guess at a branch.
	s[4] = min(max(s[4]+[3]float64{0, -pongOurSpeed, pongOurSpeed}[action], pongHalf), 1-pongHalf)
	if s[2] < 0 {
		way := min(max(s[1]-s[5], -pongOppSpeed), pongOppSpeed)
		s[5] = min(max(s[5]+way, pongHalf), 1-pongHalf)
	}
	before := s[0]
	s[0], s[1] = s[0]+s[2], s[1]+s[3]
	if s[1] < 0 {
		s[1], s[3] = -s[1], -s[3]
	} else if s[1] > 1 {
		s[1], s[3] = 2-s[1], -s[3]
	}
	switch {
	case before < pongOurs && s[0] >= pongOurs:
		p.hit(pongOurs, s[4])
	case before > pongTheirs && s[0] <= pongTheirs:
		p.hit(pongTheirs, s[5])
	}
	switch {
	case s[0] < 0:
		p.ours++
		return p.point(1)
	case s[0] > 1:
		p.theirs++
		return p.point(-1)
	}
	return 0
}

// hit turns the ball at the line x if the paddle is there.
func (p *pong) hit(x, paddle float64) {
	off := (p.s[1] - paddle) / pongHalf
	if math.Abs(off) > 1.1 { // the ball is not a point
		return
	}
	p.s[0] = x
	p.s[2] = -min(max(pongFaster*p.s[2], -pongMaxX), pongMaxX)
	p.s[3] = min(max(pongMaxY*off, -pongMaxY), pongMaxY)
}

func (p *pong) point(reward float64) float64 {
	p.over = p.ours >= p.target || p.theirs >= p.target
	p.s[0] = min(max(p.s[0], 0), 1)
	if !p.over {
		p.serve()
	}
	return reward
}

func (p *pong) observe(dst []float32) {
	_ = dst[5]
	s := &p.s
	dst[0], dst[1] = float32(s[0]), float32(s[1])
	dst[2], dst[3] = float32(s[2]*(1/pongMaxX)), float32(s[3]*(1/pongMaxY))
	dst[4], dst[5] = float32(s[4]), float32(s[5])
}

// NewBatch implements Batcher.
func (p *pong) NewBatch(envs []Env[int]) Batch {
	return batchOf(envs, func(p *pong, r *Rows, i int) bool {
		r.Rewards[i] = p.advance(int(r.Actions[i]))
		p.observe(r.Obs[6*i : 6*i+6])
		return p.over
	})
}

func (p *pong) AppendSnapshot(dst []byte) ([]byte, error) {
	return appendWords(appendFloats(p.appendCore(dst), p.s[:]...), uint64(p.ours), uint64(p.theirs)), nil
}

func (p *pong) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := p.restoreFloats(src, p.s[:])
	if err != nil {
		return nil, err
	}
	w, rest, err := words(rest, 2)
	if err != nil {
		return nil, err
	}
	p.ours, p.theirs = int(w[0]), int(w[1])
	p.started = p.started && p.rng != nil
	return rest, nil
}
