package task

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	evA    = NewEvent[int]("a")
	evB    = NewEvent[int]("b")
	evText = NewEvent[string]("text")
	evLast = NewEvent[int]("last", Latest())
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestE1AnotherShapeIsRefused(t *testing.T) {
	job := newFakeJob(2)
	one := New[empty](job.node(0))
	NewEvent[int]("shape").On(one, func(context.Context, int) error { return nil })
	go func() { must(t, one.Start(t.Context())) }()
	must(t, job.await(t.Context(), func() bool { return len(job.nodes) == 1 }))
	defer func() {
		if msg := fmt.Sprint(recover()); !strings.Contains(msg, "int") || !strings.Contains(msg, "string") {
			t.Errorf("panic %q does not name both", msg)
		}
		two := New[empty](job.node(1))
		must(t, two.Start(t.Context()))
		must(t, two.Close(t.Context()))
		must(t, one.Close(t.Context()))
	}()
	NewEvent[string]("shape").On(New[empty](job.node(9)), func(context.Context, string) error { return nil })
}

func TestE2OrderPerSenderOverAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const emitters, each = 8, 200
		last := make([][]int, emitters) // by node of the listener, then by emitter
		var got atomic.Int32
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			last[i] = make([]int, emitters)
			receive := func(_ context.Context, v int) error {
				who, n := v/1000, v%1000
				if n != last[i][who]+1 {
					t.Errorf("node %d: emitter %d: %d after %d", i, who, n, last[i][who])
				}
				last[i][who] = n
				got.Add(1)
				return nil
			}
			evA.On(tk, receive)
			evB.On(tk, receive)
		})
		var wg sync.WaitGroup
		for who := range emitters {
			wg.Go(func() {
				for n := 1; n <= each; n++ {
					must(t, []*Event[int]{evA, evB}[n%2].Emit(t.Context(), tks[0], who*1000+n))
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if n := got.Load(); n != 2*emitters*each {
			t.Errorf("%d messages, want %d", n, 2*emitters*each)
		}
	})
}

func TestE2UnevenListenersKeepTheOrderOfTheirEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		var a, b []int
		evA.On(tk, func(_ context.Context, v int) error {
			time.Sleep(time.Duration(v%7) * 10 * time.Millisecond)
			a = append(a, v)
			return nil
		})
		evB.On(tk, func(_ context.Context, v int) error { b = append(b, v); return nil })
		for v := range 50 {
			must(t, evA.Emit(t.Context(), tk, v))
			must(t, evB.Emit(t.Context(), tk, v))
		}
		must(t, tk.Close(t.Context()))
		if len(a) != 50 || !slices.IsSorted(a) || len(b) != 50 || !slices.IsSorted(b) {
			t.Errorf("a %v\nb %v", a, b)
		}
	})
}

func TestE3OnceFiresOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		var calls [2]atomic.Int32
		for i := range calls {
			evA.Once(tk, func(context.Context, int) error { calls[i].Add(1); return nil })
		}
		var wg sync.WaitGroup
		for v := range 8 {
			wg.Go(func() { must(t, evA.Emit(t.Context(), tk, v)) })
		}
		wg.Wait()
		synctest.Wait()
		if calls[0].Load() != 1 || calls[1].Load() != 1 {
			t.Errorf("calls %d and %d, want 1 and 1", calls[0].Load(), calls[1].Load())
		}
	})
}

func TestE4OffLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first, second, remote, text int
		var l *Listener
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			if i == 1 {
				evA.On(tk, func(context.Context, int) error { remote++; return nil })
				return
			}
			l = evA.On(tk, func(context.Context, int) error { first++; return nil })
			evA.On(tk, func(context.Context, int) error { second++; return nil })
			evText.On(tk, func(context.Context, string) error { text++; return nil })
		})
		emit := func() {
			must(t, evA.Emit(t.Context(), tks[0], 1))
			must(t, evText.Emit(t.Context(), tks[0], "x"))
			synctest.Wait()
		}
		emit()
		l.Off()
		l.Off()
		tks[0].Off("unknown")
		emit()
		tks[0].Off("a*")
		emit()
		tks[0].Off("*")
		emit()
		if first != 1 || second != 2 || remote != 4 || text != 3 {
			t.Errorf("calls %d %d %d %d, want 1 2 4 3", first, second, remote, text)
		}
	})
}

func TestE5RemoteEmitCallsEachOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := make([]int, 3)
		var waits atomic.Int32
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			for k := range calls {
				if i == 1 {
					evA.On(tk, func(ctx context.Context, v int) error {
						calls[k] += v
						if Sender(ctx) != 0 || Version(ctx) != 1 {
							t.Errorf("sender %d, version %d", Sender(ctx), Version(ctx))
						}
						return nil
					})
				}
			}
		})
		for range 3 {
			go func() {
				v, err := evA.WaitFor(t.Context(), tks[1])
				must(t, err)
				waits.Add(int32(v))
			}()
		}
		synctest.Wait()
		must(t, evA.Emit(t.Context(), tks[0], 1))
		synctest.Wait()
		if !slices.Equal(calls, []int{1, 1, 1}) || waits.Load() != 3 {
			t.Errorf("calls %v, waits %d", calls, waits.Load())
		}
	})
}

func TestE6EmitReachesTheNamedNodes(t *testing.T) {
	for _, tc := range []struct {
		name string
		opts []EmitOption
		want string // nodes that receive what node 0 emits
	}{
		{"everyone", nil, "0 1 2"},
		{"OnlyLocal", []EmitOption{OnlyLocal()}, "0"},
		{"OnlyRemote", []EmitOption{OnlyRemote()}, "1 2"},
		{"To a node", []EmitOption{To("node.1")}, "1"},
		{"To a glob", []EmitOption{To("node.*")}, "0 1 2"},
		{"To a label", []EmitOption{To("gpu/big")}, "2"},
		{"To a role", []EmitOption{To("collector")}, "1 2"},
		{"To oneself", []EmitOption{To("learner")}, "0"},
		{"To several", []EmitOption{To("learner", "node.2")}, "0 2"},
		{"To and OnlyRemote", []EmitOption{To("learner", "node.2"), OnlyRemote()}, "2"},
		{"To nobody", []EmitOption{To("nobody", "[")}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				job := newFakeJob(3)
				nodes := []*fakeNode{job.node(0), job.node(1), job.node(2, "gpu/big")}
				var tks []*Task[empty]
				received := make([]int, 3)
				for i, n := range nodes {
					tk := New[empty](n, ByID("learner", "collector"))
					evA.On(tk, func(context.Context, int) error { received[i]++; return nil })
					tks = append(tks, tk)
				}
				each(t, tks, func(tk *Task[empty]) error { return tk.Start(t.Context()) })
				must(t, evA.Emit(t.Context(), tks[0], 1, tc.opts...))
				each(t, tks, func(tk *Task[empty]) error { return tk.Close(t.Context()) })
				var got []string
				for i, n := range received {
					for range n {
						got = append(got, fmt.Sprint(i))
					}
				}
				if s := strings.Join(got, " "); s != tc.want {
					t.Errorf("received by %q, want %q", s, tc.want)
				}
			})
		})
	}
}

func TestE7WaitForEndsWithATypedError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := jobOf(t, 3, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := evA.WaitFor(ctx, tks[0])
		we, ok := errors.AsType[*WaitError](err)
		if !ok || we.Event != "a" || !slices.Equal(we.Peers, []int{1, 2}) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		p, _ := evA.subscription(tks[0].en)
		if n := len(*p.listeners.Load()); n != 0 || p.listened.Load() {
			t.Errorf("%d listeners are left", n)
		}
		go func() {
			time.Sleep(time.Second)
			must(t, evA.Emit(t.Context(), tks[2], 42))
		}()
		if v, err := evA.WaitFor(t.Context(), tks[0]); v != 42 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

func TestE8IsolatedListenerIsDroppedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		var bad, worse, good int
		evA.On(tk, func(context.Context, int) error { bad++; panic("ouch") }, Isolated())
		evA.On(tk, func(context.Context, int) error { worse++; return errors.New("ouch") }, Isolated())
		evA.On(tk, func(context.Context, int) error { good++; return nil })
		for v := range 10 {
			must(t, evA.Emit(t.Context(), tk, v))
		}
		synctest.Wait()
		if bad != 1 || worse != 1 || good != 10 || tk.Finished() {
			t.Errorf("calls %d %d %d, finished %v", bad, worse, good, tk.Finished())
		}
		if s := tk.Stats()[0]; s.Dropped[DropReasonIsolated] != 2 || s.Delivered != 10 || s.Emitted != 10 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestE8ReceivingGoesOnAfterAPanic(t *testing.T) {
	for _, how := range []func(){func() { panic("ouch") }, runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			tk := New[empty](Alone())
			var after, other int
			evA.On(tk, func(_ context.Context, v int) error {
				if v == 0 {
					how()
				}
				return nil
			})
			evB.On(tk, func(context.Context, int) error { after++; return nil })
			evA.On(tk, func(context.Context, int) error { other++; return nil })
			must(t, tk.Start(t.Context()))
			must(t, evA.Emit(t.Context(), tk, 0))
			must(t, evB.Emit(t.Context(), tk, 1))
			synctest.Wait()
			err := tk.Close(t.Context())
			if le, ok := errors.AsType[*ListenerError](err); !ok || le.Event != "a" || after != 1 {
				t.Errorf("after %d, error %v", after, err)
			}
		})
	}
}

