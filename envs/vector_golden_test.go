package envs

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

type vectorRun struct {
	Mode  string
	Seed  uint64
	Reset values
	Steps []struct {
		A           values
		Obs         values
		R           []float64
		Term, Trunc []bool
		FinalObs    []values `json:"final_obs"`
		ResetMask   []bool   `json:"reset_mask"`
	}
}

// vectors returns the vectors that must all do the same: one that steps as a
// batch, one that does not, and one with several goroutines.
func vectors(t *testing.T, n int, mode AutoresetMode, build func() Env[int]) map[string]Vector {
	fast := NewSync(n, mode, func(int) Env[int] { return build() })
	slow := NewSync(n, mode, func(int) Env[int] { return ClipReward(build(), math.Inf(-1), math.Inf(1)) })
	if fast.fast == nil || slow.fast != nil {
		t.Fatal("a batch where there is none, or the other way round")
	}
	async := NewAsync(n, 2, mode, func(int) Env[int] { return build() })
	t.Cleanup(func() { _ = async.Close() })
	return map[string]Vector{"fast": fast, "slow": slow, "async": async}
}

func TestVectorsEqualGymnasium(t *testing.T) {
	var file struct{ Runs []vectorRun }
	golden(t, "gymnasium-vector", &file)
	if len(file.Runs) != 6 {
		t.Fatalf("%d runs", len(file.Runs))
	}
	modes := map[string]AutoresetMode{"NEXT_STEP": NextStep, "SAME_STEP": SameStep, "DISABLED": Disabled}
	for _, r := range file.Runs {
		mode, ok := modes[r.Mode]
		if !ok {
			t.Fatal(r.Mode)
		}
		for kind, v := range vectors(t, 3, mode, func() Env[int] { return NewCartPole(CartPoleConfig{MaxSteps: 25}) }) {
			t.Run(fmt.Sprintf("%s/%d/%s", r.Mode, r.Seed, kind), func(t *testing.T) { r.follow(t, v) })
		}
	}
}

func (r vectorRun) follow(t *testing.T, v Vector) {
	obs, err := v.Reset(r.Seed)
	if err != nil || far(obs, r.Reset) > 1e-6 {
		t.Fatalf("reset %v, want %v: %v", obs, r.Reset, err)
	}
	for i, w := range r.Steps {
		if w.ResetMask != nil {
			if obs, err := v.ResetSome(w.ResetMask); err != nil || far(obs, w.Obs) > 1e-6 {
				t.Fatalf("step %d: reset of %v: %v, want %v: %v", i, w.ResetMask, obs, w.Obs, err)
			}
			continue
		}
		res, err := v.Step(w.A)
		if err != nil {
			t.Fatal(err)
		}
		if far(res.Obs, w.Obs) > 1e-6 || !slices.Equal(res.Rewards, w.R) || !slices.Equal(res.Terminated,
			w.Term) || !slices.Equal(res.Truncated, w.Trunc) {
			t.Fatalf("step %d: %+v, want %+v", i, res, w)
		}
		for k, final := range w.FinalObs {
			if got := res.FinalObs[4*k : 4*k+4]; len(final) > 0 && far(got, final) > 1e-6 {
				t.Fatalf("step %d: final observation %d is %v, want %v", i, k, got, final)
			}
		}
	}
}

// sameVectors steps the vectors with the same actions and compares all that they
// return, bit for bit.
func sameVectors(t *testing.T, all []Vector, steps int) {
	t.Helper()
	for _, v := range all {
		if _, err := v.Reset(5); err != nil {
			t.Fatal(err)
		}
	}
	n, dim, width := all[0].Num(), all[0].ObservationSpace().Dim(), all[0].ActionSpace().Dim()
	actions, mask := make([]float32, n*width), make([]bool, n)
	for step := range steps {
		for i := range n {
			actionAt(all[0].ActionSpace(), step*7+i*3, actions[i*width:(i+1)*width])
		}
		var want string
		for k, v := range all {
			if v.Autoreset() == Disabled {
				if _, err := v.ResetSome(mask); err != nil {
					t.Fatal(err)
				}
			}
			r, err := v.Step(actions)
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			got := fmt.Sprint(r.Obs, r.Rewards, r.Terminated, r.Truncated, r.Reset)
			for i := range n {
				if r.Terminated[i] || r.Truncated[i] {
					got += fmt.Sprint(r.FinalObs[i*dim:(i+1)*dim], *r.Infos[i].Episode)
				} else if r.Infos[i].Episode != nil {
					got += " an episode where none ended"
				}
			}
			if k == 0 {
				want = got
			}
			if got != want {
				t.Fatalf("step %d of vector %d: %s, want %s", step, k, got, want)
			}
			if k == len(all)-1 {
				for i := range mask {
					mask[i] = r.Terminated[i] || r.Truncated[i]
				}
			}
		}
	}
}

