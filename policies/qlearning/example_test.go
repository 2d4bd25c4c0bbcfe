package qlearning_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/qlearning"
)

// Two steps to a goal that is worth 1: the value of the first is discounted once.
func ExampleQLearning() {
	q := qlearning.New(qlearning.Config{Obs: envs.Discrete{N: 3}, Action: envs.Discrete{N: 2}, Rate: 1, Gamma: 0.5})
	var b policies.Batch
	b.Init(q.Spec().Learns...)
	b.Append(policies.Transition{Obs: []float32{1}, Action: []float32{1}, NextObs: []float32{2}, Reward: 1, Terminated: true, Steps: 1})
	b.Append(policies.Transition{Obs: []float32{0}, Action: []float32{0}, NextObs: []float32{1}, Steps: 1})
	_, err := q.Learn(&b)
	fmt.Println(err, q.Values(0), q.Values(1))
	act := policies.Act{Obs: []float32{0, 1}, Action: make([]float32, 2), Greedy: true}
	fmt.Println(q.Act(&act), act.Action)
	// Output:
	// <nil> [0.5 0] [0 1]
	// <nil> [0 1]
}
