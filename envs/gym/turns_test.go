package gym

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

func TestMannerFollowsTheSteps(t *testing.T) {
	var u turns
	take := func(n int, d time.Duration) {
		for range n {
			u.add(d)
		}
	}
	for _, part := range []struct {
		steps int
		long  time.Duration
		want  manner
	}{
		{1, time.Minute, apart}, {turnsAfter - 2, 20 * time.Microsecond, apart},
		{100, 20 * time.Microsecond, fixed}, {1, time.Second, fixed}, {100, 500 * time.Microsecond, roaming},
		{100, 3 * time.Millisecond, apart}, {100, time.Hour, apart}, {1000, 500 * time.Microsecond, roaming}, {100, 50 * time.Microsecond, fixed},
	} {
		if take(part.steps, part.long); u.manner() != part.want {
			t.Errorf("after %d steps of %v: %v, not %v; usual %v", part.steps, part.long, u.manner(), part.want, time.Duration(u.step))
		}
	}
	if u.off = true; u.manner() != apart {
		t.Error("where it is not possible")
	}
}

// force has the next step of a vector with one process taken in a manner.
func force(v *Vector, m manner) {
	u := &v.procs[0].turns
	u.steps = turnsAfter
	u.step = usual([]time.Duration{apart: 2 * turnsLongest, roaming: 2 * turnsShort, fixed: turnsShort / 2}[m])
}

// TestTurnsChangeNoStep compares the steps of a vector whose manner changes with those of one with two processes.
func TestTurnsChangeNoStep(t *testing.T) {
	a := open(t, cartPole, Config{Num: 5, Processes: 1, Autoreset: envs.SameStep})
	b := open(t, cartPole, Config{Num: 5, Processes: 2, Autoreset: envs.SameStep})
	actions := make([]float32, 5)
	rng := random()
	for step := range 300 {
		if step%100 == 0 {
			x, err := a.Reset(uint64(step))
			if err != nil {
				t.Fatal(err)
			}
			if y, err := b.Reset(uint64(step)); err != nil || !slices.Equal(x, y) {
				t.Fatalf("reset: %v, %v, not %v", err, x, y)
			}
		}
		for i := range actions {
			actions[i] = float32(rng.IntN(2))
		}
		force(a, manner(rng.IntN(3)))
		x, err := a.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(x.Obs, y.Obs) || !slices.Equal(x.Rewards, y.Rewards) || !slices.Equal(x.Terminated, y.Terminated) {
			t.Fatalf("step %d: %+v\nnot\n%+v", step, x, y)
		}
	}
}

// TestFaultsInTurns has faults in steps on the processor of this process.
func TestFaultsInTurns(t *testing.T) {
	for k, f := range faults {
		if !slices.Contains([]string{"raise", "kill", "torn", "nan", "shape", "terminated", "fork", "raise in reset", "hang"}, f.fault) {
			continue
		}
		t.Run(f.fault, func(t *testing.T) {
			v := open(t, "testdata/faults.py:make_env", Config{
				Num: 4, Processes: 1, Kwargs: map[string]any{"fault": f.fault}, StepTimeout: limitFor(f.fault),
			})
			err := playInTurns(v, roaming+manner(k%2))
			var e *envs.Error
			if !errors.As(err, &e) || e.Index != 2 || e.Op != f.op || !strings.Contains(err.Error(), f.text) ||
				f.is != nil && !errors.Is(err, f.is) {
				t.Errorf("%s of environment 2: %v", f.op, err)
			}
		})
	}
}

// TestClosedPipeInTurns has an environment close the pipe of answers, which the next one needs.
func TestClosedPipeInTurns(t *testing.T) {
	v := open(t, "testdata/faults.py:make_env", Config{Num: 4, Processes: 1, Kwargs: map[string]any{"fault": "close"}})
	const text = "an environment has closed file descriptor 4"
	if err := playInTurns(v, fixed); !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), text) {
		t.Error(err)
	}
}

// playInTurns takes 10 steps in a manner, with a reset before each fifth.
func playInTurns(v *Vector, m manner) (err error) {
	for k := 0; k < 10 && err == nil; k++ {
		if k%5 == 0 {
			_, err = v.Reset()
		}
		if err == nil {
			force(v, m)
			_, err = v.Step(make([]float32, 4))
		}
	}
	return err
}
