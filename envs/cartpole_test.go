package envs_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/ditask/ditask/envs"
)

func TestCartPoleRefuses(t *testing.T) {
	fresh := func() envs.Env[int] { return envs.NewCartPole(envs.CartPoleConfig{}) }
	ended := func() envs.Env[int] {
		env := fresh()
		_, _, _ = env.Reset(1)
		for {
			if s, err := env.Step(0); err != nil || s.Terminated {
				return env
			}
		}
	}
	reset := func() envs.Env[int] {
		env := fresh()
		_, _, _ = env.Reset(1)
		return env
	}
	for _, c := range []struct {
		name   string
		env    envs.Env[int]
		action int
		want   error
		text   string
	}{
		{"before reset", fresh(), 0, envs.ErrNotReset, "CartPole-v1: step before the first reset"},
		{"after the end", ended(), 0, envs.ErrEpisodeOver, "CartPole-v1: step after the end of the episode: call Reset first"},
		{"wrong action", reset(), 2, envs.ErrAction, "CartPole-v1: action outside of the action space: 2 is not in Discrete(2)"},
		{"negative action", reset(), -1, envs.ErrAction, "CartPole-v1: action outside of the action space: -1 is not in Discrete(2)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.env.Step(c.action)
			if !errors.Is(err, c.want) || err.Error() != c.text {
				t.Errorf("error %q, want %q", err, c.text)
			}
		})
	}
	if _, _, err := fresh().Reset(1, 2); !errors.Is(err, envs.ErrSeeds) {
		t.Errorf("two seeds: error %v", err)
	}
}

func TestCartPoleGoesOnWithItsRandomNumbers(t *testing.T) {
	env := envs.NewCartPole(envs.CartPoleConfig{})
	first, _, _ := env.Reset(3)
	a := [4]float32(first)
	second, _, _ := env.Reset()
	b := [4]float32(second)
	if a == b {
		t.Error("a reset without a seed repeats the first state")
	}
	again, _, _ := env.Reset(3)
	if a != [4]float32(again) {
		t.Error("the same seed gives another state")
	}
	if _, _, err := envs.NewCartPole(envs.CartPoleConfig{}).Reset(); err != nil {
		t.Errorf("reset that was never seeded: %v", err)
	}
}

func TestCartPoleSpaces(t *testing.T) {
	env := envs.NewCartPole(envs.CartPoleConfig{})
	space := env.ObservationSpace()
	if obs, _, _ := env.Reset(1); !space.Contains(obs) || space.Dim() != 4 {
		t.Errorf("%v does not contain %v", space, obs)
	}
	box, ok := space.(envs.Box)
	if !ok || box.High[0] != 4.8 || math.Abs(float64(box.High[2])-0.41887903) > 1e-7 {
		t.Errorf("bounds %v", box.High)
	}
	if s := env.ActionSpace(); s.String() != "Discrete(2)" || s.Contains([]float32{2}) || !s.Contains([]float32{1}) {
		t.Errorf("actions %v", s)
	}
}

func ExampleNewCartPole() {
	env := envs.NewCartPole(envs.CartPoleConfig{})
	obs, _, _ := env.Reset(42)
	fmt.Printf("%.4f\n", obs)
	s, _ := env.Step(1)
	fmt.Printf("%.4f %v %v %v\n", s.Obs, s.Reward, s.Terminated, s.Truncated)
	// Output:
	// [0.0274 -0.0061 0.0359 0.0197]
	// [0.0273 0.1885 0.0363 -0.2614] 1 false false
}