func TestE10SlowListenerBlocksOnlyItsEmitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		const n = 50_000
		var received, quick atomic.Int32
		evA.On(tk, func(_ context.Context, v int) error {
			if v == 0 {
				time.Sleep(time.Second)
			}
			if int(received.Add(1)) != v+1 {
				t.Errorf("%d was received out of order", v)
			}
			return nil
		})
		evB.On(tk, func(context.Context, int) error { quick.Add(1); return nil })
		var emitted atomic.Int32
		go func() {
			for v := range n {
				must(t, evA.Emit(t.Context(), tk, v))
				emitted.Add(1)
			}
		}()
		synctest.Wait()
		if e := emitted.Load(); e != mailboxBound+0 && e != mailboxBound+1 {
			t.Errorf("%d emits have returned before the listener", e)
		}
		begin := time.Now()
		must(t, evB.Emit(t.Context(), tk, 1))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if quick.Load() != 1 {
			t.Errorf("the other event waits %v for the slow listener", time.Since(begin))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if received.Load() != n {
			t.Errorf("received %d of %d", received.Load(), n)
		}
	})
}

func TestE10BlockedEmitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, nodes := range []int{1, 2} {
			stop := make(chan struct{})
			tks := jobOf(t, nodes, func(i int, tk *Task[empty]) {
				if i == nodes-1 {
					evA.On(tk, func(context.Context, int) error { <-stop; return nil })
				}
			})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("enough"))
			var err error
			calls := 0
			for ; err == nil; calls++ {
				err = evA.Emit(ctx, tks[0], 1)
			}
			p, _ := evA.subscription(tks[0].en)
			if n := p.emitted.Load(); n != uint64(calls) {
				t.Errorf("%d nodes: %d emits are counted of %d", nodes, n, calls)
			}
			if !strings.Contains(err.Error(), "enough") || !strings.Contains(err.Error(), fmt.Sprintf("node %d", nodes-1)) {
				t.Errorf("error %v", err)
			}
			cancel()
			close(stop)
		}
	})
}

func TestE11LatestEndsOnTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			if i == 1 {
				evLast.On(tk, func(_ context.Context, v int) error {
					time.Sleep(time.Millisecond)
					got = append(got, v)
					return nil
				})
			}
		})
		for v := 1; v <= 1000; v++ {
			must(t, evLast.Emit(t.Context(), tks[0], v))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got[len(got)-1] != 1000 || !slices.IsSorted(got) {
			t.Errorf("got %v", got)
		}
		if s := tks[1].Stats()[0]; int(s.Skipped)+len(got) != 1000 {
			t.Errorf("%d skipped, %d received", s.Skipped, len(got))
		}
	})
}

func TestE11LateJoinerHasTheNewestBeforeItsFirstStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		job := newFakeJob(1)
		early := New[empty](job.node(0))
		must(t, early.Start(t.Context()))
		for v := range 10 {
			must(t, evLast.Emit(t.Context(), early, v))
		}
		late := New[empty](job.node(1))
		weights := -1
		evLast.On(late, func(_ context.Context, v int) error { time.Sleep(time.Second); weights = v; return nil })
		late.Use(Step(func(context.Context, *empty) error {
			if weights != 9 {
				t.Errorf("weights are %d in the first step", weights)
			}
			return nil
		}))
		go func() { must(t, early.Close(t.Context())) }()
		must(t, late.Run(t.Context(), MaxSteps(1)))
	})
}

