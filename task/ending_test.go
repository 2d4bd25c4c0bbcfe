package task

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// handOver is a common form of listener: it passes the value to a reader, or ends with its context.
func handOver(in chan<- int, end func(context.Context) error) func(context.Context, int) error {
	return func(ctx context.Context, v int) error {
		select {
		case in <- v:
			return nil
		case <-ctx.Done():
			return end(ctx)
		}
	}
}

// endings are the errors that such a listener may return when its context has ended.
var endings = map[string]func(context.Context) error{
	"Err":   context.Context.Err,
	"Cause": context.Cause,
	"nil":   func(context.Context) error { return nil },
}

func TestListenerThatSelectsOnItsContextEndsWell(t *testing.T) {
	for name, end := range endings {
		for _, opts := range [][]ListenOption{{Named("hand-over")}, {Named("hand-over"), Isolated()}} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log bytes.Buffer
					node := newFakeJob(1).node(0)
					node.logger = slog.New(slog.NewTextHandler(&log, nil))
					tk := New[empty](node)
					evA.On(tk, handOver(make(chan int), end), opts...)
					tk.Use(Step(func(ctx context.Context, _ *empty) error { return evA.Emit(ctx, tk, 1) }))
					begin := time.Now()
					must(t, tk.Run(t.Context(), MaxSteps(3*claimMax)))
					if took := time.Since(begin); took > 2*time.Second {
						t.Errorf("the end took %v", took)
					}
					s := log.String()
					if strings.Count(s, "event=a listener=hand-over") != 1 || strings.Contains(s, "level=ERROR") {
						t.Errorf("log:\n%s", s)
					}
					if n := tk.Stats()[0].Dropped[DropReasonIsolated]; n != 0 {
						t.Errorf("%d isolated listeners were dropped", n)
					}
				})
			})
		}
	}
}

func TestListenersOfAllNodesThatSelectOnTheirContextsEndWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, errs := runJob(t, 3, func(_ int, tk *Task[empty]) {
			evA.On(tk, handOver(make(chan int), context.Cause))
			tk.Use(Step(func(ctx context.Context, _ *empty) error { return evA.Emit(ctx, tk, 1) }))
		}, func(_ int, tk *Task[empty]) error { return tk.Run(t.Context(), MaxSteps(fakeWindow)) })
		for i, err := range errs {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
	})
}

// TestABlockedListenerDoesNotCostOthersTheirMessages has one listener that blocks at
// the end, one that is slow, one that is quick but selects on its context, and one
// that waits for an event which still arrives.
func TestABlockedListenerDoesNotCostOthersTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slowly, selects, request := NewEvent[int]("slow"), NewEvent[int]("selects"), NewEvent[int]("request")
		const n = 5
		var slow, ended int
		var quick, answer atomic.Int32
		in := make(chan int)
		tk := New[empty](Alone())
		evA.On(tk, handOver(make(chan int), context.Cause))
		slowly.On(tk, func(context.Context, int) error { time.Sleep(3 * time.Second); slow++; return nil })
		selects.On(tk, func(ctx context.Context, v int) error {
			if ctx.Err() != nil {
				ended++
			}
			return handOver(in, context.Cause)(ctx, v)
		})
		request.On(tk, func(ctx context.Context, _ int) error {
			v, err := evB.WaitFor(ctx, tk)
			answer.Store(int32(v))
			return err
		})
		go func() {
			for range n {
				time.Sleep(500 * time.Millisecond)
				quick.Add(int32(<-in))
			}
		}()
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			time.AfterFunc(10*time.Second, func() { must(t, evB.Emit(t.Context(), tk, 42)) })
			must(t, request.Emit(ctx, tk, 1))
			for range n {
				for _, ev := range []*Event[int]{evA, slowly, selects} {
					must(t, ev.Emit(ctx, tk, 1))
				}
			}
			return nil
		}))
		must(t, tk.Run(t.Context(), MaxSteps(1)))
		if slow != n || quick.Load() != n || ended != 0 || answer.Load() != 42 {
			t.Errorf("received %d slowly and %d quickly of %d, %d with an ended context; the answer was %d",
				slow, quick.Load(), n, ended, answer.Load())
		}
	})
}

