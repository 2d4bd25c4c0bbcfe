package task

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// runJob assembles n tasks of one job, runs them all and returns their errors.
func runJob(t *testing.T, n int, set func(i int, tk *Task[empty]), run func(i int, tk *Task[empty]) error) ([]*Task[empty], []error) {
	t.Helper()
	job := newFakeJob(n)
	tks, errs := make([]*Task[empty], n), make([]error, n)
	for i := range tks {
		tks[i] = New[empty](job.node(i))
		set(i, tks[i])
	}
	var wg sync.WaitGroup
	for i, tk := range tks {
		wg.Go(func() { errs[i] = run(i, tk) })
	}
	wg.Wait()
	return tks, errs
}

func forever(t *testing.T) func(int, *Task[empty]) error {
	return func(_ int, tk *Task[empty]) error { return tk.Run(t.Context()) }
}

// waitForNothing is a step that waits for an event which never arrives.
func waitForNothing(tk *Task[empty]) Middleware[empty] {
	return Step(func(ctx context.Context, _ *empty) error {
		_, err := evB.WaitFor(ctx, tk)
		return err
	})
}

func TestL14FinishIsFinishOnEveryNode(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		for range 20 {
			synctest.Test(t, func(t *testing.T) {
				received := make([]int, n)
				tks, errs := runJob(t, n, func(i int, tk *Task[empty]) {
					evA.On(tk, func(context.Context, int) error { received[i]++; return nil })
					if i > 0 {
						tk.Use(waitForNothing(tk))
						return
					}
					tk.Use(Step(func(ctx context.Context, _ *empty) error { return evA.Emit(ctx, tk, 1) }))
				}, func(i int, tk *Task[empty]) error {
					if i == 0 {
						return tk.Run(t.Context(), MaxSteps(10))
					}
					return tk.Run(t.Context())
				})
				for i := range errs {
					if o := tks[i].Outcome(); errs[i] != nil || received[i] != 10 || o != (Outcome{Success, 0, "max steps"}) {
						t.Fatalf("node %d: %v, received %d, %+v", i, errs[i], received[i], o)
					}
				}
			})
		}
	}
}

func TestFailureOfOneNodeEndsTheOthers(t *testing.T) {
	boom := errors.New("boom")
	for name, step := range map[string]func(*Task[empty]) error{
		"error": func(*Task[empty]) error { return boom },
		"panic": func(*Task[empty]) error { panic(boom) },
		"Fail":  func(tk *Task[empty]) error { tk.Fail(boom); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tks, errs := runJob(t, 3, func(i int, tk *Task[empty]) {
					if i == 1 {
						tk.Use(Step(func(context.Context, *empty) error { return step(tk) }))
						return
					}
					tk.Use(waitForNothing(tk))
				}, forever(t))
				if !errors.Is(errs[1], boom) || tks[1].Outcome().Kind != Failure {
					t.Errorf("node 1: %v, %+v", errs[1], tks[1].Outcome())
				}
				for _, i := range []int{0, 2} {
					re, ok := errors.AsType[*RemoteError](errs[i])
					if !ok || re.Node != 1 || !strings.Contains(re.Reason, "boom") {
						t.Errorf("node %d: %v", i, errs[i])
					}
				}
			})
		})
	}
}

// TestFailureOfARestartedNodeDoesNotEndTheOthers: the others continue to run, and only its last attempt ends
// them.
func TestFailureOfARestartedNodeDoesNotEndTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		node := job.node(1)
		node.recovers = true
		fails, other := New[empty](node), New[empty](job.node(0))
		fails.Use(Step(func(context.Context, *empty) error { return errors.New("boom") }))
		other.Use(Step(func(context.Context, *empty) error { time.Sleep(time.Second); return nil }))
		done := make(chan error)
		go func() { done <- other.Run(t.Context(), MaxSteps(3)) }()
		if err := fails.Run(t.Context()); err == nil || !node.abandoned {
			t.Errorf("error %v, abandoned %v", err, node.abandoned)
		}
		must(t, <-done)
	})
}

// TestAPreemptedNodeLeavesTheOthersRunning: it first receives their messages for it.
func TestAPreemptedNodeLeavesTheOthersRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		node := job.node(1)
		node.elastic = true
		stays, goes := New[empty](job.node(0)), New[empty](node)
		received := 0
		evA.On(goes, func(context.Context, int) error { received++; return nil })
		for _, tk := range []*Task[empty]{stays, goes} {
			tk.Use(Step(func(context.Context, *empty) error { time.Sleep(time.Second); return nil }))
		}
		node.onLeave = func() { must(t, evA.Emit(t.Context(), stays, 1)) }
		done := make(chan error)
		go func() { done <- stays.Run(t.Context(), MaxSteps(5)) }()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(1500*time.Millisecond, func() { cancel(&PreemptError{Node: 1, Reason: "SIGTERM"}) })
		if err := goes.Run(ctx); !errors.Is(err, ErrPreempted) || received != 1 {
			t.Errorf("error %v, received %d", err, received)
		}
		must(t, <-done)
		if node.waited {
			t.Error("the node has waited for the others, which continue")
		}
	})
}

