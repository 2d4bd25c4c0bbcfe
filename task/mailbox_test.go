package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// gated lets a task receive an event only once the gate is closed, and returns its subscription.
func gated[T any](t *testing.T, tk *Task[empty], ev *Event[T], gate <-chan struct{}) *subscription[T] {
	t.Helper()
	ev.On(tk, func(context.Context, T) error { <-gate; return nil })
	p, err := ev.subscription(tk.en)
	must(t, err)
	return p
}

func TestTheTicketQueueKeepsItsOrder(t *testing.T) {
	var q deque
	var want []*mailbox // one for each message
	boxes := []*mailbox{{}, {}, {}}
	take := func() {
		front := q.front()
		if front.box != want[0] {
			t.Fatal("the wrong mailbox is in front")
		}
		want = want[1:]
		if front.n--; front.n == 0 {
			q.pop()
		}
	}
	for i := range 200 {
		for _, b := range []*mailbox{boxes[i%3], boxes[i%3], boxes[(i/2)%3]} {
			q.push(b)
			want = append(want, b)
		}
		take()
		if i%5 == 0 {
			q.unpop(ticket{box: boxes[1], n: 2})
			want = append([]*mailbox{boxes[1], boxes[1]}, want...)
		}
	}
	for len(want) > 0 {
		take()
	}
	if !q.empty() {
		t.Error("tickets are left")
	}
	for range 1000 {
		q.push(boxes[0])
	}
	if q.n != 1 || q.front().n != 1000 {
		t.Errorf("%d tickets for the messages of one mailbox", q.n)
	}
}

func TestCreditOfOneSenderIsReturnedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		tk := jobOf(t, 1, nil)[0]
		gated(t, tk, evText, gate)
		p := gated(t, tk, evA, gate)
		must(t, evText.Emit(t.Context(), tk, "hold"))
		synctest.Wait()
		var one, two ledger
		for v := range uint64(10) {
			must(t, p.deliver(&Inbound{From: 1, Version: v + 1, Payload: []byte{2, 0, 0}, Credit: &one}))
			must(t, p.deliver(&Inbound{From: 2, Version: v + 1, Payload: []byte{2}, Credit: &two}))
		}
		close(gate)
		synctest.Wait()
		if want := (ledger{returned: 10, bytes: 30, calls: 1}); !one.equal(want) {
			t.Errorf("%+v, want %+v", one, want)
		}
		if want := (ledger{returned: 10, bytes: 10, calls: 1}); !two.equal(want) {
			t.Errorf("%+v, want %+v", two, want)
		}
	})
}

func (l ledger) equal(m ledger) bool {
	return l.returned == m.returned && l.bytes == m.bytes && l.calls == m.calls
}

// TestDroppedMessagesReturnTheirRoom fills mailboxes of each policy from another node.
func TestDroppedMessagesReturnTheirRoom(t *testing.T) {
	for _, tc := range []struct {
		ev               *Event[int]
		returned, queued int // while the first message is received
	}{
		{NewEvent[int]("latest", Latest()), 8, 2},
		{NewEvent[int]("oldest", DropOldest(3)), 6, 4},
		{NewEvent[int]("newest", DropNewest(3)), 6, 4},
		{NewEvent[int]("reliable", Reliable()), 0, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			tk := jobOf(t, 1, nil)[0]
			p := gated(t, tk, tc.ev, gate)
			var l ledger
			for v := range uint64(10) {
				must(t, p.deliver(&Inbound{From: 1, Version: v + 1, Payload: []byte{2, 0}, Credit: &l}))
				synctest.Wait()
			}
			if s := tk.Stats()[0]; l.returned != tc.returned || l.bytes != 2*tc.returned || s.Queued != tc.queued {
				t.Errorf("%s: %+v, %+v", tc.ev.Name(), l, s)
			}
			close(gate)
			synctest.Wait()
			if s := tk.Stats()[0]; l.returned != 10 || l.bytes != 20 || s.Queued != 0 {
				t.Errorf("%s at the end: %+v, %+v", tc.ev.Name(), l, s)
			}
		})
	}
}

// TestSkippedCountsReplacedValues, but not what was emitted before this node knew
// the sender, nor what this node has emitted to others only.
func TestSkippedCountsReplacedValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		close(gate)
		p := gated(t, tk, evLast, gate)
		for _, step := range []struct{ version, skipped uint64 }{{7, 0}, {8, 0}, {10, 1}, {11, 1}, {15, 4}} {
			must(t, p.deliver(&Inbound{From: 1, Version: step.version, Payload: []byte{2}, Credit: new(ledger)}))
			synctest.Wait()
			if s := tk.Stats()[0]; s.Skipped != step.skipped {
				t.Errorf("version %d: %d skipped, want %d", step.version, s.Skipped, step.skipped)
			}
		}
		for _, opts := range [][]EmitOption{nil, {OnlyRemote()}, {OnlyRemote()}, nil} {
			must(t, evLast.Emit(t.Context(), tk, 1, opts...))
			synctest.Wait()
		}
		if s := tk.Stats()[0]; s.Skipped != 4 || s.Emitted != 4 {
			t.Errorf("%+v", s)
		}
	})
}