// actionAt fills in an action of the space that depends on k only.
func actionAt(space Space, k int, dst []float32) {
	switch s := space.(type) {
	case Discrete:
		dst[0] = float32(s.Start + (k*k/3)%s.N)
	case Box:
		for i := range dst {
			dst[i] = float32(2.5 * math.Sin(float64(k*(i+1))))
		}
	case MultiDiscrete:
		for i := range dst {
			dst[i] = float32((k + i) % s.N[i])
		}
	}
}

func testAlike[A Action](t *testing.T, mode AutoresetMode, build func() Env[A]) {
	t.Helper()
	whole := func(int) Env[A] { return RecordEpisodeStatistics(TimeLimit(build(), 30)) }
	slow := NewSync(5, mode, func(i int) Env[A] { return ClipReward(whole(i), math.Inf(-1), math.Inf(1)) })
	async := NewAsync(5, 3, mode, whole)
	t.Cleanup(func() { _ = async.Close() })
	sameVectors(t, []Vector{NewSync(5, mode, whole), slow, async}, 200)
}

func TestBatchAndAsyncEqualSync(t *testing.T) {
	for _, mode := range []AutoresetMode{NextStep, SameStep, Disabled} {
		testAlike(t, mode, func() Env[int] { return NewCartPole(CartPoleConfig{}) })
		testAlike(t, mode, func() Env[int] { return NewAcrobot(AcrobotConfig{}) })
		testAlike(t, mode, func() Env[int] { return NewMountainCar(MountainCarConfig{}) })
		testAlike(t, mode, func() Env[[]float32] { return NewMountainCarContinuous(MountainCarConfig{}) })
		testAlike(t, mode, func() Env[[]float32] { return NewPendulum(PendulumConfig{}) })
		testAlike(t, mode, func() Env[int] { return NewTaxi(TaxiConfig{Rainy: true, Fickle: true}) })
		testAlike(t, mode, func() Env[int] { return NewBlackjack(BlackjackConfig{}) })
	}
}

func TestVectorStepsAllocateNothing(t *testing.T) {
	discrete := map[string]func() Env[int]{
		"CartPole":   func() Env[int] { return NewCartPole(CartPoleConfig{MaxSteps: 20}) },
		"Acrobot":    func() Env[int] { return NewAcrobot(AcrobotConfig{MaxSteps: 20}) },
		"FrozenLake": func() Env[int] { return StickyActions(OneHot(NewFrozenLake(FrozenLakeConfig{})), 0.2) },
		"Taxi":       func() Env[int] { return NewTaxi(TaxiConfig{MaxSteps: 20}) },
		"Blackjack":  func() Env[int] { return NewBlackjack(BlackjackConfig{}) },
		"stack": func() Env[int] {
			return NormalizeReward(NormalizeObservation(FrameStack(NewCartPole(CartPoleConfig{}), 4), NormalizeConfig{}), NormalizeConfig{})
		},
	}
	for name, build := range discrete {
		v := NewSync(4, NextStep, func(int) Env[int] { return RecordEpisodeStatistics(build()) })
		noAllocation(t, name, v)
	}
	noAllocation(t, "Pendulum", NewSync(4, SameStep, func(int) Env[[]float32] { return NewPendulum(PendulumConfig{MaxSteps: 20}) }))
	noAllocation(t, "sticky Pendulum", NewSync(4, SameStep, func(int) Env[[]float32] {
		return StickyActions(NewPendulum(PendulumConfig{MaxSteps: 20}), 0.3)
	}))
	noAllocation(t, "wrapped Pendulum", NewSync(4, SameStep, func(int) Env[[]float32] {
		return ClipAction(RescaleAction(NewPendulum(PendulumConfig{MaxSteps: 20}), -1, 1))
	}))
}

func noAllocation(t *testing.T, name string, v Vector) {
	t.Helper()
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	actions := make([]float32, v.Num()*v.ActionSpace().Dim())
	k := 0
	if n := testing.AllocsPerRun(500, func() {
		for i := range v.Num() {
			k++
			w := v.ActionSpace().Dim()
			actionAt(v.ActionSpace(), k, actions[i*w:(i+1)*w])
		}
		if _, err := v.Step(actions); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%s: a step allocates %v times", name, n)
	}
}