// TestAWaitThatHoldsTheEndIsCutOff has a listener whose wait keeps the messages
// behind it from being delivered: it ends in half of the drain timeout.
func TestAWaitThatHoldsTheEndIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		tk := New[empty](node, DrainTimeout(20*time.Second))
		received := 0
		evA.On(tk, func(ctx context.Context, v int) error {
			received++
			_, err := evB.WaitFor(ctx, tk)
			if !errors.Is(err, ErrFinished) {
				t.Errorf("message %d: the wait ended with %v", v, err)
			}
			return err
		})
		released := make(chan struct{})
		node.onDrain = func(ctx context.Context) error { // the bus is drained when the messages have been received
			select {
			case <-released:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		evText.On(tk, func(context.Context, string) error { return nil })
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			time.AfterFunc(15*time.Second, func() { close(released) })
			must(t, evA.Emit(ctx, tk, 1))
			return evA.Emit(ctx, tk, 2)
		}))
		begin := time.Now()
		must(t, tk.Run(t.Context(), MaxSteps(1)))
		if took := time.Since(begin); received != 2 || took != 15*time.Second {
			t.Errorf("received %d of 2 in %v", received, took)
		}
	})
}

func TestAListenerThatIgnoresItsContextIsNamedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		node := newFakeJob(1).node(0)
		node.logger = slog.New(slog.NewTextHandler(&log, nil))
		tk := New[empty](node, DrainTimeout(15*time.Second))
		stuck := make(chan struct{})
		evA.On(tk, func(context.Context, int) error { <-stuck; return nil }, Named("deaf"))
		must(t, tk.Start(t.Context()))
		must(t, evA.Emit(t.Context(), tk, 1))
		err := tk.Close(t.Context())
		synctest.Wait() // for the log
		if err == nil || strings.Count(err.Error(), `event "a": 1 not delivered to the end, in listener deaf`) != 2 {
			t.Errorf("error %v", err)
		}
		if s := log.String(); !strings.Contains(s, "still waiting for listeners at the end") ||
			!strings.Contains(s, "in listener deaf") || strings.Count(s, "blocks the end") != 1 {
			t.Errorf("log:\n%s", s)
		}
		close(stuck)
	})
}

// TestProgressAtTheEndIsNoBlock has a listener that takes long for one message, but
// continuously emits.
func TestProgressAtTheEndIsNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			if i == 1 {
				evB.On(tk, func(context.Context, int) error { return nil })
				return
			}
			evA.On(tk, func(ctx context.Context, _ int) error {
				for v := range 10 {
					time.Sleep(600 * time.Millisecond)
					must(t, evB.Emit(ctx, tk, v, OnlyRemote()))
				}
				if ctx.Err() != nil {
					t.Errorf("the context of a listener that continues has ended: %v", context.Cause(ctx))
				}
				return nil
			})
		})
		drainAfter(tks[0], 10*time.Second)
		must(t, evA.Emit(t.Context(), tks[0], 1, OnlyLocal()))
		must(t, tks[0].Close(t.Context()))
	})
}

// drainAfter makes the bus of a task take that long to drain.
func drainAfter(tk *Task[empty], d time.Duration) {
	tk.en.bus.(*fakeNode).onDrain = func(context.Context) error { time.Sleep(d); return nil }
}

// TestABlockedEmitAtTheEndIsNotCutOff lets listeners wait for room for five seconds, in
// a mailbox of the same node and at another one.
func TestABlockedEmitAtTheEndIsNotCutOff(t *testing.T) {
	for _, where := range []EmitOption{OnlyLocal(), OnlyRemote()} {
		synctest.Test(t, func(t *testing.T) {
			const n = mailboxBound + 2 // more than the window too
			emitted, received := 0, 0
			tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
				if (i == 0) == (where.where == onlyLocal) {
					evB.On(tk, func(context.Context, int) error {
						if received++; received == 1 {
							time.Sleep(5 * time.Second)
						}
						return nil
					})
				}
				if i == 0 {
					evA.On(tk, func(ctx context.Context, _ int) error {
						for v := range n {
							if err := evB.Emit(ctx, tk, v, where); err != nil {
								return err
							}
							emitted++
						}
						return nil
					})
				}
			})
			drainAfter(tks[0], 10*time.Second)
			must(t, evA.Emit(t.Context(), tks[0], 1, OnlyLocal()))
			must(t, tks[0].Close(t.Context()))
			synctest.Wait()
			if emitted != n {
				t.Errorf("%d of %d emits have returned", emitted, n)
			}
			must(t, tks[1].Close(t.Context()))
			if received != n {
				t.Errorf("%d of %d were received", received, n)
			}
		})
	}
}

