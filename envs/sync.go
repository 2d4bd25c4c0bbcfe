package envs

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
)

// Sync steps its environments one after the other in the caller's goroutine.
// It is a [Vector] and, if its environments can be saved, a [Snapshotter]. A
// step allocates nothing.
type Sync struct {
	cells       []cell
	first       int // the number of the first environment, in a part of an Async
	label       string
	obs, action Space
	dim, width  int       // values of one observation, of one action
	discrete    *Discrete // the space of actions, if it is one
	clips       bool      // actions outside of the box are the environments' affair
	mode        AutoresetMode
	res         Result
	done        []bool // the episode is over and was not reset
	started     bool
	replace     func(i int, fault *Error) (cell, bool)
	fast        *fast // nil if the environments cannot step as a batch
}

// NewSync makes a vector of n environments, each made by build(i). It panics
// if n is not positive, if the environments differ in name or spaces, or if
// their actions have another type than their space needs.
//
// If all environments are a [Batcher], as they are or inside [TimeLimit] and
// [RecordEpisodeStatistics], the vector steps them as a [Batch].
func NewSync[A Action](n int, mode AutoresetMode, build func(i int) Env[A]) *Sync {
	envs := buildAll(n, build)
	res := newResult(n, envs[0].ObservationSpace().Dim())
	return newSync(envs, 0, mode, res)
}

// buildAll makes n environments and panics unless they are of one kind.
func buildAll[A Action](n int, build func(i int) Env[A]) []Env[A] {
	if n <= 0 {
		panic(fmt.Sprintf("envs: vector of %d environments", n))
	}
	envs := make([]Env[A], n)
	for i := range envs {
		envs[i] = build(i)
		a, b := envs[0], envs[i]
		if d := b.ObservationSpace().Dim(); a.Name() != b.Name() || a.ObservationSpace().Dim() != d {
			panic(fmt.Sprintf("envs: vector of %s (%d) and %s (%d)", a.Name(), a.ObservationSpace().Dim(), b.Name(), d))
		}
		if x, y := a.ActionSpace().String(), b.ActionSpace().String(); x != y {
			panic(fmt.Sprintf("envs: vector of %s with actions in %s and in %s", a.Name(), x, y))
		}
	}
	return envs
}

// newSync makes a vector, or a part of one, that writes its results to res.
func newSync[A Action](envs []Env[A], first int, mode AutoresetMode, res Result) *Sync {
	v := &Sync{first: first, mode: mode, res: res, done: make([]bool, len(envs)), label: envs[0].Name()}
	for _, e := range envs {
		v.cells = append(v.cells, newCell(e))
	}
	v.obs, v.action = v.cells[0].spaces()
	v.dim, v.width = v.obs.Dim(), v.action.Dim()
	v.clips = v.cells[0].clips()
	if d, ok := v.action.(Discrete); ok {
		v.discrete = &d
	}
	v.fast = newFast(envs, v)
	return v
}

// Name returns the name of the environments.
func (v *Sync) Name() string { return v.label }

// Num returns the number of environments.
func (v *Sync) Num() int { return len(v.cells) }

// ObservationSpace returns the space of one environment's observations.
func (v *Sync) ObservationSpace() Space { return v.obs }

// ActionSpace returns the space of one environment's actions.
func (v *Sync) ActionSpace() Space { return v.action }

// Autoreset returns the vector's mode.
func (v *Sync) Autoreset() AutoresetMode { return v.mode }

