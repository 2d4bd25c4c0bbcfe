package rainbow_test

import (
	"fmt"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies/rainbow"
)

func ExampleNew() {
	p := rainbow.New(rainbow.Config{Obs: envs.NewBox(-1, 1, 4), Action: envs.Discrete{N: 2}, Seed: 7, Low: 0, High: 100})
	cfg := p.Config()
	fmt.Println(cfg.Atoms, cfg.Double, cfg.Dueling, cfg.Noisy, p.Spec().NStep)
	// Output: 51 true true true 3
}
