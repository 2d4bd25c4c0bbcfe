package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/internal/logtest"
)

// logged makes a node of a job write its log to a buffer, debug level included.
func logged(node *fakeNode) *bytes.Buffer {
	log := new(bytes.Buffer)
	node.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return log
}

func TestErrorsInWords(t *testing.T) {
	boom := errors.New("boom")
	for want, err := range map[string]error{
		"task is preempted on node 3: SIGTERM": &PreemptError{Node: 3, Reason: "SIGTERM"},
		"node 2 failed: boom":                  &RemoteError{Node: 2, Reason: "boom"},
		`listener f of event "a": boom`:        &ListenerError{Event: "a", Listener: "f", Err: boom},
		"listener f of event \"a\": boom\nstack": &ListenerError{
			Event: "a", Listener: "f", Err: boom, Stack: []byte("stack"),
		},
		"f panicked on node 1 (all roles): boom\nstack": &PanicError{Name: "f", Node: 1, Value: boom, Stack: []byte("stack")},
		"f panicked on node 1 (roles a, b): boom\nstack": &PanicError{
			Name: "f", Node: 1, Roles: []string{"a", "b"}, Value: boom, Stack: []byte("stack"),
		},
		`wait for event "a" from this node (1): boom`:                  &WaitError{Event: "a", Node: 1, Err: boom},
		`wait for event "a" from this node (1), node 0, node 12: boom`: &WaitError{Event: "a", Node: 1, Peers: []int{0, 12}, Err: boom},
		"panic: boom": panicValue(boom),
		"panic: 7":    panicValue(7),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
		if strings.HasSuffix(want, ": boom") && !strings.HasPrefix(want, "node") && !errors.Is(err, boom) {
			t.Errorf("%q does not wrap its cause", want)
		}
	}
	for kind, want := range map[Kind]string{Running: "running", Success: "success", Failure: "failure", Preempted: "preempted", 9: "Kind(9)"} {
		if kind.String() != want {
			t.Errorf("%s, want %s", kind, want)
		}
	}
}

// TestEveryFailureIsInTheErrorOnce.
func TestEveryFailureIsInTheErrorOnce(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		before, step, hook error
		want               string
	}{
		"step and hook": {nil, boom, errors.New("disk full"), "step 1: s: boom\non finish: disk full"},
		"Fail and step": {boom, errors.New("bang"), nil, "boom\nstep 1: s: bang"},
		"one error":     {boom, boom, nil, "boom"},
		"a part of it":  {fmt.Errorf("wrapped: %w", boom), boom, nil, "wrapped: boom\nstep 1: s: boom"},
		"hook only":     {nil, nil, boom, "on finish: boom"},
	} {
		t.Run(name, func(t *testing.T) {
			tk := New[empty](Alone())
			tk.Use(Name("s", Step(func(context.Context, *empty) error {
				if tc.before != nil {
					tk.Fail(tc.before)
				}
				return tc.step
			})))
			tk.OnFinish(func(context.Context, Outcome) error { return tc.hook })
			if err := tk.Run(t.Context(), MaxSteps(1)); err == nil || err.Error() != tc.want {
				t.Errorf("error %q, want %q", err, tc.want)
			}
		})
	}
}

// TestFailEndsTheContextOfTheStepBeforeItReturns.
func TestFailEndsTheContextOfTheStepBeforeItReturns(t *testing.T) {
	for name, end := range map[string]func(*Task[empty]){
		"Fail":    func(tk *Task[empty]) { tk.Fail(errors.New("boom")) },
		"Preempt": func(tk *Task[empty]) { tk.Preempt("SIGTERM") },
	} {
		tk := New[empty](Alone())
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			end(tk)
			if ctx.Err() == nil {
				t.Errorf("%s: the context has not ended", name)
			}
			return nil
		}))
		if err := tk.Run(t.Context()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestPreemptionOfALoneNode(t *testing.T) {
	for name, before := range map[string]bool{"before the start": true, "during a step": false} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			tk := New[empty](Alone())
			steps := 0
			tk.Use(Step(func(context.Context, *empty) error { steps++; cancel(&PreemptError{Reason: "SIGTERM"}); return nil }))
			if before {
				cancel(&PreemptError{Reason: "SIGTERM"})
			}
			if err := tk.Run(ctx); !errors.Is(err, ErrPreempted) || tk.Outcome() != (Outcome{Preempted, 0, "SIGTERM"}) || (steps == 0) != before {
				t.Errorf("%v, %+v after %d steps", err, tk.Outcome(), steps)
			}
		})
	}
}

