package presets

import (
	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/middleware/rl"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/c51"
	"github.com/ditask/ditask/policies/data"
	"github.com/ditask/ditask/policies/dqn"
	"github.com/ditask/ditask/policies/nn"
	"github.com/ditask/ditask/policies/qlearning"
)

// dqns are those of CleanRL's documentation, of April 2026.
func dqns() (all []Preset) {
	for _, c := range []struct {
		env, published string
		unsolved       bool
	}{
		{"CartPole-v1", "488.7 ± 16.1, mean of 3 seeds", false},
		{"Acrobot-v1", "-91.5 ± 7.2, mean of 3 seeds", false},
		{"MountainCar-v0", "-195.0 ± 8.5, mean of 3 seeds", true},
	} {
		all = append(all, Preset{
			Name: "dqn/" + c.env + "/cleanrl", Settings: "CleanRL's dqn.py", Published: c.published, EnvSteps: 500_000,
			Threshold: thresholds[c.env], Unsolved: c.unsolved,
			Setup: func(seed uint64) Setup {
				s := cleanRL(c.env, seed)
				obs, action := first(s.Envs)
				s.Policy = dqn.New(dqn.Config{
					Obs: obs, Action: action.(envs.Discrete), Seed: seed, Hidden: []int{120, 84}, Init: nn.FanIn, Loss: dqn.MSE, TargetEvery: 50,
					Adam: nn.AdamConfig{Rate: 2.5e-4}, Epsilon: policies.Linear(1, 0.05, 250_000), MaxGradNorm: -1,
				})
				return s
			},
		})
	}
	return all
}

// c51s are those of CleanRL's documentation, of April 2026.
func c51s() (all []Preset) {
	for _, c := range []struct {
		env, published string
		unsolved       bool
	}{
		{"CartPole-v1", "481.2 ± 20.5, mean of 3 seeds", false},
		{"Acrobot-v1", "-87.7 ± 5.5, mean of 3 seeds", false},
		{"MountainCar-v0", "-166.4 ± 27.9, mean of 3 seeds", true},
	} {
		all = append(all, Preset{
			Name: "c51/" + c.env + "/cleanrl", Settings: "CleanRL's c51.py", Published: c.published, EnvSteps: 500_000,
			Threshold: thresholds[c.env], Unsolved: c.unsolved,
			Setup: func(seed uint64) Setup {
				s := cleanRL(c.env, seed)
				obs, action := first(s.Envs)
				s.Policy = c51.New(c51.Config{
					Obs: obs, Action: action.(envs.Discrete), Seed: seed, TargetEvery: 50, Epsilon: policies.Linear(1, 0.05, 250_000),
				})
				return s
			},
		})
	}
	return all
}

// zooDQNs are those of RL Baselines3 Zoo's benchmark, of April 2026.
func zooDQNs() (all []Preset) {
	for _, c := range []struct {
		env, published          string
		envSteps                int
		rate, gamma             float64
		batch, capacity         int
		every, updates          int
		start, target           int // env steps
		exploring, first, final float64
	}{
		{"CartPole-v1", "500, one run", 50_000, 2.3e-3, 0.99, 64, 100_000, 256, 128, 1000, 10, 0.16, 1, 0.04},
		{"Acrobot-v1", "-76.6, one run", 100_000, 6.3e-4, 0.99, 128, 50_000, 4, 4, 1000, 250, 0.12, 1, 0.1},
		{"MountainCar-v0", "-100.8, one run", 120_000, 4e-3, 0.98, 128, 10_000, 16, 8, 1000, 600, 0.2, 1, 0.07},
	} {
		all = append(all, Preset{
			Name: "dqn/" + c.env + "/zoo", Settings: "RL Zoo's for DQN", Published: c.published, EnvSteps: c.envSteps, Greedy: true,
			Threshold: thresholds[c.env],
			Setup: func(seed uint64) Setup {
				vector := vectors(c.env)
				obs, action := first(vector)
				// Targets are replaced every so many env steps there, and every so many updates here. No env step
				// comes between the updates that follow each c.every of them.
				target := max(c.target*c.updates/c.every, c.updates)
				return Setup{
					Policy: dqn.New(dqn.Config{
						Obs: obs, Action: action.(envs.Discrete), Seed: seed, Hidden: []int{256, 256}, Init: nn.FanIn, Gamma: c.gamma, TargetEvery: target,
						Adam: nn.AdamConfig{Rate: c.rate}, MaxGradNorm: 10,
						Epsilon: policies.Linear(c.first, c.final, int(c.exploring*float64(c.envSteps))),
					}),
					Envs: vector, Num: 1, Collect: rl.CollectConfig{VectorSteps: c.every},
					Source: data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: c.capacity, Seed: seed}),
						data.ReplayConfig{Batch: c.batch, StartAt: c.start, Every: c.every, Updates: c.updates}),
				}
			},
		})
	}
	return all
}

// cleanRL is what CleanRL's dqn.py and c51.py have in common.
func cleanRL(env string, seed uint64) Setup {
	return Setup{
		Envs: vectors(env), Num: 1, Collect: rl.CollectConfig{VectorSteps: 10},
		Source: data.NewReplay(data.NewUniform(data.UniformConfig{Capacity: 10_000, Seed: seed}),
			data.ReplayConfig{Batch: 128, StartAt: 10_000, Every: 10}),
	}
}

// tabular are settings of our own: the tasks have a known optimum or a threshold.
func tabular() (all []Preset) {
	for _, c := range []struct {
		env       string
		published string
		last      float64 // rate
		envSteps  int
		threshold float64
	}{
		{"FrozenLake-v1", "Gymnasium's threshold 0.70", 0.01, 300_000, 0.70},
		{"CliffWalking-v1", "the optimum -13", 0.5, 50_000, -13},
		{"Taxi-v4", "", 0.5, 300_000, 7.7},
	} {
		all = append(all, Preset{
			Name: "qlearning/" + c.env + "/ours", Settings: "ours", Published: c.published, EnvSteps: c.envSteps, Greedy: true, Threshold: c.threshold,
			Setup: func(uint64) Setup {
				vector := vectors(c.env)
				if c.env == "CliffWalking-v1" { // its episodes have no time limit
					vector = func(n int) envs.Vector {
						return envs.NewSync(n, envs.SameStep, func(int) envs.Env[int] {
							return envs.RecordEpisodeStatistics(envs.TimeLimit(envs.NewCliffWalking(envs.CliffWalkingConfig{}), 1000))
						})
					}
				}
				obs, action := first(vector)
				return Setup{
					Policy: qlearning.New(qlearning.Config{Obs: obs.(envs.Discrete), Action: action.(envs.Discrete)}),
					Envs:   vector, Num: 1,
					Source: data.NewSequences(data.SequencesConfig{Length: 1}),
					Learn:  rl.LearnConfig{Rate: policies.Linear(0.5, c.last, c.envSteps)},
				}
			},
		})
	}
	return all
}