// TestOnlyTheBlockedEventIsCutOff claims a quick message and the one that blocks in one go.
func TestOnlyTheBlockedEventIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		evText.On(tk, func(context.Context, string) error { <-gate; return nil })
		evB.On(tk, func(context.Context, int) error { return nil })
		evA.On(tk, handOver(make(chan int), context.Cause))
		must(t, evText.Emit(t.Context(), tk, "gate"))
		synctest.Wait()
		must(t, evB.Emit(t.Context(), tk, 1))
		must(t, evA.Emit(t.Context(), tk, 1))
		close(gate)
		synctest.Wait()
		p, err := evB.subscription(tk.en)
		must(t, err)
		tk.en.d.watchEnd(time.Second, time.Minute, func(b *mailbox, _ time.Duration) {
			if b == &p.mailbox {
				t.Error("the context of the quick listener has ended")
			}
		})
		begin := time.Now()
		must(t, tk.Close(t.Context()))
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestAListenerThatHasWaitedRunsToItsEnd: its wait does not count any more, whether
// the answer arrived right before the end or during it.
func TestAListenerThatHasWaitedRunsToItsEnd(t *testing.T) {
	for _, after := range []time.Duration{0, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			tk := jobOf(t, 1, nil)[0]
			ended := true
			evA.On(tk, func(ctx context.Context, _ int) error {
				if _, err := evB.WaitFor(ctx, tk); err != nil {
					return err
				}
				time.Sleep(900 * time.Millisecond)
				ended = ctx.Err() != nil
				return nil
			})
			must(t, evA.Emit(t.Context(), tk, 1))
			synctest.Wait()
			if after == 0 {
				must(t, evB.Emit(t.Context(), tk, 1))
			} else {
				drainAfter(tk, after+time.Second)
				time.AfterFunc(after, func() { must(t, evB.Emit(t.Context(), tk, 1)) })
			}
			evText.On(tk, func(context.Context, string) error { return nil }) // the end checks again when it is received
			time.AfterFunc(after+100*time.Millisecond, func() { must(t, evText.Emit(t.Context(), tk, "")) })
			must(t, tk.Close(t.Context()))
			if ended {
				t.Errorf("after %v: the context has ended before its time", after)
			}
		})
	}
}

func TestEmitToOthersAfterTheDrainIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got error
		tks := jobOf(t, 2, func(_ int, tk *Task[empty]) {
			evB.On(tk, func(context.Context, int) error { return nil })
			evA.On(tk, func(ctx context.Context, _ int) error {
				time.Sleep(500 * time.Millisecond)
				got = evB.Emit(ctx, tk, 1, OnlyRemote())
				return got
			})
		})
		must(t, evA.Emit(t.Context(), tks[0], 1, OnlyLocal()))
		must(t, tks[0].Close(t.Context()))
		if !errors.Is(got, ErrClosed) || !strings.Contains(got.Error(), "to other nodes") {
			t.Errorf("error %v", got)
		}
	})
}

// TestAFailedTaskDoesNotReceiveRemainingMessages, and drains only briefly.
func TestAFailedTaskDoesNotReceiveRemainingMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newFakeJob(1).node(0)
		node.onDrain = func(ctx context.Context) error { <-ctx.Done(); return nil }
		tk := New[empty](node)
		received := 0
		evA.On(tk, func(context.Context, int) error { received++; time.Sleep(time.Second); return nil })
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			for v := range 100 {
				must(t, evA.Emit(ctx, tk, v))
			}
			return errors.New("boom")
		}))
		begin := time.Now()
		err := tk.Run(t.Context())
		if took := time.Since(begin); err == nil || took < failDrain || took > failDrain+2*time.Second || received > 7 {
			t.Errorf("%v after %v, %d received", err, took, received)
		}
	})
}

func TestAListenerThatFailsDuringTheDrainIsTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		boom := errors.New("boom")
		evA.On(tk, func(context.Context, int) error { time.Sleep(500 * time.Millisecond); return boom })
		tk.Use(Step(func(ctx context.Context, _ *empty) error { return evA.Emit(ctx, tk, 1) }))
		if err := tk.Run(t.Context(), MaxSteps(1)); !errors.Is(err, boom) || strings.Contains(err.Error(), "drain mailboxes") {
			t.Errorf("error %v", err)
		}
	})
}
