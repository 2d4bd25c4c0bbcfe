package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestALockIsLeftByCancelledWaiters(t *testing.T) {
	var l Lock
	first, second := l.enqueue(), l.enqueue()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.wait(ctx, second); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	locked := Locked(&l, Step(func(context.Context, *empty) error { t.Error("it runs"); return nil }))
	if err := locked(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	third := l.enqueue()
	l.leave(first)
	select {
	case <-third.ready:
	default:
		t.Error("the lock is still held")
	}
}

func TestTheFirstFailureStays(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	tk := New[empty](Alone())
	tk.Use(Step(func(context.Context, *empty) error { tk.Fail(first); tk.Fail(second); return nil }))
	if err := tk.Run(t.Context()); !errors.Is(err, first) || tk.Outcome().Reason != "first" {
		t.Errorf("%v, %+v", err, tk.Outcome())
	}
}

// TestAFailureEndsTheContextOfListenersAtOnce, even if the step does not end, and if
// it came before the start.
func TestAFailureEndsTheContextOfListenersAtOnce(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			boom := errors.New("boom")
			ended := make(chan struct{})
			tk := New[empty](Alone())
			evA.On(tk, func(ctx context.Context, _ int) error { <-ctx.Done(); close(ended); return context.Cause(ctx) })
			if before {
				tk.Fail(boom)
			}
			must(t, tk.Start(t.Context()))
			must(t, evA.Emit(t.Context(), tk, 1))
			synctest.Wait()
			select {
			case <-ended:
			default:
				if before {
					t.Error("the context has not ended after the start")
				}
			}
			tk.Use(Step(func(context.Context, *empty) error { tk.Fail(boom); <-ended; return nil }))
			if err := tk.Run(t.Context()); !errors.Is(err, boom) {
				t.Errorf("error %v", err)
			}
			<-ended
		})
	}
}

// TestAFinishOfAnotherNodeEndsTheStepAtOnce: the grace period is for the node's own Finish.
func TestAFinishOfAnotherNodeEndsTheStepAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, errs := runJob(t, 2, func(i int, tk *Task[empty]) {
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				if i == 0 {
					synctest.Wait() // for the step of the other node
					tk.Finish("done")
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}))
		}, forever(t))
		if took := time.Since(begin); errs[0] != nil || errs[1] != nil || took != 0 {
			t.Errorf("%v after %v", errs, took)
		}
	})
}

// TestARestartableNodeLeavesInOrderAfterTheFailureOfAnother: only its own failure may look
// like a crash.
func TestARestartableNodeLeavesInOrderAfterTheFailureOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(2)
		node := job.node(1)
		node.recovers = true
		other, back := New[empty](job.node(0)), New[empty](node)
		other.Use(Step(func(context.Context, *empty) error { return errors.New("boom") }))
		back.Use(waitForNothing(back))
		go func() { _ = other.Run(t.Context()) }()
		err := back.Run(t.Context())
		if _, ok := errors.AsType[*RemoteError](err); !ok || node.abandoned {
			t.Errorf("%v, abandoned %v", err, node.abandoned)
		}
	})
}

func TestAListenersOwnCancellationIsAFailureDuringTheRun(t *testing.T) {
	tk := New[empty](Alone())
	evA.On(tk, func(context.Context, int) error { return context.Canceled })
	tk.Use(Step(func(ctx context.Context, _ *empty) error {
		must(t, evA.Emit(ctx, tk, 1))
		_, err := evB.WaitFor(ctx, tk)
		return err
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if le, ok := errors.AsType[*ListenerError](tk.Run(ctx)); !ok || !errors.Is(le, context.Canceled) {
		t.Errorf("error %v", le)
	}
}

// TestAWaitInAnotherTaskIsNoneInThisOne: the answer arrives within the grace period of the end.
func TestAWaitInAnotherTaskIsNoneInThisOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := jobOf(t, 1, nil)[0], jobOf(t, 1, nil)[0]
		var got atomic.Int32
		evA.On(one, func(ctx context.Context, _ int) error {
			v, err := evB.WaitFor(ctx, two)
			got.Store(int32(v))
			return err
		})
		must(t, evA.Emit(t.Context(), one, 1))
		synctest.Wait()
		time.AfterFunc(500*time.Millisecond, func() { must(t, evB.Emit(t.Context(), two, 7)) })
		must(t, one.Close(t.Context()))
		if got.Load() != 7 {
			t.Errorf("the answer was %d", got.Load())
		}
	})
}

