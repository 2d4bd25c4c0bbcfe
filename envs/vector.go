package envs

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// AutoresetMode says when a vector resets an environment whose episode ended.
// The modes are Gymnasium's.
type AutoresetMode uint8

// The autoreset modes.
const (
	// NextStep resets at the next Step, which ignores that environment's
	// action and returns the first observation, reward 0 and no flags: it is
	// no transition. This is Gymnasium's default.
	NextStep AutoresetMode = iota
	// SameStep resets within the Step that ends the episode: Obs is the first
	// observation of the next episode, FinalObs the last one of the ended.
	SameStep
	// Disabled leaves it to the caller: ResetSome before the next Step.
	Disabled
)

// String returns Gymnasium's name of the mode.
func (m AutoresetMode) String() string {
	switch m {
	case NextStep:
		return "NextStep"
	case SameStep:
		return "SameStep"
	case Disabled:
		return "Disabled"
	}
	return fmt.Sprintf("AutoresetMode(%d)", uint8(m))
}

// VectorEnv is Num environments of one kind that step together.
type VectorEnv[A any] interface {
	// Name is that of the environments.
	Name() string
	// Num is the number of environments.
	Num() int
	// ObservationSpace is the space of one environment's observations.
	ObservationSpace() Box
	// ActionSpace is the space of one environment's actions.
	ActionSpace() Space[A]
	// Autoreset is the vector's mode.
	Autoreset() AutoresetMode
	// Reset starts an episode in every environment and returns the
	// observations, Num x Dim. With a seed, environment i is given seed+i.
	Reset(seed ...uint64) (obs []float32, err error)
	// ResetSome starts an episode in the environments with mask[i] set and
	// returns all observations.
	ResetSome(mask []bool) (obs []float32, err error)
	// Step runs one time step with one action for each environment.
	Step(actions []A) (*Result, error)
}

// Result is the outcome of one step of a vector. It is overwritten by the next
// call on the vector. Obs and FinalObs are Num x Dim, the others have Num.
type Result struct {
	Obs        []float32
	Rewards    []float64
	Terminated []bool
	Truncated  []bool
	// FinalObs has the last observation of each episode that ended in this
	// step, copied; the rows of other environments mean nothing. In NextStep
	// and Disabled mode it equals the row of Obs.
	FinalObs []float32
	// Reset says that this step was the reset of that environment (NextStep
	// only): there is no transition.
	Reset []bool
	Infos []Info
}

// Sync steps its environments one after the other in the caller's goroutine.
// It is a [VectorEnv].
type Sync[A any] struct {
	envs    []Env[A]
	mode    AutoresetMode
	dim     int
	res     Result
	done    []bool // the episode is over and was not reset
	started bool
	replace func(i int, fault *Error) Env[A]
}

// NewSync makes a vector of n environments, each made by build(i). It panics
// if n is not positive or the environments differ in name or dimension.
func NewSync[A any](n int, mode AutoresetMode, build func(i int) Env[A]) *Sync[A] {
	if n <= 0 {
		panic(fmt.Sprintf("envs: vector of %d environments", n))
	}
	v := &Sync[A]{envs: make([]Env[A], n), mode: mode, done: make([]bool, n)}
	for i := range v.envs {
		e := build(i)
		v.envs[i] = e
		if i == 0 {
			v.dim = e.ObservationSpace().Dim()
		} else if d := e.ObservationSpace().Dim(); e.Name() != v.Name() || d != v.dim {
			panic(fmt.Sprintf("envs: vector of %s (%d) and %s (%d)", v.Name(), v.dim, e.Name(), d))
		}
	}
	v.res = Result{
		Obs: make([]float32, n*v.dim), FinalObs: make([]float32, n*v.dim),
		Rewards: make([]float64, n), Terminated: make([]bool, n), Truncated: make([]bool, n),
		Reset: make([]bool, n), Infos: make([]Info, n),
	}
	return v
}

// Name is that of the environments.
func (v *Sync[A]) Name() string { return v.envs[0].Name() }

// Num is the number of environments.
func (v *Sync[A]) Num() int { return len(v.envs) }

// ObservationSpace is the space of one environment's observations.
func (v *Sync[A]) ObservationSpace() Box { return v.envs[0].ObservationSpace() }

// ActionSpace is the space of one environment's actions.
func (v *Sync[A]) ActionSpace() Space[A] { return v.envs[0].ActionSpace() }

// Autoreset is the vector's mode.
func (v *Sync[A]) Autoreset() AutoresetMode { return v.mode }

// Reset starts an episode in every environment; environment i is given seed+i.
func (v *Sync[A]) Reset(seed ...uint64) ([]float32, error) {
	if len(seed) > 1 {
		return nil, fmt.Errorf("%s: %w", v.Name(), ErrSeeds)
	}
	for i := range v.envs {
		var err error
		if len(seed) == 1 {
			err = v.reset(i, seed[0]+uint64(i))
		} else {
			err = v.reset(i)
		}
		if err != nil {
			return nil, err
		}
	}
	v.started = true
	return v.res.Obs, nil
}

