package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// answering makes node 1 answer each evA with an evB, at once.
func answering(t *testing.T, nodes int) []*Task[empty] {
	return jobOf(t, nodes, func(i int, tk *Task[empty]) {
		if i > 0 {
			evA.On(tk, func(ctx context.Context, v int) error { return evB.Emit(ctx, tk, v*10+i, To("node.0")) })
		}
	})
}

func TestExpectReceivesTheAnswerToAnEmitAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := answering(t, 2)
		for v := range 100 {
			w := evB.Expect(tks[0])
			must(t, evA.Emit(t.Context(), tks[0], v))
			synctest.Wait() // the answer comes before the wait
			got, err := w.Wait(t.Context())
			again, err2 := w.Wait(t.Context())
			if got != v*10+1 || again != got || err != nil || err2 != nil {
				t.Fatalf("round %d: %d, %v; again %d, %v", v, got, err, again, err2)
			}
		}
		if p, _ := evB.subscription(tks[0].en); len(*p.listeners.Load()) != 0 || p.listened.Load() {
			t.Error("listeners are left")
		}
	})
}

func TestExpectSkipsOtherMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := answering(t, 4)
		fromThree := func(ctx context.Context, _ int) bool { return Sender(ctx) == 3 }
		w := evB.Expect(tks[0], fromThree, func(_ context.Context, v int) bool { return v > 100 })
		for _, v := range []int{7, 11, 12} {
			must(t, evA.Emit(t.Context(), tks[0], v))
		}
		if v, err := w.Wait(t.Context()); v != 113 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

func TestExpectEndsByItsContextAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := answering(t, 3)
		w := evB.Expect(tks[0])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Wait(ctx)
		we, ok := errors.AsType[*WaitError](err)
		if !ok || we.Event != "b" || len(we.Peers) != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if v, err := w.Wait(t.Context()); v != 41 || err != nil {
					t.Errorf("%d, %v", v, err)
				}
			})
		}
		synctest.Wait()
		must(t, evA.Emit(t.Context(), tks[0], 4, To("node.1")))
		wg.Wait()
	})
}

func TestExpectStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tks := answering(t, 2)
		w, had := evB.Expect(tks[0]), evB.Expect(tks[0], func(_ context.Context, v int) bool { return v == 11 })
		go func() {
			synctest.Wait()
			w.Stop()
			w.Stop()
			must(t, evA.Emit(t.Context(), tks[0], 1))
		}()
		if v, err := w.Wait(t.Context()); v != 0 || err == nil || !strings.Contains(err.Error(), "stopped") {
			t.Errorf("%d, %v", v, err)
		}
		synctest.Wait()
		had.Stop()
		if v, err := had.Wait(t.Context()); v != 11 || err != nil {
			t.Errorf("a message before Stop: %d, %v", v, err)
		}
		if _, err := w.Wait(t.Context()); err == nil {
			t.Error("a message after Stop was received")
		}
	})
}

func TestExpectBeforeStartAndAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := New[empty](Alone())
		never, w := evB.Expect(tk), evA.Expect(tk)
		if _, err := w.Wait(t.Context()); !errors.Is(err, ErrNotStarted) {
			t.Errorf("before Start: %v", err)
		}
		tk.Use(Step(func(ctx context.Context, _ *empty) error {
			_, err := never.Wait(ctx)
			if !errors.Is(err, ErrFinished) {
				t.Errorf("at the end: %v", err)
			}
			return err
		}))
		evA.On(tk, func(context.Context, int) error { tk.Finish("received"); return nil })
		go func() { synctest.Wait(); must(t, evA.Emit(t.Context(), tk, 7)) }()
		must(t, tk.Run(t.Context()))
		if v, err := w.Wait(t.Context()); v != 7 || err != nil {
			t.Errorf("a message before Close: %d, %v", v, err)
		}
		if _, err := never.Wait(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		defer func() {
			if msg := fmt.Sprint(recover()); !strings.HasPrefix(msg, `task: expect: event "a" is declared twice`) {
				t.Errorf("panic %q", msg)
			}
		}()
		NewEvent[int]("a").Expect(tk)
	})
}
