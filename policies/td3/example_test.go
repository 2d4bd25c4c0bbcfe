package td3_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/td3"
)

func ExampleTD3() {
	p := td3.New(td3.Config{Obs: envs.NewBox(-1, 1, 3), Action: envs.NewBox(-2, 2, 1), Seed: 7})
	act := policies.Act{Obs: []float32{1, 0, 0}, Action: make([]float32, 1), Greedy: true}
	err := p.Act(&act)
	fmt.Println(err, p.Config().Action.Contains(act.Action), p.Version())
	// Output: <nil> true 0
}
