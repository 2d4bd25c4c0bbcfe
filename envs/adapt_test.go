package envs_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
)

func TestClipActionsClipsAsTheWrapperDoes(t *testing.T) {
	spec, err := envs.Lookup("MountainCarContinuous-v0")
	if err != nil {
		t.Fatal(err)
	}
	plain, clipped := spec.Sync(2, envs.SameStep), envs.ClipActions(spec.Sync(2, envs.SameStep))
	for _, v := range []envs.Vector{plain, clipped} {
		if _, err := v.Reset(3); err != nil {
			t.Fatal(err)
		}
	}
	wild := []float32{-7, 9}
	a, err1 := plain.Step([]float32{-1, 1})
	b, err2 := clipped.Step(wild)
	if err1 != nil || err2 != nil || !slices.Equal(a.Obs, b.Obs) || !slices.Equal(wild, []float32{-7, 9}) {
		t.Errorf("%v, %v; %v, %v; the actions are %v", a, err1, b, err2, wild)
	}
	if _, err := clipped.Step([]float32{float32(math.NaN()), 0}); !errors.Is(err, envs.ErrAction) {
		t.Errorf("NaN as an action: %v", err)
	}
	state, err := clipped.(envs.Snapshotter).AppendSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := clipped.(envs.Snapshotter).RestoreSnapshot(state); err != nil || len(rest) > 0 {
		t.Error(rest, err)
	}
}

func TestOneHotObservations(t *testing.T) {
	spec, err := envs.Lookup("FrozenLake-v1")
	if err != nil {
		t.Fatal(err)
	}
	numbers, v := spec.Sync(3, envs.SameStep), envs.OneHotObservations(spec.Sync(3, envs.SameStep))
	if d := v.ObservationSpace().Dim(); d != 16 {
		t.Fatalf("%d values, want 16", d)
	}
	check := func(what string, want, got []float32) {
		t.Helper()
		for i, n := range want {
			row := got[i*16 : (i+1)*16]
			for k, x := range row {
				if (x == 1) != (k == int(n)) || x != 0 && x != 1 {
					t.Fatalf("%s %v is encoded as %v", what, n, row)
				}
			}
		}
	}
	a, err1 := numbers.Reset(5)
	b, err2 := v.Reset(5)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	check("the first observation", a, b)
	ended := 0
	for i := range 200 {
		actions := []float32{float32(i % 4), float32(i / 2 % 4), 2}
		a, err1 := numbers.Step(actions)
		b, err2 := v.Step(actions)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		check("observation", a.Obs, b.Obs)
		for k := range a.Terminated {
			if a.Terminated[k] || a.Truncated[k] {
				ended++
				check("the final observation", a.FinalObs[k:k+1], b.FinalObs[k*16:(k+1)*16])
			}
		}
	}
	if ended == 0 {
		t.Error("no episode has ended")
	}
}