// TestAStartThatFailsEndsTheTask: it is closed, and cannot be run.
func TestAStartThatFailsEndsTheTask(t *testing.T) {
	for _, cause := range []error{errors.New("enough"), &PreemptError{Reason: "SIGTERM"}} {
		synctest.Test(t, func(t *testing.T) {
			node := newFakeJob(2).node(0)
			tk := New[empty](node)
			tk.Use(Step(func(context.Context, *empty) error { t.Error("a step was run"); return nil }))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			err := tk.Start(ctx)
			_, preempted := errors.AsType[*PreemptError](cause)
			if !errors.Is(err, cause) || (tk.Outcome().Kind == Preempted) != preempted || node.job.drained[0] || !node.left {
				t.Errorf("%v, %+v, drained %v, left %v", err, tk.Outcome(), node.job.drained[0], node.left)
			}
			if err := tk.Run(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Run: %v", err)
			}
			must(t, tk.Close(t.Context()))
		})
	}
}

func TestASecondStartIsAnErrorAndNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		if err := tk.Start(t.Context()); !errors.Is(err, errStarted) {
			t.Errorf("error %v", err)
		}
		must(t, evA.Emit(t.Context(), tk, 1))
		if o := tk.Outcome(); o.Kind != Running {
			t.Errorf("%+v", o)
		}
	})
}

// TestTheStartWaitsForLatestValuesOnly, and for them until its context ends.
func TestTheStartWaitsForLatestValuesOnly(t *testing.T) {
	for name, tc := range map[string]struct {
		ev   *Event[int]
		want string
	}{"latest": {evLast, "start: receive the newest values: too long"}, "reliable": {evA, ""}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tk := New[empty](newFakeJob(1).node(0))
				gate := make(chan struct{})
				p := gated(t, tk, tc.ev, gate)
				must(t, p.deliver(&Inbound{From: 1, Version: 1, Payload: []byte{2}}))
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
				defer cancel()
				time.AfterFunc(time.Minute+time.Second, func() { close(gate) })
				if err := tk.Start(ctx); (err == nil) != (tc.want == "") || err != nil && !strings.HasPrefix(err.Error(), tc.want) {
					t.Errorf("error %v", err)
				}
				synctest.Wait()
				<-gate
				must(t, tk.Close(t.Context()))
			})
		})
	}
}

// TestPeerChangesOfABus has each change of a peer.
func TestPeerChangesOfABus(t *testing.T) {
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		change PeerChange
		want   string // in the error; empty for none
		lost   int    // lines of the log about a lost node
		drain  bool
	}{
		"lost":               {PeerChange{Peer: Peer{ID: 3}, Event: PeerLost, Err: boom}, "", 1, true},
		"lost, fatal":        {PeerChange{Peer: Peer{ID: 3}, Event: PeerLost, Err: boom, Fatal: true}, "boom", 0, true},
		"lost, no reason":    {PeerChange{Peer: Peer{ID: 3}, Event: PeerLost, Fatal: true}, "node.3: no reason given", 0, true},
		"the bus has failed": {PeerChange{Event: BusFailed, Err: boom}, "bus: boom", 0, false},
		"joined":             {PeerChange{Peer: Peer{ID: 3}, Event: PeerJoined}, "", 0, true},
		"left":               {PeerChange{Peer: Peer{ID: 3}, Event: PeerLeft}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := newFakeJob(1).node(0)
				log := logged(node)
				tk := New[empty](node)
				tk.Use(Step(func(context.Context, *empty) error { node.tell(tc.change); return nil }))
				err := tk.Run(t.Context(), MaxSteps(1))
				if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
					t.Errorf("error %v, want %q", err, tc.want)
				}
				if n := strings.Count(log.String(), "node lost"); n != tc.lost || node.job.drained[0] != tc.drain {
					t.Errorf("drained %v, %d times lost:\n%s", node.job.drained[0], n, log)
				}
			})
		})
	}
}

