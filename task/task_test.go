package task_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/task"
)

type state struct {
	Sum  int
	Best int `task:"keep"`
	Late int
}

// onion records its halves under a name.
func onion(log *[]string, name string) task.Middleware[state] {
	return func(ctx context.Context, _ *state, next task.Next) error {
		*log = append(*log, name+">")
		err := next(ctx)
		*log = append(*log, "<"+name)
		return err
	}
}

func plain(log *[]string, name string) task.Middleware[state] {
	return task.Step(func(context.Context, *state) error {
		*log = append(*log, name)
		return nil
	})
}

func TestT1MiddlewareOrder(t *testing.T) {
	var log []string
	tk := task.New[state](task.Alone())
	tk.Use(onion(&log, "1"), plain(&log, "p"), onion(&log, "2"), onion(&log, "3"))
	if err := tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(log, " "), "1> p 2> 3> <3 <2 <1"; got != want {
		t.Errorf("order %q, want %q", got, want)
	}
}

func TestT2ContextIsRenewed(t *testing.T) {
	tk := task.New[state](task.Alone())
	tk.Defaults(state{Sum: 7})
	first := tk.Context()
	var sums []int
	tk.Use(task.Step(func(_ context.Context, c *state) error {
		if c != first {
			t.Error("the context's pointer has changed")
		}
		sums = append(sums, c.Sum)
		c.Sum, c.Best, c.Late = 100, c.Best+1, c.Late+1
		if tk.Steps() == 1 {
			tk.Keep("Late")
		}
		return nil
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(4)); err != nil {
		t.Fatal(err)
	}
	if tk.Steps() != 4 || !slices.Equal(sums, []int{7, 7, 7, 7}) {
		t.Errorf("steps %d, sums %v", tk.Steps(), sums)
	}
	if got, want := *tk.Context(), (state{Sum: 7, Best: 4, Late: 3}); got != want {
		t.Errorf("after the last step %+v, want %+v", got, want)
	}
}

func TestT3NothingToRun(t *testing.T) {
	for _, tc := range []struct {
		name string
		ms   []task.Middleware[state]
		opts []task.RunOption
	}{
		{name: "no middleware"},
		{name: "max 0", ms: []task.Middleware[state]{nil}, opts: []task.RunOption{task.MaxSteps(0)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tk := task.New[state](task.Alone())
			for range tc.ms {
				tk.Use(func(context.Context, *state, task.Next) error { t.Error("was called"); return nil })
			}
			if err := tk.Run(t.Context(), tc.opts...); err != nil || tk.Steps() != 0 {
				t.Errorf("%v after %d steps", err, tk.Steps())
			}
			if o := tk.Outcome(); o.Kind != task.Success {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

func TestT4FinishIsSeenByAll(t *testing.T) {
	for _, byMax := range []bool{false, true} {
		var log []string
		tk := task.New[state](task.Alone())
		tk.Use(func(ctx context.Context, _ *state, next task.Next) error {
			if !byMax {
				tk.Finish("good enough")
			}
			err := next(ctx)
			log = append(log, fmt.Sprint("back ", tk.Finished()))
			return err
		}, task.Step(func(context.Context, *state) error {
			log = append(log, fmt.Sprint("later ", tk.Finished()))
			return nil
		}))
		tk.OnFinish(func(_ context.Context, o task.Outcome) error {
			log = append(log, fmt.Sprint(o.Kind, " ", o.Reason))
			return nil
		})
		if err := tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
			t.Fatal(err)
		}
		want := []string{"later true", "back true", "success good enough"}
		if byMax {
			want = []string{"later false", "back true", "success max steps"}
		}
		if !slices.Equal(log, want) {
			t.Errorf("by max %v: %q, want %q", byMax, log, want)
		}
	}
}

var ping = task.NewEvent[int]("ping")

func TestE9EmitsBeforeTheEndAreDelivered(t *testing.T) {
	tk := task.New[state](task.Alone())
	var got []int
	ping.On(tk, func(_ context.Context, v int) error { got = append(got, v); return nil })
	tk.Use(task.Step(func(ctx context.Context, _ *state) error {
		for i := range 1000 {
			if err := ping.Emit(ctx, tk, i); err != nil {
				return err
			}
		}
		return nil
	}))
	if err := tk.Run(t.Context(), task.MaxSteps(1)); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1000 || !slices.IsSorted(got) {
		t.Errorf("%d of 1000, sorted %v", len(got), slices.IsSorted(got))
	}
}

func TestE8ListenerPanicEndsTheTask(t *testing.T) {
	tk := task.New[state](task.Alone())
	ping.On(tk, func(context.Context, int) error { panic("ouch") }, task.Named("bad"))
	tk.Use(task.Step(func(ctx context.Context, _ *state) error {
		if err := ping.Emit(ctx, tk, 1); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	err := tk.Run(t.Context())
	le, ok := errors.AsType[*task.ListenerError](err)
	if !ok || le.Event != "ping" || le.Listener != "bad" || !strings.Contains(string(le.Stack), "task_test") {
		t.Errorf("%v", err)
	}
}

func TestMaxStepsCountsStepsWhoseErrorWasTaken(t *testing.T) {
	tk := task.New[state](task.Alone())
	tk.Use(func(ctx context.Context, _ *state, next task.Next) error {
		_ = next(ctx)
		return nil
	}, task.Step(func(context.Context, *state) error { return errors.New("taken") }))
	if err := tk.Run(t.Context(), task.MaxSteps(3)); err != nil || tk.Steps() != 3 {
		t.Errorf("%v after %d steps", err, tk.Steps())
	}
}