// ResetSome starts an episode where mask is set. mask has one entry for each
// environment.
func (v *Sync[A]) ResetSome(mask []bool) ([]float32, error) {
	if len(mask) != len(v.envs) {
		return nil, fmt.Errorf("reset %s: mask of %d for %d environments", v.Name(), len(mask), len(v.envs))
	}
	for i, m := range mask {
		if !m {
			continue
		}
		if err := v.reset(i); err != nil {
			return nil, err
		}
	}
	return v.res.Obs, nil
}

// Step runs one time step in every environment. The first error ends it: the
// environments after the faulty one have not stepped.
func (v *Sync[A]) Step(actions []A) (*Result, error) {
	if len(actions) != len(v.envs) {
		return nil, fmt.Errorf("step %s: %d actions for %d environments", v.Name(), len(actions), len(v.envs))
	}
	if !v.started {
		return nil, fmt.Errorf("%s: %w", v.Name(), ErrNotReset)
	}
	for i, a := range actions {
		var err error
		if v.done[i] && v.mode == NextStep {
			v.noTransition(i)
			err = v.reset(i)
		} else {
			v.res.Reset[i] = false
			err = v.step(i, a)
		}
		if err != nil {
			err = v.fault(i, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return &v.res, nil
}

// noTransition says that what happens to environment i in this step is a reset.
func (v *Sync[A]) noTransition(i int) {
	v.res.Rewards[i], v.res.Terminated[i], v.res.Truncated[i] = 0, false, false
	v.res.Reset[i] = true
}

// ReplaceFaulty makes the vector go on when an environment panics, hangs (see
// [Watchdog]) or returns an observation of the wrong length in a Step: what
// build returns takes its place and begins an episode, and the step is reported
// as a reset, so that the broken episode is dropped. If build returns nil the
// fault is Step's error, as without this option. It returns v.
func (v *Sync[A]) ReplaceFaulty(build func(i int, fault *Error) Env[A]) *Sync[A] {
	v.replace = build
	return v
}

// fault replaces environment i if it is to be, or returns err.
func (v *Sync[A]) fault(i int, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || v.replace == nil || e.Stack == nil && !errors.Is(err, ErrShape) && !errors.Is(err, ErrHung) {
		return err
	}
	env := v.replace(i, e)
	if env == nil {
		return err
	}
	v.noTransition(i)
	return v.Replace(i, env)
}

// Replace puts env in the place of environment i, which is reset without a
// seed: a way to go on after an [*Error].
func (v *Sync[A]) Replace(i int, env Env[A]) error {
	v.envs[i] = env
	return v.reset(i)
}

func (v *Sync[A]) reset(i int, seed ...uint64) (err error) {
	defer v.guard(i, "reset", &err)
	obs, info, err := v.envs[i].Reset(seed...)
	if err != nil {
		return v.wrap(i, "reset", err)
	}
	v.done[i] = false
	v.res.Infos[i] = info
	return v.observe(v.res.Obs, i, "reset", obs)
}

func (v *Sync[A]) step(i int, action A) (err error) {
	defer v.guard(i, "step", &err)
	s, err := v.envs[i].Step(action)
	if err != nil {
		return v.wrap(i, "step", err)
	}
	r := &v.res
	r.Rewards[i], r.Terminated[i], r.Truncated[i], r.Infos[i] = s.Reward, s.Terminated, s.Truncated, s.Info
	if err := v.observe(r.Obs, i, "step", s.Obs); err != nil {
		return err
	}
	v.done[i] = s.Terminated || s.Truncated
	if !v.done[i] {
		return nil
	}
	if err := v.observe(r.FinalObs, i, "step", s.Obs); err != nil {
		return err
	}
	if v.mode != SameStep {
		return nil
	}
	if err := v.reset(i); err != nil {
		return err
	}
	r.Infos[i] = s.Info // of the ended episode
	return nil
}

// wrap names the environment of an error.
func (v *Sync[A]) wrap(i int, op string, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // of a Watchdog, which does not know the index
		return &Error{Env: e.Env, Index: i, Op: op, Err: e.Err, Stack: e.Stack}
	}
	return &Error{Env: v.Name(), Index: i, Op: op, Err: err}
}

// observe copies an observation to row i of dst.
func (v *Sync[A]) observe(dst []float32, i int, op string, obs []float32) error {
	if len(obs) != v.dim {
		return &Error{Env: v.Name(), Index: i, Op: op, Err: fmt.Errorf("%w: %d values, the space has %d", ErrShape, len(obs), v.dim)}
	}
	copy(dst[i*v.dim:(i+1)*v.dim], obs)
	return nil
}

// guard turns a panic of environment i into an error.
func (v *Sync[A]) guard(i int, op string, err *error) {
	if p := recover(); p != nil {
		*err = panicError(v.envs[i].Name(), i, op, p)
	}
}

// panicError is the error of a panic that has just been recovered.
func panicError(env string, i int, op string, p any) *Error {
	cause, ok := p.(error)
	if !ok {
		cause = fmt.Errorf("%v", p)
	}
	return &Error{Env: env, Index: i, Op: op, Err: cause, Stack: debug.Stack()}
}