// TestTheBusIsDrainedTogetherAfterAnOrderlyEnd only.
func TestTheBusIsDrainedTogetherAfterAnOrderlyEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		step             func(*Task[empty]) error // nil: the task is closed, and not run
		waited, told     bool
		recovers, aborts bool
	}{
		"success":           {step: func(*Task[empty]) error { return nil }, waited: true, told: true},
		"preemption":        {step: func(tk *Task[empty]) error { tk.Preempt("SIGTERM"); return nil }, waited: true, told: true},
		"failure":           {step: func(*Task[empty]) error { return errors.New("boom") }, told: true},
		"closed":            {},
		"success, recovers": {step: func(*Task[empty]) error { return nil }, waited: true, told: true, recovers: true},
		"preemption, recovers": {step: func(tk *Task[empty]) error { tk.Preempt("SIGTERM"); return nil }, waited: true,
			told: true, recovers: true},
		"failure, recovers": {step: func(*Task[empty]) error { return errors.New("boom") }, recovers: true, aborts: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := newFakeJob(2)
				node := job.node(0)
				node.recovers = tc.recovers
				tk, other := New[empty](node), New[empty](job.node(1))
				other.Use(Step(func(ctx context.Context, _ *empty) error { return waitForEver(ctx) }))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = other.Run(ctx) }()
				if tc.step == nil {
					must(t, tk.Start(t.Context()))
					must(t, tk.Close(t.Context()))
				} else {
					tk.Use(Step(func(context.Context, *empty) error { return tc.step(tk) }))
					_ = tk.Run(t.Context(), MaxSteps(1))
				}
				synctest.Wait()
				told := other.Finished()
				cancel()
				<-done
				if node.waited != tc.waited || told != tc.told || node.abandoned != tc.aborts {
					t.Errorf("waited %v, notified %v, abandoned %v", node.waited, told, node.abandoned)
				}
			})
		})
	}
}

// TestANodeWithoutMiddlewareEndsNoOther: the job continues.
func TestANodeWithoutMiddlewareEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks, errs := runJob(t, 2, func(i int, tk *Task[empty]) {
			if i == 1 {
				tk.Use(Step(func(context.Context, *empty) error { time.Sleep(time.Second); return nil }))
			}
		}, func(_ int, tk *Task[empty]) error { return tk.Run(t.Context(), MaxSteps(3)) })
		if errs[0] != nil || errs[1] != nil || tks[1].Steps() != 3 {
			t.Errorf("%v after %d steps", errs, tks[1].Steps())
		}
	})
}

// TestOffOfAllEventsKeepsTheEndOfTheJob: the package itself declares that event.
func TestOffOfAllEventsKeepsTheEndOfTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, errs := runJob(t, 2, func(i int, tk *Task[empty]) {
			tk.Off("*")
			if i == 1 {
				tk.Use(Step(func(ctx context.Context, _ *empty) error { return waitForEver(ctx) }))
				return
			}
			tk.Use(Step(func(context.Context, *empty) error { return nil }))
		}, func(i int, tk *Task[empty]) error {
			if i == 0 {
				return tk.Run(t.Context(), MaxSteps(1))
			}
			return tk.Run(t.Context())
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		tk := jobOf(t, 1, nil)[0]
		for _, kind := range []uint8{0, 9} {
			if err := tk.en.receiveFinish(t.Context(), finishMessage{Kind: kind, Node: 1}); err == nil || tk.Finished() {
				t.Errorf("kind %d: %v, finished %v", kind, err, tk.Finished())
			}
		}
	})
}

func TestTheEndOfABusIsInTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		node.closeErr = errors.New("not received")
		node.onDrain = waitForEver
		tk := New[empty](node, DrainTimeout(4*time.Second))
		tk.Use(Step(func(context.Context, *empty) error { return nil }))
		err := tk.Run(t.Context(), MaxSteps(1))
		if err == nil || !strings.Contains(err.Error(), "drain: drain timeout of 4s: ") || !strings.Contains(err.Error(), "close: not received") {
			t.Errorf("error %v", err)
		}
		must(t, New[empty](newFakeJob(1).node(0)).Close(t.Context()))
		fresh := newFakeJob(1).node(0)
		fresh.closeErr = errors.New("not closed")
		if err := New[empty](fresh).Close(t.Context()); err == nil || !fresh.left {
			t.Errorf("a task that was not started: %v, left %v", err, fresh.left)
		}
		must(t, New[empty](Alone()).Close(t.Context()))
	})
}

func TestHooksHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](newFakeJob(1).node(0), HookTimeout(3*time.Second), WithRoles("learner"))
		tk.Use(Step(func(context.Context, *empty) error { return nil }))
		ctx, cancel := context.WithCancel(t.Context())
		tk.OnFinish(func(hook context.Context, _ Outcome) error {
			cancel()
			if hook.Err() != nil {
				t.Error("the context of a hook ends with that of Run")
			}
			return waitForEver(hook)
		})
		tk.OnFinish(func(context.Context, Outcome) error { panic("ouch") })
		begin := time.Now()
		err := tk.Run(ctx, MaxSteps(1))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if pe, ok := errors.AsType[*PanicError](err); !ok || !slices.Equal(pe.Roles, []string{"learner"}) {
			t.Errorf("%v", pe)
		}
	})
}

// TestTheLogOfTheEnd has the messages that were not received, unless they were logged before.
func TestTheLogOfTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		step func(ctx context.Context, tk *Task[empty]) error
		want map[string]int // lines that have it
	}{
		"success": {
			func(ctx context.Context, tk *Task[empty]) error {
				tk.Finish("first")
				tk.Finish("second")
				evText.Expect(tk).Stop()
				return evB.Emit(ctx, tk, 1)
			},
			map[string]int{"msg=finished reason=first": 1, "reason=second": 0, "listener never received its event": 1,
				"never received its event\" event=a": 1, "not delivered because": 0},
		},
		"failure": {
			func(ctx context.Context, tk *Task[empty]) error {
				for v := range 3 {
					must(t, evB.Emit(ctx, tk, v))
					synctest.Wait() // the listener has the first one only
				}
				return errors.New("boom")
			},
			map[string]int{"msg=finished": 0, "never received": 0, "events not delivered because the task failed": 1,
				`event \"b\": `: 1, `event \"a\": `: 0},
		},
		"cut off": {
			func(ctx context.Context, tk *Task[empty]) error { return evLast.Emit(ctx, tk, 1) },
			map[string]int{"listener cut off at the end of the run": 1, "never received its event": 2, "not delivered because": 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node := newFakeJob(1).node(0)
				log := logged(node)
				tk := New[empty](node)
				evA.On(tk, func(context.Context, int) error { return nil })
				evB.On(tk, func(context.Context, int) error { time.Sleep(time.Minute); return nil })
				if name == "cut off" {
					evLast.On(tk, func(ctx context.Context, _ int) error { return waitForEver(ctx) })
				}
				tk.Use(Step(func(ctx context.Context, _ *empty) error { return tc.step(ctx, tk) }))
				_ = tk.Run(t.Context(), MaxSteps(1))
				time.Sleep(2 * time.Minute) // the slow listener returns
				for text, n := range tc.want {
					if got := strings.Count(log.String(), text); got != n {
						t.Errorf("%d times %q, want %d:\n%s", got, text, n, log)
					}
				}
			})
		})
	}
}