func TestDropPoliciesKeepTheirBoundAndCount(t *testing.T) {
	for _, tc := range []struct {
		opt    EventOption
		reason string
		want   []int
	}{
		{DropOldest(3), DropReasonOldest, []int{0, 7, 8, 9}},
		{DropNewest(3), DropReasonNewest, []int{0, 1, 2, 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ev := NewEvent[int]("lossy", tc.opt)
			for _, nodes := range []int{1, 2} {
				var got []int
				tks := jobOf(t, nodes, func(i int, tk *Task[empty]) {
					if i == nodes-1 {
						ev.On(tk, func(_ context.Context, v int) error {
							time.Sleep(time.Second)
							got = append(got, v)
							return nil
						})
					}
				})
				for v := range 10 {
					must(t, ev.Emit(t.Context(), tks[0], v))
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if !slices.Equal(got, tc.want) {
					t.Errorf("%d nodes: received %v, want %v", nodes, got, tc.want)
				}
				if s := tks[nodes-1].Stats()[0]; s.Dropped[tc.reason] != 6 || s.Queued != 0 {
					t.Errorf("stats %+v", s)
				}
			}
		})
	}
}

func TestE14EmitAndWaitInsideAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer atomic.Int32
		var asked atomic.Bool
		tks := jobOf(t, 2, func(i int, tk *Task[empty]) {
			if i == 0 {
				evA.On(tk, func(ctx context.Context, v int) error {
					if err := evText.Emit(ctx, tk, "ask"); err != nil {
						return err
					}
					got, err := evB.WaitFor(ctx, tk)
					answer.Store(int32(v + got))
					return err
				})
				return
			}
			evText.On(tk, func(context.Context, string) error { asked.Store(true); return nil })
		})
		begin := time.Now()
		must(t, evA.Emit(t.Context(), tks[0], 2))
		synctest.Wait()
		if !asked.Load() {
			t.Error("the listener's emit has not arrived")
		}
		must(t, evB.Emit(t.Context(), tks[1], 40)) // the listener waits by now
		synctest.Wait()
		if answer.Load() != 42 || time.Since(begin) != 0 {
			t.Errorf("answer %d after %v", answer.Load(), time.Since(begin))
		}
	})
}

func TestE14ListenersThatFillTheirOwnMailboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := jobOf(t, 1, nil)[0]
		const n = 3 * mailboxBound
		var a, b int
		evA.On(tk, func(ctx context.Context, v int) error { // to itself
			a++
			if v == 0 {
				for i := range n {
					must(t, evA.Emit(ctx, tk, i+1))
				}
				for i := range n {
					must(t, evB.Emit(ctx, tk, i))
				}
			}
			return nil
		})
		evB.On(tk, func(ctx context.Context, _ int) error { // and back
			b++
			return evA.Emit(ctx, tk, 1)
		})
		must(t, evA.Emit(t.Context(), tk, 0))
		must(t, tk.Close(t.Context()))
		if a != 1+2*n || b != n {
			t.Errorf("received %d and %d, want %d and %d", a, b, 1+2*n, n)
		}
	})
}

func TestT10UseBeforeStartAndAfterClose(t *testing.T) {
	tk := New[empty](Alone())
	check := func(want error) {
		t.Helper()
		if err := evA.Emit(t.Context(), tk, 1); !errors.Is(err, want) || !strings.Contains(err.Error(), `emit "a"`) {
			t.Errorf("Emit: %v", err)
		}
		if _, err := evA.WaitFor(t.Context(), tk); !errors.Is(err, want) || !strings.Contains(err.Error(), `wait for "a"`) {
			t.Errorf("WaitFor: %v", err)
		}
	}
	check(ErrNotStarted)
	must(t, tk.Run(t.Context()))
	check(ErrClosed)
	if err := tk.Run(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("second Run: %v", err)
	}
	if err := tk.Start(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Start: %v", err)
	}
	must(t, tk.Close(t.Context()))
}

func TestPayloadOfAnyTypeAlone(t *testing.T) {
	ev := NewEvent[chan int]("channels")
	tk := New[empty](Alone())
	ev.On(tk, func(_ context.Context, ch chan int) error { ch <- 7; return nil })
	must(t, tk.Start(t.Context()))
	ch := make(chan int, 1)
	must(t, ev.Emit(t.Context(), tk, ch))
	must(t, tk.Close(t.Context()))
	if <-ch != 7 {
		t.Error("the channel was not received")
	}
	defer func() {
		if msg := fmt.Sprint(recover()); !strings.Contains(msg, "cannot travel") {
			t.Errorf("panic %q", msg)
		}
	}()
	ev.On(New[empty](newFakeJob(1).node(0)), func(context.Context, chan int) error { return nil })
}
