package envs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/envs"
)

// play takes random steps and returns what happened.
func play(t *testing.T, v envs.Vector, steps int, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	width := v.ActionSpace().Dim()
	actions := make([]float32, v.Num()*width)
	var all bytes.Buffer
	for range steps {
		for i := range v.Num() {
			v.ActionSpace().Sample(actions[i*width:(i+1)*width], r)
		}
		res, err := v.Step(actions)
		if err != nil {
			t.Fatalf("%s: %v", v.Name(), err)
		}
		d := v.ObservationSpace().Dim()
		for i := range v.Num() {
			if obs := res.Obs[i*d : (i+1)*d]; !v.ObservationSpace().Contains(obs) {
				t.Fatalf("%s: observation %v is not in %v", v.Name(), obs, v.ObservationSpace())
			}
		}
		fmt.Fprintln(&all, res.Obs, res.Rewards, res.Terminated, res.Truncated, res.Reset)
	}
	return all.String()
}

func TestEveryEnvironment(t *testing.T) {
	for _, spec := range envs.Specs() {
		t.Run(spec.ID, func(t *testing.T) {
			v, twin, async := spec.Sync(3, envs.NextStep), spec.Sync(3, envs.SameStep), spec.Async(3, 2, envs.NextStep)
			t.Cleanup(func() { _ = async.Close() })
			if v.Name() != spec.ID || async.Name() != spec.ID || async.Num() != 3 || async.Autoreset() != envs.NextStep {
				t.Errorf("a vector of %s, %s", v.Name(), async.Name())
			}
			for _, x := range []envs.Vector{v, twin, async} {
				if _, err := x.Reset(9); err != nil {
					t.Fatal(err)
				}
			}
			if a, b := play(t, v, 150, 1), play(t, async, 150, 1); a != b {
				t.Error("the asynchronous vector does something else")
			}
			play(t, twin, 150, 1)
			restored(t, spec, v, async)
			for n := range 3 {
				refusesAction(t, spec, n)
			}
			steady(t, v)
		})
	}
}

// restored puts the state of v into others, which must continue as v does.
func restored(t *testing.T, spec envs.Spec, v *envs.Sync, async *envs.Async) {
	state, err := v.AppendSnapshot([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	want := play(t, v, 100, 2)
	again, other := spec.Sync(3, envs.NextStep), spec.Async(3, 3, envs.NextStep)
	defer other.Close()
	for _, x := range []envs.Vector{again, other} {
		rest, err := x.(envs.Snapshotter).RestoreSnapshot(append(slices.Clone(state[1:]), 'y'))
		if err != nil || string(rest) != "y" {
			t.Fatalf("%q left: %v", rest, err)
		}
		if got := play(t, x, 100, 2); got != want {
			t.Errorf("%T, restored, does something else", x)
		}
	}
	if s, err := async.AppendSnapshot(nil); err != nil || !bytes.Equal(s, state[1:]) {
		t.Errorf("the asynchronous vector has another state: %v", err)
	}
	for n := 0; n < len(state)-1; n += 1 + len(state)/50 {
		if _, err := again.RestoreSnapshot(state[1 : 1+n]); err == nil {
			t.Fatalf("%d bytes of %d pass", n, len(state)-1)
		}
	}
}

func refusesAction(t *testing.T, spec envs.Spec, index int) {
	t.Helper()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	bad := []float32{nan}
	if _, ok := spec.Sync(1, envs.NextStep).ActionSpace().(envs.Discrete); ok {
		bad = append(bad, 0.5, -1, 1000, inf, 1<<25)
	}
	v, async := spec.Sync(3, envs.NextStep), spec.Async(3, 2, envs.NextStep)
	defer async.Close()
	for _, x := range []envs.Vector{v, async} {
		actions := make([]float32, 3)
		if _, err := x.Step(actions); !errors.Is(err, envs.ErrNotReset) {
			t.Errorf("a step before the reset: %v", err)
		}
		if _, err := x.Reset(1); err != nil {
			t.Fatal(err)
		}
		before, err := x.(envs.Snapshotter).AppendSnapshot(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range bad {
			actions[index] = a
			var e *envs.Error
			if _, err := x.Step(actions); !errors.As(err, &e) || !errors.Is(err, envs.ErrAction) || e.Index != index || e.Env != spec.ID {
				t.Errorf("action %v of %d: %v", a, index, err)
			}
		}
		if after, err := x.(envs.Snapshotter).AppendSnapshot(nil); err != nil || !bytes.Equal(before, after) {
			t.Errorf("an environment has stepped with a wrong action: %v", err)
		}
		if _, err := x.Step(actions[:2]); err == nil {
			t.Error("two actions pass for three")
		}
	}
}

func steady(t *testing.T, v *envs.Sync) {
	actions := make([]float32, 3)
	k := 0
	if n := testing.AllocsPerRun(200, func() {
		k++
		actions[k%3] = float32(k / 3 % 2)
		if _, err := v.Step(actions); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
}

func FuzzRestoreEverySnapshot(f *testing.F) {
	specs := envs.Specs()
	for i, spec := range specs {
		v := spec.Sync(1, envs.NextStep)
		_, _ = v.Reset(1)
		state, _ := v.AppendSnapshot(nil)
		f.Add(i, state)
	}
	f.Fuzz(func(t *testing.T, i int, src []byte) {
		spec := specs[uint(i)%uint(len(specs))]
		v := spec.Sync(1, envs.NextStep)
		if _, err := v.RestoreSnapshot(src); err == nil {
			for range 3 { // whatever comes, it does not panic
				var e *envs.Error
				if _, err := v.Step([]float32{0}); errors.As(err, &e) && e.Stack != nil {
					t.Fatalf("%v\n%s", err, e.Stack)
				}
			}
		}
		if _, err := v.Reset(1); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLookup(t *testing.T) {
	for _, c := range []struct{ name, id, text string }{
		{"CartPole-v1", "CartPole-v1", ""},
		{"CartPole", "CartPole-v1", ""},
		{"FrozenLake8x8", "FrozenLake8x8-v1", ""},
		{"cartpole", "", `unknown environment "cartpole": the nearest is CartPole-v1`},
		{"Taxi-v3", "", `unknown environment "Taxi-v3": the nearest is Taxi-v4`},
		{"Pendullum", "", `unknown environment "Pendullum": the nearest is Pendulum-v1`},
		{strings.Repeat("x", 1<<20), "", `unknown environment "` + strings.Repeat("x", 64) + `...": the nearest is`},
	} {
		s, err := envs.Lookup(c.name)
		if s.ID != c.id || (err != nil) != (c.text != "") || err != nil && (!errors.Is(err, envs.ErrUnknown) ||
			!strings.HasPrefix(err.Error(), c.text)) {
			t.Errorf("%.20s: %q, %v", c.name, s.ID, err)
		}
	}
	const car = "MountainCarContinuous"
	if s, _ := envs.Lookup(car); s.MaxSteps != 999 || s.Threshold != 90 || !s.HasThreshold || !s.Renders || s.Name != car {
		t.Errorf("%+v", s)
	}
}

func ExampleLookup() {
	spec, err := envs.Lookup("FrozenLake")
	if err != nil {
		fmt.Println(err)
		return
	}
	v := spec.Sync(2, envs.SameStep)
	fmt.Println(spec.ID, spec.MaxSteps, v.ObservationSpace(), v.ActionSpace())
	// Output: FrozenLake-v1 100 Discrete(16) Discrete(4)
}
