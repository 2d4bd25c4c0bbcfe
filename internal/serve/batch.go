package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/nn"
)

// job is a request that is to be acted on. Its memory is used again.
type job struct {
	request
	states  []*session
	action  []float32
	extra   [][]float32
	columns []policies.Column // of extra
	version uint64
	fault   *fault
	turn    chan bool // true: it is answered; false: it acts for those that wait
}

// alone reports whether the policy is called for the job alone.
func (j *job) alone() bool { return j.sample || j.extras }

// actor calls the policy for one batch at a time.
type actor struct {
	cfg     *Config
	box     *envs.Box // to which actions are clipped; nil: none
	dim     int
	policy  atomic.Pointer[policies.Policy]
	counted func(rows int) // one call of the policy

	mu      sync.Mutex
	acting  bool
	waiting []*job

	// The goroutine that acts owns the following fields.
	batch  []*job
	act    policies.Act
	obs    []float32 // of the jobs: joined, or those of the only one
	joined []float32
	action []float32
	state  []float32
	starts []bool
	rng    *rand.Rand // of samples without a seed
}

// do acts on a job, alone or with others.
func (a *actor) do(ctx context.Context, j *job) *fault {
	a.mu.Lock()
	if a.acting {
		a.waiting = append(a.waiting, j)
		a.mu.Unlock()
		if f, done := a.wait(ctx, j); done {
			return f
		}
	} else {
		a.acting = true
		a.mu.Unlock()
	}
	a.lead(j)
	return j.fault
}

// wait waits until another goroutine has acted on the job, or until this one is to act.
func (a *actor) wait(ctx context.Context, j *job) (f *fault, done bool) {
	timer := time.NewTimer(a.cfg.Timeout)
	defer timer.Stop()
	gone := &fault{http.StatusServiceUnavailable, codeGone, "", "the client went away"}
	select {
	case answered := <-j.turn:
		return j.fault, answered
	case <-ctx.Done():
		f = gone
	case <-timer.C:
		f = &fault{http.StatusServiceUnavailable, codeBusy, "", fmt.Sprintf("the policy has not come to the request in %v: send fewer "+
			"at once, or start the server "+
			"with a greater --timeout", a.cfg.Timeout)}
	}
	a.mu.Lock()
	if at := slices.Index(a.waiting, j); at >= 0 {
		a.waiting = slices.Delete(a.waiting, at, at+1)
		a.mu.Unlock()
		return f, true
	}
	a.mu.Unlock()
	return j.fault, <-j.turn // it is in a batch, or the next to act
}

// lead acts on a job and on those that wait, and then lets the next one lead.
func (a *actor) lead(j *job) {
	a.mu.Lock()
	a.batch = append(a.batch[:0], j)
	if rows, most := j.rows, a.cfg.maxRows(); !j.alone() {
		left := a.waiting[:0]
		for _, w := range a.waiting {
			if w.alone() || rows+w.rows > most {
				left = append(left, w)
				continue
			}
			rows += w.rows
			a.batch = append(a.batch, w)
		}
		clear(a.waiting[len(left):])
		a.waiting = left
	}
	a.mu.Unlock()
	a.all()
	for _, w := range a.batch[1:] {
		w.turn <- true
	}
	clear(a.batch)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) == 0 {
		a.acting = false
		return
	}
	next := a.waiting[0]
	a.waiting = slices.Delete(a.waiting, 0, 1)
	next.turn <- false
}

// all acts on the batch; if the policy fails on it, on each job alone, so that one does not fail the others.
func (a *actor) all() {
	err := a.call(a.batch)
	if err == nil {
		return
	}
	for _, j := range a.batch {
		if len(a.batch) > 1 {
			err = a.call([]*job{j})
		}
		if err != nil {
			j.fault = a.failed(err)
		}
	}
}

// failed returns the fault of a job on which the policy cannot act.
func (a *actor) failed(err error) *fault {
	if _, ok := errors.AsType[*nn.NonFiniteError](err); ok {
		return invalid("observation", "the policy cannot act on it: %v: are the values far beyond those that it has learned from?", err)
	}
	a.cfg.Log.Error("the policy failed", "error", err)
	return &fault{http.StatusInternalServerError, codeFailed, "", "the policy failed: the server's log has the error"}
}

// call calls the policy for jobs.
func (a *actor) call(jobs []*job) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	policy := *a.policy.Load()
	spec := policy.Spec()
	a.gather(jobs)
	a.act = policies.Act{
		Obs: a.obs, Action: a.action, Greedy: !jobs[0].sample, Rand: a.rng, State: a.state, EnvSteps: math.MaxInt32, Metrics: a.act.Metrics[:0],
	}
	if spec.StateSize > 0 {
		a.act.Reset = a.starts
	}
	if jobs[0].sample && spec.NoiseSize > 0 { // each request has its own, from the beginning
		a.act.Noise = make([]float32, jobs[0].rows*spec.NoiseSize)
	}
	if jobs[0].seeded {
		a.act.Rand = rand.New(rand.NewPCG(jobs[0].seed, 1))
	}
	if jobs[0].extras {
		a.act.Extra = make([][]float32, len(spec.Extra))
		for i := range spec.Extra {
			a.act.Extra[i] = make([]float32, jobs[0].rows*spec.Extra[i].Width())
		}
	}
	a.counted(len(a.obs) / a.dim)
	if err := policy.Act(&a.act); err != nil {
		return err
	}
	jobs[0].extra, jobs[0].columns = a.act.Extra, spec.Extra
	a.scatter(jobs, spec.StateSize, policy.Version())
	return nil
}

// gather puts the observations and states of jobs side by side.
func (a *actor) gather(jobs []*job) {
	a.joined, a.state, a.starts = a.joined[:0], a.state[:0], a.starts[:0]
	rows := 0
	for _, j := range jobs {
		rows += j.rows
		if len(jobs) > 1 {
			a.joined = append(a.joined, j.obs...)
		}
		for _, s := range j.states {
			a.state = append(a.state, s.state...)
			a.starts = append(a.starts, s.fresh || j.reset)
		}
	}
	a.obs = a.joined
	if len(jobs) == 1 {
		a.obs = jobs[0].obs // as it is: the policy only reads it
	}
	n := rows * a.cfg.Action.Dim()
	a.action = slices.Grow(a.action[:0], n)[:n]
}

// scatter gives each job its actions, and its sessions their states.
func (a *actor) scatter(jobs []*job, stateSize int, version uint64) {
	if a.box != nil {
		d := len(a.box.Low)
		for i, x := range a.action {
			a.action[i] = min(max(x, a.box.Low[i%d]), a.box.High[i%d])
		}
	}
	at, state, d := 0, a.state, a.cfg.Action.Dim()
	for _, j := range jobs {
		j.action, j.version, j.fault = append(j.action[:0], a.action[at*d:(at+j.rows)*d]...), version, nil
		at += j.rows
		for _, s := range j.states {
			copy(s.state, state[:stateSize])
			s.fresh, state = false, state[stateSize:]
		}
	}
}
