package task_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ditask/ditask/task"
)

// say is a middleware that prints a line.
func say(text string) task.Middleware[struct{}] {
	return task.Step(func(context.Context, *struct{}) error {
		fmt.Println(text)
		return nil
	})
}

// A step's forward half runs the middleware in order. A middleware that is not made
// with Step has a backward half too: the part after its call of next.
func ExampleMiddleware() {
	t := task.New[struct{}](task.Alone())
	t.Use(
		func(ctx context.Context, _ *struct{}, next task.Next) error {
			fmt.Println("begin")
			defer fmt.Println("end")
			return next(ctx)
		},
		say("work"),
	)
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// begin
	// work
	// end
	// <nil>
}

func ExampleSerial() {
	t := task.New[struct{}](task.Alone())
	t.Use(task.Serial(say("collect"), say("learn")), say("evaluate"))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// collect
	// learn
	// evaluate
	// <nil>
}

// The stages of Parallel run at the same time. The step continues when all have ended.
func ExampleParallel() {
	t := task.New[struct{}](task.Alone())
	done := make(chan struct{})
	t.Use(
		task.Parallel(
			task.Step(func(context.Context, *struct{}) error {
				<-done // which the other one closes
				fmt.Println("slow")
				return nil
			}),
			task.Step(func(context.Context, *struct{}) error {
				fmt.Println("fast")
				close(done)
				return nil
			}),
		),
		say("both have ended"),
	)
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// fast
	// slow
	// both have ended
	// <nil>
}

// Middleware under one lock never overlap, in an asynchronous task too.
func ExampleLocked() {
	var mu task.Lock
	steps := 0
	count := task.Locked(&mu, task.Step(func(context.Context, *struct{}) error {
		steps++
		return nil
	}))
	t := task.New[struct{}](task.Alone(), task.Async())
	t.Use(task.Name("first", count), task.Name("second", count))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(10)))
	fmt.Println(steps)
	// Output:
	// <nil>
	// 20
}

// UseFor builds a middleware only on nodes that have its role. With ByID node 0 is the
// learner, node 1 the evaluator, and all others are collectors. A lone node has all roles.
func ExampleTask_UseFor() {
	t := task.New[struct{}](task.Alone(), task.ByID("learner", "evaluator", "collector"))
	for _, role := range []string{"collector", "learner", "evaluator"} {
		t.UseFor(role, func() task.Middleware[struct{}] { return say(role) })
	}
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// collector
	// learner
	// evaluator
	// <nil>
}

// WithRoles sets the roles of the node, for any id.
func ExampleWithRoles() {
	t := task.New[struct{}](task.Alone(), task.WithRoles("evaluator"))
	t.UseFor("learner", func() task.Middleware[struct{}] { return say("learn") })
	t.UseFor("evaluator", func() task.Middleware[struct{}] { return say("evaluate") })
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	fmt.Println(t.Roles(), t.Has("learner"))
	// Output:
	// evaluate
	// <nil>
	// [evaluator] false
}

// A wrapper surrounds every middleware of the task.
func ExampleTask_Wrap() {
	t := task.New[struct{}](task.Alone())
	t.Use(task.Name("collect", say("working")))
	t.Wrap(func(name string, m task.Middleware[struct{}]) task.Middleware[struct{}] {
		return func(ctx context.Context, c *struct{}, next task.Next) error {
			fmt.Println("before", name)
			return m(ctx, c, next)
		}
	})
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// before collect
	// working
	// <nil>
}

// Finish ends the run after the current step. Fail ends it with an error.
func ExampleTask_Finish() {
	t := task.New[struct{}](task.Alone(), task.DrainTimeout(time.Second))
	t.Use(task.Step(func(context.Context, *struct{}) error {
		if t.Steps() == 2 {
			t.Finish("three steps are enough")
		}
		return nil
	}))
	fmt.Println(t.Run(context.Background()))
	fmt.Println(t.Steps(), t.Outcome().Kind, t.Outcome().Reason)
	// Output:
	// <nil>
	// 3 success three steps are enough
}
