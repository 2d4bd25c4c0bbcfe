package task

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// FinishGrace is the time after which the context of the step that has finished the task ends.
func TestFinishGraceBoundsTheLastStep(t *testing.T) {
	for _, tc := range []struct {
		opts []Option
		want time.Duration
	}{{nil, time.Second}, {[]Option{FinishGrace(3 * time.Second)}, 3 * time.Second}, {[]Option{FinishGrace(0)}, 0}} {
		synctest.Test(t, func(t *testing.T) {
			tk := New[empty](Alone(), tc.opts...)
			begin := time.Now()
			var took time.Duration
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				tk.Finish("enough")
				<-ctx.Done()
				took = time.Since(begin)
				return context.Cause(ctx)
			}))
			must(t, tk.Run(t.Context()))
			if o := tk.Outcome(); took != tc.want || o.Kind != Success || o.Reason != "enough" {
				t.Errorf("the step ended after %v, want %v: %+v", took, tc.want, o)
			}
		})
	}
}

// Under Isolate an error and a panic drop their listener only. Without it an error ends the task.
func TestIsolateHoldsForAllListeners(t *testing.T) {
	for _, isolate := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var opts []Option
			if isolate {
				opts = append(opts, Isolate())
			}
			tk := New[empty](Alone(), opts...)
			calls := map[string]int{}
			evA.On(tk, func(context.Context, int) error { calls["fails"]++; return errors.New("boom") }, Named("fails"))
			evA.On(tk, func(context.Context, int) error { calls["panics"]++; panic("ouch") }, Named("panics"))
			evA.On(tk, func(context.Context, int) error { calls["receives"]++; return nil }, Named("receives"))
			tk.Use(Step(func(ctx context.Context, _ *empty) error {
				defer synctest.Wait()
				return evA.Emit(ctx, tk, 1)
			}))
			err := tk.Run(t.Context(), MaxSteps(2))
			if _, failed := errors.AsType[*ListenerError](err); failed == isolate {
				t.Errorf("isolate %v: %v", isolate, err)
			}
			if !isolate {
				return
			}
			if calls["fails"] != 1 || calls["panics"] != 1 || calls["receives"] != 2 {
				t.Errorf("calls: %v", calls)
			}
			if st := tk.Stats()[0]; st.Dropped[DropReasonIsolated] != 2 || st.Delivered != 2 {
				t.Errorf("%+v", st)
			}
		})
	}
}
