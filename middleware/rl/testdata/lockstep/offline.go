package main

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/bc"
	"github.com/ditask/ditask/policies/cql"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/nn"
)

// offlineAlgorithms learn from a dataset file, in one process.
var offlineAlgorithms = map[string]func() setup{
	"offline bc":          func() setup { return setup{envs: pendulums, policy: cloning(pendulums(1))} },
	"offline discrete bc": func() setup { return setup{envs: cartPoles, policy: cloning(cartPoles(1))} },
	"offline cql": func() setup {
		env := pendulums(1)
		return setup{envs: pendulums, policy: cql.New(cql.Config{
			Obs: env.ObservationSpace(), Action: env.ActionSpace().(envs.Box), Seed: seed, Hidden: []int{16}, Samples: 2,
		})}
	},
	"offline discrete cql": func() setup {
		return setup{envs: cartPoles, policy: cql.NewDiscrete(cql.DiscreteConfig{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, TargetEvery: 20,
			Adam: nn.AdamConfig{Rate: 1e-3},
		})}
	},
}

func cloning(env envs.Vector) policies.Policy {
	return bc.New(bc.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: seed, Hidden: []int{16}})
}

// open creates a dataset file in dir, unless an earlier start of the run has created it, and makes s
// learn from it.
func (s *setup) open(dir string) error {
	path := filepath.Join(dir, "dataset.safetensors")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		rows, err := random(s.envs(1), 300)
		if err == nil {
			err = data.WriteDataset(path, data.DatasetInfo{}, rows)
		}
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{path}, Columns: s.policy.Spec().Learns, Batch: 16, Seed: seed})
	s.source = d
	return err
}

// random returns transitions of one environment with random actions.
func random(env envs.Vector, n int) (*policies.Batch, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	obs, err := env.Reset(seed)
	var b policies.Batch
	b.Init(policies.TransitionColumns(env.ObservationSpace().Dim(), env.ActionSpace().Dim())...)
	action := make([]float32, env.ActionSpace().Dim())
	for err == nil && b.N < n {
		t := policies.Transition{Obs: append([]float32(nil), obs...), Action: action, Steps: 1}
		env.ActionSpace().Sample(action, rng)
		var res *envs.Result
		if res, err = env.Step(action); err != nil {
			break
		}
		t.Reward, t.Terminated, t.Truncated, t.NextObs = float32(res.Rewards[0]), res.Terminated[0], res.Truncated[0], res.Obs
		if t.Terminated || t.Truncated {
			t.NextObs = res.FinalObs
		}
		b.Append(t)
		obs = res.Obs
	}
	return &b, err
}
