package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"math/rand/v2"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/algorithm"
)

// Film selects the episodes to draw. The zero value is one greedy episode with seed 0.
type Film struct {
	Episodes int    // 0 means 1
	Seed     uint64 // of the first episode; the next has the one behind it, and so on
	Explore  bool   // act as in training, rather than greedily
	MaxSteps int    // time steps after which an episode is left; 0: only the environment ends it
}

// Scene is a picture of an episode: after a reset, or after a step.
type Scene struct {
	Image   *image.RGBA
	Rate    int     // pictures a second of the environment; 0: not known
	Episode int     // from 1
	Step    int     // time steps so far
	Return  float64 // sum of the rewards so far
	Last    bool    // of the episode
}

// Film plays episodes with the policy in one environment, and calls show with each picture. It ends with the first error of show.
// The error of an environment that cannot be drawn wraps [envs.ErrNoPictures].
func (t *Trained) Film(ctx context.Context, f Film, show func(Scene) error) error {
	v, err := t.envs.opened(ctx, 1, t.Config.algorithm, opening{envs.Disabled, true})
	if err != nil {
		return err
	}
	if _, box := v.ActionSpace().(envs.Box); box && t.clips {
		v = envs.ClipActions(v)
	}
	spec, rng := t.Policy.Spec(), rand.New(rand.NewPCG(f.Seed, 1))
	act := policies.Act{
		Obs: make([]float32, v.ObservationSpace().Dim()), Greedy: !f.Explore, State: make([]float32, spec.StateSize), Reset: make([]bool, 1),
		Noise: make([]float32, spec.NoiseSize), Action: make([]float32, spec.Action.Dim()), EnvSteps: math.MaxInt32, Rand: rng,
	}
	return f.play(ctx, v, show, func(obs []float32, first bool) ([]float32, error) {
		copy(act.Obs, obs)
		act.Reset[0], act.Metrics = first, act.Metrics[:0]
		return act.Action, t.Policy.Act(&act)
	})
}

// FilmRandom is [Trained.Film] with random actions in an environment of a name. args are the keyword arguments of
// an environment in Python, as JSON.
func FilmRandom(ctx context.Context, env, args string, f Film, show func(Scene) error) (err error) {
	e, err := named(env, args, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	v, err := e.opened(ctx, 1, algorithm.Algorithm{Tabular: true}, opening{envs.Disabled, true})
	if err != nil {
		return err
	}
	action, rng := make([]float32, v.ActionSpace().Dim()), rand.New(rand.NewPCG(f.Seed, 1))
	return f.play(ctx, v, show, func([]float32, bool) ([]float32, error) {
		v.ActionSpace().Sample(action, rng)
		return action, nil
	})
}

// play plays the episodes.
func (f Film) play(ctx context.Context, v envs.Vector, show func(Scene) error,
	act func(obs []float32, first bool) ([]float32, error)) error {
	draws, ok := v.(envs.Framer)
	if !ok {
		return fmt.Errorf("%w: %s", envs.ErrNoPictures, v.Name())
	}
	for k := range cmp.Or(f.Episodes, 1) {
		obs, err := v.Reset(f.Seed + uint64(k))
		if err != nil {
			return err
		}
		for s := (Scene{Rate: draws.FrameRate(), Episode: k + 1}); ; {
			if s.Image, err = draws.Frame(0); err == nil {
				err = show(s)
			}
			if err != nil {
				return err
			}
			if s.Last {
				break
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			action, err := act(obs, s.Step == 0)
			if err != nil {
				return err
			}
			res, err := v.Step(action)
			if err != nil {
				return err
			}
			obs = res.Obs
			s.Step++
			s.Return += res.Rewards[0]
			s.Last = res.Terminated[0] || res.Truncated[0] || s.Step == f.MaxSteps
		}
	}
	return nil
}
