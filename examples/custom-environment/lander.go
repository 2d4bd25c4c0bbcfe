package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
)

// lander is an environment of our own: a craft falls towards the ground, and its engine can slow it down.
// Observations are height and speed, actions are engine off (0) and on (1). Each step in which the engine
// burns costs 0.02. On the ground the episode terminates with 10 for a landing at no speed, and 4 less for
// each unit of speed.
type lander struct {
	height, speed float64
	source        rand.PCG
	obs           [2]float32
}

func newLander() envs.Env[int] {
	return envs.TimeLimit(envs.RecordEpisodeStatistics[int](&lander{}), 300)
}

func (l *lander) Name() string { return "Lander" }

func (l *lander) ObservationSpace() envs.Space {
	return envs.Box{Low: []float32{-10, -50}, High: []float32{500, 50}}
}

func (l *lander) ActionSpace() envs.Space { return envs.Discrete{N: 2} }

// Reset begins at a height of 8 to 12. After the same seed come the same episodes.
func (l *lander) Reset(seed ...uint64) ([]float32, envs.Info, error) {
	if len(seed) > 0 {
		l.source.Seed(seed[0], 0)
	}
	l.height, l.speed = 8+4*rand.New(&l.source).Float64(), 0
	return l.observe(), envs.Info{}, nil
}

func (l *lander) observe() []float32 {
	l.obs = [2]float32{float32(l.height), float32(l.speed)}
	return l.obs[:]
}

// Step lasts a tenth of a second. Gravity takes 2 from the speed in each second, and the engine adds 3.5.
func (l *lander) Step(action int) (envs.Step, error) {
	if action != 0 && action != 1 {
		return envs.Step{}, fmt.Errorf("lander: action %d, want 0 or 1", action)
	}
	l.speed += 0.1 * (3.5*float64(action) - 2)
	l.height += 0.1 * l.speed
	s := envs.Step{Reward: -0.02 * float64(action)}
	if l.height <= 0 {
		s.Terminated = true
		s.Reward += 10 - 4*math.Abs(l.speed)
	}
	s.Obs = l.observe()
	return s, nil
}

// AppendSnapshot and RestoreSnapshot let a run that is resumed continue in the middle of an episode. Without
// them it begins new ones.
func (l *lander) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(l.height))
	dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(l.speed))
	return l.source.AppendBinary(dst)
}

// sourceBytes is the length of the state of a rand.PCG.
const sourceBytes = 20

func (l *lander) RestoreSnapshot(src []byte) (rest []byte, err error) {
	if len(src) < 16+sourceBytes {
		return nil, fmt.Errorf("lander: a snapshot of %d bytes", len(src))
	}
	l.height = math.Float64frombits(binary.LittleEndian.Uint64(src))
	l.speed = math.Float64frombits(binary.LittleEndian.Uint64(src[8:]))
	return src[16+sourceBytes:], l.source.UnmarshalBinary(src[16 : 16+sourceBytes])
}
