package task

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/race"
)

// trace is a log that several goroutines write.
type trace struct {
	mu  sync.Mutex
	all []string
}

func (tr *trace) add(s string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.all = append(tr.all, s)
}

// around takes d in each half, and records both.
func (tr *trace) around(name string, d time.Duration) Middleware[empty] {
	return func(ctx context.Context, _ *empty, next Next) error {
		time.Sleep(d)
		tr.add(name + ">")
		err := next(ctx)
		time.Sleep(d)
		tr.add("<" + name)
		return err
	}
}

func (tr *trace) want(t *testing.T, want string) {
	t.Helper()
	if got := strings.Join(tr.all, " "); got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

func runOnce(t *testing.T, tk *Task[empty], ms ...Middleware[empty]) error {
	t.Helper()
	tk.Use(ms...)
	return tk.Run(t.Context(), MaxSteps(1))
}

func failing(err error, after time.Duration) Middleware[empty] {
	return Step(func(context.Context, *empty) error { time.Sleep(after); return err })
}

func TestT5Serial(t *testing.T) {
	var tr trace
	must(t, runOnce(t, New[empty](Alone()), tr.around("1", 0), Serial(tr.around("a", 0), tr.around("b", 0)), tr.around("2", 0)))
	tr.want(t, "1> a> b> 2> <2 <b <a <1")
}

func TestT5ParallelJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr trace
		must(t, runOnce(t, New[empty](Alone()), tr.around("1", 0),
			Parallel(tr.around("slow", time.Second), tr.around("fast", time.Millisecond)), tr.around("2", 0)))
		tr.want(t, "1> fast> slow> 2> <2 <fast <slow <1")
	})
}

func TestT5ParallelReportsEveryFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e1, e2 := errors.New("first"), errors.New("second")
		cut := Step(func(ctx context.Context, _ *empty) error { <-ctx.Done(); return ctx.Err() })
		var tr trace
		err := runOnce(t, New[empty](Alone()), Parallel(failing(e1, time.Second), failing(e2, time.Minute), cut, tr.around("b", 0)))
		if !errors.Is(err, e1) || !errors.Is(err, e2) || errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if n := strings.Count(err.Error(), "first"); n != 1 {
			t.Errorf("%q is %d times in %q", "first", n, err)
		}
		tr.want(t, "b> <b")
	})
}

func TestParallelReturnsTheErrorOfTheRest(t *testing.T) {
	boom := errors.New("boom")
	var tr trace
	err := runOnce(t, New[empty](Alone()), Parallel(tr.around("a", 0), tr.around("b", 0)), failing(boom, 0))
	if !errors.Is(err, boom) || strings.Count(err.Error(), "boom") != 1 || len(tr.all) != 4 {
		t.Errorf("%v, %v", err, tr.all)
	}
}

func TestPanicsAreNamed(t *testing.T) {
	bad := Step(panicking)
	for name, m := range map[string]Middleware[empty]{
		"plain": bad, "serial": Serial(bad), "parallel": Parallel(bad), "locked": Locked(new(Lock), bad),
		"after parallel": func(ctx context.Context, c *empty, next Next) error { return Parallel(bad, bad)(ctx, c, next) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, opts := range [][]Option{nil, {Async()}} {
				node := newFakeJob(1).node(0)
				err := runOnce(t, New[empty](node, append(opts, WithRoles("learner"))...), m)
				pe, ok := errors.AsType[*PanicError](err)
				if !ok || pe.Name != "task.panicking" || pe.Node != 0 || !slices.Equal(pe.Roles, []string{"learner"}) ||
					!strings.Contains(string(pe.Stack), "panicking") {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

func panicking(context.Context, *empty) error { panic("ouch") }

func TestParallelSurvivesAPanicOfTheRest(t *testing.T) {
	var tr trace
	err := runOnce(t, New[empty](Alone()), Parallel(tr.around("a", 0), tr.around("b", 0)), Step(panicking))
	if pe, ok := errors.AsType[*PanicError](err); !ok || pe.Name != "task.panicking" || len(tr.all) != 4 {
		t.Errorf("%v, %v", err, tr.all)
	}
}

func TestErrorsNameTheMiddleware(t *testing.T) {
	boom := errors.New("boom")
	pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
	late := func(ctx context.Context, _ *empty, next Next) error { return errors.Join(next(ctx), boom) }
	for name, tc := range map[string]struct {
		ms   []Middleware[empty]
		want string
	}{
		"deep": {[]Middleware[empty]{pass, Step(failingStep), pass}, "step 1: task.failingStep: boom"},
		"serial": {[]Middleware[empty]{pass, Serial(pass, Step(failingStep))},
			"step 1: task.Serial(task.TestErrorsNameTheMiddleware, task.failingStep): task.failingStep: boom"},
		"rest":     {[]Middleware[empty]{Serial(pass), Step(failingStep)}, "step 1: task.failingStep: boom"},
		"backward": {[]Middleware[empty]{pass, late, pass}, "step 1: task.TestErrorsNameTheMiddleware: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := runOnce(t, New[empty](Alone()), tc.ms...); err == nil || err.Error() != tc.want {
				t.Errorf("%q, want %q", err, tc.want)
			}
		})
	}
}

func failingStep(context.Context, *empty) error { return errors.New("boom") }

func TestT6AsyncErrorEndsTheRunThoughAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		tk := New[empty](Alone(), Async())
		err := runOnce(t, tk, waitForNothing(tk), failing(boom, time.Second))
		if !errors.Is(err, boom) || strings.Count(err.Error(), "boom") != 1 {
			t.Errorf("%v", err)
		}
	})
}

