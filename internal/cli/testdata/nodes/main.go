// Nodes is a job for tests: in its first step each node follows its argument, such as
// "2=fail", or else waits for the end of the job.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Back is emitted by a restarted node.
var Back = task.NewEvent[int]("back")

// The events of talking nodes, one for each delivery policy.
var (
	Told   = task.NewEvent[[]int64]("told")
	Newest = task.NewEvent[int]("newest", task.Latest())
	Some   = task.NewEvent[int]("some", task.DropOldest(4))
)

// said is how often a talking node emits each event.
const said = 200

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	if script(node.ID()) == "early" {
		return errors.New("out of luck before it began")
	}
	t := task.New[struct{}](node)
	back := make(chan int, 1)
	Back.On(t, func(_ context.Context, id int) error {
		select {
		case back <- id:
		default: // one is enough
		}
		return nil
	})
	trip := script(node.ID()) == "trip"
	Told.On(t, func(_ context.Context, v []int64) error {
		if trip && v[0] == 3 {
			panic("tripped over 3")
		}
		return nil
	})
	Newest.On(t, func(context.Context, int) error { return nil })
	Some.On(t, func(context.Context, int) error { return nil })
	t.Use(func(ctx context.Context, _ *struct{}, next task.Next) error {
		fmt.Printf("pid=%d\n", os.Getpid())
		switch script(node.ID()) {
		case "fail":
			return errors.New("out of luck")
		case "talk":
			for i := range said {
				if err := errors.Join(
					Told.Emit(ctx, t, make([]int64, 1+i%3*10_000), task.OnlyRemote()), Newest.Emit(ctx, t, i, task.OnlyRemote()), Some.Emit(ctx, t, i,
						task.OnlyRemote()),
				); err != nil {
					return err
				}
			}
		case "emit": // until the node that it emits to is lost
			for {
				if err := Told.Emit(ctx, t, make([]int64, 10_000), task.OnlyRemote()); err != nil {
					return err
				}
			}
		case "count":
			for i := range 10 {
				if err := Told.Emit(ctx, t, []int64{int64(i)}, task.To("node.1")); err != nil {
					return err
				}
			}
		case "come":
			if err := Back.Emit(ctx, t, node.ID(), task.OnlyRemote()); err != nil {
				return err
			}
		case "call": // until another node receives it
			again := time.NewTicker(20 * time.Millisecond)
			defer again.Stop()
			for ctx.Err() == nil {
				if err := Back.Emit(ctx, t, node.ID(), task.OnlyRemote()); err != nil {
					return err
				}
				select {
				case <-again.C:
				case <-ctx.Done():
				}
			}
		case "panic":
			panic("on purpose")
		case "die":
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "kill", "stumble", "fall":
			if node.Attempt() == 0 {
				switch script(node.ID()) {
				case "kill":
					return syscall.Kill(os.Getpid(), syscall.SIGKILL)
				case "stumble":
					return errors.New("out of luck, once")
				}
				panic("on purpose, once")
			}
			if err := Back.Emit(ctx, t, node.ID(), task.OnlyRemote()); err != nil {
				return err
			}
		case "lead":
			select {
			case id := <-back:
				fmt.Printf("node %d is back\n", id)
				return next(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	return t.Run(ctx, task.MaxSteps(1))
}

func script(id int) string {
	for _, arg := range os.Args[1:] {
		if who, what, _ := strings.Cut(arg, "="); who == fmt.Sprint(id) {
			return what
		}
	}
	return "wait"
}
