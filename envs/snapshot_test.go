package envs_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/ditask/ditask/envs"
)

func TestP4RestoredVectorGoesOnTheSame(t *testing.T) {
	for _, mode := range []envs.AutoresetMode{envs.NextStep, envs.SameStep} {
		for _, steps := range []int{0, 1, 9, 10, 11, 50} {
			v, again := envs.CartPole(3, mode), envs.CartPole(3, mode)
			_, _ = v.Reset(7)
			for i := range steps {
				if _, err := v.Step([]float32{0, 1, float32(i % 2)}); err != nil {
					t.Fatal(err)
				}
			}
			state, err := v.AppendSnapshot([]byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			rest, err := again.RestoreSnapshot(append(state[1:], 'y'))
			if err != nil || string(rest) != "y" {
				t.Fatal(string(rest), err)
			}
			for i := range 200 {
				a, err1 := v.Step([]float32{0, 1, float32(i % 2)})
				b, err2 := again.Step([]float32{0, 1, float32(i % 2)})
				if err := errors.Join(err1, err2); err != nil {
					t.Fatal(err)
				}
				if x, y := trace(a), trace(b); x != y {
					t.Fatalf("%v, restored after %d steps: step %d gives %s, want %s", mode, steps, i, y, x)
				}
			}
		}
	}
}

func trace(r *envs.Result) string {
	s := fmt.Sprint(r.Obs, r.Rewards, r.Terminated, r.Truncated, r.Reset)
	for _, i := range r.Infos {
		if i.Episode != nil {
			s += fmt.Sprint(*i.Episode)
		}
	}
	return s
}

func TestSnapshotRefuses(t *testing.T) {
	v := envs.CartPole(2)
	_, _ = v.Reset(1)
	state, err := v.AppendSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range state {
		if _, err := envs.CartPole(2).RestoreSnapshot(state[:n]); err == nil {
			t.Fatalf("%d bytes of %d pass", n, len(state))
		}
	}
	if _, err := envs.CartPole(3).RestoreSnapshot(state); err == nil || err.Error() != "snapshot of 2 environments for a vector of 3" {
		t.Errorf("another vector: %v", err)
	}
	if _, err := counts(envs.NextStep, 3).AppendSnapshot(nil); !errors.Is(err, envs.ErrNoSnapshot) {
		t.Errorf("an environment that cannot be saved: %v", err)
	}
}

func FuzzRestoreSnapshot(f *testing.F) {
	v := envs.CartPole(2)
	_, _ = v.Reset(1)
	state, _ := v.AppendSnapshot(nil)
	f.Add(state)
	f.Fuzz(func(t *testing.T, src []byte) {
		v := envs.CartPole(2)
		if _, err := v.RestoreSnapshot(src); err != nil {
			return
		}
		_, _ = v.Step([]float32{0, 1}) // whatever comes, it does not panic
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRestoredVectorHasItsObservations: ResetSome also returns the observations of environments that it does not reset.
func TestRestoredVectorHasItsObservations(t *testing.T) {
	v, again := envs.CartPole(3, envs.Disabled), envs.CartPole(3, envs.Disabled)
	_, _ = v.Reset(7)
	if _, err := v.Step([]float32{0, 1, 1}); err != nil {
		t.Fatal(err)
	}
	state, err := v.AppendSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.RestoreSnapshot(state); err != nil {
		t.Fatal(err)
	}
	mask := []bool{false, true, false}
	want, err1 := v.ResetSome(mask)
	got, err2 := again.ResetSome(mask)
	if err := errors.Join(err1, err2); err != nil || fmt.Sprint(got) != fmt.Sprint(want) || got[0] == 0 {
		t.Errorf("observations %v, want %v: %v", got, want, err)
	}
}

// An environment that was never seeded is so again, whatever random numbers it had.
func TestRestoredEnvironmentHasNoOtherRandomNumbers(t *testing.T) {
	snapshot := func(e envs.Env[int]) []byte {
		b, err := e.(envs.Snapshotter).AppendSnapshot(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	fresh, used := envs.NewCartPole(envs.CartPoleConfig{}), envs.NewCartPole(envs.CartPoleConfig{})
	want := snapshot(fresh)
	if _, _, err := used.Reset(7); err != nil {
		t.Fatal(err)
	}
	if rest, err := used.(envs.Snapshotter).RestoreSnapshot(want); err != nil || len(rest) != 0 {
		t.Fatalf("%v, %d bytes left", err, len(rest))
	}
	if got := snapshot(used); !bytes.Equal(got, want) {
		t.Errorf("its snapshot is %x, want %x", got, want)
	}
}

// TestRestoredEpisodeEndsWhereItWould: by its limit, and what is over stays over.
func TestRestoredEpisodeEndsWhereItWould(t *testing.T) {
	restored := func(e envs.Env[int]) envs.Env[int] {
		t.Helper()
		again := envs.TimeLimit(envs.NewCartPole(envs.CartPoleConfig{}), 3)
		from, ok1 := e.(envs.Snapshotter)
		to, ok2 := again.(envs.Snapshotter)
		if !ok1 || !ok2 {
			t.Fatal("no snapshot")
		}
		state, err := from.AppendSnapshot(nil)
		if err == nil {
			_, err = to.RestoreSnapshot(state)
		}
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	e := envs.TimeLimit(envs.NewCartPole(envs.CartPoleConfig{}), 3)
	if _, _, err := e.Reset(1); err != nil {
		t.Fatal(err)
	}
	step(t, e, 0)
	step(t, e, 1)
	again := restored(e)
	if !step(t, again, 0).Truncated {
		t.Error("the third step of a restored episode is not its last")
	}
	if _, err := restored(again).Step(0); !errors.Is(err, envs.ErrEpisodeOver) {
		t.Errorf("a step after a restored end: %v", err)
	}
}

func TestVectorNeedsAReset(t *testing.T) {
	if _, err := counts(envs.SameStep, 3).Step([]float32{0}); !errors.Is(err, envs.ErrNotReset) {
		t.Errorf("a step before the first reset: %v", err)
	}
}

func TestWatchdogNeedsALimit(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); p != "envs: watchdog of 0s" {
			t.Errorf("panic %q", p)
		}
	}()
	envs.Watchdog[int](&count{}, 0)
}
