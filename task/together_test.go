package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// together runs n tasks of one job under WaitForAll. steps makes the step of each; the
// results are those of Run.
func together(t *testing.T, job *fakeJob, n int, steps func(id int, tk *Task[empty]) []RunOption) (outcomes []Outcome, errs []error) {
	t.Helper()
	outcomes, errs = make([]Outcome, n), make([]error, n)
	var all sync.WaitGroup
	for id := range n {
		tk := New[empty](job.node(id))
		opts := steps(id, tk)
		tk.OnFinish(func(_ context.Context, o Outcome) error { outcomes[id] = o; return nil })
		all.Go(func() { errs[id] = tk.Run(t.Context(), opts...) })
	}
	all.Wait()
	return outcomes, errs
}

// Every node runs all its steps, in any order of their ends, and a node that is done receives events and
// answers them.
func TestWaitForAllEndsWhenAllAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask, answer := NewEvent[int]("ask"), NewEvent[int]("answer")
		var steps [3]atomic.Int32
		var answers atomic.Int32
		outcomes, errs := together(t, newFakeJob(3), 3, func(id int, tk *Task[empty]) []RunOption {
			ask.On(tk, func(ctx context.Context, v int) error {
				return answer.Emit(ctx, tk, v, To(fmt.Sprint("node.", Sender(ctx))))
			})
			answer.On(tk, func(context.Context, int) error { answers.Add(1); return nil })
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				<-time.After(time.Duration(id) * time.Second) // the others are done before node 2
				steps[id].Add(1)
				return ask.Emit(ctx, tk, 1, OnlyRemote())
			}))
			return []RunOption{MaxSteps(3), WaitForAll()}
		})
		for id := range errs {
			if errs[id] != nil || steps[id].Load() != 3 {
				t.Errorf("node %d: %d steps, %v", id, steps[id].Load(), errs[id])
			}
			if want := (Outcome{Success, id, "max steps"}); outcomes[id] != want {
				t.Errorf("node %d: hooks saw %+v, want %+v", id, outcomes[id], want)
			}
		}
		if n := answers.Load(); n != 3*3*2 {
			t.Errorf("%d answers, want 18", n)
		}
	})
}

// Finish means that this node is done, and a node without middleware only listens.
func TestWaitForAllWithFinishAndWithoutMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		number := NewEvent[int]("number")
		received := 0
		_, errs := together(t, newFakeJob(2), 2, func(id int, tk *Task[empty]) []RunOption {
			if id == 0 {
				number.On(tk, func(context.Context, int) error { received++; return nil })
				return []RunOption{WaitForAll()}
			}
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				<-time.After(time.Second)
				if tk.Steps() == 4 {
					tk.Finish("enough")
				}
				return number.Emit(ctx, tk, 1)
			}))
			return []RunOption{WaitForAll()}
		})
		if err := errors.Join(errs...); err != nil || received != 5 {
			t.Errorf("received %d, %v", received, err)
		}
	})
}

// A node waits for the others if it finishes before its run has begun, as a listener may
// while the node starts.
func TestWaitForAllOfANodeThatFinishesBeforeItsFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := NewEvent[int]("ev")
		var received, steps atomic.Int32
		outcomes, errs := together(t, newFakeJob(3), 3, func(id int, tk *Task[empty]) []RunOption {
			ev.On(tk, func(context.Context, int) error { received.Add(1); return nil })
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				<-time.After(time.Second)
				steps.Add(1)
				return ev.Emit(ctx, tk, 1, OnlyRemote())
			}))
			if id > 0 {
				tk.Finish("early")
			}
			return []RunOption{MaxSteps(3), WaitForAll()}
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		if steps.Load() != 3 || received.Load() != 6 {
			t.Errorf("%d steps and %d events received, want 3 and 6", steps.Load(), received.Load())
		}
		if want := (Outcome{Success, 1, "early"}); outcomes[1] != want {
			t.Errorf("outcome %+v, want %+v", outcomes[1], want)
		}
	})
}

// A failure or a preemption of another node ends the wait of a node that is done.
func TestWaitForAllEndsWithTheJob(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		last func(tk *Task[empty]) error
		opts []RunOption
		kind Kind
		want error // of the node that waits; a failure is a RemoteError
	}{
		"failure":        {func(*Task[empty]) error { return broken }, []RunOption{WaitForAll()}, Failure, nil},
		"preemption":     {func(tk *Task[empty]) error { tk.Preempt("SIGTERM"); return nil }, []RunOption{WaitForAll()}, Preempted, ErrPreempted},
		"a plain finish": {func(tk *Task[empty]) error { tk.Finish("learned"); return nil }, nil, Success, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outcomes, errs := together(t, newFakeJob(2), 2, func(id int, tk *Task[empty]) []RunOption {
					tk.Use(Step(func(context.Context, *empty) error {
						if id == 0 {
							return nil
						}
						<-time.After(time.Second)
						return tt.last(tk)
					}))
					if id == 0 {
						return []RunOption{MaxSteps(1), WaitForAll()}
					}
					return tt.opts
				})
				if o := outcomes[0]; o.Kind != tt.kind || o.Node != 1 {
					t.Errorf("node 0: %+v, want %v by node 1", o, tt.kind)
				}
				_, remote := errors.AsType[*RemoteError](errs[0])
				if remote != (tt.kind == Failure) || !remote && !errors.Is(errs[0], tt.want) {
					t.Errorf("node 0: %v, want %v", errs[0], tt.want)
				}
			})
		})
	}
}

