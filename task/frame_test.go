package task

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

func passOn(ctx context.Context, _ *empty, next Next) error { return next(ctx) }

func swallow(ctx context.Context, _ *empty, next Next) error { _ = next(ctx); return nil }

func backwardPanic(ctx context.Context, _ *empty, next Next) error { _ = next(ctx); panic("ouch") }

func backwardError(ctx context.Context, _ *empty, next Next) error {
	_ = next(ctx)
	return errors.New("late")
}

// TestABackwardHalfThatPanicsIsNamed, for any middleware after it.
func TestABackwardHalfThatPanicsIsNamed(t *testing.T) {
	for name, rest := range map[string][]Middleware[empty]{
		"nothing":          nil,
		"steps":            {Step(quiet), Step(quiet)},
		"onions":           {passOn, passOn},
		"an onion, a step": {passOn, Step(quiet)},
		"a step, an onion": {Step(quiet), passOn},
		"an error":         {Step(failingStep)},
		"a later error":    {Step(quiet), Step(failingStep)},
		"a deep error":     {passOn, Step(failingStep)},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range [][]Middleware[empty]{nil, {Step(quiet)}, {passOn}} {
				ms := slices.Concat(before, []Middleware[empty]{backwardPanic}, rest)
				err := runOnce(t, New[empty](Alone()), ms...)
				if pe, ok := errors.AsType[*PanicError](err); !ok || pe.Name != "task.backwardPanic" {
					t.Errorf("after %d others: %v", len(before), err)
				}
			}
		})
	}
}

