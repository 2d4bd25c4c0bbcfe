package cql_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/cql"
)

func ExampleDiscrete() {
	q := cql.NewDiscrete(cql.DiscreteConfig{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1)}
	err := q.Act(&act)
	fmt.Println(err, q.Config().Action.Contains(act.Action), q.Config().ConservativeWeight)
	// Output: <nil> true 1
}

func ExampleCQL() {
	c := cql.New(cql.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 1), Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1), Greedy: true}
	err := c.Act(&act)
	fmt.Println(err, c.Config().Action.Contains(act.Action), c.Alpha())
	// Output: <nil> true 1
}
