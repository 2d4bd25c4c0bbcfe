package gym

import (
	"slices"
	"testing"
	"time"

	"github.com/ditask/ditask/envs"
)

// TestSidesThatMissEachOther has steps follow each other after pauses of all lengths, so that Python looks for the next one, begins to
// wait for a message or waits for one, and has this process stop looking at any time too.
func TestSidesThatMissEachOther(t *testing.T) {
	const steps = 5000
	rng := random()
	actions := make([]float32, steps)
	for k := range actions {
		actions[k] = float32(rng.IntN(2))
	}
	played := func(before func(v *Vector)) []float32 {
		v := open(t, cartPole, Config{Num: 1, Processes: 1, Autoreset: envs.SameStep})
		obs, err := v.Reset(1)
		all := slices.Clone(obs)
		for k := 0; k < steps && err == nil; k++ {
			before(v)
			var r *envs.Result
			if r, err = v.Step(actions[k : k+1]); err == nil {
				all = append(all, r.Obs...)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := played(func(v *Vector) { force(v, apart) })
	messages := 0
	got := played(func(v *Vector) {
		m := spinning
		switch rng.IntN(40) {
		case 0:
			m = manner(rng.IntN(4))
		case 1:
			if _, err := v.Frame(0); err == nil { // a message that is no request of a step
				t.Fatal("an environment without pictures has one")
			}
		}
		force(v, m)
		if v.procs[0].spin.sent {
			messages++
		}
		if limit := rng.IntN(120); limit > 20 {
			for until := time.Now().Add(time.Duration(limit) * time.Microsecond); time.Now().Before(until); {
				continue
			}
		}
	})
	if !slices.Equal(got, want) {
		t.Error("some steps were lost, or made twice")
	}
	t.Logf("%d of %d requests were messages", messages, steps)
}
