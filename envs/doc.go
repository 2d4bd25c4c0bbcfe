// Package envs holds reinforcement learning environments in Gymnasium's words:
// reset, step, terminated, truncated, info, spaces.
//
//	v := envs.CartPole(8)                // eight CartPole-v1, stepped in turn
//	obs, err := v.Reset(42)              // 8 x 4 float32, seeds 42..49
//	...
//	res, err := v.Step(actions)          // actions []int, one for each
//	for i := range actions {
//		// res.Obs[i*4:(i+1)*4], res.Rewards[i], res.Terminated[i], res.Truncated[i]
//	}
//
// An [Env] is one environment; a [VectorEnv] is several of one kind behind
// flat arrays. Wrappers ([TimeLimit], [RecordEpisodeStatistics]) are
// environments around an environment.
//
// # Seeds
//
// The same seed starts the same episode as in Gymnasium, bit for bit: initial
// states are drawn by package nprand, which reproduces numpy's generator. An
// environment that was never given a seed draws one from the operating system.
//
// # Memory
//
// Observations and vector results belong to the environment and are
// overwritten by its next call: copy what you keep. In return, a step
// allocates nothing.
//
// # Concurrency
//
// Nothing here is safe for concurrent use. Several environments share nothing
// and may be used by several goroutines. Only a Watchdog starts goroutines.
//
// # Errors
//
// A wrong action, a step before the first reset or after the end of an episode
// are errors that say so. [Sync] turns a panic inside an environment, and an
// observation of the wrong length, into an [*Error] that names the environment
// and its index. [Watchdog] makes an error of an environment that hangs, and
// [Sync.ReplaceFaulty] puts another in its place.
package envs
