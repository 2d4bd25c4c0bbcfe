package presets

import (
	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/a2c"
	"github.com/ditask/ditask/policies/appo"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/ddpg"
	"github.com/ditask/ditask/policies/impala"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/normalize"
	"github.com/ditask/ditask/policies/ppo"
	"github.com/ditask/ditask/policies/sac"
	"github.com/ditask/ditask/policies/td3"
)

// pendulums are Pendulum-v1 whose actions are clipped, for policies that leave the bounds of a box.
func pendulums(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[[]float32] {
		return envs.ClipAction(envs.RecordEpisodeStatistics(envs.NewPendulum(envs.PendulumConfig{})))
	})
}

// ppos are those of CleanRL's documentation, of RL Zoo's benchmark and of RLlib's tuned examples, all of
// April 2026.
func ppos() (all []Preset) {
	for _, c := range []struct {
		env, published string
		unsolved       bool
	}{
		{"CartPole-v1", "490.0 ± 6.1, mean of 3 seeds", false},
		{"Acrobot-v1", "-86.4 ± 1.3, mean of 3 seeds", false},
		{"MountainCar-v0", "-200 ± 0, mean of 3 seeds", true},
	} {
		all = append(all, Preset{
			Name: "ppo/" + c.env + "/cleanrl", Settings: "CleanRL's ppo.py", Published: c.published, EnvSteps: 500_000,
			Threshold: thresholds[c.env], Unsolved: c.unsolved, OnPolicy: true,
			Setup: func(seed uint64) Setup {
				vector := vectors(c.env)
				obs, action := first(vector)
				return Setup{
					Policy: ppo.New(ppo.Config{Obs: obs, Action: action, Seed: seed}),
					Envs:   vector, Num: 4, Collect: rl.CollectConfig{VectorSteps: 128},
					Source: data.NewRollout(data.RolloutConfig{Length: 128, Seed: seed}),
					Learn:  rl.LearnConfig{Rate: policies.Linear(2.5e-4, 0, 500_000)},
				}
			},
		})
	}
	return append(all, Preset{
		Name: "ppo/CartPole-v1/zoo", Settings: "RL Zoo's for PPO, the clip kept at 0.2", Published: "500, one run; RLlib's gate: 450 within 300,000", EnvSteps: 100_000,
		Greedy: true, Threshold: 475, OnPolicy: true,
		Setup: func(seed uint64) Setup {
			vector := vectors("CartPole-v1")
			obs, action := first(vector)
			return Setup{
				Policy: ppo.New(ppo.Config{Obs: obs, Action: action, Seed: seed, EntropyCoef: -1, ValueClip: ppo.NoValueClip, Adam: nn.AdamConfig{Rate: 1e-3}}),
				Envs:   vector, Num: 8, Collect: rl.CollectConfig{VectorSteps: 32},
				Source: data.NewRollout(data.RolloutConfig{Length: 32, Gamma: 0.98, Lambda: 0.8, Epochs: 20, Minibatches: 1, Seed: seed}),
				Learn:  rl.LearnConfig{Rate: policies.Linear(1e-3, 0, 100_000)},
			}
		},
	}, Preset{
		Name: "ppo/Pendulum-v1/zoo", Settings: "RL Zoo's for PPO", Published: "-172, one run; RLlib's gate: -300 within 400,000", EnvSteps: 100_000,
		Greedy: true, Threshold: -300, OnPolicy: true,
		Setup: func(seed uint64) Setup {
			obs, action := first(pendulums)
			return Setup{
				Policy: ppo.New(ppo.Config{Obs: obs, Action: action, Seed: seed, EntropyCoef: -1, ValueClip: ppo.NoValueClip, Adam: nn.AdamConfig{Rate: 1e-3}}),
				Envs:   pendulums, Num: 4, Collect: rl.CollectConfig{VectorSteps: 1024},
				// Minibatches of 64 rows, as in Stable-Baselines3.
				Source: data.NewRollout(data.RolloutConfig{Length: 1024, Gamma: 0.9, Lambda: 0.95, Epochs: 10, Minibatches: 64, Seed: seed}),
			}
		},
	})
}

