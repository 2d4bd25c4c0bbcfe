package envs

import (
	"fmt"
	"sync"
)

// Async steps its environments in several goroutines, each of which has an
// equal share of them: a [Vector] for environments whose step takes far longer
// than waking a goroutine, some microseconds. Its results are those of a [Sync]
// over the same environments, bit for bit.
//
// The first call starts the goroutines. Close ends them; without it they stay.
// An Async is not safe for concurrent use: Close must not overlap a Step. An
// environment that hangs stalls the whole step unless it has a [Watchdog].
//
// When an environment fails, those of other goroutines have stepped. The error
// is that of the lowest index.
type Async struct {
	parts  []*Sync
	res    Result
	num    int
	jobs   []chan func(part int) error // nil before the first call
	errs   []error                     // one for each part
	busy   sync.WaitGroup              // the parts of a call
	alive  sync.WaitGroup              // the goroutines
	closed bool
}

// NewAsync makes a vector of n environments, each made by build(i) in the
// caller's goroutine, that workers goroutines step. More workers than
// environments are as many as environments. It panics as [NewSync] does, and if
// workers is not positive.
func NewAsync[A Action](n, workers int, mode AutoresetMode, build func(i int) Env[A]) *Async {
	if workers <= 0 {
		panic(fmt.Sprintf("envs: vector of %d workers", workers))
	}
	envs := buildAll(n, build)
	dim := envs[0].ObservationSpace().Dim()
	workers = min(workers, n)
	v := &Async{res: newResult(n, dim), num: n, errs: make([]error, workers)}
	for w := range workers {
		from, to := w*n/workers, (w+1)*n/workers
		v.parts = append(v.parts, newSync(envs[from:to], from, mode, v.res.rows(from, to, dim)))
	}
	return v
}

// Name returns the name of the environments.
func (v *Async) Name() string { return v.parts[0].label }

// Num returns the number of environments.
func (v *Async) Num() int { return v.num }

// ObservationSpace returns the space of one environment's observations.
func (v *Async) ObservationSpace() Space { return v.parts[0].obs }

// ActionSpace returns the space of one environment's actions.
func (v *Async) ActionSpace() Space { return v.parts[0].action }

// Autoreset returns the vector's mode.
func (v *Async) Autoreset() AutoresetMode { return v.parts[0].mode }

// Reset starts an episode in every environment; environment i is given seed+i.
func (v *Async) Reset(seed ...uint64) ([]float32, error) {
	err := v.each(func(part int) error {
		_, err := v.parts[part].Reset(seed...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return v.res.Obs, nil
}

// ResetSome starts an episode where mask is set. mask has one entry for each
// environment.
func (v *Async) ResetSome(mask []bool) ([]float32, error) {
	if err := checkMask(v.Name(), mask, v.num); err != nil {
		return nil, err
	}
	err := v.each(func(part int) error {
		p := v.parts[part]
		_, err := p.ResetSome(mask[p.first : p.first+len(p.cells)])
		return err
	})
	if err != nil {
		return nil, err
	}
	return v.res.Obs, nil
}

// Step runs one time step in every environment.
func (v *Async) Step(actions []float32) (*Result, error) {
	width := v.parts[0].width
	if err := checkSize(v.Name(), len(actions), v.num, width); err != nil {
		return nil, err
	}
	rows := func(p *Sync) []float32 { return actions[p.first*width : (p.first+len(p.cells))*width] }
	for _, p := range v.parts { // all of them before any environment steps
		if err := p.check(rows(p)); err != nil {
			return nil, err
		}
	}
	if err := v.each(func(part int) error { return v.parts[part].stepAll(rows(v.parts[part])) }); err != nil {
		return nil, err
	}
	return &v.res, nil
}

// each calls do for every part, each in its goroutine, and waits for all.
func (v *Async) each(do func(part int) error) error {
	if v.closed {
		return fmt.Errorf("%s: %w", v.Name(), ErrClosed)
	}
	v.start()
	v.busy.Add(len(v.parts))
	for _, c := range v.jobs {
		c <- do // the goroutine waits for it: no call overlaps another
	}
	v.busy.Wait()
	for _, err := range v.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts the goroutines; Close waits for them.
func (v *Async) start() {
	if v.jobs != nil {
		return
	}
	for part := range v.parts {
		c := make(chan func(int) error)
		v.jobs = append(v.jobs, c)
		v.alive.Go(func() {
			for do := range c {
				v.errs[part] = v.run(part, do)
				v.busy.Done()
			}
		})
	}
}

// run calls do. The vector catches panics of environments itself; the build of a
// replacement can panic here, and must not end the process from this goroutine.
func (v *Async) run(part int, do func(int) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(v.Name(), v.parts[part].first, "replace", p)
		}
	}()
	return do(part)
}

// Close ends the goroutines and waits for them. Every call after it is an
// [ErrClosed], except Close itself.
func (v *Async) Close() error {
	v.closed = true
	for _, c := range v.jobs {
		close(c)
	}
	v.jobs = nil
	v.alive.Wait()
	return nil
}