func TestPreemptionIsNoFailure(t *testing.T) {
	for name, run := range map[string]func(context.Context, context.CancelCauseFunc, *Task[empty]) error{
		"Preempt": func(ctx context.Context, _ context.CancelCauseFunc, tk *Task[empty]) error {
			go func() { time.Sleep(time.Second); tk.Preempt("SIGTERM") }()
			return tk.Run(ctx)
		},
		"cause of ctx": func(ctx context.Context, cancel context.CancelCauseFunc, tk *Task[empty]) error {
			go func() { time.Sleep(time.Second); cancel(&PreemptError{Reason: "SIGTERM"}) }()
			return tk.Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var saved [2]Outcome
				_, errs := runJob(t, 2, func(i int, tk *Task[empty]) {
					tk.Use(waitForNothing(tk))
					tk.OnFinish(func(ctx context.Context, o Outcome) error { saved[i] = o; return ctx.Err() })
				}, func(i int, tk *Task[empty]) error {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if i == 1 {
						return tk.Run(ctx)
					}
					return run(ctx, cancel, tk)
				})
				for i, err := range errs {
					if !errors.Is(err, ErrPreempted) || saved[i] != (Outcome{Preempted, 0, "SIGTERM"}) {
						t.Errorf("node %d: %v, %+v", i, err, saved[i])
					}
				}
			})
		})
	}
}

func TestEndOfContextIsInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		tk.Use(waitForNothing(tk))
		cause := errors.New("walltime")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		if err := tk.Run(ctx); !errors.Is(err, cause) || tk.Outcome().Kind != Failure {
			t.Errorf("%v, %+v", err, tk.Outcome())
		}
	})
}

func TestLostPeerEndsTheTask(t *testing.T) {
	lost := errors.New("silent for 5s")
	for _, change := range []PeerChange{
		{Peer: Peer{ID: 3}, Event: PeerLost, Err: lost, Fatal: true},
		{Event: BusFailed, Err: lost},
	} {
		synctest.Test(t, func(t *testing.T) {
			node := newFakeJob(1).node(0)
			tk := New[empty](node)
			tk.Use(waitForNothing(tk))
			go func() {
				synctest.Wait()
				node.tell(PeerChange{Peer: Peer{ID: 4}, Event: PeerLost, Err: lost})
				node.tell(change)
			}()
			if err := tk.Run(t.Context()); !errors.Is(err, lost) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLostPeerDoesNotSpoilASuccess loses a peer while the task ends.
func TestLostPeerDoesNotSpoilASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		tk := New[empty](node)
		tk.Use(waitForNothing(tk))
		tk.OnFinish(func(context.Context, Outcome) error {
			node.tell(PeerChange{Peer: Peer{ID: 4}, Event: PeerLost, Err: errors.New("silent for 5s"), Fatal: true})
			return nil
		})
		go func() { synctest.Wait(); tk.Finish("done") }()
		if err := tk.Run(t.Context()); err != nil || tk.Outcome().Kind != Success {
			t.Errorf("%v, %+v", err, tk.Outcome())
		}
	})
}

func TestFinishByAListenerEndsAWaitingStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		evA.On(tk, func(context.Context, int) error { tk.Finish("solved"); return nil })
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			if err := evA.Emit(ctx, tk, 1); err != nil {
				return err
			}
			_, err := evB.WaitFor(ctx, tk)
			if !errors.Is(err, ErrFinished) {
				t.Errorf("the wait ended with %v", err)
			}
			return err
		}))
		must(t, tk.Run(t.Context()))
	})
}

func TestErrorAfterFinishIsAFailure(t *testing.T) {
	boom := errors.New("boom")
	tk := New[empty](Alone())
	tk.Use(func(ctx context.Context, _ *empty, next Next) error { return errors.Join(next(ctx), boom) })
	var saved Outcome
	tk.OnFinish(func(_ context.Context, o Outcome) error { saved = o; return nil })
	if err := tk.Run(t.Context(), MaxSteps(1)); !errors.Is(err, boom) || saved.Kind != Failure {
		t.Errorf("%v, %+v", err, saved)
	}
}