// TestAnErrorAfterOneThatWasTakenHasItsOwnName: an earlier error, which a middleware handled, does not change the name.
func TestAnErrorAfterOneThatWasTakenHasItsOwnName(t *testing.T) {
	for name, rest := range map[string][]Middleware[empty]{
		"next":             {swallow, Step(failingStep)},
		"behind a step":    {Step(quiet), swallow, Step(failingStep)},
		"behind an onion":  {passOn, swallow, Step(failingStep)},
		"taken by itself":  {Step(failingStep)},
		"far from it":      {passOn, Step(quiet), passOn, Step(failingStep)},
		"far behind":       {swallow, passOn, Step(quiet), Step(failingStep)},
		"twice":            {swallow, swallow, Step(failingStep)},
		"in a group":       {Serial(swallow, Step(failingStep))},
		"a group after it": {swallow, Serial(passOn, Step(failingStep))},
	} {
		t.Run(name, func(t *testing.T) {
			err := runOnce(t, New[empty](Alone()), append([]Middleware[empty]{Step(quiet), backwardError}, rest...)...)
			if err == nil || err.Error() != "step 1: task.backwardError: late" {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestAMiddlewareThatDoesNotAlwaysCallNext is a plain step when it does not.
func TestAMiddlewareThatDoesNotAlwaysCallNext(t *testing.T) {
	for at := range 3 {
		for _, grouped := range []bool{false, true} {
			tk := New[empty](Alone())
			rest := 0
			sometimes := func(ctx context.Context, _ *empty, next Next) error {
				if tk.Steps()%2 == 0 {
					return next(ctx)
				}
				return nil
			}
			ms := []Middleware[empty]{passOn, passOn, passOn}
			ms[at] = sometimes
			if grouped {
				ms = []Middleware[empty]{Serial(ms...)}
			}
			tk.Use(append(ms, Step(func(context.Context, *empty) error { rest++; return nil }))...)
			must(t, tk.Run(t.Context(), MaxSteps(4)))
			if rest != 4 {
				t.Errorf("at %d, grouped %v: the rest ran in %d of 4 steps", at, grouped, rest)
			}
		}
	}
}

// TestASecondCallOfNextRunsTheRestOnceMore, and its error has the right name.
func TestASecondCallOfNextRunsTheRestOnceMore(t *testing.T) {
	twice := func(ctx context.Context, _ *empty, next Next) error { _ = next(ctx); return next(ctx) }
	for name, group := range map[string]func(...Middleware[empty]) []Middleware[empty]{
		"chain":  func(ms ...Middleware[empty]) []Middleware[empty] { return ms },
		"serial": func(ms ...Middleware[empty]) []Middleware[empty] { return []Middleware[empty]{Serial(ms...)} },
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			first := Name("first", Step(func(context.Context, *empty) error {
				if calls++; calls == 2 {
					return errors.New("first")
				}
				return nil
			}))
			last := Name("last", Step(func(context.Context, *empty) error { return errors.New("last") }))
			err := runOnce(t, New[empty](Alone()), append([]Middleware[empty]{twice}, group(first, last)...)...)
			if err == nil || !strings.HasSuffix(err.Error(), "first: first") || calls != 2 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

// TestGroupsWithoutATask calls groups directly.
func TestGroupsWithoutATask(t *testing.T) {
	next := func(context.Context) error { return nil }
	for name, m := range map[string]Middleware[empty]{"serial": Serial(Step(panicking)), "parallel": Parallel(Step(panicking))} {
		err := m(t.Context(), new(empty), next)
		if pe, ok := errors.AsType[*PanicError](err); !ok || pe.Name != "task.panicking" || pe.Roles != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := m(t.Context(), new(empty), next); err == nil {
			t.Errorf("%s: no error the second time", name)
		}
	}
}

// uncomparable is an error that == panics for.
type uncomparable []string

func (u uncomparable) Error() string { return strings.Join(u, ", ") }

// TestParallelReportsEachErrorOnce, for errors of all forms.
func TestParallelReportsEachErrorOnce(t *testing.T) {
	cause := Step(func(ctx context.Context, _ *empty) error { <-ctx.Done(); return context.Cause(ctx) })
	for name, tc := range map[string]struct {
		ms   []Middleware[empty]
		want string
	}{
		"one": {[]Middleware[empty]{Parallel(Step(failingStep), passOn)},
			"task.Parallel(task.failingStep, task.passOn): task.failingStep: boom"},
		"its cause": {[]Middleware[empty]{Name("p", Parallel(Step(failingStep), cause, cause))}, "p: task.failingStep: boom"},
		"a panic": {[]Middleware[empty]{Name("p", Parallel(Step(panicking), passOn))},
			"task.panicking panicked on node 0 (all roles): ouch"},
		"uncomparable":        {[]Middleware[empty]{Name("p", Parallel(Name("u", failing(uncomparable{"boom"}, 0)), cause))}, "p: u: boom"},
		"the rest":            {[]Middleware[empty]{Parallel(passOn, passOn), Step(failingStep)}, "task.failingStep: boom"},
		"an uncomparable one": {[]Middleware[empty]{Parallel(passOn, passOn), Name("rest", failing(uncomparable{"boom"}, 0))}, "rest: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				err := runOnce(t, New[empty](Alone()), tc.ms...)
				text, _, _ := strings.Cut(err.Error(), "\ngoroutine")
				if text != "step 1: "+tc.want {
					t.Errorf("error %q, want %q", text, tc.want)
				}
			})
		})
	}
}

func TestKeepManyTimes(t *testing.T) {
	type inner struct{ Seed int }
	type outer struct {
		*inner
		Sum int
	}
	tk := New[outer](Alone())
	for range 100 {
		tk.Keep("Sum")
	}
	if plan := *tk.renewal.plan.Load(); len(plan) != 1 {
		t.Errorf("%d fields are carried over", len(plan))
	}
	defer func() {
		if msg, _ := recover().(string); !strings.HasPrefix(msg, `task: Keep("Seed"): the field is reached through a pointer`) {
			t.Errorf("panic %q", msg)
		}
	}()
	tk.Keep("Seed")
}

// TestContextsEndWithTheirMiddleware: goroutines of a middleware end with it.
func TestContextsEndWithTheirMiddleware(t *testing.T) {
	for name, opts := range map[string][]Option{"in turn": nil, "async": {Async()}} {
		ended := map[string]<-chan struct{}{}
		var mu sync.Mutex
		keep := func(ctx context.Context, of string) error {
			mu.Lock()
			defer mu.Unlock()
			ended[of] = ctx.Done()
			return nil
		}
		step := func(of string) Middleware[empty] {
			return Step(func(ctx context.Context, _ *empty) error { return keep(ctx, of) })
		}
		tk := New[empty](Alone(), opts...)
		evA.On(tk, func(ctx context.Context, _ int) error { return keep(ctx, "listener") })
		tk.Use(step("step"), Parallel(step("member")), Step(func(ctx context.Context, _ *empty) error { return evA.Emit(ctx, tk, 1) }))
		tk.OnFinish(func(ctx context.Context, _ Outcome) error { return keep(ctx, "hook") })
		must(t, tk.Run(t.Context(), MaxSteps(1)))
		for _, of := range []string{"step", "member", "listener", "hook"} {
			select {
			case <-ended[of]:
			default:
				t.Errorf("%s: the context of a %s has not ended with the run", name, of)
			}
		}
	}
}

// TestAPanicOfTheRestIsAnErrorForMembers, whose backward halves run.
func TestAPanicOfTheRestIsAnErrorForMembers(t *testing.T) {
	var got [2]error
	member := func(i int) Middleware[empty] {
		return func(ctx context.Context, _ *empty, next Next) error { got[i] = next(ctx); return nil }
	}
	err := runOnce(t, New[empty](Alone()), Parallel(member(0), member(1)), Step(panicking))
	if pe, ok := errors.AsType[*PanicError](err); !ok || got[0] == nil || got[1] == nil {
		t.Errorf("%v; the members got %v", pe, got)
	}
}

// TestTheErrorOfALaterStepHasItsOwnName, although an earlier step had the same error.
func TestTheErrorOfALaterStepHasItsOwnName(t *testing.T) {
	boom := errors.New("boom")
	for name, group := range map[string]func(...Middleware[empty]) Middleware[empty]{"": nil, "g:": Serial[empty]} {
		tk := New[empty](Alone())
		steps := 0
		failsIn := func(n int) Middleware[empty] {
			return Step(func(context.Context, *empty) error {
				if steps == n {
					return boom
				}
				return nil
			})
		}
		ms := []Middleware[empty]{Name("first", failsIn(2)), Name("last", failsIn(1))}
		if group != nil {
			ms = []Middleware[empty]{Name("g", group(ms...))}
		}
		tk.Use(func(ctx context.Context, _ *empty, next Next) error {
			if steps++; steps == 1 {
				_ = next(ctx)
				return nil
			}
			return next(ctx)
		})
		tk.Use(ms...)
		if err := tk.Run(t.Context()); err == nil || err.Error() != strings.TrimSpace("step 2: "+name)+" first: boom" {
			t.Errorf("error %v", err)
		}
	}
}
