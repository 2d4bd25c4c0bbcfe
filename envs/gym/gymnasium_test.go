package gym

import (
	"flag"
	"os/exec"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
)

var withGymnasium = flag.Bool("gymnasium", false, "compare environments of the installed Gymnasium: make gymnasium")

// TestGymnasium compares environments of the real Gymnasium with those of package envs, seeds included.
//
//	go test ./envs/gym -run TestGymnasium -v -args -gymnasium
func TestGymnasium(t *testing.T) {
	if !*withGymnasium {
		return // make gymnasium
	}
	python := pythonForTests(t)
	if out, err := exec.Command(python, "-c", "import gymnasium").CombinedOutput(); err != nil {
		t.Skipf("gymnasium is not installed for %s: %s -m pip install gymnasium: %v\n%s", python, python, err, out)
	}
	for _, id := range []string{"CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1",
		"FrozenLake-v1", "CliffWalking-v1", "Blackjack-v1"} {
		t.Run(id, func(t *testing.T) {
			spec, err := envs.Lookup(id)
			if err != nil {
				t.Fatal(err)
			}
			for _, mode := range []envs.AutoresetMode{envs.SameStep, envs.NextStep} {
				compare(t, open(t, "gym:"+id, Config{Num: 3, Processes: 2, Autoreset: mode}), spec.Sync(3, mode))
			}
		})
	}
}

// compare plays 1,000 steps of both vectors with the same actions. A composite observation of Gymnasium
// has rows of ones and zeros where that of package envs has numbers, so only the rest is compared.
func compare(t *testing.T, got, want envs.Vector) {
	t.Helper()
	if a, b := got.ActionSpace().String(), want.ActionSpace().String(); a != b {
		t.Errorf("actions in %s, not %s", a, b)
	}
	same := got.ObservationSpace().Dim() == want.ObservationSpace().Dim()
	near := func(a, b []float32) bool {
		return !same || slices.EqualFunc(a, b, func(x, y float32) bool { return max(x-y, y-x) <= 1e-5*max(1, x, -x) })
	}
	a, err := got.Reset(42)
	if err != nil {
		t.Fatal(err)
	}
	b, err := want.Reset(42)
	if err != nil {
		t.Fatal(err)
	}
	if !near(a, b) {
		t.Fatalf("reset: %v, not %v", a, b)
	}
	rng := random()
	actions, space := make([]float32, len(a)/got.ObservationSpace().Dim()*got.ActionSpace().Dim()), got.ActionSpace()
	for step := range 1000 {
		for i, w := 0, space.Dim(); i < len(actions); i += w {
			space.Sample(actions[i:i+w], rng)
		}
		x, err := got.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		y, err := want.Step(actions)
		if err != nil {
			t.Fatal(err)
		}
		rewards := slices.EqualFunc(x.Rewards, y.Rewards, func(a, b float64) bool { return max(a-b, b-a) <= 1e-5*max(1, a, -a) })
		if !near(x.Obs, y.Obs) || !rewards || !slices.Equal(x.Terminated, y.Terminated) || !slices.Equal(x.Truncated, y.Truncated) ||
			!slices.Equal(x.Reset, y.Reset) {
			t.Fatalf("step %d:\n%+v\nnot\n%+v", step, x, y)
		}
	}
}