func TestFailingHooksFailTheRun(t *testing.T) {
	boom := errors.New("disk full")
	tk := New[empty](Alone())
	calls := 0
	tk.OnFinish(func(context.Context, Outcome) error { calls++; return boom })
	tk.OnFinish(func(context.Context, Outcome) error { calls++; panic("worse") })
	tk.Use(Step(func(context.Context, *empty) error { return nil }))
	err := tk.Run(t.Context(), MaxSteps(1))
	pe, ok := errors.AsType[*PanicError](err)
	if calls != 2 || !errors.Is(err, boom) || !ok || pe.Value != "worse" || tk.Outcome().Kind != Failure {
		t.Errorf("calls %d, %v", calls, err)
	}
}

func TestListenerThatNeverReturnsIsNamedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone(), DrainTimeout(time.Second))
		stuck := make(chan struct{})
		evA.On(tk, func(context.Context, int) error { <-stuck; return nil })
		must(t, tk.Start(t.Context()))
		must(t, evA.Emit(t.Context(), tk, 1))
		err := tk.Close(t.Context())
		if err == nil || !strings.Contains(err.Error(), `event "a"`) {
			t.Errorf("error %v", err)
		}
		close(stuck)
	})
}

func TestListenerThatWaitsIsCutOffAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		var got error
		evA.On(tk, func(ctx context.Context, _ int) error { _, got = evB.WaitFor(ctx, tk); return got })
		must(t, tk.Start(t.Context()))
		must(t, evA.Emit(t.Context(), tk, 1))
		begin := time.Now()
		must(t, tk.Close(t.Context()))
		if !errors.Is(got, ErrFinished) || time.Since(begin) != 0 {
			t.Errorf("%v after %v", got, time.Since(begin))
		}
	})
}

func TestE13ReportsOnceByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		node := newFakeJob(1).node(0)
		node.logger = slog.New(slog.NewTextHandler(&log, nil))
		tk := New[empty](node)
		evB.On(tk, func(context.Context, int) error { return nil })
		must(t, tk.Start(t.Context()))
		for range 3 {
			must(t, evA.Emit(t.Context(), tk, 1))
		}
		must(t, tk.Close(t.Context()))
		if s := log.String(); strings.Count(s, "event=a") != 1 || strings.Count(s, "event=b") != 1 || strings.Count(s, "\n") != 2 {
			t.Errorf("log:\n%s", s)
		}
	})
}

func TestLogOfLongWaitsNamesTheirEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		node := newFakeJob(1).node(0)
		node.logger = slog.New(slog.NewTextHandler(&log, nil))
		tk := New[empty](node)
		must(t, tk.Start(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 71*time.Second)
		defer cancel()
		_, err := evA.WaitFor(ctx, tk)
		synctest.Wait()
		if s := log.String(); err == nil || strings.Count(s, "still waiting") != 3 || !strings.Contains(s, "waited=40s") {
			t.Errorf("%v; log after 10, 20 and 40 s:\n%s", err, s)
		}
		must(t, tk.Close(t.Context()))
	})
}

func TestT8LabelsMatchByGlob(t *testing.T) {
	alone := New[empty](Alone())
	far := New[empty](newFakeJob(1).node(3, "gpu", "rack/7"))
	for _, tc := range []struct {
		tk       *Task[empty]
		patterns []string
		want     bool
	}{
		{alone, []string{"standalone"}, true},
		{alone, []string{"distributed", "node.*"}, false},
		{far, []string{"standalone", "node.3"}, true},
		{far, []string{"node.?"}, true},
		{far, []string{"rack*"}, true},
		{far, []string{"node.[12]"}, false},
		{far, nil, false},
		{far, []string{"["}, false},
	} {
		if got := tc.tk.Match(tc.patterns...); got != tc.want {
			t.Errorf("%v match %q: %v", tc.tk.Labels(), tc.patterns, got)
		}
	}
}

