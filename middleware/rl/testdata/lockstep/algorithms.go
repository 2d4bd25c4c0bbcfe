package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/appo"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/ddpg"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/her"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/qlearning"
	"github.com/ditask/ditask/policies/qrdqn"
	"github.com/ditask/ditask/policies/rainbow"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/policies/td3"
)

// setup has the parts of a run of one algorithm.
type setup struct {
	policy  policies.Policy
	envs    func(n int) envs.Vector
	collect rl.CollectConfig
	source  data.Source // nil: a dataset file, see open
}

const (
	seed   = 7
	length = 10 // of sequences
)

func cartPoles(n int) envs.Vector { return envs.CartPole(n, envs.SameStep) }

func pendulums(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[[]float32] { return envs.NewPendulum(envs.PendulumConfig{}) })
}

func lakes(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] { return envs.NewFrozenLake(envs.FrozenLakeConfig{}) })
}

// algorithms are small settings of all algorithms and their wrappers.
var algorithms = map[string]func() setup{
	"dqn": func() setup {
		return discrete(dqn.New(dqn.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, NStep: 3, TargetEvery: 20,
			Epsilon: policies.Linear(1, 0.1, 1000),
		}), uniform())
	},
	"dqn with noise and priorities": func() setup {
		return discrete(dqn.New(dqn.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, TargetEvery: 20,
			Double: true, Dueling: true, Noisy: true,
		}), data.NewPrioritised(data.PrioritisedConfig{UniformConfig: data.UniformConfig{Capacity: 300, Seed: seed}}))
	},
	"c51": func() setup {
		return discrete(c51.New(c51.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, Atoms: 11, TargetEvery: 20,
			Epsilon: policies.Linear(1, 0.1, 1000),
		}), uniform())
	},
	"qrdqn": func() setup {
		return discrete(qrdqn.New(qrdqn.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, Quantiles: 10, TargetEvery: 20,
			Epsilon: policies.Linear(1, 0.1, 1000),
		}), uniform())
	},
	"rainbow": func() setup {
		s := discrete(rainbow.New(rainbow.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, Atoms: 11, High: 100, TargetEvery: 20,
		}), data.NewPrioritised(data.PrioritisedConfig{UniformConfig: data.UniformConfig{Capacity: 300, Seed: seed}}))
		return s
	},
	"dqn in hindsight": func() setup {
		bits := envs.NewBitFlip(envs.BitFlipConfig{Bits: 4})
		goal, _ := envs.As[envs.Goal](bits)
		q := dqn.New(dqn.Config{Obs: bits.ObservationSpace(), Action: envs.Discrete{N: 4}, Seed: seed, Hidden: []int{16},
			Epsilon: policies.Constant(0.2)})
		replay := data.NewReplay(uniform(), data.ReplayConfig{Batch: 16, StartAt: 100, Every: 10})
		return setup{
			policy: q, source: her.New(replay, her.Config{Goal: goal, Seed: seed}),
			envs: func(n int) envs.Vector {
				return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] { return envs.NewBitFlip(envs.BitFlipConfig{Bits: 4}) })
			},
		}
	},
	"discrete sac": func() setup {
		return discrete(sac.New(sac.Config{Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}}),
			uniform())
	},
	"qlearning": func() setup {
		q := qlearning.New(qlearning.Config{Obs: envs.Discrete{N: 16}, Action: envs.Discrete{N: 4}})
		s := discrete(q, uniform())
		s.envs = lakes
		return s
	},
	"sac": func() setup {
		env := pendulums(1)
		return continuous(sac.New(sac.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace(), Seed: seed, Hidden: []int{16}}))
	},
	"td3": func() setup {
		env := pendulums(1)
		return continuous(td3.New(td3.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace().(envs.Box), Seed: seed, Hidden: []int{16}}))
	},
	"ddpg": func() setup {
		env := pendulums(1)
		return continuous(ddpg.New(ddpg.Config{Obs: env.ObservationSpace(), Action: env.ActionSpace().(envs.Box), Seed: seed, Hidden: []int{16}}))
	},
	"ppo": func() setup { return onPolicy(ppo.New(onCartPole(nil)), false) },
	"ppo with memory": func() setup {
		return onPolicy(ppo.New(onCartPole(func(c *ppo.Config) { c.LSTM, c.Length = 8, length })), true)
	},
	"normalised ppo with an adaptive penalty": func() setup {
		p := normalize.New(ppo.New(onCartPole(func(c *ppo.Config) { c.KLCoef = 0.2 })), normalize.Config{Rewards: true})
		s := onPolicy(p, false)
		s.source.(*data.Rollout).ScaleRewards(p.ScaleRewards)
		return s
	},
	"a2c": func() setup {
		return onPolicy(a2c.New(a2c.Config{Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}}),
			false)
	},
	"impala": func() setup {
		return sequences(impala.New(impala.Config{Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed,
			Hidden: []int{16}, Length: length}))
	},
	"appo": func() setup {
		return sequences(appo.New(appo.Config{
			Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}, Length: length, KLCoef: 1,
		}))
	},
}

func find(name string) (setup, error) {
	for _, all := range []map[string]func() setup{algorithms, offlineAlgorithms} {
		if f, ok := all[name]; ok {
			return f(), nil
		}
	}
	return setup{}, fmt.Errorf("there is no %q: choose one of %q", name, names())
}

// names returns the names of all algorithms.
func names() []string {
	return append(slices.Sorted(maps.Keys(algorithms)), slices.Sorted(maps.Keys(offlineAlgorithms))...)
}

func uniform() *data.Uniform { return data.NewUniform(data.UniformConfig{Capacity: 300, Seed: seed}) }

func discrete(p policies.Policy, buf data.Buffer) setup {
	return setup{
		policy: p, envs: func(n int) envs.Vector { return envs.CartPole(n) },
		source: data.NewReplay(buf, data.ReplayConfig{Batch: 16, StartAt: 100, Every: 2}),
	}
}

func continuous(p policies.Policy) setup {
	return setup{
		policy: p, envs: pendulums, collect: rl.CollectConfig{RandomSteps: 50},
		source: data.NewReplay(uniform(), data.ReplayConfig{Batch: 16, StartAt: 60, Every: 2}),
	}
}

func onCartPole(change func(*ppo.Config)) ppo.Config {
	cfg := ppo.Config{Obs: cartPoles(1).ObservationSpace(), Action: envs.Discrete{N: 2}, Seed: seed, Hidden: []int{16}}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

func onPolicy(p policies.Policy, recurrent bool) setup {
	return setup{
		policy: p, envs: cartPoles, collect: rl.CollectConfig{VectorSteps: length},
		source: data.NewRollout(data.RolloutConfig{Length: length, Epochs: 2, Minibatches: 2, Seed: seed, Sequences: recurrent}),
	}
}

func sequences(p policies.Policy) setup {
	return setup{
		policy: p, envs: cartPoles, collect: rl.CollectConfig{VectorSteps: length},
		source: data.NewSequences(data.SequencesConfig{Length: length, Batch: 2}),
	}
}
