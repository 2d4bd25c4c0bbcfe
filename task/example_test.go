package task_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

type Context struct {
	Reward float64
	Best   float64 `task:"keep"` // survives the renewal after each step
}

func Example() {
	greeting := task.NewEvent[string]("greeting")
	t := task.New[Context](task.Alone(), task.ByID("learner", "collector"))
	greeting.On(t, func(ctx context.Context, msg string) error {
		fmt.Println("node", task.Sender(ctx), "says", msg)
		return nil
	})
	t.Use(task.Step(func(ctx context.Context, _ *Context) error {
		return greeting.Emit(ctx, t, fmt.Sprint("hi ", t.Steps()))
	}))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(2)))
	// Output:
	// node 0 says hi 0
	// node 0 says hi 1
	// <nil>
}

// The forward halves run in the order of Use, the backward halves in reverse.
func ExampleTask_Use() {
	t := task.New[Context](task.Alone())
	around := func(name string) task.Middleware[Context] {
		return func(ctx context.Context, _ *Context, next task.Next) error {
			fmt.Println(name, "forward")
			err := next(ctx)
			fmt.Println(name, "backward")
			return err
		}
	}
	t.Use(around("outer"), around("inner"))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// outer forward
	// inner forward
	// inner backward
	// outer backward
	// <nil>
}

// Two middleware made by one function have separate names in errors and statistics.
func ExampleName() {
	t := task.New[Context](task.Alone())
	t.Use(
		task.Name("collect", task.Step(func(context.Context, *Context) error { return nil })),
		task.Name("learn", task.Step(func(context.Context, *Context) error { return errors.New("loss is NaN") })),
	)
	fmt.Println(t.Run(context.Background()))
	// Output:
	// step 1: learn: loss is NaN
}

func ExampleTask_OnFinish() {
	t := task.New[Context](task.Alone())
	t.Use(task.Step(func(_ context.Context, c *Context) error {
		c.Reward = 475
		c.Best = max(c.Best, c.Reward)
		if c.Best >= 475 {
			t.Finish("solved")
		}
		return nil
	}))
	t.OnFinish(func(_ context.Context, o task.Outcome) error {
		fmt.Println("save:", o.Kind, o.Reason, t.Context().Reward, t.Context().Best)
		return nil
	})
	fmt.Println(t.Run(context.Background()))
	// Output:
	// save: success solved 0 475
	// <nil>
}

// A wait for an answer begins before the question is emitted.
func ExampleEvent_Expect() {
	question, answer := task.NewEvent[int]("question"), task.NewEvent[int]("answer")
	t := task.New[Context](task.Alone())
	question.On(t, func(ctx context.Context, v int) error { return answer.Emit(ctx, t, v*v) })
	t.Use(task.Step(func(ctx context.Context, _ *Context) error {
		w := answer.Expect(t)
		defer w.Stop()
		if err := question.Emit(ctx, t, t.Steps()); err != nil {
			return err
		}
		v, err := w.Wait(ctx)
		fmt.Println(v)
		return err
	}))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(3)))
	// Output:
	// 0
	// 1
	// 4
	// <nil>
}

func ExampleEvent_WaitFor() {
	weights := task.NewEvent[[]float32]("weights", task.Latest())
	t := task.New[Context](task.Alone())
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := t.Start(ctx); err != nil {
		fmt.Println(err)
	}
	_, err := weights.WaitFor(ctx, t)
	fmt.Println(err, errors.Is(err, context.DeadlineExceeded))
	fmt.Println(t.Close(context.Background()))
	// Output:
	// wait for event "weights" from this node (0): context deadline exceeded true
	// <nil>
}

// All nodes of a job run this function. Under WaitForAll each of them makes its three
// steps, at any speed of the others.
func ExampleWaitForAll() {
	play := func(ctx context.Context, node task.Node) error {
		t := task.New[struct{}](node)
		t.Use(task.Step(func(context.Context, *struct{}) error {
			fmt.Println("step", t.Steps())
			return nil
		}))
		return t.Run(ctx, task.MaxSteps(3), task.WaitForAll())
	}
	fmt.Println(play(context.Background(), task.Alone()))
	// Output:
	// step 0
	// step 1
	// step 2
	// <nil>
}
