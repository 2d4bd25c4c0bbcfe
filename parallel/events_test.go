package parallel_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// These tests check the behaviour of events through all packages together: the engine, the encoding,
// the router. The tests of each package check its own behaviour.

type blob struct {
	N    int
	Data []byte
}

var (
	blobs   = task.NewEvent[blob]("blob")
	tensors = task.NewEvent[[]float32]("tensor")
	weights = task.NewEvent[[]float32]("weights", task.Latest())
	small   = task.NewEvent[int]("small")
	reply   = task.NewEvent[int]("reply")
)

// two runs a job of two nodes; each step function runs once, in its node's task.
func two(t *testing.T, listen func(tk *task.Task[struct{}]), steps ...func(ctx context.Context, tk *task.Task[struct{}]) error) error {
	t.Helper()
	cfg := parallel.Config{Nodes: 2, Logger: slog.New(slog.DiscardHandler)}
	return parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
		tk := task.New[struct{}](node)
		if node.ID() == 1 {
			listen(tk)
		}
		tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { return steps[node.ID()](ctx, tk) }))
		return tk.Run(ctx, task.MaxSteps(1))
	})
}

func wait[T any](ctx context.Context, c <-chan T) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestE10FloodAtASlowNodeLosesNothingAndTakesNoMemory(t *testing.T) {
	const n = 100_000
	var received, sent atomic.Int64
	gate, done := make(chan struct{}), make(chan struct{})
	listen := func(tk *task.Task[struct{}]) {
		blobs.On(tk, func(ctx context.Context, b blob) error {
			if err := wait(ctx, gate); err != nil {
				return err
			}
			if int64(b.N) != received.Load() || len(b.Data) != 1024 {
				return errors.New("out of order")
			}
			if received.Add(1) == n {
				close(done)
			}
			return nil
		})
	}
	data := make([]byte, 1024)
	flood := func(ctx context.Context, tk *task.Task[struct{}]) error {
		for i := range n {
			if err := blobs.Emit(ctx, tk, blob{i, data}); err != nil {
				return err
			}
			sent.Add(1)
		}
		return wait(ctx, done)
	}
	watch := func(ctx context.Context, _ *task.Task[struct{}]) error {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for last := int64(-1); last != sent.Load() || last == 0; { // until the emitter is blocked
			last = sent.Load()
			if err := wait(ctx, time.After(50*time.Millisecond)); err != nil {
				return err
			}
		}
		blocked := sent.Load()
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); blocked >= n/2 || grown > 32<<20 {
			t.Errorf("%d of %d events are under way, %d bytes of memory", blocked, n, grown)
		}
		close(gate)
		return wait(ctx, done)
	}
	if err := two(t, listen, flood, watch); err != nil {
		t.Fatal(err)
	}
	if received.Load() != n {
		t.Errorf("%d of %d events were received", received.Load(), n)
	}
}

