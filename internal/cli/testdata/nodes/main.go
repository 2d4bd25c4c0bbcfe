// Nodes is a job for tests: each node does in its first step what its argument
// says, "2=fail", or else waits for the end of the job.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Back is what a node says that was started again.
var Back = task.NewEvent[int]("back")

func main() { parallel.Main(play) }

func play(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	back := make(chan int, 1)
	Back.On(t, func(_ context.Context, id int) error {
		back <- id
		return nil
	})
	t.Use(func(ctx context.Context, _ *struct{}, next task.Next) error {
		fmt.Printf("pid=%d\n", os.Getpid())
		switch script(node.ID()) {
		case "fail":
			return errors.New("out of luck")
		case "panic":
			panic("on purpose")
		case "kill":
			if node.Attempt() == 0 {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
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
