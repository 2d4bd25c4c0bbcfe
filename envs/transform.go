package envs

import (
	"fmt"
	"math"
	"slices"

	"github.com/ditask/ditask/envs/nprand"
)

// wrapped is the part that the wrappers of this package share.
type wrapped[A Action] struct{ Env[A] }

// Unwrap returns the environment inside.
func (w *wrapped[A]) Unwrap() Env[A] { return w.Env }

// AppendSnapshot appends the state of the environment inside.
func (w *wrapped[A]) AppendSnapshot(dst []byte) ([]byte, error) { return appendInner(w.Env, dst) }

// RestoreSnapshot takes the state of the environment inside over.
func (w *wrapped[A]) RestoreSnapshot(src []byte) ([]byte, error) { return restoreInner(w.Env, src) }

// boxOf returns the space if it is a box, and panics if it is not.
func boxOf(wrapper, name string, space Space) Box {
	b, ok := space.(Box)
	if !ok {
		panic(fmt.Sprintf("envs: %s of %s: %v is not a box", wrapper, name, space))
	}
	return b
}

// ClipAction returns env with actions of any size, which are clipped to the
// bounds of its action space. It panics if that is not a [Box].
func ClipAction(env Env[[]float32]) Env[[]float32] {
	b := boxOf("ClipAction", env.Name(), env.ActionSpace())
	inf := float32(math.Inf(1))
	return &clipAction{wrapped[[]float32]{env}, b, NewBox(-inf, inf, b.Dim()), make([]float32, b.Dim())}
}

type clipAction struct {
	wrapped[[]float32]
	box    Box // of env
	all    Box // without bounds
	action []float32
}

func (c *clipAction) ActionSpace() Space { return c.all }

func (c *clipAction) Step(action []float32) (Step, error) {
	if !c.all.Contains(action) {
		return Step{}, actionError(c.Name(), action, c.all)
	}
	for i, x := range action {
		c.action[i] = min(max(x, c.box.Low[i]), c.box.High[i])
	}
	return c.Env.Step(c.action)
}

// RescaleAction returns env with actions in [low, high], which are mapped
// linearly to the bounds of its action space. It panics if that is not a [Box]
// with finite bounds, or if low is not below high.
func RescaleAction(env Env[[]float32], low, high float32) Env[[]float32] {
	b := boxOf("RescaleAction", env.Name(), env.ActionSpace())
	if !(low < high) {
		panic(fmt.Sprintf("envs: RescaleAction to [%v, %v]", low, high))
	}
	for i := range b.Low {
		if math.IsInf(float64(b.Low[i]), 0) || math.IsInf(float64(b.High[i]), 0) {
			panic(fmt.Sprintf("envs: RescaleAction of %s: %v has no bounds", env.Name(), b))
		}
	}
	return &rescaleAction{wrapped[[]float32]{env}, b, NewBox(low, high, b.Dim()), make([]float32, b.Dim())}
}

type rescaleAction struct {
	wrapped[[]float32]
	inner, outer Box
	action       []float32
}

func (r *rescaleAction) ActionSpace() Space { return r.outer }

func (r *rescaleAction) Step(action []float32) (Step, error) {
	if !r.outer.Contains(action) {
		return Step{}, actionError(r.Name(), action, r.outer)
	}
	for i, x := range action {
		low, high := float64(r.inner.Low[i]), float64(r.inner.High[i])
		part := (float64(x) - float64(r.outer.Low[i])) / (float64(r.outer.High[i]) - float64(r.outer.Low[i]))
		r.action[i] = float32(low + float64((high-low)*part))
	}
	return r.Env.Step(r.action)
}

// TransformObservation returns env with its observations transformed by transform, which writes
// an observation of space to dst, whose length is space.Dim(), and keeps neither dst nor obs. The same obs must
// always give the same result. Gymnasium's wrapper of the same name is its model.
func TransformObservation[A Action](env Env[A], space Space, transform func(dst, obs []float32)) Env[A] {
	return &transformObservation[A]{wrapped[A]{env}, space, transform, make([]float32, space.Dim())}
}

type transformObservation[A Action] struct {
	wrapped[A]
	space     Space
	transform func(dst, obs []float32)
	obs       []float32
}

func (w *transformObservation[A]) ObservationSpace() Space { return w.space }

func (w *transformObservation[A]) observe(obs []float32, err error) []float32 {
	if err != nil {
		return obs
	}
	w.transform(w.obs, obs)
	return w.obs
}

