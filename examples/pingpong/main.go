// Pingpong measures the cost of an event: node 0 emits a ball of 64 bytes, node 1
// emits it back, and node 0 prints how long the round trips took.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Round trips that are measured, and those before them that are not.
const (
	trips  = 20_000
	warmUp = 1_000
)

// Ball is a payload of 64 bytes.
type Ball struct {
	Trip  int64
	State [7]float64
}

// The two events. Both are reliable and keep their order.
var (
	Ping = task.NewEvent[Ball]("ping")
	Pong = task.NewEvent[Ball]("pong")
)

func main() { parallel.Main(play(os.Stdout, trips, warmUp)) }

// play makes the function of all nodes: further ones than two only watch.
func play(out io.Writer, trips, warmUp int) parallel.Func {
	return func(ctx context.Context, node *parallel.Node) error {
		if node.Size() == 1 {
			return errors.New("ping-pong takes two: ditask --package ./examples/pingpong --parallel-workers 2")
		}
		t := task.New[struct{}](node, task.ByID("ping", "pong", "watch"))
		if !t.Has("ping") {
			return answer(ctx, t)
		}
		times, err := serve(ctx, t, trips+warmUp)
		if err != nil {
			return err
		}
		times = times[warmUp:]
		slices.Sort(times)
		_, err = fmt.Fprintf(out, "%d round trips: p50 %v, p99 %v\n", len(times), percentile(times, 50), percentile(times, 99))
		return err
	}
}

// serve is one round trip a step, and returns how long each took.
func serve(ctx context.Context, t *task.Task[struct{}], trips int) ([]time.Duration, error) {
	times := make([]time.Duration, 0, trips)
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		ball := Ball{Trip: int64(len(times))}
		start := time.Now()
		back := Pong.Expect(t) // before the emit, as the answer may be here before Emit has returned
		defer back.Stop()
		if err := Ping.Emit(ctx, t, ball, task.To("node.1")); err != nil {
			return err
		}
		b, err := back.Wait(ctx)
		if err != nil {
			return err
		}
		times = append(times, time.Since(start))
		if b != ball {
			return fmt.Errorf("sent %v, got %v", ball, b)
		}
		return nil
	}))
	err := t.Run(ctx, task.MaxSteps(trips))
	return times, err
}

// answer plays every ball back until node 0 has finished.
func answer(ctx context.Context, t *task.Task[struct{}]) error {
	if t.Has("pong") {
		Ping.On(t, func(ctx context.Context, b Ball) error {
			return Pong.Emit(ctx, t, b, task.To("node.0"))
		})
	}
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	return t.Run(ctx)
}

// percentile returns the value that p of 100 sorted ones do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[(len(sorted)*p+99)/100-1]
}
