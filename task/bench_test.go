package task

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/ditask/ditask/internal/race"
)

type empty struct{ N int }

func emptyChain(n int) *Task[empty] {
	t := New[empty](Alone())
	for range n {
		t.Use(func(context.Context, *empty, Next) error { return nil })
	}
	t.max = math.MaxInt64
	t.build()
	return t
}

func BenchmarkStep(b *testing.B) {
	ctx := context.Background()
	b.Run("10empty", func(b *testing.B) {
		t := emptyChain(10)
		b.ReportAllocs()
		for b.Loop() {
			if err := t.step(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("10onions", func(b *testing.B) {
		t := New[empty](Alone())
		for range 10 {
			t.Use(func(ctx context.Context, _ *empty, next Next) error { return next(ctx) })
		}
		t.max = math.MaxInt64
		t.build()
		b.ReportAllocs()
		for b.Loop() {
			if err := t.step(ctx); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("baseline/10calls", func(b *testing.B) {
		ms := make([]Middleware[empty], 10)
		for i := range ms {
			ms[i] = func(context.Context, *empty, Next) error { return nil }
		}
		c := new(empty)
		b.ReportAllocs()
		for b.Loop() {
			for _, m := range ms {
				if err := m(ctx, c, nil); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

var benchEvent = NewEvent[int]("bench")

func BenchmarkEmit(b *testing.B) {
	b.Run("local/1listener", func(b *testing.B) {
		t := New[empty](Alone())
		n := 0
		benchEvent.On(t, func(context.Context, int) error { n++; return nil })
		if err := t.Start(context.Background()); err != nil {
			b.Fatal(err)
		}
		ctx := context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if err := benchEvent.Emit(ctx, t, 1); err != nil {
				b.Fatal(err)
			}
		}
		if err := t.Close(ctx); err != nil || n == 0 {
			b.Fatal(err, n)
		}
	})
	b.Run("baseline/chan4096", func(b *testing.B) {
		ch, done, n := make(chan int, mailboxBound), make(chan struct{}), 0
		go func() {
			defer close(done)
			for range ch {
				n++
			}
		}()
		b.ReportAllocs()
		for b.Loop() {
			ch <- 1
		}
		close(ch)
		<-done
	})
}

// sink is a channel that discards its messages, with one listener.
type sink struct{ n int }

func (s *sink) Listen(bool)        {}
func (s *sink) Listened() bool     { return true }
func (s *sink) EverListened() bool { return true }
func (s *sink) Send(context.Context, Buffer, func(Peer) bool) (int, error) {
	s.n++
	return 1, nil
}

// credits counts the returned room.
type credits struct{ n atomic.Int64 }

func (c *credits) Return(messages, _ int) { c.n.Add(int64(messages)) }
func (c *credits) Recycle([]byte)         {}

// remoteTask is a started task whose event goes to a sink.
func remoteTask(tb testing.TB) (*Task[empty], *subscription[int]) {
	t := New[empty](newFakeJob(1).node(0))
	if err := t.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	p, err := benchEvent.subscription(t.en)
	if err != nil {
		tb.Fatal(err)
	}
	p.channel = &sink{}
	tb.Cleanup(func() {
		if err := t.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return t, p
}

func BenchmarkEmitRemote(b *testing.B) {
	t, _ := remoteTask(b)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := benchEvent.Emit(ctx, t, 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDeliver(b *testing.B) {
	t, p := remoteTask(b)
	benchEvent.On(t, func(context.Context, int) error { return nil })
	var c credits
	in := Inbound{From: 1, Payload: []byte{2}, Credit: &c}
	b.ReportAllocs()
	sent := int64(0)
	for b.Loop() {
		for sent-c.n.Load() > 1000 {
			runtime.Gosched() // the window that a bus keeps
		}
		sent++
		if err := p.deliver(&in); err != nil {
			b.Fatal(err)
		}
	}
}

func TestEmitAndDeliverAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("pools drop items under the race detector")
	}
	ctx := t.Context()
	local := New[empty](Alone())
	received := make(chan struct{}, 1) // capacity 1: each emit is received before the next
	benchEvent.On(local, func(context.Context, int) error { received <- struct{}{}; return nil })
	must(t, local.Start(ctx))
	remote, _ := remoteTask(t)
	to, p := remoteTask(t)
	benchEvent.On(to, func(context.Context, int) error { received <- struct{}{}; return nil })
	var c credits
	in := Inbound{From: 1, Payload: []byte{2}, Credit: &c}
	for name, f := range map[string]func(){
		"local":   func() { must(t, benchEvent.Emit(ctx, local, 1)); <-received },
		"remote":  func() { must(t, benchEvent.Emit(ctx, remote, 1)) },
		"deliver": func() { must(t, p.deliver(&in)); <-received },
	} {
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	must(t, local.Close(ctx))
}
