package envs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ditask/ditask/internal/nearest"
)

// ErrUnknown is wrapped by the error of Lookup.
var ErrUnknown = errors.New("unknown environment")

// Spec describes one of the environments of this package.
type Spec struct {
	ID   string // with the version, such as "CartPole-v1"
	Name string // without it, such as "CartPole"
	// About describes the task in one sentence.
	About string
	// MaxSteps is the time limit in time steps, 0 if there is none.
	MaxSteps int
	// Threshold is the mean return at which Gymnasium calls the task solved. It
	// means nothing unless HasThreshold is set.
	Threshold    float64
	HasThreshold bool
	// Sync makes a vector of n environments with the default options, their
	// time limit and episode statistics.
	Sync func(n int, mode AutoresetMode) *Sync
	// Async is Sync with several goroutines.
	Async func(n, workers int, mode AutoresetMode) *Async
	// Renders reports that one of the environments is a Renderer.
	Renders bool
	// Goal is that of the environments, or nil.
	Goal Goal

	limited func(steps int) Spec
}

// Limited returns the Spec with a time limit of that many time steps.
func (s Spec) Limited(steps int) Spec {
	limited := s.limited(steps)
	limited.Threshold, limited.HasThreshold = s.Threshold, s.HasThreshold
	return limited
}

// spec makes a Spec whose environments build makes.
func spec[A Action](id, about string, maxSteps int, build func() Env[A]) Spec {
	name, _, _ := strings.Cut(id, "-v")
	whole := func(int) Env[A] { return RecordEpisodeStatistics(build()) }
	_, renders := As[Renderer](build())
	goal, _ := As[Goal](build())
	return Spec{
		ID: id, Name: name, About: about, MaxSteps: maxSteps, Renders: renders, Goal: goal,
		limited: func(steps int) Spec {
			return spec(id, about, steps, func() Env[A] { return TimeLimit(build(), steps) })
		},
		Sync:  func(n int, mode AutoresetMode) *Sync { return NewSync(n, mode, whole) },
		Async: func(n, workers int, mode AutoresetMode) *Async { return NewAsync(n, workers, mode, whole) },
	}
}

// solved returns the Spec with a threshold.
func (s Spec) solved(at float64) Spec {
	s.Threshold, s.HasThreshold = at, true
	return s
}

// Specs returns the environments of this package, those of Gymnasium first.
func Specs() []Spec {
	return []Spec{
		spec("CartPole-v1", "balance a pole on a cart", CartPoleSteps,
			func() Env[int] { return NewCartPole(CartPoleConfig{}) }).solved(475),
		spec("CartPolePositions-v1", "balance a pole on a cart without seeing how fast they move", CartPoleSteps,
			newCartPolePositions).solved(475),
		spec("Acrobot-v1", "swing two links up with a motor between them", AcrobotSteps,
			func() Env[int] { return NewAcrobot(AcrobotConfig{}) }).solved(-100),
		spec("MountainCar-v0", "rock a weak car out of a valley", MountainCarSteps,
			func() Env[int] { return NewMountainCar(MountainCarConfig{}) }).solved(-110),
		spec("MountainCarContinuous-v0", "rock a weak car out of a valley with a force of any size", MountainCarContinuousSteps,
			func() Env[[]float32] { return NewMountainCarContinuous(MountainCarConfig{}) }).solved(90),
		spec("Pendulum-v1", "swing a rod up and hold it", PendulumSteps,
			func() Env[[]float32] { return NewPendulum(PendulumConfig{}) }),
		spec("FrozenLake-v1", "cross a slippery lake of 4 x 4 cells with holes", FrozenLakeSteps,
			func() Env[int] { return NewFrozenLake(FrozenLakeConfig{}) }).solved(0.70),
		spec("FrozenLake8x8-v1", "cross a slippery lake of 8 x 8 cells with holes", FrozenLake8x8Steps,
			func() Env[int] { return NewFrozenLake(FrozenLakeConfig{Map: FrozenLake8x8()}) }).solved(0.85),
		spec("CliffWalking-v1", "walk along a cliff", 0,
			func() Env[int] { return NewCliffWalking(CliffWalkingConfig{}) }),
		spec("CliffWalkingSlippery-v1", "walk along a slippery cliff", 0,
			func() Env[int] { return NewCliffWalking(CliffWalkingConfig{Slippery: true}) }),
		spec("Taxi-v4", "take a passenger from one place to another", TaxiSteps,
			func() Env[int] { return NewTaxi(TaxiConfig{}) }).solved(8),
		spec("Blackjack-v1", "come closer to 21 than the dealer", 0,
			func() Env[int] { return NewBlackjack(BlackjackConfig{}) }),
		spec("BitFlip-v0", "flip bits until they equal a goal", 8,
			func() Env[int] { return NewBitFlip(BitFlipConfig{}) }),
		spec("Pong-v0", "beat a simple opponent at pong", PongSteps,
			func() Env[int] { return NewPong(PongConfig{}) }),
		spec("Catch-v0", "catch falling balls, seen as pixels", CatchSteps,
			func() Env[int] { return NewCatch(CatchConfig{}) }),
	}
}

// Lookup returns the environment with an ID, such as "CartPole-v1", or with a
// name without version. The error of an unknown name, which wraps [ErrUnknown],
// names the nearest that is known.
func Lookup(name string) (Spec, error) {
	var known []string
	for _, s := range Specs() {
		if name == s.ID || name == s.Name {
			return s, nil
		}
		known = append(known, s.ID)
	}
	near := nearest.Name(name, known)
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return Spec{}, fmt.Errorf("%w %q: the nearest is %s", ErrUnknown, name, near)
}