func TestE12TensorsOfAllSizesArriveIntact(t *testing.T) {
	sizes := []int{0, 1, 16, 1 << 10, 16 << 10, 256 << 10, 16 << 20}
	got := make(chan []float32, len(sizes))
	listen := func(tk *task.Task[struct{}]) {
		tensors.On(tk, func(_ context.Context, v []float32) error { got <- v; return nil })
	}
	send := func(ctx context.Context, tk *task.Task[struct{}]) error {
		for _, n := range sizes {
			v := make([]float32, n)
			for i := range v {
				v[i] = float32(i)
			}
			if n > 1 {
				v[1] = float32(math.NaN())
			}
			if err := tensors.Emit(ctx, tk, v); err != nil {
				return err
			}
		}
		return nil
	}
	receive := func(ctx context.Context, _ *task.Task[struct{}]) error {
		for _, n := range sizes {
			var v []float32
			select {
			case v = <-got:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if len(v) != n || n > 2 && (v[2] != 2 || v[n-1] != float32(n-1) || v[1] == v[1]) {
				t.Errorf("%d numbers sent, %d or other ones received", n, len(v))
			}
		}
		return nil
	}
	if err := two(t, listen, send, receive); err != nil {
		t.Fatal(err)
	}
}

func TestBorrowedTensorsAreWholeDuringTheCall(t *testing.T) {
	const n = 300
	sum := func(v []float32) (s float64) {
		for _, x := range v {
			s += float64(x)
		}
		return s
	}
	received := 0
	done := make(chan struct{})
	listen := func(tk *task.Task[struct{}]) {
		tensors.On(tk, func(_ context.Context, v []float32) error {
			if want := float64(received) * float64(len(v)); sum(v) != want {
				t.Errorf("message %d adds up to %v, want %v", received, sum(v), want)
			}
			if received++; received == n {
				close(done)
			}
			return nil
		}, task.Borrowed())
	}
	send := func(ctx context.Context, tk *task.Task[struct{}]) error {
		for i := range n {
			v := make([]float32, []int{512, 2048, 32 << 10, 128 << 10}[i%4])
			for k := range v {
				v[k] = float32(i)
			}
			if err := tensors.Emit(ctx, tk, v); err != nil {
				return err
			}
		}
		return nil
	}
	if err := two(t, listen, send, func(ctx context.Context, _ *task.Task[struct{}]) error { return wait(ctx, done) }); err != nil {
		t.Fatal(err)
	}
}

func TestE11LatestEndsOnTheNewest(t *testing.T) {
	last := float32(0)
	done := make(chan struct{})
	listen := func(tk *task.Task[struct{}]) {
		weights.On(tk, func(_ context.Context, v []float32) error {
			if v[0] <= last {
				t.Errorf("version %v after %v", v[0], last)
			}
			if last = v[0]; last == 1000 {
				close(done)
			}
			return nil
		})
	}
	send := func(ctx context.Context, tk *task.Task[struct{}]) error {
		for i := range 1000 {
			if err := weights.Emit(ctx, tk, []float32{float32(i + 1), 0}); err != nil {
				return err
			}
		}
		return wait(ctx, done)
	}
	if err := two(t, listen, send, func(ctx context.Context, _ *task.Task[struct{}]) error { return wait(ctx, done) }); err != nil {
		t.Fatal(err)
	}
}

func TestE14EmitsAndWaitsInsideAListener(t *testing.T) {
	done := make(chan struct{})
	listen := func(tk *task.Task[struct{}]) {
		small.On(tk, func(ctx context.Context, n int) error {
			if err := reply.Emit(ctx, tk, n, task.To("node.0")); err != nil {
				return err
			}
			if v, err := tensors.WaitFor(ctx, tk); err != nil || len(v) != n {
				return errors.Join(err, errors.New("waited for something else"))
			}
			close(done)
			return nil
		})
	}
	ask := func(ctx context.Context, tk *task.Task[struct{}]) error {
		replies := make(chan int, 1) // one reply
		reply.On(tk, func(_ context.Context, n int) error { replies <- n; return nil })
		if err := small.Emit(ctx, tk, 3); err != nil {
			return err
		}
		var n int
		select {
		case n = <-replies:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// The listener waits for messages after its reply; it ignores earlier ones.
		for {
			if err := tensors.Emit(ctx, tk, make([]float32, n)); err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(time.Millisecond):
			}
		}
	}
	if err := two(t, listen, ask, func(ctx context.Context, _ *task.Task[struct{}]) error { return wait(ctx, done) }); err != nil {
		t.Fatal(err)
	}
}

func TestE1OtherShapeIsRefusedWithBothSchemas(t *testing.T) {
	numbers, texts := task.NewEvent[[]int]("shape"), task.NewEvent[string]("shape")
	cfg := parallel.Config{Nodes: 2, Logger: slog.New(slog.DiscardHandler)}
	err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
		tk := task.New[struct{}](node)
		if node.ID() == 0 {
			numbers.On(tk, func(context.Context, []int) error { return nil })
		} else {
			texts.On(tk, func(context.Context, string) error { return nil })
		}
		tk.Use(task.Step(func(context.Context, *struct{}) error { return nil }))
		return tk.Run(ctx, task.MaxSteps(1))
	})
	for _, want := range []string{`event "shape" differs`, "[]int64", "string", "node.0", "node.1"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("want %q in: %v", want, err)
		}
	}
}