func (w *transformObservation[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := w.Env.Reset(seed...)
	return w.observe(obs, err), info, err
}

func (w *transformObservation[A]) Step(action A) (Step, error) {
	s, err := w.Env.Step(action)
	s.Obs = w.observe(s.Obs, err)
	return s, err
}

// ClipReward returns env with rewards clipped to [low, high]. It panics if low
// is above high.
func ClipReward[A Action](env Env[A], low, high float64) Env[A] {
	if !(low <= high) {
		panic(fmt.Sprintf("envs: ClipReward to [%v, %v]", low, high))
	}
	return &clipReward[A]{wrapped[A]{env}, low, high}
}

type clipReward[A Action] struct {
	wrapped[A]
	low, high float64
}

func (c *clipReward[A]) Step(action A) (Step, error) {
	s, err := c.Env.Step(action)
	s.Reward = min(max(s.Reward, c.low), c.high)
	return s, err
}

// StickyActions returns env, which in each step repeats the action before with
// the given probability, whatever action it is given. The first action of an
// episode is never replaced. The numbers are drawn from the environment's own
// random numbers, as by Gymnasium's StickyAction, or from numbers with the same
// seed if env is not of this package. It panics if the probability is not in
// [0, 1).
//
// Source: M. C. Machado et al., "Revisiting the Arcade Learning Environment"
// (2018), section 5.2.
func StickyActions[A Action](env Env[A], probability float64) Env[A] {
	if !(probability >= 0 && probability < 1) {
		panic(fmt.Sprintf("envs: StickyActions with probability %v", probability))
	}
	s := &stickyActions[A]{wrapped: wrapped[A]{env}, probability: probability, own: core{name: env.Name()}}
	if r, ok := As[randomer](env); ok {
		s.shared = r
	}
	return s
}

// randomer is an environment whose random numbers a wrapper can draw from.
type randomer interface{ random() *nprand.PCG64 }

func (c *core) random() *nprand.PCG64 { return c.rng }

type stickyActions[A Action] struct {
	wrapped[A]
	probability float64
	shared      randomer // nil: own
	own         core
	last        []float32 // the action before; empty at first
	ints        []int     // last, for an environment with such actions
}

func (s *stickyActions[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	s.last = s.last[:0]
	if s.shared == nil && len(seed) <= 1 {
		if err := s.own.begin(seed); err != nil {
			return nil, Info{}, err
		}
	}
	return s.Env.Reset(seed...)
}

func (s *stickyActions[A]) Step(action A) (Step, error) {
	rng := s.own.rng
	if s.shared != nil {
		rng = s.shared.random()
	}
	if rng != nil && len(s.last) > 0 && rng.Float64() < s.probability {
		action = s.repeat(action)
	}
	s.last = s.last[:0]
	switch a := any(action).(type) {
	case int:
		s.last = append(s.last, float32(a))
	case []float32:
		s.last = append(s.last, a...)
	case []int:
		for _, x := range a {
			s.last = append(s.last, float32(x))
		}
	}
	return s.Env.Step(action)
}

// repeat returns the action before, in the type of action.
func (s *stickyActions[A]) repeat(action A) A {
	var before any
	switch any(action).(type) {
	case int:
		before = int(s.last[0])
	case []float32:
		before = s.last // only read, and only until Step returns
	case []int:
		s.ints = s.ints[:0]
		for _, x := range s.last {
			s.ints = append(s.ints, int(x))
		}
		before = s.ints
	}
	return before.(A)
}

func (s *stickyActions[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	dst = appendWords(s.own.appendCore(dst), uint64(len(s.last)))
	for _, x := range s.last {
		dst = appendWords(dst, uint64(math.Float32bits(x)))
	}
	return appendInner(s.Env, dst)
}

func (s *stickyActions[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	w, rest, err := words(src, coreWords+1)
	if err != nil {
		return nil, err
	}
	n := w[coreWords]
	if n != 0 && n != uint64(s.ActionSpace().Dim()) {
		return nil, badSnapshot(s.Name())
	}
	s.own.restoreCore(w)
	last, rest, err := words(rest, int(n))
	if err != nil {
		return nil, err
	}
	s.last = s.last[:0]
	for _, x := range last {
		s.last = append(s.last, math.Float32frombits(uint32(x)))
	}
	return restoreInner(s.Env, rest)
}

// FrameStack returns env with the last n observations one after the other, the
// newest last. The first observation of an episode fills all n places. It panics
// if n is less than 2. The space is a [Box] with n as its first dimension.
func FrameStack[A Action](env Env[A], n int) Env[A] {
	if n < 2 {
		panic(fmt.Sprintf("envs: FrameStack of %d", n))
	}
	dim := env.ObservationSpace().Dim()
	return &frameStack[A]{wrapped: wrapped[A]{env}, n: n, dim: dim, obs: make([]float32, n*dim)}
}

type frameStack[A Action] struct {
	wrapped[A]
	n, dim int
	obs    []float32
}

func (f *frameStack[A]) ObservationSpace() Space {
	inner := f.Env.ObservationSpace()
	var box Box
	shape := []int{f.n}
	switch b := inner.(type) {
	case Box:
		box.Pixels = b.Pixels
		for range f.n {
			box.Low, box.High = append(box.Low, b.Low...), append(box.High, b.High...)
		}
		if b.Shape != nil {
			shape = append(shape, b.Shape...)
			break
		}
		shape = append(shape, f.dim)
	default:
		inf := float32(math.Inf(1))
		box = NewBox(-inf, inf, f.n*f.dim)
		shape = append(shape, f.dim)
	}
	box.Shape = shape
	return box
}

func (f *frameStack[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := f.Env.Reset(seed...)
	if err != nil || len(obs) != f.dim {
		return obs, info, err
	}
	for i := range f.n {
		copy(f.obs[i*f.dim:], obs)
	}
	return f.obs, info, nil
}

func (f *frameStack[A]) Step(action A) (Step, error) {
	s, err := f.Env.Step(action)
	if err != nil || len(s.Obs) != f.dim {
		return s, err
	}
	copy(f.obs, f.obs[f.dim:])
	copy(f.obs[(f.n-1)*f.dim:], s.Obs)
	s.Obs = f.obs
	return s, nil
}

func (f *frameStack[A]) AppendSnapshot(dst []byte) ([]byte, error) {
	for _, x := range f.obs {
		dst = appendWords(dst, uint64(math.Float32bits(x)))
	}
	return appendInner(f.Env, dst)
}

func (f *frameStack[A]) RestoreSnapshot(src []byte) ([]byte, error) {
	w, rest, err := words(src, len(f.obs))
	if err != nil {
		return nil, err
	}
	for i, x := range w {
		f.obs[i] = math.Float32frombits(uint32(x))
	}
	return restoreInner(f.Env, rest)
}

// OneHot returns env with each number of its observations as a row of zeros
// with a single 1 in the number's place, as Gymnasium's FlattenObservation does.
// It panics unless the observations are in a [Discrete] or [MultiDiscrete] space.
func OneHot[A Action](env Env[A]) Env[A] {
	o := &oneHot[A]{wrapped: wrapped[A]{env}, inner: env.ObservationSpace()}
	switch s := o.inner.(type) {
	case Discrete:
		o.start, o.sizes = s.Start, []int{s.N}
	case MultiDiscrete:
		o.sizes = s.N
	default:
		panic(fmt.Sprintf("envs: OneHot of %s: %v has no numbers to choose from", env.Name(), s))
	}
	dim := 0
	for _, n := range o.sizes {
		dim += n
	}
	o.obs = make([]float32, dim)
	return o
}

type oneHot[A Action] struct {
	wrapped[A]
	inner Space
	start int
	sizes []int
	obs   []float32
}

func (o *oneHot[A]) ObservationSpace() Space { return NewBox(0, 1, len(o.obs)) }

func (o *oneHot[A]) observe(obs []float32) ([]float32, error) {
	if !o.inner.Contains(obs) {
		return nil, fmt.Errorf("%s: observation %v is not in %v", o.Name(), slices.Clone(obs), o.inner)
	}
	clear(o.obs)
	at := 0
	for i, n := range o.sizes {
		o.obs[at+int(obs[i])-o.start] = 1
		at += n
	}
	return o.obs, nil
}

func (o *oneHot[A]) Reset(seed ...uint64) ([]float32, Info, error) {
	obs, info, err := o.Env.Reset(seed...)
	if err == nil {
		obs, err = o.observe(obs)
	}
	return obs, info, err
}

func (o *oneHot[A]) Step(action A) (Step, error) {
	s, err := o.Env.Step(action)
	if err == nil {
		s.Obs, err = o.observe(s.Obs)
	}
	return s, err
}

// renamed is an environment under its own name.
type renamed[A Action] struct {
	wrapped[A]
	name string
}

func (r *renamed[A]) Name() string { return r.name }
