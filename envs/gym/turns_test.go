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
		if take(part.steps, part.long); u.next() != part.want {
			t.Errorf("after %d steps of %v: %v, not %v; usual %v", part.steps, part.long, u.now, part.want, time.Duration(u.step))
		}
	}
	if u.off = true; u.next() != apart {
		t.Error("where it is not possible")
	}
}

// TestMannerOfShortStepsIsTheFaster has short steps take other times in each manner, and a long one now and then.
func TestMannerOfShortStepsIsTheFaster(t *testing.T) {
	const us = time.Microsecond
	u := turns{spins: true, steps: turnsAfter, step: usual(turnsShort / 2)}
	for _, part := range []struct {
		fixed, spinning time.Duration
		want            manner
	}{
		{20 * us, 3 * us, spinning}, {20 * us, 60 * us, fixed}, {20 * us, 3 * us, spinning}, {20 * us, 50 * us, fixed},
	} {
		chosen := [spinning + 1]int{}
		for k := range turnsEvery {
			how := u.next()
			d := map[manner]time.Duration{fixed: part.fixed, spinning: part.spinning}[how]
			if chosen[how]++; k%50 == 0 {
				d = time.Minute
			}
			u.add(d)
		}
		if n := chosen[part.want]; n != turnsEvery-turnsTried {
			t.Errorf("%v: %v", part, chosen)
		}
	}
}

// TestSpinningEndsWhereItIsSlow has other processes need the processors when both manners have been tried.
func TestSpinningEndsWhereItIsSlow(t *testing.T) {
	u := turns{spins: true, steps: turnsAfter, step: usual(turnsShort / 2)}
	seldom := func(k int) time.Duration {
		if k%(2*turnsSeldom) == 0 {
			return 2 * spinLongest
		}
		return 3 * time.Microsecond
	}
	for k := range turnsEvery / 2 {
		if how := u.next(); k > 2*turnsTried && how != spinning {
			t.Fatalf("step %d: %v", k, how)
		}
		d := seldom(k)
		if u.now == fixed {
			d = 20 * time.Microsecond
		}
		u.add(d)
	}
	for k := 0; u.next() == spinning; k++ {
		if k > 2*turnsMissed/turnsSeldom {
			t.Fatal("it does not end:", u)
		}
		u.add(2 * spinLongest)
		u.next()
		u.add(3 * time.Microsecond)
	}
	for k := 0; u.next() != spinning; k++ {
		if k > turnsEvery {
			t.Fatal("it is not tried again:", u)
		}
		u.add(3 * time.Microsecond)
	}
}

// force has the next step of a vector with one process taken in a manner.
func force(v *Vector, m manner) {
	u := &v.procs[0].turns
	u.steps, u.short, u.missed = turnsAfter, 2*turnsTried, 0
	u.step = usual([]time.Duration{apart: 2 * turnsLongest, roaming: 2 * turnsShort, fixed: turnsShort / 2, spinning: turnsShort / 2}[m])
	u.spins, u.took = m == spinning && canSpin(), [spinning + 1]time.Duration{}
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
		force(a, manner(rng.IntN(4)))
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

// TestFaultsInTurns has faults in steps on the processor of this process, and where both sides spin.
func TestFaultsInTurns(t *testing.T) {
	for k, f := range faults {
		if !slices.Contains([]string{"raise", "kill", "torn", "nan", "shape", "terminated", "fork", "raise in reset", "hang"}, f.fault) {
			continue
		}
		t.Run(f.fault, func(t *testing.T) {
			v := open(t, "testdata/faults.py:make_env", Config{
				Num: 4, Processes: 1, Kwargs: map[string]any{"fault": f.fault}, StepTimeout: limitFor(f.fault),
			})
			err := playInTurns(v, roaming+manner(k%3))
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
	for _, m := range []manner{fixed, spinning} {
		v := open(t, "testdata/faults.py:make_env", Config{Num: 4, Processes: 1, Kwargs: map[string]any{"fault": "close"}})
		err := playInTurns(v, m)
		if m == spinning && err == nil { // no step has needed the pipe
			_, err = v.Reset()
		}
		if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "an environment has closed file descriptor 4") {
			t.Error(m, err)
		}
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