// TestExpectBeforeTheEmitReceivesEveryAnswer asks both other nodes again and again. A
// WaitFor after the emit would lose nearly every answer.
func TestExpectBeforeTheEmitReceivesEveryAnswer(t *testing.T) {
	for _, topology := range []string{"mesh", "star"} {
		t.Run(topology, func(t *testing.T) {
			const rounds = 200
			asker := 1 // in a star a leaf, whose answers come from the hub and through it
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cfg := parallel.Config{Nodes: 3, Topology: topology, Logger: slog.New(slog.DiscardHandler)}
			err := parallel.Run(ctx, cfg, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				if node.ID() != asker {
					small.On(tk, func(ctx context.Context, v int) error { return reply.Emit(ctx, tk, v, task.OnlyRemote()) })
					tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error { return wait(ctx, make(chan int)) }))
					return tk.Run(ctx)
				}
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					for _, id := range []int{0, 2} {
						w := reply.Expect(tk, func(ctx context.Context, v int) bool { return v == tk.Steps() && task.Sender(ctx) == id })
						defer w.Stop()
						if err := small.Emit(ctx, tk, tk.Steps()); err != nil {
							return err
						}
						if _, err := w.Wait(ctx); err != nil {
							return err
						}
					}
					return nil
				}))
				return tk.Run(ctx, task.MaxSteps(rounds))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDropsAreCountedWhereTheyHappen floods a listener that does not return: messages for which its
// node has no room are dropped at the sender, by peer.
func TestDropsAreCountedWhereTheyHappen(t *testing.T) {
	const n, queue = 100, 8
	for reason, ev := range map[string]*task.Event[int]{
		task.DropReasonOldest: task.NewEvent[int]("lossy", task.DropOldest(queue)),
		task.DropReasonNewest: task.NewEvent[int]("lossy", task.DropNewest(queue)),
	} {
		synctest.Test(t, func(t *testing.T) {
			received := 0
			var stats [2]task.EventStats
			step := func(ctx context.Context, tk *task.Task[struct{}]) error {
				for i := range n {
					if err := ev.Emit(ctx, tk, i); err != nil {
						return err
					}
				}
				return wait(ctx, time.After(10*time.Second))
			}
			tasks := [2]*task.Task[struct{}]{}
			cfg := parallel.Config{Nodes: 2, Logger: slog.New(slog.DiscardHandler)}
			err := parallel.Run(t.Context(), cfg, func(ctx context.Context, node *parallel.Node) error {
				tk := task.New[struct{}](node)
				tasks[node.ID()] = tk
				if node.ID() == 1 {
					ev.On(tk, func(context.Context, int) error { received++; <-time.After(time.Second / 4); return nil })
				}
				tk.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
					if node.ID() == 0 {
						return step(ctx, tk)
					}
					return wait(ctx, make(chan int))
				}))
				if node.ID() == 0 {
					return tk.Run(ctx, task.MaxSteps(1))
				}
				return tk.Run(ctx)
			})
			if err != nil {
				t.Fatal(err)
			}
			for i, tk := range tasks {
				for _, s := range tk.Stats() {
					if s.Event == "lossy" {
						stats[i] = s
					}
				}
			}
			if len(stats[0].Unsent) != 1 {
				t.Fatalf("%s: sender %+v", reason, stats[0])
			}
			u := stats[0].Unsent[0]
			if sum := int(u.Dropped[reason]+stats[1].Dropped[reason]) + received; u.Peer != 1 || u.Dropped[reason] == 0 || sum != n {
				t.Errorf("%s: %d of %d are counted; sender %+v, receiver %+v", reason, sum, n, stats[0], stats[1])
			}
		})
	}
}