// TestAListenersFailureEndsTheDrain, although others have much to receive.
func TestAListenersFailureEndsTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		received := 0
		evA.On(tk, func(context.Context, int) error { time.Sleep(500 * time.Millisecond); return errors.New("boom") })
		evB.On(tk, func(context.Context, int) error { received++; time.Sleep(time.Second); return nil })
		must(t, tk.Start(t.Context()))
		must(t, evA.Emit(t.Context(), tk, 1))
		for v := range 20 {
			must(t, evB.Emit(t.Context(), tk, v))
		}
		if err := tk.Close(t.Context()); err == nil || received > 2 {
			t.Errorf("%v; %d messages were received", err, received)
		}
	})
}

// observed is a node that records the reports about its task.
type observed struct {
	*fakeNode
	how func() Snapshot
}

func (o *observed) Observe(how func() Snapshot) { o.how = how }

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &observed{fakeNode: newFakeJob(1).node(0)}
		tk := New[empty](node, WithRoles("b", "a"))
		gate := make(chan struct{})
		gated(t, tk, evA, gate)
		gated(t, tk, evB, gate)
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			tk.ReportLag(2.5)
			return errors.Join(evA.Emit(ctx, tk, 1), evB.Emit(ctx, tk, 1), evB.Emit(ctx, tk, 2))
		}))
		tk.OnFinish(func(context.Context, Outcome) error {
			if s := node.how(); s.Role != "a+b" || s.Steps != 2 || s.Lag != 2.5 || s.Queued != 6 || len(s.Events) != 2 {
				t.Errorf("%+v", s)
			}
			close(gate)
			return nil
		})
		must(t, tk.Run(t.Context(), MaxSteps(2)))
		if s := node.how(); s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestALostNodeDoesNotSpoilASuccessOfAll: under WaitForAll the job has succeeded when all
// nodes are done.
func TestALostNodeDoesNotSpoilASuccessOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		_, errs := together(t, job, 2, func(_ int, tk *Task[empty]) []RunOption {
			tk.Use(Step(func(context.Context, *empty) error { return nil }))
			tk.OnFinish(func(context.Context, Outcome) error {
				job.nodes[tk.NodeID()].tell(PeerChange{Peer: Peer{ID: 4}, Event: PeerLost, Err: errors.New("gone"), Fatal: true})
				return nil
			})
			return []RunOption{MaxSteps(1), WaitForAll()}
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
}

// TestALockThatIsNotHadInTimeKeepsItsMiddlewareFromRunning: the step ends without it.
func TestALockThatIsNotHadInTimeKeepsItsMiddlewareFromRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lock
		ran := false
		boom := errors.New("boom")
		tk := New[empty](Alone())
		err := runOnce(t, tk, Parallel(
			Locked(&l, Step(func(context.Context, *empty) error { time.Sleep(time.Minute); return nil })),
			failing(boom, time.Second),
			Locked(&l, Step(func(context.Context, *empty) error { ran = true; return nil })),
		))
		if !errors.Is(err, boom) || ran || len(l.queue) != 0 {
			t.Errorf("%v, ran %v, %d places left", err, ran, len(l.queue))
		}
	})
}

// The reason of another node is text from outside: it is printed escaped, and none of its
// lines looks like one of this node.
func TestReasonsOfOthersArePrintable(t *testing.T) {
	for _, kind := range []Kind{Success, Failure, Preempted} {
		tk := New[empty](newFakeJob(1).node(0))
		if err := tk.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		said := finishMessage{Kind: uint8(kind), Node: 1, Reason: logtest.Hostile + strings.Repeat("x", 2*maxReason)}
		if err := tk.en.receiveFinish(t.Context(), said); err != nil {
			t.Fatal(err)
		}
		o, err := tk.en.result()
		for _, text := range []string{o.Reason, fmt.Sprint(err), fmt.Sprint(tk.Close(t.Context()))} {
			if faults := logtest.Faults(text); faults != "" || len(text) > maxReason+100 {
				t.Errorf("%v: %d bytes, %s", kind, len(text), faults)
			}
		}
	}
}
