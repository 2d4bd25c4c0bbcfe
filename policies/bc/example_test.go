package bc_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/bc"
)

func ExampleBC() {
	p := bc.New(bc.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.Discrete{N: 2}, Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1), Greedy: true}
	err := p.Act(&act)
	fmt.Println(err, p.Config().Action.Contains(act.Action))
	// Output: <nil> true
}