func TestT6AsyncRunsForwardsTogetherAndBackwardsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr trace
		tk := New[empty](Alone(), Async())
		begin := time.Now()
		must(t, runOnce(t, tk, tr.around("1", 3*time.Second), tr.around("2", 2*time.Second), tr.around("3", time.Second)))
		tr.want(t, "3> 2> 1> <3 <2 <1")
		if d := time.Since(begin); d != 9*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestT6LockedNeverOverlapAndKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, group := range []bool{false, true} {
			var l Lock
			var inside int
			var order []int
			tk := New[empty](Alone(), Async())
			var ms []Middleware[empty]
			for i := range 8 {
				half := func() {
					if inside++; inside != 1 {
						t.Error("two run at once")
					}
					time.Sleep(time.Millisecond)
					inside--
				}
				ms = append(ms, Locked(&l, func(ctx context.Context, _ *empty, next Next) error {
					half()
					order = append(order, i)
					err := next(ctx)
					half()
					return err
				}))
			}
			if group {
				ms = []Middleware[empty]{Parallel(ms...)}
			}
			tk.Use(ms...)
			must(t, tk.Run(t.Context(), MaxSteps(3)))
			if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(order[:8], want) || !slices.Equal(order[16:], want) {
				t.Errorf("order %v", order)
			}
		}
	})
}

func TestT6LockIsLeftByWaitersThatEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		ran := false
		tk := New[empty](Alone(), Async())
		tk.Wrap(func(name string, m Middleware[empty]) Middleware[empty] {
			if strings.Contains(name, "panicking") {
				return Step(func(context.Context, *empty) error { return nil })
			}
			return m
		})
		must(t, runOnce(t, tk, Locked(&l, Step(panicking)), Locked(&l, Step(func(context.Context, *empty) error { ran = true; return nil }))))
		if !ran || len(l.queue) != 0 {
			t.Errorf("ran %v, %d places left", ran, len(l.queue))
		}
	})
}

func TestT7WrapperSeesAll(t *testing.T) {
	var tr trace
	var names []string
	wrapper := func(w string) Wrapper[empty] {
		return func(name string, m Middleware[empty]) Middleware[empty] {
			names = append(names, w+" "+name)
			return func(ctx context.Context, c *empty, next Next) error {
				tr.add(w + "(")
				defer tr.add(")" + w)
				return m(ctx, c, next)
			}
		}
	}
	tk := New[empty](Alone())
	tk.Use(Locked(new(Lock), Step(quiet)))
	tk.Wrap(wrapper("in"))
	tk.Wrap(wrapper("out"))
	must(t, runOnce(t, tk, Serial(Step(quiet), Step(quiet))))
	tr.want(t, "out( in( )in )out out( in( )in )out")
	want := []string{"in task.quiet", "in task.Serial(task.quiet, task.quiet)", "out task.quiet", "out task.Serial(task.quiet, task.quiet)"}
	if !slices.Equal(names, want) {
		t.Errorf("names %q", names)
	}
}

func quiet(context.Context, *empty) error { return nil }

func TestTrimName(t *testing.T) {
	for _, tc := range []struct{ symbol, file, want string }{
		{"github.com/x/y/rl.Collect[...].func1", "/src/rl/collect.go", "rl.Collect"},
		{"github.com/x/y/rl.(*Pool[...]).Step.gowrap2.1", "/src/rl/pool.go", "rl.(*Pool).Step"},
		{"main.play.play.Values[...].func3.play-range1.func4", "/src/dqn/main.go", "dqn.play"},
		{"a/b.glob..func1", "/src/b/x.go", "b.glob"},
		{"a/b.func1", "/src/b/x.go", "b.func1"},
		{"main.play.Collect.func3", "/src/rl/collect.go", "rl.Collect"},
		{"main.play.func1", "/src/dqn/main.go", "main.play"},
		{"a/b.(*T).Step-fm", "/src/b/t.go", "b.(*T).Step"},
		{"main.init.func1", "/src/main.go", "main.init"},
		{"a/rl.(*Run).Collect.func2", "/src/rl/collect.go", "rl.Collect"},
		{"plain", "", "plain"},
	} {
		if got := trimName(tc.symbol, tc.file); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.symbol, got, tc.want)
		}
	}
}

