package sac_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/sac"
)

func ExampleSAC() {
	s := sac.New(sac.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 1), Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1), Greedy: true}
	err := s.Act(&act)
	fmt.Println(err, s.Config().Action.Contains(act.Action), s.Alpha())
	// Output: <nil> true 1
}