// TestAMailboxThatDropsStaysSmall, for any number of emits while its listener is blocked.
func TestAMailboxThatDropsStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := NewEvent[int]("lossy", DropOldest(3))
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		p := gated(t, tk, ev, gate)
		for v := range 5000 {
			must(t, ev.Emit(t.Context(), tk, v))
		}
		synctest.Wait()
		if n := cap(p.in); n > 16 {
			t.Errorf("room for %d messages", n)
		}
		close(gate)
	})
}

// TestConsumedValuesAreFreed: received, dropped or replaced.
func TestConsumedValuesAreFreed(t *testing.T) {
	type big [1 << 10]byte
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		values := map[string][]weak.Pointer[big]{}
		for _, ev := range []*Event[*big]{
			NewEvent[*big]("reliable"), NewEvent[*big]("latest", Latest()),
			NewEvent[*big]("oldest", DropOldest(2)), NewEvent[*big]("newest", DropNewest(2)),
		} {
			gated(t, tk, ev, gate)
			for range 7 {
				v := new(big)
				values[ev.Name()] = append(values[ev.Name()], weak.Make(v))
				must(t, ev.Emit(t.Context(), tk, v, OnlyLocal()))
				synctest.Wait()
			}
		}
		close(gate)
		time.Sleep(time.Second)
		runtime.GC()
		for name, all := range values {
			for i, v := range all {
				if v.Value() != nil {
					t.Errorf("%s: value %d is kept", name, i)
				}
			}
		}
	})
}

// TestAValueThatCannotBeEncodedIsNotSent.
func TestAValueThatCannotBeEncodedIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		number := NewEvent[float64]("number")
		received := 0
		tks := jobOf(t, 2, func(_ int, tk *Task[empty]) {
			number.On(tk, func(context.Context, float64) error { received++; return nil })
		})
		if err := number.Emit(t.Context(), tks[0], math.NaN(), OnlyRemote()); err == nil || !strings.HasPrefix(err.Error(), `emit "number": `) {
			t.Errorf("error %v", err)
		}
		synctest.Wait()
		if o := tks[1].Outcome(); received != 0 || o.Kind != Running {
			t.Errorf("%d received, %+v", received, o)
		}
	})
}

func TestStatsWithoutEventsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour) // the task is not made at the beginning of the clock
		tk := jobOf(t, 1, nil)[0]
		evA.On(tk, func(context.Context, int) error { time.Sleep(2 * time.Second); return nil })
		evB.On(tk, func(context.Context, int) error { return nil })
		for range 3 {
			must(t, evA.Emit(t.Context(), tk, 1))
			must(t, evB.Emit(t.Context(), tk, 1))
			must(t, evText.Emit(t.Context(), tk, "", OnlyRemote()))
		}
		time.Sleep(7 * time.Second)
		s := tk.Stats()
		if len(s) != 3 || len(s[0].Dropped) != 0 || s[0].Busy != 6*time.Second || s[0].Listeners != 1 || s[1].Busy != 0 {
			t.Errorf("%+v", s)
		}
		if s[2].Emitted != 3 || s[2].Delivered != 0 || s[2].Listeners != 0 {
			t.Errorf("%+v", s[2])
		}
	})
}

// TestABlockedEmitGoesOnWhenHalfOfTheMailboxIsReceived, and not after each message.
func TestABlockedEmitGoesOnWhenHalfOfTheMailboxIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		gate := make(chan struct{})
		defer close(gate)
		gated(t, tk, evA, gate)
		for v := range mailboxBound {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		emitted := false
		go func() { must(t, evA.Emit(t.Context(), tk, 1)); emitted = true }()
		synctest.Wait() // the emit is blocked before a message is taken
		for received := range mailboxBound {
			gate <- struct{}{}
			if received%100 != 0 && received <= mailboxBound/2-2 {
				continue
			}
			synctest.Wait()
			if emitted && received < mailboxBound/2-1 {
				t.Fatalf("the emit has continued after %d messages", received+1)
			}
			if emitted {
				return
			}
			if received > mailboxBound/2+claimMax {
				t.Fatalf("the emit is blocked after %d messages", received)
			}
		}
	})
}