func TestT9Roles(t *testing.T) {
	node := func(id int, labels ...string) Node { return newFakeJob(1).node(id, labels...) }
	for name, tc := range map[string]struct {
		node Node
		opts []Option
		want []string // nil: all
	}{
		"none given":            {node(0), nil, nil},
		"alone":                 {Alone(), []Option{ByID("l", "e", "c")}, nil},
		"alone, given":          {Alone(), []Option{WithRoles("l")}, []string{"l"}},
		"first":                 {node(0), []Option{ByID("l", "e", "c")}, []string{"l"}},
		"second":                {node(1), []Option{ByID("l", "e", "c")}, []string{"e"}},
		"beyond the last":       {node(9), []Option{ByID("l", "e", "c")}, []string{"c"}},
		"by label":              {node(9, "gpu.2"), []Option{ByLabel("gpu.*", "l", "e")}, []string{"e", "l"}},
		"no label of the rules": {node(9), []Option{ByLabel("gpu.*", "l", "e")}, []string{}},
		"joined":                {node(1), []Option{ByID("l", "e"), WithRoles("l")}, []string{"e", "l"}},
	} {
		t.Run(name, func(t *testing.T) {
			tk := New[empty](tc.node, tc.opts...)
			if got := tk.Roles(); !slices.Equal(got, tc.want) || (got == nil) != (tc.want == nil) {
				t.Errorf("roles %v, want %v", got, tc.want)
			}
			built := 0
			for _, role := range []string{"l", "e", "c"} {
				tk.UseFor(role, func() Middleware[empty] {
					built++
					return Step(func(context.Context, *empty) error { return nil })
				})
			}
			want := len(tc.want)
			if tc.want == nil {
				want = 3
			}
			if built != want || len(tk.ms) != want {
				t.Errorf("built %d, in the chain %d, want %d", built, len(tk.ms), want)
			}
		})
	}
}

func TestAssemblyMistakesPanic(t *testing.T) {
	ran := New[empty](Alone())
	must(t, ran.Run(t.Context()))
	nop := Step(func(context.Context, *empty) error { return nil })
	type tagged struct {
		A int `task:"kept"`
	}
	for want, f := range map[string]func(){
		"task: Use after Run":                     func() { ran.Use(nop) },
		"task: Wrap after Run":                    func() { ran.Wrap(func(_ string, m Middleware[empty]) Middleware[empty] { return m }) },
		"task: Use of a nil middleware":           func() { New[empty](Alone()).Use(nop, nil) },
		"task: nil middleware":                    func() { Serial(nop, nil) },
		"task: Step of a nil function":            func() { Step[empty](nil) },
		`task: Keep("X"): context task.empty has`: func() { New[empty](Alone()).Keep("X") },
		`task: Keep("X"): context int is not`:     func() { New[int](Alone()).Keep("X") },
		"task: field A has the tag":               func() { New[tagged](Alone()) },
		`task: listen: event "a" is declared twice`: func() {
			tk := New[empty](Alone())
			evA.On(tk, func(context.Context, int) error { return nil })
			NewEvent[int]("a").On(tk, func(context.Context, int) error { return nil })
		},
		"task: event without a name":      func() { NewEvent[int]("") },
		`task: nil listener of event "a"`: func() { evA.On(New[empty](Alone()), nil) },
		"task: New without a node":        func() { New[empty](nil) },
		"task: New: node.0 carries one task, and has had it": func() {
			node := Alone()
			must(t, New[empty](node).Run(t.Context()))
			New[empty](node)
		},
		"task: MaxSteps is negative":      func() { MaxSteps(-1) },
		"task: ByID without a role":       func() { ByID() },
		"task: Trace with a nil tracer":   func() { Trace(nil) },
		"task: Wrap with a nil wrapper":   func() { New[empty](Alone()).Wrap(nil) },
		"task: UseFor after Run":          func() { ran.UseFor("x", func() Middleware[empty] { return nop }) },
		"task: Defaults after Run":        func() { ran.Defaults(empty{}) },
		"task: Locked needs a lock":       func() { Locked(nil, nop) },
		"task: Name needs a name and":     func() { Name("", nop) },
		"task: Name needs a name":         func() { Name[empty]("x", nil) },
		"task: Fail with a nil error":     func() { New[empty](Alone()).Fail(nil) },
		"task: an event that drops needs": func() { DropOldest(0) },
		"task: a wrapper returned nil for ta": func() {
			tk := New[empty](Alone())
			tk.Use(nop)
			tk.Wrap(func(string, Middleware[empty]) Middleware[empty] { return nil })
			_ = tk.Run(t.Context())
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if msg, _ := recover().(string); !strings.HasPrefix(msg, want) {
					t.Errorf("panic %q", msg)
				}
			}()
			f()
		})
	}
}

func TestStartErrorsCloseTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](newFakeJob(2).node(0))
		hooked := false
		tk.OnFinish(func(context.Context, Outcome) error { hooked = true; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := tk.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || hooked || tk.Outcome().Kind != Failure {
			t.Errorf("%v, hooked %v, %+v", err, hooked, tk.Outcome())
		}
		if err := evA.Emit(t.Context(), tk, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Emit: %v", err)
		}
	})
}