// Reset starts an episode in every environment; environment i is given seed+i.
func (v *Sync) Reset(seed ...uint64) ([]float32, error) {
	if len(seed) > 1 {
		return nil, fmt.Errorf("%s: %w", v.label, ErrSeeds)
	}
	for i := range v.cells {
		var err error
		if len(seed) == 1 {
			err = v.reset(i, seed[0]+uint64(v.first+i))
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
func (v *Sync) ResetSome(mask []bool) ([]float32, error) {
	if err := checkMask(v.label, mask, len(v.cells)); err != nil {
		return nil, err
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

func checkMask(name string, mask []bool, n int) error {
	if len(mask) != n {
		return fmt.Errorf("reset %s: mask of %d for %d environments", name, len(mask), n)
	}
	return nil
}

// Step runs one time step in every environment. The first error of an
// environment ends it: the environments after the faulty one have not stepped.
func (v *Sync) Step(actions []float32) (*Result, error) {
	if err := v.check(actions); err != nil {
		return nil, err
	}
	if err := v.stepAll(actions); err != nil {
		return nil, err
	}
	return &v.res, nil
}

// check refuses actions that no environment could take.
func (v *Sync) check(actions []float32) error {
	if err := checkSize(v.label, len(actions), len(v.cells), v.width); err != nil {
		return err
	}
	if !v.started {
		return fmt.Errorf("%s: %w", v.label, ErrNotReset)
	}
	for i := range v.cells {
		if v.done[i] && v.mode == NextStep {
			continue // it is reset, and its action ignored
		}
		if d := v.discrete; d != nil {
			if k := int(actions[i]); float32(k) == actions[i] && k >= d.Start && k-d.Start < d.N {
				continue
			}
			return v.wrap(i, "step", actionError(v.label, actions[i], *d))
		}
		if a := actions[i*v.width : (i+1)*v.width]; !v.accepts(a) {
			return v.wrap(i, "step", actionError(v.label, slices.Clone(a), v.action))
		}
	}
	return nil
}

func checkSize(name string, values, envs, width int) error {
	switch {
	case values == envs*width:
		return nil
	case width == 1:
		return fmt.Errorf("step %s: %d actions for %d environments", name, values, envs)
	}
	return fmt.Errorf("step %s: %d action values for %d environments with %d each", name, values, envs, width)
}

// accepts reports whether a is an action for the environments: of the space, or
// at least numbers where they clip themselves.
func (v *Sync) accepts(a []float32) bool {
	if v.clips {
		return !slices.ContainsFunc(a, func(x float32) bool { return x != x })
	}
	return v.action.Contains(a)
}

// stepAll steps with actions that were checked.
func (v *Sync) stepAll(actions []float32) error {
	if v.fast != nil && v.replace == nil {
		return v.stepFast(actions)
	}
	for i := range v.cells {
		var err error
		if v.done[i] && v.mode == NextStep {
			v.noTransition(i)
			err = v.reset(i)
		} else {
			v.res.Reset[i] = false
			err = v.step(i, actions[i*v.width:(i+1)*v.width:(i+1)*v.width])
		}
		if err != nil {
			err = v.fault(i, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noTransition reports that environment i is reset in this step.
func (v *Sync) noTransition(i int) {
	v.res.Rewards[i], v.res.Terminated[i], v.res.Truncated[i] = 0, false, false
	v.res.Reset[i] = true
}

// ReplaceFaulty makes v, a [*Sync] or an [*Async], continue when an environment
// panics, hangs (see [Watchdog]) or returns an observation of the wrong length
// in a Step: the environment that build returns replaces it and begins an episode,
// and the step is reported as a reset, so that the broken episode is dropped. If build
// returns nil the fault is Step's error, as without this option. It returns v.
// The calls of build never overlap. It panics if A is another type than that of
// the vector's actions. Such a vector does not step its environments as a
// [Batch].
func ReplaceFaulty[A Action, V interface{ *Sync | *Async }](v V, build func(i int, fault *Error) Env[A]) V {
	var mu sync.Mutex
	for _, part := range parts(v) {
		part.mustHave(*new(A))
		part.replace = func(i int, fault *Error) (cell, bool) {
			mu.Lock()
			defer mu.Unlock()
			env := build(i, fault)
			if env == nil {
				return nil, false
			}
			return newCell(env), true
		}
	}
	return v
}

// Replace replaces environment i of v, a [*Sync] or an [*Async], by env,
// and resets it without a seed: a way to continue after an [*Error]. It
// panics if A is another type than that of the vector's actions.
func Replace[A Action, V interface{ *Sync | *Async }](v V, i int, env Env[A]) error {
	for _, part := range parts(v) {
		if k := i - part.first; k >= 0 && k < len(part.cells) {
			part.mustHave(*new(A))
			part.fast = nil // env need not fit the others
			return part.put(k, newCell(env))
		}
	}
	return fmt.Errorf("replace: no environment %d", i)
}

// parts returns the vectors whose cells are the environments of v.
func parts[V interface{ *Sync | *Async }](v V) []*Sync {
	switch v := any(v).(type) {
	case *Sync:
		return []*Sync{v}
	case *Async:
		return v.parts
	}
	return nil
}

// mustHave panics if the vector's actions are not of the type of a.
func (v *Sync) mustHave(a any) {
	fits := false
	switch a.(type) {
	case int:
		_, fits = v.cells[0].(*intCell)
	case []int:
		_, fits = v.cells[0].(*multiCell)
	case []float32:
		_, fits = v.cells[0].(*boxCell)
	}
	if !fits {
		panic(fmt.Sprintf("envs: an environment with actions of type %T in a vector of %s", a, v.label))
	}
}

// fault replaces environment i if it is to be, or returns err.
func (v *Sync) fault(i int, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || v.replace == nil || e.Stack == nil && !errors.Is(err, ErrShape) && !errors.Is(err, ErrHung) {
		return err
	}
	env, ok := v.replace(v.first+i, e)
	if !ok {
		return err
	}
	v.noTransition(i)
	return v.put(i, env)
}

// put replaces environment i.
func (v *Sync) put(i int, env cell) error {
	v.cells[i] = env
	return v.reset(i)
}

func (v *Sync) reset(i int, seed ...uint64) (err error) {
	defer v.guard(i, "reset", &err)
	obs, info, err := v.cells[i].reset(seed...)
	if err != nil {
		return v.wrap(i, "reset", err)
	}
	v.done[i] = false
	v.res.Infos[i] = info
	return v.observe(v.res.Obs, i, "reset", obs)
}

func (v *Sync) step(i int, action []float32) (err error) {
	defer v.guard(i, "step", &err)
	s, err := v.cells[i].step(action)
	if err != nil {
		return v.wrap(i, "step", err)
	}
	r := &v.res
	r.Rewards[i], r.Terminated[i], r.Truncated[i], r.Infos[i] = s.Reward, s.Terminated, s.Truncated, s.Info
	if err := v.observe(r.Obs, i, "step", s.Obs); err != nil {
		return err
	}
	if !s.Terminated && !s.Truncated {
		return nil
	}
	return v.end(i)
}

// end finishes the episode of environment i, whose last observation is its row
// of Obs.
func (v *Sync) end(i int) error {
	r := &v.res
	v.done[i] = true
	copy(r.FinalObs[i*v.dim:(i+1)*v.dim], r.Obs[i*v.dim:(i+1)*v.dim])
	if v.mode != SameStep {
		return nil
	}
	info := r.Infos[i]
	if err := v.reset(i); err != nil {
		return err
	}
	r.Infos[i] = info // of the ended episode
	return nil
}

// wrap names the environment of an error.
func (v *Sync) wrap(i int, op string, err error) error {
	if e, ok := err.(*Error); ok { //nolint:errorlint // of a Watchdog, which does not know the index
		return &Error{Env: e.Env, Index: v.first + i, Op: op, Err: e.Err, Stack: e.Stack}
	}
	return &Error{Env: v.label, Index: v.first + i, Op: op, Err: err}
}

// observe copies an observation to row i of dst.
func (v *Sync) observe(dst []float32, i int, op string, obs []float32) error {
	if len(obs) != v.dim {
		return v.wrap(i, op, fmt.Errorf("%w: %d values, the space has %d", ErrShape, len(obs), v.dim))
	}
	copy(dst[i*v.dim:(i+1)*v.dim], obs)
	return nil
}

// guard turns a panic of environment i into an error.
func (v *Sync) guard(i int, op string, err *error) {
	if p := recover(); p != nil {
		*err = panicError(v.label, v.first+i, op, p)
	}
}

// panicError returns the error of a panic that has just been recovered.
func panicError(env string, i int, op string, p any) *Error {
	cause, ok := p.(error)
	if !ok {
		cause = fmt.Errorf("%v", p)
	}
	return &Error{Env: env, Index: i, Op: op, Err: cause, Stack: debug.Stack()}
}
