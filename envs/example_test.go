package envs_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
)

// An environment is reset, and stepped until an episode ends.
func ExampleEnv() {
	env := envs.TimeLimit(envs.NewCliffWalking(envs.CliffWalkingConfig{}), 20)
	if _, _, err := env.Reset(1); err != nil {
		fmt.Println(err)
	}
	total := 0.0
	for _, action := range []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2} { // up, right along the cliff, down
		s, err := env.Step(action)
		if err != nil {
			fmt.Println(err)
		}
		total += s.Reward
		if s.Terminated || s.Truncated {
			fmt.Println("terminated", s.Terminated, "truncated", s.Truncated)
		}
	}
	fmt.Println("return", total)
	// Output:
	// terminated true truncated false
	// return -13
}

// A vector steps its environments together, over flat arrays. In SameStep mode an
// environment whose episode has ended is reset in the same step.
func ExampleNewSync() {
	v := envs.NewSync(3, envs.SameStep, func(int) envs.Env[int] {
		return envs.RecordEpisodeStatistics(envs.TimeLimit(envs.NewCartPole(envs.CartPoleConfig{}), 5))
	})
	obs, err := v.Reset(7)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(v.Name(), v.ObservationSpace().Dim(), v.ActionSpace(), len(obs))
	for range 5 {
		r, err := v.Step([]float32{0, 1, 0})
		if err != nil {
			fmt.Println(err)
		}
		for i, truncated := range r.Truncated {
			if truncated {
				fmt.Println("environment", i, "return", r.Infos[i].Episode.Return)
			}
		}
	}
	// Output:
	// CartPole-v1 4 Discrete(2) 12
	// environment 0 return 5
	// environment 1 return 5
	// environment 2 return 5
}

func ExampleTimeLimit() {
	env := envs.TimeLimit(envs.NewPendulum(envs.PendulumConfig{}), 3)
	if _, _, err := env.Reset(1); err != nil {
		fmt.Println(err)
	}
	for range 3 {
		s, err := env.Step([]float32{0})
		fmt.Println(s.Terminated, s.Truncated, err)
	}
	// Output:
	// false false <nil>
	// false false <nil>
	// false true <nil>
}

// An action outside the space is an error of an environment; ClipAction makes it the nearest in the space.
func ExampleClipAction() {
	env := envs.NewPendulum(envs.PendulumConfig{})
	if _, _, err := env.Reset(1); err != nil {
		fmt.Println(err)
	}
	clipped := envs.ClipAction(env)
	_, err := clipped.Step([]float32{100})
	fmt.Println(clipped.ActionSpace(), err)
	// Output: Box([-Inf], [+Inf]) <nil>
}

// A state that is a number becomes a row of zeros with a one.
func ExampleOneHot() {
	env := envs.OneHot(envs.NewFrozenLake(envs.FrozenLakeConfig{}))
	obs, _, err := env.Reset(1)
	fmt.Println(obs, err)
	// Output: [1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0] <nil>
}

func ExampleFrameStack() {
	env := envs.FrameStack(envs.NewMountainCar(envs.MountainCarConfig{}), 4)
	fmt.Println(env.ObservationSpace().Dim())
	// Output: 8
}

// The environments whose thresholds Gymnasium states.
func ExampleSpecs() {
	for _, s := range envs.Specs() {
		if s.HasThreshold && s.MaxSteps > 200 {
			fmt.Println(s.ID, s.Threshold, s.MaxSteps)
		}
	}
	// Output:
	// CartPole-v1 475 500
	// CartPolePositions-v1 475 500
	// Acrobot-v1 -100 500
	// MountainCarContinuous-v0 90 999
}