// TestManyEvents on one task are all received, by their names.
func TestManyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		var events []*Event[int]
		var received [12]int
		for i := range received {
			ev := NewEvent[int](fmt.Sprintf("many.%02d", i))
			ev.On(tk, func(_ context.Context, v int) error { received[i] += v; return nil })
			events = append(events, ev)
		}
		for i, ev := range events {
			must(t, ev.Emit(t.Context(), tk, i+1))
		}
		synctest.Wait()
		if want := [12]int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; received != want {
			t.Errorf("received %v", received)
		}
		if n := len(tk.en.d.current.touched); n != 0 {
			t.Errorf("%d mailboxes wait to be settled", n)
		}
		tk.Off("many.0*")
		for _, s := range tk.Stats() {
			if want := strings.HasPrefix(s.Event, "many.1"); (s.Listeners == 1) != want || s.Emitted != 1 {
				t.Errorf("%+v", s)
			}
		}
	})
}

func TestConcurrentFirstUseOfAnEvent(t *testing.T) {
	for range 20 {
		tk := New[empty](Alone())
		must(t, tk.Start(t.Context()))
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-begin
				if err := evA.Emit(t.Context(), tk, 1, OnlyLocal()); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		must(t, tk.Close(t.Context()))
		if s := tk.Stats(); len(s) != 1 || s[0].Emitted != 4 {
			t.Errorf("%+v", s)
		}
	}
}

// TestAMessageBeforeTheStartIsReceivedAfterIt, although its bus delivered it early.
func TestAMessageBeforeTheStartIsReceivedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](newFakeJob(1).node(0))
		gate := make(chan struct{})
		close(gate)
		p := gated(t, tk, evA, gate)
		must(t, p.deliver(&Inbound{From: 1, Version: 1, Payload: []byte{2}, Header: []byte("of a tracer that is not here")}))
		must(t, tk.Start(t.Context()))
		synctest.Wait()
		if s := tk.Stats()[0]; s.Delivered != 1 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		must(t, tk.Close(t.Context()))
	})
}

func TestListenersAreNamedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tk := jobOf(t, 1, nil)[0]
		tk.en.log = slog.New(slog.NewTextHandler(&log, nil))
		evA.On(tk, badListener, Isolated())
		must(t, evA.Emit(t.Context(), tk, 1))
		synctest.Wait()
		if s := log.String(); strings.Count(s, "isolated listener dropped") != 1 || !strings.Contains(s, "event=a listener=task.badListener") {
			t.Errorf("log:\n%s", s)
		}
		var names []string
		err := errors.Join(
			evA.Emit(t.Context(), tk, 1),
			func() error { _, err := NewEvent[int]("a").WaitFor(t.Context(), tk); return err }(),
			NewEvent[int]("a").Emit(t.Context(), tk, 1))
		for line := range strings.Lines(err.Error()) {
			names = append(names, strings.TrimSpace(line))
		}
		want := []string{`wait for: event "a" is declared twice on this task`, `event "a" is declared twice on this task`}
		if !slices.Equal(names, want) {
			t.Errorf("%q", names)
		}
	})
}

func badListener(context.Context, int) error { return errors.New("ouch") }

func TestOutsideOfListenersThereIsNoSender(t *testing.T) {
	if s, v := Sender(t.Context()), Version(t.Context()); s != -1 || v != 0 {
		t.Errorf("sender %d, version %d", s, v)
	}
}

// TestOffHoldsForTheMessageThatIsBeingDelivered.
func TestOffHoldsForTheMessageThatIsBeingDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		var second *Listener
		calls := 0
		evA.On(tk, func(context.Context, int) error { second.Off(); return nil })
		second = evA.On(tk, func(context.Context, int) error { calls++; return nil })
		must(t, evA.Emit(t.Context(), tk, 1))
		synctest.Wait()
		if calls != 0 {
			t.Errorf("%d calls after Off", calls)
		}
	})
}

// TestRolesOfANodeThatHasAll are found by To, if an option names them.
func TestRolesOfANodeThatHasAll(t *testing.T) {
	tk := New[empty](Alone(), ByID("learner", "collector"), ByLabel("gpu", "evaluator"))
	received := 0
	evA.On(tk, func(context.Context, int) error { received++; return nil })
	must(t, tk.Start(t.Context()))
	for _, role := range []string{"learner", "collector", "evaluator", "other"} {
		must(t, evA.Emit(t.Context(), tk, 1, To(role)))
	}
	must(t, tk.Close(t.Context()))
	if received != 3 {
		t.Errorf("%d of 3 roles are found", received)
	}
}
