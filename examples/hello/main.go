// Hello is a job whose nodes greet each other: each says hello to all others and
// prints the greetings that it receives.
package main

import (
	"context"
	"fmt"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Greeting is an event: a name, a payload type, and reliable delivery.
var Greeting = task.NewEvent[string]("greeting")

func main() { parallel.Main(greet) }

func greet(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	Greeting.On(t, func(_ context.Context, text string) error {
		fmt.Println(text)
		return nil
	})
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		return Greeting.Emit(ctx, t, fmt.Sprintf("hello from node %d", node.ID()), task.OnlyRemote())
	}))
	// All nodes do the same, so the job ends when all are done. Events emitted before the
	// end are received before the end.
	return t.Run(ctx, task.MaxSteps(1), task.WaitForAll())
}
