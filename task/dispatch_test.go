package task

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Hand-offs at any moment lose no message, keep the order of each event, and never
// let two listeners of one event run at once.
func TestHandOffsAtAnyMomentKeepTheOrder(t *testing.T) {
	const emitters, each = 4, 5000
	lossy := NewEvent[int]("lossy", DropOldest(64))
	tk := New[empty](Alone())
	var received atomic.Int64
	for _, ev := range []*Event[int]{evA, evB, lossy} {
		var inside atomic.Int32
		var last [emitters]int
		ev.On(tk, func(_ context.Context, v int) error {
			if inside.Add(1) != 1 {
				t.Error("two listeners of one event at once")
			}
			who, n := v/each, v%each+1
			if n <= last[who] || ev != lossy && n != last[who]+1 {
				t.Errorf("%s: emitter %d: %d after %d", ev.Name(), who, n, last[who])
			}
			last[who] = n
			if v%64 == 0 {
				runtime.Gosched()
			}
			received.Add(1)
			inside.Add(-1)
			return nil
		})
	}
	must(t, tk.Start(t.Context()))
	var emitting, handing sync.WaitGroup
	for who := range emitters {
		emitting.Go(func() {
			for n := range each {
				for _, ev := range []*Event[int]{evA, lossy, evB} {
					must(t, ev.Emit(t.Context(), tk, who*each+n))
				}
			}
		})
	}
	done := make(chan struct{})
	handing.Go(func() {
		d := tk.en.d
		for {
			select {
			case <-done:
				return
			default:
			}
			d.mu.Lock()
			d.handOff(d.current)
			d.mu.Unlock()
			runtime.Gosched()
		}
	})
	emitting.Wait()
	close(done)
	handing.Wait()
	must(t, tk.Close(t.Context()))
	var dropped uint64
	for _, s := range tk.Stats() {
		dropped += s.Dropped[DropReasonOldest]
		if s.Queued != 0 || s.Delivered+s.Dropped[DropReasonOldest] != emitters*each {
			t.Errorf("%+v", s)
		}
	}
	if got := received.Load() + int64(dropped); got != 3*emitters*each {
		t.Errorf("%d received or dropped, want %d", got, 3*emitters*each)
	}
}