// TestAWaitHandsOffItsRunner makes another runner receive an event again.
func TestAWaitHandsOffItsRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		evA.On(tk, func(ctx context.Context, v int) error {
			if v == 0 {
				return nil
			}
			must(t, evB.Emit(ctx, tk, v))
			_, err := evLast.WaitFor(ctx, tk)
			return err
		})
		evB.On(tk, func(ctx context.Context, v int) error { return evLast.Emit(ctx, tk, v) })
		evText.On(tk, func(ctx context.Context, _ string) error { _, err := evB.WaitFor(ctx, tk); return err })
		must(t, evA.Emit(t.Context(), tk, 0))
		must(t, evText.Emit(t.Context(), tk, "another runner takes over"))
		synctest.Wait()
		begin := time.Now()
		w := evLast.Expect(tk)
		must(t, evA.Emit(t.Context(), tk, 1))
		_, err := w.Wait(t.Context())
		if took := time.Since(begin); err != nil || took != 0 {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestASlowListenerAloneIsNotHandedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		evA.On(tk, func(context.Context, int) error { time.Sleep(time.Second); return nil })
		must(t, evA.Emit(t.Context(), tk, 1))
		time.Sleep(500 * time.Millisecond)
		tk.en.d.mu.Lock()
		defer tk.en.d.mu.Unlock()
		if n := len(tk.en.d.slow); n != 0 {
			t.Errorf("%d slow runners", n)
		}
	})
}

// ledger is a credit that records the returned messages.
type ledger struct {
	returned, bytes, calls int
	recycled               [][]byte
}

func (l *ledger) Return(messages, bytes int) { l.returned += messages; l.bytes += bytes; l.calls++ }
func (l *ledger) Recycle(b []byte)           { l.recycled = append(l.recycled, b) }

func TestUnreceivedMessagesReturnTheirRoom(t *testing.T) {
	tk := jobOf(t, 1, nil)[0]
	p, err := evA.subscription(tk.en)
	must(t, err)
	var l ledger
	garbage := bytes.Repeat([]byte{0xff}, 20) // it is not even decoded
	must(t, p.deliver(&Inbound{From: 1, Version: 1, Payload: garbage, Credit: &l}))
	if s := tk.Stats()[0]; l.returned != 1 || l.bytes != 20 || s.Dropped[DropReasonNoOne] != 1 || s.Queued != 0 {
		t.Errorf("%+v, %+v", l, s)
	}
	evA.On(tk, func(context.Context, int) error { return nil })
	err = p.deliver(&Inbound{From: 1, Version: 2, Payload: garbage, Credit: &l})
	bad, ok := errors.AsType[*PayloadError](err)
	if !ok || bad.Node != 1 || bad.Version != 2 || bad.Event != "a" || l.returned != 2 || l.bytes != 40 {
		t.Errorf("garbage: %v, %+v", err, l)
	}
	if want := `event "a", message 2 from node 1: `; !strings.HasPrefix(err.Error(), want) || !errors.Is(err, bad.Err) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestUnreceivedMessagesAreNotDelivered counts messages that were received, that wait when
// their listener goes, and that arrive afterwards.
func TestUnreceivedMessagesAreNotDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var l *Listener
		tks := jobOf(t, 1, func(_ int, tk *Task[empty]) {
			l = evA.On(tk, func(context.Context, int) error { <-gate; return nil })
		})
		p, err := evA.subscription(tks[0].en)
		must(t, err)
		arrive := func() { must(t, p.deliver(&Inbound{From: 1, Version: 1, Payload: []byte{2}})) }
		arrive()
		synctest.Wait()
		arrive()
		l.Off()
		arrive()
		arrive()
		close(gate)
		synctest.Wait()
		if s := tks[0].Stats()[0]; s.Delivered != 1 || s.Dropped[DropReasonNoOne] != 3 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestBorrowedMemoryIsUsedAgain, and no other: neither memory that a listener may keep, nor
// memory for a listener that was added after the message.
func TestBorrowedMemoryIsUsedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		opts     []ListenOption
		late     bool // a second listener, which may keep the value, is added meanwhile
		takable  bool
		recycled int
	}{
		"borrowed, taken":          {[]ListenOption{Borrowed()}, false, true, 2},
		"kept, taken":              {nil, false, true, 0},
		"borrowed, late, taken":    {[]ListenOption{Borrowed()}, true, true, 0},
		"borrowed, copied":         {[]ListenOption{Borrowed()}, false, false, 0},
		"kept, copied":             {nil, false, false, 0},
		"borrowed, late, copied":   {[]ListenOption{Borrowed()}, true, false, 0},
		"isolated is not borrowed": {[]ListenOption{Isolated()}, false, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ev := NewEvent[[]byte]("bytes")
				tk := jobOf(t, 1, nil)[0]
				gate := make(chan struct{})
				var kept [][]byte
				evA.On(tk, func(context.Context, int) error { <-gate; return nil })
				ev.On(tk, func(context.Context, []byte) error { return nil }, tc.opts...)
				must(t, evA.Emit(t.Context(), tk, 1))
				synctest.Wait()
				p, err := ev.subscription(tk.en)
				must(t, err)
				var l ledger
				arrive := func(v uint64) {
					in := Inbound{From: 1, Version: v, Payload: bytes.Repeat([]byte{byte(v)}, lendBytes), Credit: &l, Takable: tc.takable}
					must(t, p.deliver(&in))
					if in.Taken != tc.takable {
						t.Errorf("taken: %v", in.Taken)
					}
				}
				arrive(1)
				if tc.late {
					ev.On(tk, func(_ context.Context, b []byte) error { kept = append(kept, b); return nil })
				}
				close(gate)
				synctest.Wait()
				arrive(2)
				synctest.Wait()
				if len(l.recycled) != tc.recycled || l.returned != 2 {
					t.Errorf("%d payloads recycled, want %d; %d returned", len(l.recycled), tc.recycled, l.returned)
				}
				for i, b := range kept {
					if b[0] != byte(i+1) || len(kept) != 2 {
						t.Errorf("of %d messages kept, message %d begins with %d", len(kept), i+1, b[0])
					}
				}
			})
		})
	}
}

func TestLatestIsByTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var received []int
		gate := make(chan struct{})
		tks := jobOf(t, 3, func(i int, tk *Task[empty]) {
			if i == 0 {
				evLast.On(tk, func(_ context.Context, v int) error { <-gate; received = append(received, v); return nil })
			}
		})
		for v := range 10 {
			must(t, evLast.Emit(t.Context(), tks[1], 100+v))
			must(t, evLast.Emit(t.Context(), tks[2], 200+v))
			synctest.Wait()
		}
		close(gate)
		synctest.Wait()
		if !slices.Equal(received, []int{100, 109, 209}) && !slices.Equal(received, []int{100, 209, 109}) {
			t.Errorf("received %v", received)
		}
	})
}

func TestOffAndOnceLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		evA.Once(tk, func(context.Context, int) error { return nil })
		must(t, evA.Emit(t.Context(), tk, 1))
		synctest.Wait()
		if s := tk.Stats()[0]; s.Listeners != 0 {
			t.Errorf("%d listeners after a Once that has fired", s.Listeners)
		}
		w := evA.Expect(tk)
		tk.Off("*")
		must(t, evA.Emit(t.Context(), tk, 7))
		if v, err := w.Wait(t.Context()); v != 7 || err != nil {
			t.Errorf("a wait after Off of all listeners: %d, %v", v, err)
		}
	})
}

func TestAWaitOutsideTheRunEndsWithTheTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		time.AfterFunc(time.Second, func() { must(t, tk.Close(t.Context())) })
		if _, err := evA.WaitFor(t.Context(), tk); !errors.Is(err, ErrFinished) {
			t.Errorf("error %v", err)
		}
	})
}

func TestE13AnEmitToSomeIsNotReported(t *testing.T) {
	var log bytes.Buffer
	tk := jobOf(t, 1, nil)[0]
	tk.en.log = slog.New(slog.NewTextHandler(&log, nil))
	for _, o := range []EmitOption{OnlyLocal(), OnlyRemote(), To("node.0")} {
		must(t, evA.Emit(t.Context(), tk, 1, o))
	}
	must(t, evLast.Emit(t.Context(), tk, 1)) // for nodes that join later
	if log.Len() > 0 {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestADeepErrorNamesItsMiddleware(t *testing.T) {
	pass := func(ctx context.Context, _ *empty, next Next) error { return next(ctx) }
	tk := New[empty](Alone())
	tk.Use(pass, pass, pass, Step(failingStep), pass)
	if err := tk.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "step 1: task.failingStep: ") {
		t.Errorf("error %v", err)
	}
	inner := &PanicError{Name: "inner", Value: "ouch"}
	tk = New[empty](Alone())
	tk.Use(pass, Step(func(context.Context, *empty) error { panic(inner) }))
	if pe, ok := errors.AsType[*PanicError](tk.Run(t.Context())); !ok || pe != inner {
		t.Errorf("error %v", fmt.Sprint(pe))
	}
}
