package c51_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/nn"
)

func ExampleC51() {
	c := c51.New(c51.Config{Obs: envs.NewBox(0, 1, 1), Action: envs.Discrete{N: 2}, Seed: 1, Hidden: []int{16}, Low: -10, High: 10,
		Adam: nn.AdamConfig{Rate: 1e-2}})
	// Action 1 is worth 4, action 0 nothing, and that is the end.
	var b policies.Batch
	b.Init(policies.TransitionColumns(1, 1)...)
	for a := range 2 {
		b.Append(policies.Transition{
			Obs: []float32{1}, NextObs: []float32{1}, Action: []float32{float32(a)}, Reward: float32(4 * a), Terminated: true, Steps: 1,
		})
	}
	for range 500 {
		if _, err := c.Learn(&b); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Printf("%.1f\n", c.Values([]float32{1}).Data[1])
	act := policies.Act{Obs: []float32{1}, Action: make([]float32, 1), Greedy: true}
	fmt.Println(c.Act(&act), act.Action)
	// Output:
	// 4.0
	// <nil> [1]
}
