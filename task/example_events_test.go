package task_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ditask/ditask/task"
)

// A listener is called for every message until Off.
func ExampleEvent_On() {
	score := task.NewEvent[float64]("score")
	t := task.New[struct{}](task.Alone())
	var l *task.Listener
	l = score.On(t, func(_ context.Context, v float64) error {
		fmt.Println("score", v)
		if v >= 475 {
			l.Off()
		}
		return nil
	}, task.Named("log"))
	emit(t, score, 20, 480, 490)
	// Output:
	// score 20
	// score 480
	// <nil>
}

func ExampleEvent_Once() {
	ready := task.NewEvent[int]("ready")
	t := task.New[struct{}](task.Alone())
	ready.Once(t, func(_ context.Context, v int) error {
		fmt.Println("first:", v)
		return nil
	})
	emit(t, ready, 1, 2, 3)
	// Output:
	// first: 1
	// <nil>
}

// An error of a listener ends the task. An isolated listener is removed instead, and the others
// continue.
func ExampleIsolated() {
	score := task.NewEvent[float64]("score")
	t := task.New[struct{}](task.Alone())
	score.On(t, func(context.Context, float64) error { return errors.New("disk full") }, task.Isolated())
	score.On(t, func(_ context.Context, v float64) error {
		fmt.Println("score", v)
		return nil
	})
	emit(t, score, 20, 30)
	// Output:
	// score 20
	// score 30
	// <nil>
}

// OnlyLocal reaches the listeners of this node, OnlyRemote those of the others.
// A lone node has no others.
func ExampleOnlyLocal() {
	note := task.NewEvent[string]("note")
	t := task.New[struct{}](task.Alone(), task.ByID("learner", "collector"))
	note.On(t, func(_ context.Context, v string) error {
		fmt.Println(v)
		return nil
	})
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		return errors.Join(
			note.Emit(ctx, t, "to all"),
			note.Emit(ctx, t, "to this node", task.OnlyLocal()),
			note.Emit(ctx, t, "to the others", task.OnlyRemote()),
			note.Emit(ctx, t, "to the learners", task.To("learner")),
		)
	}))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// to all
	// to this node
	// to the learners
	// <nil>
}

// Of a Latest event a slow listener receives the newest value only. EventStats
// counts those that were skipped.
func ExampleLatest() {
	weights := task.NewEvent[int]("weights", task.Latest())
	t := task.New[struct{}](task.Alone())
	busy, emitted := make(chan struct{}), make(chan struct{})
	weights.On(t, func(_ context.Context, version int) error {
		fmt.Println("version", version)
		if version == 1 {
			close(busy)
			<-emitted
		}
		return nil
	})
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		if err := weights.Emit(ctx, t, 1); err != nil {
			return err
		}
		<-busy
		defer close(emitted)
		for version := range 9 {
			if err := weights.Emit(ctx, t, version+2); err != nil {
				return err
			}
		}
		return nil
	}))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
	// Output:
	// version 1
	// version 10
	// <nil>
}

// emit runs one step, which emits the values, and prints how it ended.
func emit[T any](t *task.Task[struct{}], e *task.Event[T], values ...T) {
	t.Use(task.Step(func(ctx context.Context, _ *struct{}) error {
		for _, v := range values {
			if err := e.Emit(ctx, t, v); err != nil {
				return err
			}
		}
		return nil
	}))
	fmt.Println(t.Run(context.Background(), task.MaxSteps(1)))
}