func a2cs() []Preset {
	return []Preset{{
		Name: "a2c/CartPole-v1/zoo", Settings: "RL Zoo's for A2C", Published: "500, one run", EnvSteps: 500_000, Greedy: true, Threshold: 475, OnPolicy: true,
		Setup: func(seed uint64) Setup {
			vector := vectors("CartPole-v1")
			obs, action := first(vector)
			return Setup{
				Policy: a2c.New(a2c.Config{Obs: obs, Action: action, Seed: seed}),
				Envs:   vector, Num: 8, Collect: rl.CollectConfig{VectorSteps: 5},
				Source: data.NewRollout(data.RolloutConfig{Length: 5, Lambda: 1, Epochs: 1, Minibatches: 1, Seed: seed}),
			}
		},
	}}
}

// vtraces are IMPALA and APPO with their defaults, which are RLlib's.
func vtraces() []Preset {
	const length, num = 50, 10
	setup := func(build func(obs, action envs.Space, seed uint64) policies.Policy) func(seed uint64) Setup {
		return func(seed uint64) Setup {
			vector := vectors("CartPole-v1")
			obs, action := first(vector)
			return Setup{
				Policy: build(obs, action, seed), Envs: vector, Num: num, Collect: rl.CollectConfig{VectorSteps: length},
				Source: data.NewSequences(data.SequencesConfig{Length: length, Batch: num}),
			}
		}
	}
	return []Preset{{
		Name: "impala/CartPole-v1/rllib", Settings: "RLlib's defaults", Published: "RLlib's gate: 450 within 2,000,000", EnvSteps: 1_000_000, Threshold: 450,
		Setup: setup(func(obs, action envs.Space, seed uint64) policies.Policy {
			return impala.New(impala.Config{Obs: obs, Action: action, Seed: seed, Length: length})
		}),
	}, {
		Name: "appo/CartPole-v1/rllib", Settings: "RLlib's defaults", Published: "RLlib's gate for IMPALA: 450 within 2,000,000", EnvSteps: 1_000_000, Threshold: 450,
		Setup: setup(func(obs, action envs.Space, seed uint64) policies.Policy {
			return appo.New(appo.Config{Obs: obs, Action: action, Seed: seed, Length: length})
		}),
	}}
}

// replay is that of continuous actions: an update for each env step.
func replay(seed uint64, capacity, start int) data.Source {
	return data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: capacity, Seed: seed}), data.ReplayConfig{Batch: 256, StartAt: start})
}

func sacs() []Preset {
	rate := nn.AdamConfig{Rate: 1e-3}
	return []Preset{{
		Name: "sac/Pendulum-v1/zoo", Settings: "RL Zoo's for SAC", Published: "-157, one run; RLlib's gate: -250 within 20,000", EnvSteps: 20_000, Greedy: true, Threshold: -250,
		Setup: func(seed uint64) Setup {
			vector := vectors("Pendulum-v1")
			obs, action := first(vector)
			return Setup{
				Policy: sac.New(sac.Config{Obs: obs, Action: action, Seed: seed, Actor: rate, Critic: rate}),
				Envs:   vector, Num: 1, Collect: rl.CollectConfig{RandomSteps: 100}, Source: replay(seed, 20_000, 256),
			}
		},
	}, {
		Name: "sac/CartPole-v1/ours", Settings: "ours, for discrete actions", EnvSteps: 60_000, Greedy: true, Threshold: 475,
		Setup: func(seed uint64) Setup {
			vector := vectors("CartPole-v1")
			obs, action := first(vector)
			return Setup{
				Policy: sac.New(sac.Config{
					Obs: obs, Action: action, Seed: seed, Alpha: 1, Hidden: []int{64, 64}, TargetEvery: 1, Tau: 0.01, Actor: rate, Critic: rate,
				}),
				Envs: vector, Num: 1, Collect: rl.CollectConfig{RandomSteps: 1000},
				Source: data.NewReplay(data.NewUniform(data.UniformConfig{Seed: seed}), data.ReplayConfig{Batch: 64}),
			}
		},
	}}
}

