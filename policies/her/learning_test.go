package her

import (
	"math/rand/v2"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
)

func bitFlips(n, bits int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] { return envs.NewBitFlip(envs.BitFlipConfig{Bits: bits}) })
}

// flip trains double DQN to flip that many bits, with hindsight or without, for that many env steps. It returns the
// part of 200 greedy episodes that reach their goals.
func flip(t *testing.T, bits, envSteps int, seed uint64, hindsight bool) float64 {
	t.Helper()
	env, p := bitFlips(8, bits), dqn.New(dqn.Config{
		Obs: envs.MultiBinary{N: 3 * bits}, Action: envs.Discrete{N: bits}, Seed: seed, Hidden: []int{256}, Double: true, Gamma: 0.98, Tau: 0.01,
		Epsilon: policies.Linear(1, 0.1, envSteps/4),
	})
	every := 4 // an update for that many env steps
	var source data.Source
	replay := func(rows int) *data.Replay {
		return data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: rows * 50_000, Seed: seed}), data.ReplayConfig{Batch: 128,
			Every: rows * every})
	}
	source = replay(1)
	if hindsight {
		goal, _ := envs.As[envs.Goal](envs.NewBitFlip(envs.BitFlipConfig{Bits: bits}))
		source = New(replay(5), Config{Goal: goal, Seed: seed})
	}
	var rows, mini policies.Batch
	rows.Init(policies.TransitionColumns(3*bits, 1)...)
	run(t, p, env, seed, false, func(act *policies.Act, res *envs.Result, steps int) bool {
		rows.Resize(0)
		for i := range env.Num() {
			next, d := res.Obs, 3*bits
			if res.Terminated[i] || res.Truncated[i] {
				next = res.FinalObs
			}
			rows.Append(policies.Transition{
				Obs: act.Obs[i*d : (i+1)*d], Action: act.Action[i : i+1], Reward: float32(res.Rewards[i]), NextObs: next[i*d : (i+1)*d],
				Terminated: res.Terminated[i], Truncated: res.Truncated[i], Steps: 1,
			})
		}
		if err := source.Add(&rows); err != nil {
			t.Fatal(err)
		}
		for source.Next(&mini) {
			if _, err := p.Learn(&mini); err != nil {
				t.Fatal(err)
			}
		}
		act.EnvSteps = steps
		return steps < envSteps
	})
	reached, ended := 0.0, 0
	run(t, p, bitFlips(8, bits), seed+1000, true, func(_ *policies.Act, res *envs.Result, _ int) bool {
		for i := range res.Terminated {
			if res.Terminated[i] || res.Truncated[i] {
				ended++
				if res.Terminated[i] {
					reached++
				}
			}
		}
		return ended < 200
	})
	return reached / float64(ended)
}

// run steps env with the actions of p until each reports false.
func run(t *testing.T, p policies.Policy, env envs.Vector, seed uint64, greedy bool, each func(act *policies.Act, res *envs.Result,
	steps int) bool) {
	t.Helper()
	obs, err := env.Reset(seed)
	if err != nil {
		t.Fatal(err)
	}
	act := policies.Act{Obs: make([]float32, len(obs)), Action: make([]float32, env.Num()), Rand: rand.New(rand.NewPCG(seed, 1)),
		Greedy: greedy}
	copy(act.Obs, obs)
	for steps := env.Num(); ; steps += env.Num() {
		if err := p.Act(&act); err != nil {
			t.Fatal(err)
		}
		res, err := env.Step(act.Action)
		if err != nil {
			t.Fatal(err)
		}
		goesOn := each(&act, res, steps)
		copy(act.Obs, res.Obs)
		act.Metrics = act.Metrics[:0]
		if !goesOn {
			return
		}
	}
}

// TestFlipsTenBits with hindsight; without it, the goal is not reached often enough to learn from.
func TestFlipsTenBits(t *testing.T) {
	if testing.Short() {
		t.Skip("a learning test, which make test runs")
	}
	const bits, envSteps = 10, 20_000
	with, without := flip(t, bits, envSteps, 1, true), flip(t, bits, envSteps, 1, false)
	t.Logf("with hindsight %.2f of the goals are reached, without %.2f", with, without)
	if with < 0.9 || without > 0.3 {
		t.Errorf("with hindsight %.2f of the goals are reached, without %.2f; want 0.9 and at most 0.3", with, without)
	}
}
