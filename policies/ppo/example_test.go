package ppo_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/ppo"
)

func ExamplePPO() {
	env := envs.CartPole(1, envs.SameStep)
	p := ppo.New(ppo.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: 7})
	act := policies.Act{Obs: []float32{0, 0, 0.1, 0}, Action: make([]float32, 1), Greedy: true}
	err := p.Act(&act)
	fmt.Println(err, p.Spec().Action.Contains(act.Action), p.Version())
	// Output: <nil> true 0
}

// ExampleConfig_lstm acts with a memory: the state stays with the caller.
func ExampleConfig_lstm() {
	p := ppo.New(ppo.Config{Obs: envs.NewBox(-1, 1, 2), Action: envs.Discrete{N: 2}, LSTM: 16, Seed: 7})
	act := policies.Act{
		Obs: []float32{0, 0.1}, Action: make([]float32, 1), Greedy: true, State: make([]float32, p.Spec().StateSize), Reset: []bool{true},
	}
	err := p.Act(&act)
	fmt.Println(err, len(act.State), act.State[0] != 0)
	// Output: <nil> 32 true
}
