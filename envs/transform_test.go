package envs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ditask/ditask/envs"
)

// chooser has actions of several numbers, or of any size, and reports the last.
type chooser[A envs.Action] struct {
	space envs.Space
	last  A
}

func (c *chooser[A]) Name() string                   { return "Chooser" }
func (c *chooser[A]) ObservationSpace() envs.Space   { return envs.NewBox(0, 1, 1) }
func (c *chooser[A]) ActionSpace() envs.Space        { return c.space }
func (c *chooser[A]) result() ([]float32, envs.Info) { return []float32{0}, envs.Info{} }
func (c *chooser[A]) Reset(...uint64) ([]float32, envs.Info, error) {
	obs, info := c.result()
	return obs, info, nil
}

func (c *chooser[A]) Step(action A) (envs.Step, error) {
	c.last = action
	obs, info := c.result()
	return envs.Step{Obs: obs, Info: info}, nil
}

func TestActionsOfSeveralNumbers(t *testing.T) {
	c := &chooser[[]int]{space: envs.MultiDiscrete{N: []int{3, 2}}}
	v := envs.NewSync(1, envs.NextStep, func(int) envs.Env[[]int] { return c })
	if _, err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Step([]float32{2, 1}); err != nil || !slices.Equal(c.last, []int{2, 1}) {
		t.Errorf("took %v: %v", c.last, err)
	}
	for _, bad := range [][]float32{{3, 0}, {0, 2}, {0.5, 0}, {-1, 0}} {
		if _, err := v.Step(bad); !errors.Is(err, envs.ErrAction) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := v.Step([]float32{1}); err == nil || err.Error() != "step Chooser: 1 action values for 1 environments with 2 each" {
		t.Errorf("one value: %v", err)
	}
	defer func() {
		if p := recover(); p != "envs: Chooser has actions of type int for MultiDiscrete([2])" {
			t.Errorf("panic %v", p)
		}
	}()
	envs.NewSync(1, envs.NextStep, func(int) envs.Env[int] { return &chooser[int]{space: envs.MultiDiscrete{N: []int{2}}} })
}

// A box action outside of the bounds is refused, unless the environment or a
// wrapper clips.
func TestBoxActionsAreNotClipped(t *testing.T) {
	inner := &chooser[[]float32]{space: envs.NewBox(-1, 1, 2)}
	v := envs.NewSync(1, envs.NextStep, func(int) envs.Env[[]float32] { return inner })
	clipped := envs.NewSync(1, envs.NextStep, func(int) envs.Env[[]float32] { return envs.ClipAction(inner) })
	scaled := envs.NewSync(1, envs.NextStep, func(int) envs.Env[[]float32] { return envs.RescaleAction(inner, 0, 10) })
	pendulum := envs.NewSync(1, envs.NextStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
	for _, x := range []*envs.Sync{v, clipped, scaled, pendulum} {
		if _, err := x.Reset(1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := v.Step([]float32{0, 1.5}); !errors.Is(err, envs.ErrAction) {
		t.Errorf("outside: %v", err)
	}
	if _, err := clipped.Step([]float32{-7, 1.5}); err != nil || !slices.Equal(inner.last, []float32{-1, 1}) {
		t.Errorf("clipped to %v: %v", inner.last, err)
	}
	if _, err := clipped.Step([]float32{0, float32(math.NaN())}); !errors.Is(err, envs.ErrAction) {
		t.Errorf("NaN, clipped: %v", err)
	}
	if _, err := scaled.Step([]float32{2.5, 10}); err != nil || !slices.Equal(inner.last, []float32{-0.5, 1}) {
		t.Errorf("scaled to %v: %v", inner.last, err)
	}
	if _, err := scaled.Step([]float32{2.5, 11}); !errors.Is(err, envs.ErrAction) {
		t.Errorf("outside, scaled: %v", err)
	}
	if _, err := pendulum.Step([]float32{9}); err != nil {
		t.Errorf("Pendulum clips itself: %v", err)
	}
}

func TestMomentsMergeExactly(t *testing.T) {
	all, parts := envs.NewMoments(2), []*envs.Moments{envs.NewDelta(2), envs.NewDelta(2), envs.NewDelta(2)}
	merged := envs.NewMoments(2)
	for i := range 300 {
		v := []float32{float32(math.Sin(float64(i)) * 5), float32(i%17) - 100}
		all.Add(v)
		parts[i*i%3].Add(v)
	}
	for _, p := range parts {
		merged.Merge(p)
	}
	merged.Merge(envs.NewDelta(2)) // nothing changes nothing
	for i := range 2 {
		if math.Abs(all.Mean[i]-merged.Mean[i]) > 1e-11 || math.Abs(all.Var[i]-merged.Var[i]) > 1e-10 || math.Abs(all.Count-merged.Count) > 1e-9 {
			t.Errorf("merged %+v, want %+v", merged, all)
		}
	}
	text, err := json.Marshal(merged)
	var back envs.Moments
	if err == nil {
		err = json.Unmarshal(text, &back)
	}
	if err != nil || back.Var[1] != merged.Var[1] {
		t.Errorf("JSON: %+v, %v", back, err)
	}
	back.Set(all)
	if back.Mean[0] = 9; all.Mean[0] == 9 {
		t.Error("Set shares memory")
	}
	defer func() {
		if p := recover(); p != "envs: moments of 2 values and of 1" {
			t.Errorf("panic %v", p)
		}
	}()
	merged.Merge(envs.NewDelta(1))
}

func TestNormalizeSharesDeltasAndFreezes(t *testing.T) {
	shared, delta := envs.NewMoments(3), envs.NewDelta(3)
	v := envs.NewSync(2, envs.NextStep, func(int) envs.Env[[]float32] {
		return envs.NormalizeObservation(envs.NewPendulum(envs.PendulumConfig{}), envs.NormalizeConfig{Moments: shared, Delta: delta})
	})
	frozen := envs.NormalizeReward(envs.NormalizeObservation(envs.NewPendulum(envs.PendulumConfig{}),
		envs.NormalizeConfig{Moments: shared, Frozen: true}), envs.NormalizeConfig{Frozen: true})
	if _, err := v.Reset(1); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := v.Step([]float32{1, -1}); err != nil {
			t.Fatal(err)
		}
	}
	if math.Abs(delta.Count-102) > 1e-9 || math.Abs(shared.Count-102.0001) > 1e-9 {
		t.Errorf("seen %v and %v", delta.Count, shared.Count)
	}
	merged := envs.NewMoments(3)
	merged.Merge(delta)
	for i := range 3 {
		if math.Abs(merged.Mean[i]-shared.Mean[i]) > 1e-5 || math.Abs(merged.Var[i]-shared.Var[i]) > 1e-4 {
			t.Errorf("delta gives %+v, shared %+v", merged, shared)
		}
	}
	before := *shared
	if _, _, err := frozen.Reset(1); err != nil {
		t.Fatal(err)
	}
	s, err := frozen.Step([]float32{1})
	if err != nil || shared.Count != before.Count || s.Reward > -1e-3 {
		t.Errorf("frozen: %+v, %v", s, err)
	}
}

func TestStickyActionsRepeat(t *testing.T) {
	c := &chooser[int]{space: envs.Discrete{N: 1000}}
	s := envs.StickyActions[int](c, 0.25)
	repeats := 0
	for range 20 {
		if _, _, err := s.Reset(); err != nil {
			t.Fatal(err)
		}
		before := -1
		for i := range 500 {
			if _, err := s.Step(i); err != nil {
				t.Fatal(err)
			}
			if c.last == before {
				repeats++
			} else if c.last != i {
				t.Fatalf("step %d took %d after %d", i, c.last, before)
			}
			before = c.last
		}
	}
	if repeats < 2200 || repeats > 2800 {
		t.Errorf("%d of 10000 actions were repeated, want about 2500", repeats)
	}
	// With the environment's own random numbers, a seed fixes what is repeated.
	var first []float32
	for range 2 {
		e := envs.StickyActions(envs.NewCartPole(envs.CartPoleConfig{}), 0.5)
		_, _, _ = e.Reset(3)
		var obs []float32
		for i := range 8 {
			r, err := e.Step(i % 2)
			if err != nil {
				t.Fatal(err)
			}
			obs = append(obs, r.Obs...)
		}
		if first == nil {
			first = obs
		}
		if !slices.Equal(first, obs) {
			t.Error("the same seed repeats other actions")
		}
	}
}

func TestWrapperSpacesAndPanics(t *testing.T) {
	lake := envs.OneHot(envs.NewFrozenLake(envs.FrozenLakeConfig{}))
	obs, _, err := lake.Reset(1)
	if err != nil || lake.ObservationSpace().Dim() != 16 || obs[0] != 1 || !lake.ObservationSpace().Contains(obs) {
		t.Errorf("%v in %v: %v", obs, lake.ObservationSpace(), err)
	}
	if n := envs.OneHot(envs.NewBlackjack(envs.BlackjackConfig{})).ObservationSpace().Dim(); n != 45 {
		t.Errorf("Blackjack has %d values, want 32+11+2", n)
	}
	if b, ok := envs.NewCatch(envs.CatchConfig{}).ObservationSpace().(envs.Box); !ok || !b.Pixels || !slices.Equal(b.Shape, []int{4, 42, 42}) {
		t.Errorf("Catch is seen as %v", b)
	}
	clip := envs.ClipReward(envs.NewPendulum(envs.PendulumConfig{}), -0.01, 1)
	if _, _, err := clip.Reset(1); err != nil {
		t.Fatal(err)
	}
	if s, err := clip.Step([]float32{0}); err != nil || s.Reward != -0.01 {
		t.Errorf("clipped to %v: %v", s.Reward, err)
	}
	pole, pendulum := envs.NewCartPole(envs.CartPoleConfig{}), envs.NewPendulum(envs.PendulumConfig{})
	for text, do := range map[string]func(){
		"envs: OneHot of Pendulum-v1: Box([-1 -1 -8], [1 1 8]) has no numbers to choose from": func() { envs.OneHot(pendulum) },
		"envs: FrameStack of 1":                  func() { envs.FrameStack(pole, 1) },
		"envs: StickyActions with probability 1": func() { envs.StickyActions(pole, 1) },
		"envs: ClipReward to [1, -1]":            func() { envs.ClipReward(pole, 1, -1) },
		"envs: RescaleAction to [1, 1]":          func() { envs.RescaleAction(pendulum, 1, 1) },
		"envs: moments of 2 values to normalise 4": func() {
			envs.NormalizeObservation(pole,
				envs.NormalizeConfig{Moments: envs.NewMoments(2)})
		},
		"envs: time limit of 0 steps":          func() { envs.TimeLimit(pole, 0) },
		"envs: -1 bits to flip":                func() { envs.NewBitFlip(envs.BitFlipConfig{Bits: -1}) },
		"envs: a taxi with a probability of 2": func() { envs.NewTaxi(envs.TaxiConfig{FickleProbability: 2}) },
		"envs: a frozen lake with a success rate of 2": func() {
			envs.NewFrozenLake(envs.FrozenLakeConfig{SuccessRate: 2})
		},
		"envs: random lake of 1 cells with 0.8 frozen": func() { envs.RandomLake(1, 0.8, 1) },
		`envs: a frozen lake with rows of different lengths: ["SFF" "F"]`: func() {
			envs.NewFrozenLake(envs.FrozenLakeConfig{Map: []string{"SFF", "F"}})
		},
		`envs: a frozen lake needs a start S, and cells S, F, H and G: ["FX"]`: func() {
			envs.NewFrozenLake(envs.FrozenLakeConfig{Map: []string{"FX"}})
		},
		`envs: RescaleAction of Pendulum-v1: Box([-Inf], [+Inf]) has no bounds`: func() { envs.RescaleAction(envs.ClipAction(pendulum), 0, 1) },
		`envs: ClipAction of Chooser: Discrete(2) is not a box`: func() {
			envs.ClipAction(&chooser[[]float32]{space: envs.Discrete{N: 2}})
		},
	} {
		func() {
			defer func() {
				if p := recover(); p != text {
					t.Errorf("panic %q, want %q", p, text)
				}
			}()
			do()
		}()
	}
}

func TestTaxiMasksAndChangesItsMind(t *testing.T) {
	env := envs.NewTaxi(envs.TaxiConfig{})
	mask := make([]bool, 6)
	m, ok := envs.As[envs.ActionMasker](env)
	if !ok {
		t.Fatal("no masks")
	}
	obs, _, err := env.Reset(7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		m.ActionMask(mask)
		before := obs[0]
		s, err := env.Step(i * i % 6)
		if err != nil {
			t.Fatal(err)
		}
		if obs = s.Obs; mask[i*i%6] != (obs[0] != before) {
			t.Fatalf("step %d: mask %v, %v became %v", i, mask, before, obs[0])
		}
		if s.Terminated {
			break
		}
	}
	changes := 0
	for seed := range uint64(200) {
		env := envs.NewTaxi(envs.TaxiConfig{Fickle: true, MaxSteps: -1})
		obs, _, _ := env.Reset(seed)
		goal, changed := int(obs[0])%4, 0
		r := rand.New(rand.NewPCG(seed, 0))
		for range 1000 {
			s, err := env.Step(r.IntN(6))
			if err != nil {
				t.Fatal(err)
			}
			if now := int(s.Obs[0]) % 4; now != goal {
				goal, changed = now, changed+1
			}
			if s.Terminated {
				break
			}
		}
		if changed > 1 {
			t.Fatalf("seed %d: the passenger changed the destination %d times", seed, changed)
		}
		changes += changed
	}
	if changes == 0 {
		t.Error("no passenger ever changed the destination")
	}
}

func ExampleGoal() {
	env := envs.NewBitFlip(envs.BitFlipConfig{Bits: 4})
	goal, _ := envs.As[envs.Goal](env)
	obs, _, _ := env.Reset(1)
	parts := goal.GoalParts()
	fmt.Println(parts.Achieved.Of(obs), "for", parts.Desired.Of(obs))
	s, _ := env.Step(2)
	fmt.Println(parts.Achieved.Of(s.Obs), s.Reward)
	// Hindsight: what if the goal had been what was achieved?
	fmt.Println(goal.GoalReward(parts.Achieved.Of(s.Obs), parts.Achieved.Of(s.Obs)))
	// Output:
	// [0 1 0 1] for [1 1 0 1]
	// [0 1 1 1] -1
	// 0 true
}

func ExampleNormalizeObservation() {
	seen := envs.NewMoments(3) // save it with the weights
	train := envs.NormalizeObservation(envs.NewPendulum(envs.PendulumConfig{}), envs.NormalizeConfig{Moments: seen})
	test := envs.NormalizeObservation(envs.NewPendulum(envs.PendulumConfig{}), envs.NormalizeConfig{Moments: seen, Frozen: true})
	if _, _, err := train.Reset(1); err != nil {
		fmt.Println(err)
	}
	for range 100 {
		_, _ = train.Step([]float32{1})
	}
	if _, _, err := test.Reset(2); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%.0f\n", seen.Count)
	// Output: 101
}

// TestTransformObservation sees the same course as the environment inside, errors and snapshots included.
func TestTransformObservation(t *testing.T) {
	half := func() envs.Env[int] {
		return envs.TransformObservation(envs.NewCartPole(envs.CartPoleConfig{}), envs.NewBox(-10, 10, 2),
			func(dst, obs []float32) { dst[0], dst[1] = obs[0], -obs[2] })
	}
	whole, part := envs.NewCartPole(envs.CartPoleConfig{}), half()
	if part.ObservationSpace().Dim() != 2 || part.Name() != "CartPole-v1" {
		t.Errorf("%v, %s", part.ObservationSpace(), part.Name())
	}
	want, _, err1 := whole.Reset(5)
	got, _, err2 := part.Reset(5)
	for i := range 8 {
		if err1 != nil || err2 != nil || !slices.Equal(got, []float32{want[0], -want[2]}) {
			t.Fatalf("step %d: %v of %v, %v, %v", i, got, want, err1, err2)
		}
		var a, b envs.Step
		a, err1 = whole.Step(i % 2)
		b, err2 = part.Step(i % 2)
		want, got = a.Obs, b.Obs
	}
	if _, err := part.Step(7); err == nil {
		t.Error("an action outside of the space is taken")
	}
	state, err := part.(envs.Snapshotter).AppendSnapshot(nil)
	if err != nil {
		t.Fatal(err)
	}
	other := half()
	if _, err := other.(envs.Snapshotter).RestoreSnapshot(state); err != nil {
		t.Fatal(err)
	}
	a, err1 := part.Step(0)
	b, err2 := other.Step(0)
	if err1 != nil || err2 != nil || !slices.Equal(a.Obs, b.Obs) {
		t.Errorf("after a snapshot %v and %v", a.Obs, b.Obs)
	}
}
