package a2c_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
)

func ExampleA2C() {
	env := envs.CartPole(1, envs.SameStep)
	p := a2c.New(a2c.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
	act := policies.Act{Obs: []float32{0, 0, 0.1, 0}, Action: make([]float32, 1), Greedy: true}
	err := p.Act(&act)
	fmt.Println(err, p.Spec().Action.Contains(act.Action), p.Version())
	// Output: <nil> true 0
}
