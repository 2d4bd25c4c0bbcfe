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
)

// TestListenersThatAreQuickEnoughKeepTheOrderOverEvents: each takes less than the time
// after which a runner without progress is handed off, all together take more.
func TestListenersThatAreQuickEnoughKeepTheOrderOverEvents(t *testing.T) {
	for name, opt := range map[string]EventOption{"in one claim": Reliable(), "a claim for each": DropOldest(100)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slower, other := NewEvent[int]("slower", opt), NewEvent[int]("other", opt)
				tk := jobOf(t, 1, nil)[0]
				var received, want []int
				slower.On(tk, func(_ context.Context, v int) error {
					time.Sleep(handOffAfter * 8 / 10)
					received = append(received, v)
					return nil
				})
				other.On(tk, func(_ context.Context, v int) error { received = append(received, -v); return nil })
				for v := range 30 {
					must(t, slower.Emit(t.Context(), tk, v))
					must(t, other.Emit(t.Context(), tk, v))
					want = append(want, v, -v)
				}
				must(t, tk.Close(t.Context()))
				if !slices.Equal(received, want) {
					t.Errorf("received %v", received)
				}
			})
		})
	}
}

// TestASlowListenerDoesNotHoldOthersThatAreEmittedAllTheTime, in two rounds.
func TestASlowListenerDoesNotHoldOthersThatAreEmittedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		received := 0
		evA.On(tk, func(context.Context, int) error { time.Sleep(time.Second); return nil })
		evB.On(tk, func(context.Context, int) error { received++; return nil })
		for round := range 3 {
			must(t, evA.Emit(t.Context(), tk, 1))
			for range 20 {
				time.Sleep(handOffAfter / 2)
				must(t, evB.Emit(t.Context(), tk, 1))
			}
			synctest.Wait()
			if want := 20 * (round + 1); received != want {
				t.Errorf("round %d: %d received, want %d", round, received, want)
			}
			time.Sleep(time.Minute) // without messages
		}
	})
}

// TestASlowListenerThatIsTheLastIsNotHandedOff, although the timer runs.
func TestASlowListenerThatIsTheLastIsNotHandedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		gated(t, tk, evB, gate)
		evA.On(tk, func(context.Context, int) error { time.Sleep(time.Second); return nil })
		must(t, evB.Emit(t.Context(), tk, 1))
		synctest.Wait()
		must(t, evA.Emit(t.Context(), tk, 1))
		close(gate)
		time.Sleep(500 * time.Millisecond)
		tk.en.d.mu.Lock()
		defer tk.en.d.mu.Unlock()
		if n := len(tk.en.d.slow); n != 0 {
			t.Errorf("%d slow runners", n)
		}
	})
}

// TestAStoppedDispatcherStartsNoTimer, even if one of its timers has just fired.
func TestAStoppedDispatcherStartsNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		evA.On(tk, func(ctx context.Context, v int) error {
			if v == 0 {
				return errors.New("boom")
			}
			<-ctx.Done()
			return nil
		})
		evB.On(tk, func(context.Context, int) error { return nil })
		must(t, tk.Start(t.Context()))
		for v := range 3 {
			must(t, evA.Emit(t.Context(), tk, v))
			must(t, evB.Emit(t.Context(), tk, v))
		}
		if err := tk.Close(t.Context()); err == nil {
			t.Error("no error")
		}
		d := tk.en.d
		running := func() bool { return d.timer.Stop() || d.ending.timer.Stop() }
		if running() {
			t.Error("a timer continues")
		}
		d.check()
		d.checkEnd()
		if running() {
			t.Error("a timer was started")
		}
	})
}

func TestTheMailboxOfTheMessageThatARunnerReceives(t *testing.T) {
	a, b := new(mailbox), new(mailbox)
	r := &runner{claim: []ticket{{a, 2}, {b, 1}}}
	for pos, want := range []*mailbox{a, a, b, nil} {
		r.pos.Store(int64(pos))
		if got := r.claimed(); got != want {
			t.Errorf("after %d messages: %p, want %p", pos, got, want)
		}
	}
	for within, want := range map[time.Duration]time.Duration{0: time.Millisecond, 4 * time.Second: time.Second} {
		if got := (&ending{within: within}).every(); got != want {
			t.Errorf("a message may take %v: a check every %v, want %v", within, got, want)
		}
	}
}

// TestSlowMessagesOneAfterTheOtherAreNoBlock: each takes less than the grace.
func TestSlowMessagesOneAfterTheOtherAreNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		received := 0
		evA.On(tk, func(ctx context.Context, _ int) error {
			time.Sleep(600 * time.Millisecond)
			if received++; ctx.Err() != nil {
				t.Errorf("message %d: the context has ended", received)
			}
			return nil
		})
		must(t, tk.Start(t.Context()))
		for v := range 10 {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		must(t, tk.Close(t.Context()))
		if received != 10 {
			t.Errorf("%d of 10 were received", received)
		}
	})
}

