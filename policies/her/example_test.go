package her_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/her"
)

func ExampleReplay() {
	goal, _ := envs.As[envs.Goal](envs.NewBitFlip(envs.BitFlipConfig{Bits: 15}))
	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 1000, Seed: 7}), data.ReplayConfig{Every: 5})
	source := her.New(replay, her.Config{Goal: goal, Seed: 7})
	var b policies.Batch
	b.Init(policies.TransitionColumns(45, 1)...)
	b.Append(policies.Transition{Obs: make([]float32, 45), Action: []float32{3}, Reward: -1, NextObs: make([]float32, 45), Truncated: true,
		Steps: 1})
	err := source.Add(&b) // an episode of one step: itself, and 4 copies
	fmt.Println(err, source.Len())
	// Output: <nil> 5
}
