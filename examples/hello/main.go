// Hello is the greeting of nodes: each tells all others its name, and says good
// bye when it has heard from everyone.
package main

import (
	"context"
	"fmt"

	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/task"
)

// Greeting is an event: a name and a payload type. It is reliable: no greeting is
// lost.
var Greeting = task.NewEvent[string]("greeting")

func main() { parallel.Main(greet) }

func greet(ctx context.Context, node *parallel.Node) error {
	t := task.New[struct{}](node)
	heard := make(chan string, node.Size()) // one greeting from each of the others fits

	Greeting.On(t, func(ctx context.Context, text string) error {
		heard <- text
		return nil
	})
	t.Use(func(ctx context.Context, _ *struct{}, next task.Next) error {
		text := fmt.Sprintf("hello from node %d", node.ID())
		if err := Greeting.Emit(ctx, t, text, task.OnlyRemote()); err != nil {
			return err
		}
		for range node.Size() - 1 {
			select {
			case text := <-heard:
				fmt.Println(text)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := node.Barrier(ctx, "everyone has heard everyone"); err != nil {
			return err
		}
		return next(ctx)
	})
	return t.Run(ctx, task.MaxSteps(1))
}
