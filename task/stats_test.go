package task

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// TestVersionsRiseForConcurrentEmits lets emitters race for the mailbox of a listener
// that checks the numbers.
func TestVersionsRiseForConcurrentEmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const emitters, each = 8, 2000
		for _, ev := range []*Event[int]{
			NewEvent[int]("reliable"), NewEvent[int]("dropping", DropOldest(64)),
			NewEvent[int]("latest", Latest()),
		} {
			var last uint64
			tk := New[empty](Alone())
			ev.On(tk, func(ctx context.Context, _ int) error {
				if v := Version(ctx); v <= last {
					t.Errorf("%s: version %d after %d", ev.Name(), v, last)
				}
				last = Version(ctx)
				return nil
			})
			must(t, tk.Start(t.Context()))
			var wg sync.WaitGroup
			for range emitters {
				wg.Go(func() {
					for i := range each {
						must(t, ev.Emit(t.Context(), tk, i))
					}
				})
			}
			wg.Wait()
			must(t, tk.Close(t.Context()))
			if s := tk.Stats()[0]; last != emitters*each && s.Dropped[DropReasonOldest] == 0 || s.Emitted != emitters*each {
				t.Errorf("%s: the last version is %d; %+v", ev.Name(), last, s)
			}
		}
	})
}

// TestVersionsRiseForBlockedEmits lets emitters wait for room, and continue in any order.
func TestVersionsRiseForBlockedEmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const emitters = 64
		var last uint64
		gate := make(chan struct{})
		tk := jobOf(t, 1, func(_ int, tk *Task[empty]) {
			evA.On(tk, func(ctx context.Context, _ int) error {
				<-gate
				if v := Version(ctx); v != last+1 {
					t.Errorf("version %d after %d", v, last)
				}
				last = Version(ctx)
				return nil
			})
		})[0]
		for v := range mailboxBound {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		for v := range emitters {
			go func() { must(t, evA.Emit(t.Context(), tk, v)) }()
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if s := tk.Stats()[0]; last != mailboxBound+emitters || s.Emitted != last || s.Delivered != last {
			t.Errorf("the last version is %d; %+v", last, s)
		}
	})
}

// TestE13NothingIsReportedAfterAListenerThatHasFired: the listeners were there.
func TestE13NothingIsReportedAfterAListenerThatHasFired(t *testing.T) {
	receive := func(context.Context, int) error { return nil }
	for name, tc := range map[string]struct {
		nodes   int
		listen  func(tks []*Task[empty]) // before the first emit of node 0
		reports int
	}{
		"local Once":   {1, func(tks []*Task[empty]) { evA.Once(tks[0], receive) }, 0},
		"remote Once":  {2, func(tks []*Task[empty]) { evA.Once(tks[1], receive) }, 0},
		"local Expect": {2, func(tks []*Task[empty]) { evA.Expect(tks[0]) }, 0},
		"Once fired by another node": {3, func(tks []*Task[empty]) {
			evA.Once(tks[1], receive)
			_ = evA.Emit(context.Background(), tks[2], 1)
			synctest.Wait()
		}, 0},
		"no listener": {3, func([]*Task[empty]) {}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				tks := jobOf(t, tc.nodes, nil)
				tks[0].en.log = slog.New(slog.NewTextHandler(&log, nil))
				_, err := evA.subscription(tks[0].en)
				must(t, err)
				tc.listen(tks)
				for v := range 3 {
					must(t, evA.Emit(t.Context(), tks[0], v))
					synctest.Wait()
				}
				if n := strings.Count(log.String(), "event has no listener"); n != tc.reports {
					t.Errorf("%d reports:\n%s", n, log.String())
				}
			})
		})
	}
}

// TestStatsHaveTheMessagesThatTheBusDropped: the sender counts the messages that it drops.
func TestStatsHaveTheMessagesThatTheBusDropped(t *testing.T) {
	node := newFakeJob(1).node(0)
	dropped := []Unsent{
		{Event: "b", Peer: 1, Dropped: map[string]uint64{DropReasonOldest: 3}},
		{Event: "a", Peer: 2, Dropped: map[string]uint64{DropReasonNewest: 1}},
		{Event: "b", Peer: 2, Skipped: 4},
		{Event: "other task", Peer: 2, Skipped: 4},
	}
	node.unsent = dropped
	tk := New[empty](node)
	must(t, tk.Start(t.Context()))
	for _, ev := range []*Event[int]{evA, evB, evLast} {
		must(t, ev.Emit(t.Context(), tk, 1))
	}
	must(t, tk.Close(t.Context()))
	s := tk.Stats()
	if len(s) != 3 || len(s[0].Unsent) != 1 || s[0].Unsent[0].Dropped[DropReasonNewest] != 1 ||
		len(s[1].Unsent) != 2 || s[1].Unsent[0].Peer != 1 || s[1].Unsent[1].Skipped != 4 || s[2].Unsent != nil {
		t.Errorf("%+v", s)
	}
}