func TestKeepReachesUnexportedAndEmbeddedFields(t *testing.T) {
	type base struct {
		Seed int `task:"keep"`
		Obs  []float64
	}
	type ctx struct {
		base
		count int `task:"keep"`
		lost  int
	}
	tk := New[ctx](Alone())
	tk.Use(Step(func(_ context.Context, c *ctx) error {
		c.Seed, c.Obs, c.count, c.lost = 3, []float64{1}, c.count+1, 9
		return nil
	}))
	must(t, tk.Run(t.Context(), MaxSteps(5)))
	if c := tk.Context(); c.Seed != 3 || c.Obs != nil || c.count != 5 || c.lost != 0 {
		t.Errorf("%+v", *c)
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	type kept struct {
		Obs   [8]float64
		Count int `task:"keep"`
	}
	tk := New[kept](Alone())
	for range 5 {
		tk.Use(Step(func(_ context.Context, c *kept) error { c.Count++; return nil }),
			func(ctx context.Context, _ *kept, next Next) error { return next(ctx) })
	}
	tk.Use(Serial(Step(func(_ context.Context, c *kept) error { c.Count++; return nil })))
	tk.max = math.MaxInt64
	tk.build()
	ctx := t.Context()
	if n := testing.AllocsPerRun(1000, func() { must(t, tk.step(ctx)) }); n != 0 && !race.Enabled {
		t.Errorf("%v allocations per step", n)
	}
	if c := tk.Context(); c.Count != 6*tk.Steps() {
		t.Errorf("count %d after %d steps", c.Count, tk.Steps())
	}
}

func TestNamedMiddleware(t *testing.T) {
	pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
	var lock Lock
	for name, tc := range map[string]struct {
		m    Middleware[empty]
		want string
	}{
		"step": {Name("collect", Step(failingStep)), "step 1: collect: boom"},
		"middleware": {Name("collect", Middleware[empty](func(context.Context, *empty, Next) error { return errors.New("boom") })),
			"step 1: collect: boom"},
		"in a group": {Serial(pass, Name("collect", Step(failingStep))),
			"step 1: task.Serial(task.TestNamedMiddleware, collect): collect: boom"},
		"a group": {Name("collect", Serial(pass, Step(failingStep))), "step 1: collect: task.failingStep: boom"},
		"in a concurrent": {Parallel(pass, Name("collect", Step(failingStep))),
			"step 1: task.Parallel(task.TestNamedMiddleware, collect): collect: boom"},
		"named twice":  {Name("collect", Name("inner", Step(failingStep))), "step 1: collect: boom"},
		"locked":       {Locked(&lock, Name("collect", Step(failingStep))), "step 1: collect: boom"},
		"under a lock": {Name("collect", Locked(&lock, Step(failingStep))), "step 1: collect: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			tk := New[empty](Alone())
			tk.Use(tc.m)
			var wrapped string
			tk.Wrap(func(name string, m Middleware[empty]) Middleware[empty] { wrapped = name; return m })
			if err := tk.Run(t.Context()); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
			if !strings.Contains(tc.want, "step 1: "+wrapped+": ") {
				t.Errorf("a wrapper has the name %q", wrapped)
			}
		})
	}
	tk := New[empty](Alone())
	tk.Use(Name("collect", Step(func(context.Context, *empty) error { panic("ouch") })))
	if pe, ok := errors.AsType[*PanicError](tk.Run(t.Context())); !ok || pe.Name != "collect" {
		t.Errorf("%v", pe)
	}
	if _, l := describe(Name("collect", Locked(&lock, Step(failingStep)))); l != &lock {
		t.Error("the lock is lost")
	}
}

// TestT6AsyncKeepsTheErrorOfAnyMember puts the failing one first, in the middle and
// last, as a step and as an onion that fails in its backward half.
func TestT6AsyncKeepsTheErrorOfAnyMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("boom")
		pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
		late := func(ctx context.Context, _ *empty, next Next) error { return errors.Join(next(ctx), boom) }
		nop := Step(func(context.Context, *empty) error { return nil })
		for at := range 5 {
			for name, bad := range map[string]Middleware[empty]{"step": failing(boom, 0), "backward": late} {
				for _, good := range []Middleware[empty]{nop, pass} {
					ms := []Middleware[empty]{good, good, good, good, good}
					ms[at] = bad
					if err := runOnce(t, New[empty](Alone(), Async()), ms...); !errors.Is(err, boom) || strings.Count(err.Error(), "boom") != 1 {
						t.Errorf("%s at %d: %v", name, at, err)
					} else if name == "step" && strings.Contains(err.Error(), "TestT6") {
						t.Errorf("%s at %d: it names middleware that only returned it: %v", name, at, err)
					}
				}
			}
		}
	})
}
