package envs

import "fmt"

// Goal is an environment whose task is a goal that changes with the episode, and
// whose observation contains the achieved goal, as hindsight experience replay
// needs it. See [As] to find it inside wrappers.
//
// Source: M. Andrychowicz et al., "Hindsight Experience Replay" (2017).
type Goal interface {
	// GoalParts determines where the parts are in an observation.
	GoalParts() GoalParts
	// GoalReward returns the reward of a step that achieved something, and
	// whether it ends the episode, if desired were the goal. It changes nothing.
	GoalReward(achieved, desired []float32) (reward float64, terminated bool)
}

// GoalParts are the places of the parts of a flat observation. Achieved and
// Desired have one length.
type GoalParts struct {
	Observation, Achieved, Desired Part
}

// Part is a part of a flat observation: the values From (inclusive) to To.
type Part struct{ From, To int }

// Of returns the part of an observation, in the same memory.
func (p Part) Of(obs []float32) []float32 { return obs[p.From:p.To:p.To] }

// BitFlipConfig describes a BitFlip. The zero value works.
type BitFlipConfig struct {
	// Bits is how many bits there are. 0 means 8.
	Bits int
	// MaxSteps is the time limit in time steps. 0 means Bits, a negative number
	// none.
	MaxSteps int
}

// NewBitFlip returns one BitFlip-v0: flip one bit in each step (the action is
// its number) until all bits equal those of a goal. A step costs 1, except for the
// one that reaches the goal, which ends the episode. The first bits and the goal
// are drawn again for each episode, and are never equal. It is a [Goal]. It panics
// if Bits is negative.
//
// The observation has three parts of Bits values each: the bits, the achieved
// goal, which is the bits again, and the desired goal.
//
// Source: M. Andrychowicz et al., "Hindsight Experience Replay" (2017), section
// 3.1.
func NewBitFlip(cfg BitFlipConfig) Env[int] {
	if cfg.Bits == 0 {
		cfg.Bits = 8
	}
	if cfg.Bits < 0 {
		panic(fmt.Sprintf("envs: %d bits to flip", cfg.Bits))
	}
	n := cfg.Bits
	return limited[int](&bitFlip{core: core{name: "BitFlip-v0"}, n: n, obs: make([]float32, 3*n)}, cfg.MaxSteps, n)
}

type bitFlip struct {
	core
	n   int
	obs []float32
}

func (b *bitFlip) ObservationSpace() Space { return MultiBinary{N: 3 * b.n} }

func (b *bitFlip) ActionSpace() Space { return Discrete{N: b.n} }

// GoalParts implements Goal.
func (b *bitFlip) GoalParts() GoalParts {
	return GoalParts{Part{0, b.n}, Part{b.n, 2 * b.n}, Part{2 * b.n, 3 * b.n}}
}

// GoalReward implements Goal.
func (b *bitFlip) GoalReward(achieved, desired []float32) (reward float64, terminated bool) {
	for i, x := range achieved {
		if x != desired[i] {
			return -1, false
		}
	}
	return 0, true
}

func (b *bitFlip) Reset(seed ...uint64) ([]float32, Info, error) {
	if err := b.begin(seed); err != nil {
		return nil, Info{}, err
	}
	parts := b.GoalParts()
	state, goal := parts.Observation.Of(b.obs), parts.Desired.Of(b.obs)
	for i := range state {
		state[i], goal[i] = float32(b.rng.Choice(2)), float32(b.rng.Choice(2))
	}
	if _, reached := b.GoalReward(state, goal); reached {
		i := b.rng.Choice(b.n)
		goal[i] = 1 - goal[i]
	}
	copy(parts.Achieved.Of(b.obs), state)
	return b.obs, Info{}, nil
}

func (b *bitFlip) Step(action int) (Step, error) {
	if err := b.ready(); err != nil {
		return Step{}, err
	}
	if action < 0 || action >= b.n {
		return Step{}, actionError(b.name, action, b.ActionSpace())
	}
	b.obs[action] = 1 - b.obs[action]
	b.obs[b.n+action] = b.obs[action]
	var reward float64
	reward, b.over = b.GoalReward(b.obs[:b.n], b.obs[2*b.n:])
	return Step{Obs: b.obs, Reward: reward, Terminated: b.over}, nil
}

func (b *bitFlip) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = b.appendCore(dst)
	for _, x := range b.obs {
		dst = append(dst, byte(x))
	}
	return dst, nil
}

func (b *bitFlip) RestoreSnapshot(src []byte) ([]byte, error) {
	rest, err := b.restoreInts(src)
	if err == nil && len(rest) < len(b.obs) {
		err = errShortSnapshot
	}
	if err != nil {
		return nil, err
	}
	for i := range b.obs {
		b.obs[i] = float32(rest[i] & 1)
	}
	return rest[len(b.obs):], nil
}