// TestABlockedListenerHasItsGrace, at most half of the drain timeout.
func TestABlockedListenerHasItsGrace(t *testing.T) {
	for _, tc := range []struct{ grace, drain, want time.Duration }{
		{time.Second, time.Minute, time.Second},
		{4 * time.Second, time.Minute, 4 * time.Second},
		{time.Hour, 20 * time.Second, 10 * time.Second},
		{0, time.Minute, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Hour)
			tk := New[empty](Alone(), ListenerGrace(tc.grace), DrainTimeout(tc.drain))
			evA.On(tk, func(ctx context.Context, _ int) error { return waitForEver(ctx) })
			must(t, tk.Start(t.Context()))
			must(t, evA.Emit(t.Context(), tk, 1))
			begin := time.Now()
			must(t, tk.Close(t.Context()))
			took := time.Since(begin)
			if look := max(tc.want/4, time.Millisecond); took < tc.want || took > tc.want+look {
				t.Errorf("a grace of %v within a drain of %v: its context ended after %v", tc.grace, tc.drain, took)
			}
		})
	}
}

// TestAWaitThatHasEndedCountsNoMore: the listener continues with other work.
func TestAWaitThatHasEndedCountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		ended := true
		evA.On(tk, func(ctx context.Context, _ int) error {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if _, err := evB.WaitFor(short, tk); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the wait ended with %v", err)
			}
			time.Sleep(900 * time.Millisecond)
			ended = ctx.Err() != nil
			return nil
		})
		must(t, evA.Emit(t.Context(), tk, 1))
		time.Sleep(1200 * time.Millisecond)
		must(t, tk.Close(t.Context()))
		if ended {
			t.Error("the context has ended before its time")
		}
	})
}

// TestAnEmitThatHadRoomAgainCountsNoMore: the listener then waits for an event outside of this
// package.
func TestAnEmitThatHadRoomAgainCountsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		evB.On(tk, func(_ context.Context, v int) error {
			if v == 0 {
				time.Sleep(time.Second)
			}
			return nil
		})
		evA.On(tk, func(ctx context.Context, _ int) error {
			for v := range mailboxBound + 1 {
				must(t, evB.Emit(ctx, tk, v))
			}
			return waitForEver(ctx)
		})
		must(t, evA.Emit(t.Context(), tk, 1))
		time.Sleep(2 * time.Second)
		begin := time.Now()
		must(t, tk.Close(t.Context()))
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the end took %v", took)
		}
	})
}

// TestTheEndNamesAllMessagesThatAreNotReceived, in the order of the events' names.
func TestTheEndNamesAllMessagesThatAreNotReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone(), DrainTimeout(time.Second))
		stuck := make(chan struct{})
		var want []string
		var events []*Event[int]
		for i := range 6 {
			ev := NewEvent[int](fmt.Sprint("stuck.", i))
			ev.On(tk, func(context.Context, int) error { <-stuck; return nil }, Named("deaf"))
			want = append(want, fmt.Sprintf("event %q: 1 not delivered to the end, in listener deaf", ev.Name()))
			events = append(events, ev)
		}
		must(t, tk.Start(t.Context()))
		for _, ev := range events {
			must(t, ev.Emit(t.Context(), tk, 1))
		}
		err := tk.Close(t.Context())
		if err == nil || strings.Count(err.Error(), strings.Join(want, "; ")) != 2 {
			t.Errorf("error %v", err)
		}
		close(stuck)
	})
}

// TestALateReportIsNotMadeOnceItIsStopped, even if its timer has just fired.
func TestALateReportIsNotMadeOnceItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		l := newLate(func(time.Duration) { said++ })
		time.Sleep(lateAfter + time.Second)
		synctest.Wait()
		l.stop()
		if l.timer.Stop() {
			t.Error("the timer continues")
		}
		l.fire()
		if said != 1 || l.timer.Stop() {
			t.Errorf("%d reports", said)
		}
	})
}

// TestABlockedEmitIsReported, and a lone node does not report a listener without messages.
func TestABlockedEmitIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tk := New[empty](Alone())
		tk.en.log = slog.New(slog.NewTextHandler(&log, nil))
		gate := make(chan struct{})
		gated(t, tk, evA, gate)
		gated(t, tk, evB, gate)
		must(t, tk.Start(t.Context()))
		time.AfterFunc(lateAfter+time.Second, func() { close(gate) })
		for v := range mailboxBound + 2 {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		must(t, tk.Close(t.Context()))
		synctest.Wait()
		if s := log.String(); strings.Count(s, "emit still blocked by a listener of this node") != 1 || strings.Contains(s, "never received") {
			t.Errorf("log:\n%s", s)
		}
	})
}