// deterministic are TD3 and DDPG.
func deterministic() []Preset {
	rate := nn.AdamConfig{Rate: 1e-3}
	setup := func(build func(obs envs.Space, action envs.Box, seed uint64) policies.Policy) func(seed uint64) Setup {
		return func(seed uint64) Setup {
			vector := vectors("Pendulum-v1")
			obs, action := first(vector)
			return Setup{
				Policy: build(obs, action.(envs.Box), seed), Envs: vector, Num: 1, Collect: rl.CollectConfig{RandomSteps: 10_000},
				Source: replay(seed, 200_000, 10_000),
			}
		}
	}
	return []Preset{{
		Name: "td3/Pendulum-v1/zoo", Settings: "RL Zoo's for TD3", Published: "-152, one run", EnvSteps: 20_000, Greedy: true, Threshold: -250,
		Setup: setup(func(obs envs.Space, action envs.Box, seed uint64) policies.Policy {
			return td3.New(td3.Config{Obs: obs, Action: action, Seed: seed, Hidden: []int{400, 300}, Gamma: 0.98, Actor: rate, Critic: rate})
		}),
	}, {
		Name: "ddpg/Pendulum-v1/zoo", Settings: "RL Zoo's for DDPG", Published: "-152, one run", EnvSteps: 20_000, Greedy: true, Threshold: -250,
		Setup: setup(func(obs envs.Space, action envs.Box, seed uint64) policies.Policy {
			return ddpg.New(ddpg.Config{Obs: obs, Action: action, Seed: seed, Hidden: []int{400, 300}, Gamma: 0.98, ActorEvery: 1, Actor: rate, Critic: rate})
		}),
	}}
}

// positions are CartPole-v1 of which only the positions of cart and pole are observed.
func positions(n int) envs.Vector {
	return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] {
		cartPole := envs.NewCartPole(envs.CartPoleConfig{})
		box := cartPole.ObservationSpace().(envs.Box)
		seen := envs.Box{Low: []float32{box.Low[0], box.Low[2]}, High: []float32{box.High[0], box.High[2]}}
		return envs.RecordEpisodeStatistics(envs.TransformObservation(cartPole, seen, func(dst, obs []float32) { dst[0], dst[1] = obs[0], obs[2] }))
	})
}

// recurrent is the setting of examples/recurrent.
func recurrent() []Preset {
	const length, steps = 32, 400_000
	return []Preset{{
		Name: "ppo/CartPole-v1-positions/ours", Settings: "RL Zoo's of PPO for CartPole-v1, with an LSTM of 64", EnvSteps: steps,
		Greedy: true, Threshold: 475, OnPolicy: true,
		Setup: func(seed uint64) Setup {
			obs, action := first(positions)
			return Setup{
				Policy: normalize.New(ppo.New(ppo.Config{
					Obs: obs, Action: action, Seed: seed, Hidden: []int{64}, LSTM: 64, Length: length, EntropyCoef: -1, ValueClip: ppo.NoValueClip,
				}), normalize.Config{}),
				Envs: positions, Num: 8, Collect: rl.CollectConfig{VectorSteps: length},
				Source: data.NewRollout(data.RolloutConfig{Length: length, Gamma: 0.98, Lambda: 0.8, Epochs: 20, Minibatches: 1, Seed: seed, Sequences: true}),
				Learn:  rl.LearnConfig{Rate: policies.Linear(1e-3, 0, steps)},
			}
		},
	}}
}