// A node that waits for the others is preempted, or ends, with its own context.
func TestWaitForAllEndsWithItsContext(t *testing.T) {
	for _, cause := range []error{&PreemptError{Node: 0, Reason: "SIGTERM"}, errors.New("enough of it")} {
		synctest.Test(t, func(t *testing.T) {
			job := newFakeJob(2)
			var errs [2]error
			var all sync.WaitGroup
			for id := range errs {
				tk := New[empty](job.node(id))
				tk.Use(Step(func(ctx context.Context, _ *empty) error {
					if id == 1 {
						<-ctx.Done()
					}
					return nil
				}))
				all.Go(func() {
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if id == 0 {
						time.AfterFunc(time.Second, func() { cancel(cause) })
					}
					errs[id] = tk.Run(ctx, MaxSteps(1), WaitForAll())
				})
			}
			all.Wait()
			if !errors.Is(errs[0], cause) {
				t.Errorf("node 0: %v, want %v", errs[0], cause)
			}
			if _, failed := errors.AsType[*RemoteError](errs[1]); failed == errors.Is(cause, ErrPreempted) ||
				failed == errors.Is(errs[1], ErrPreempted) {
				t.Errorf("node 1: %v", errs[1])
			}
		})
	}
}

// The loss of a node fails one that is done, until all are.
func TestWaitForAllFailsForALostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		node := job.node(0)
		other := job.node(1)
		go func() { _ = other.Start(t.Context(), nil) }()
		tk := New[empty](node)
		tk.Use(Step(func(context.Context, *empty) error { return nil }))
		gone := errors.New("node.1: lost")
		go func() {
			<-time.After(time.Second)
			node.tell(PeerChange{Peer: Peer{ID: 1}, Event: PeerLost, Err: gone, Fatal: true})
		}()
		if err := tk.Run(t.Context(), MaxSteps(1), WaitForAll()); !errors.Is(err, gone) {
			t.Error(err)
		}
	})
}

func TestWaitForAllOfALoneNode(t *testing.T) {
	tk := New[empty](Alone())
	tk.Use(Step(func(context.Context, *empty) error { return nil }))
	if err := tk.Run(t.Context(), MaxSteps(2), WaitForAll()); err != nil || tk.Steps() != 2 {
		t.Errorf("%d steps, %v", tk.Steps(), err)
	}
}

// A listener that is slow still answers when all are done: the nodes drain after it.
func TestWaitForAllReceivesRemainingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask, answer := NewEvent[int]("ask"), NewEvent[int]("answer")
		var answers atomic.Int32
		_, errs := together(t, newFakeJob(2), 2, func(_ int, tk *Task[empty]) []RunOption {
			ask.On(tk, func(ctx context.Context, v int) error {
				<-time.After(500 * time.Millisecond)
				return answer.Emit(ctx, tk, v, OnlyRemote())
			})
			answer.On(tk, func(context.Context, int) error { answers.Add(1); return nil })
			tk.Use(Step(func(ctx context.Context, _ *empty) error { return ask.Emit(ctx, tk, 1, OnlyRemote()) }))
			return []RunOption{MaxSteps(1), WaitForAll()}
		})
		if err := errors.Join(errs...); err != nil || answers.Load() != 2 {
			t.Errorf("%d answers, want 2: %v", answers.Load(), err)
		}
	})
}

// A bus that cannot wait for the others, or cannot leave them, is in the error.
func TestWaitForAllAndLeaveReportTheirBus(t *testing.T) {
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		node.doneErr = broken
		tk := New[empty](node)
		if err := runOnceForAll(t, tk); !errors.Is(err, broken) || tk.Outcome().Kind != Failure {
			t.Errorf("%v, %+v", err, tk.Outcome())
		}
	})
	for name, tc := range map[string]struct {
		err  error
		want string
	}{"it fails": {broken, "broken"},
		"a listener is stuck": {nil, `leave: drain timeout of 4s: context deadline exceeded (event "a": 1 not delivered to the end`}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := newFakeJob(1).node(0)
				node.elastic, node.leaveErr = true, tc.err
				tk := New[empty](node, DrainTimeout(4*time.Second))
				evA.On(tk, func(context.Context, int) error { time.Sleep(5 * time.Second); return nil })
				tk.Use(Step(func(ctx context.Context, _ *empty) error { return errors.Join(evA.Emit(ctx, tk, 1), waitForEver(ctx)) }))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second/2, func() { cancel(&PreemptError{Reason: "SIGTERM"}) })
				if err := tk.Run(ctx); !errors.Is(err, ErrPreempted) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A preempted node ends within the grace period of its launcher, independent of the others.
func TestPreemptedNodeEndsWithinItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		node.elastic, node.grace = true, 6*time.Second
		tk := New[empty](node)
		tk.Use(Step(func(ctx context.Context, _ *empty) error { return waitForEver(ctx) }))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&PreemptError{Reason: "SIGTERM"}) })
		began := time.Now()
		err := tk.Run(ctx)
		if took := time.Since(began); !errors.Is(err, ErrPreempted) || !strings.Contains(err.Error(), "drain timeout of 3s") ||
			took > 5*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func runOnceForAll(t *testing.T, tk *Task[empty]) error {
	tk.Use(Step(quiet))
	return tk.Run(t.Context(), MaxSteps(1), WaitForAll())
}
