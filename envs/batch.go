package envs

// Batcher is an environment that can step together with others of its kind
// faster than one by one. CartPole, Acrobot, MountainCar,
// MountainCarContinuous and Pendulum are.
type Batcher[A Action] interface {
	Env[A]
	// NewBatch returns a Batch that steps envs, of which the receiver is the
	// first. It returns nil if they cannot step together. The state stays in
	// the environments: Reset and Step of each one still work.
	NewBatch(envs []Env[A]) Batch
}

// Batch steps several environments of one kind.
type Batch interface {
	// StepRows runs one time step in environment i for each i with Skip[i]
	// unset, and fills in its row of Obs, Rewards and Terminated. The actions
	// are in the action space, except those of an [ActionClipper].
	StepRows(r *Rows)
}

// Rows are the arrays of a vector's step, which a [Batch] fills in.
type Rows struct {
	Actions    []float32 // n x ActionSpace().Dim(); only read
	Skip       []bool    // n; the rows to leave alone; only read
	Obs        []float32 // n x ObservationSpace().Dim()
	Rewards    []float64 // n
	Terminated []bool    // n
	// At is the row that is stepped. A Batch of more than one environment sets
	// it, so that a panic names the environment.
	At int
}

// fast lets a vector step its environments as a batch: the vector keeps time limits
// and statistics, in the state of the wrappers.
type fast struct {
	batch  Batch
	rows   Rows
	limits []*limitState // nil without limits
	stats  []*statState  // nil without statistics
	told   []int         // the rows of Infos that are not empty
}

// newFast returns nil if the environments are no Batchers, or have different
// wrappers.
func newFast[A Action](envs []Env[A], v *Sync) *fast {
	f := &fast{told: make([]int, 0, len(envs))}
	inner := make([]Env[A], len(envs))
	for i, e := range envs {
		if s, ok := e.(*recordStatistics[A]); ok {
			f.stats, e = append(f.stats, &s.statState), s.Env
		}
		if t, ok := e.(*timeLimit[A]); ok {
			f.limits, e = append(f.limits, &t.limitState), t.Env
		}
		inner[i] = e
	}
	mixed := func(n int) bool { return n != 0 && n != len(envs) }
	first, ok := inner[0].(Batcher[A])
	if !ok || mixed(len(f.limits)) || mixed(len(f.stats)) {
		return nil
	}
	if f.batch = first.NewBatch(inner); f.batch == nil {
		return nil
	}
	f.rows = Rows{Skip: v.done, Obs: v.res.Obs, Rewards: v.res.Rewards, Terminated: v.res.Terminated}
	return f
}

// stepFast steps all environments as a batch.
func (v *Sync) stepFast(actions []float32) error {
	f, r := v.fast, &v.res
	for _, i := range f.told {
		r.Infos[i] = Info{}
	}
	f.told = f.told[:0]
	for i, done := range v.done {
		if done && v.mode == Disabled {
			return v.wrap(i, "step", overError(v.label))
		}
	}
	f.rows.Actions = actions
	if err := v.stepRows(); err != nil {
		return err
	}
	for i, skipped := range v.done {
		r.Reset[i] = skipped
		if skipped {
			v.noTransition(i)
			f.told = append(f.told, i)
			if err := v.reset(i); err != nil {
				return err
			}
			continue
		}
		if over := v.count(i); over {
			f.told = append(f.told, i)
			if err := v.end(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *Sync) stepRows() (err error) {
	f := v.fast
	defer func() {
		if p := recover(); p != nil {
			err = panicError(v.label, v.first+f.rows.At, "step", p)
		}
	}()
	f.batch.StepRows(&f.rows)
	return nil
}

// count makes the step of the wrappers of environment i, and reports whether the
// episode is over.
func (v *Sync) count(i int) bool {
	f, r := v.fast, &v.res
	over, cut := r.Terminated[i], false
	if f.limits != nil {
		cut = f.limits[i].count(over)
		over = over || cut
	}
	r.Truncated[i] = cut
	if f.stats != nil {
		if e := f.stats[i].count(r.Rewards[i], over); e != nil {
			r.Infos[i].Episode = e
		}
	}
	return over
}

// batchOf returns a batch of envs, each of which is a T, that calls step for
// each row; step returns whether the row's episode terminated. It returns nil if
// one of them is no T.
func batchOf[T any, A Action](envs []Env[A], step func(env T, r *Rows, i int) bool) Batch {
	b := &batch[T]{envs: make([]T, len(envs)), step: step}
	for i, e := range envs {
		t, ok := e.(T)
		if !ok {
			return nil
		}
		b.envs[i] = t
	}
	return b
}

type batch[T any] struct {
	envs []T
	step func(T, *Rows, int) bool
}

func (b *batch[T]) StepRows(r *Rows) {
	for i, e := range b.envs {
		if r.Skip[i] {
			continue
		}
		r.At = i
		r.Terminated[i] = b.step(e, r, i)
	}
}
