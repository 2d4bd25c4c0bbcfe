// Package envs holds reinforcement learning environments in Gymnasium's words:
// reset, step, terminated, truncated, info, spaces.
//
//	v := envs.CartPole(8)                // eight CartPole-v1, stepped in turn
//	obs, err := v.Reset(42)              // 8 x 4 float32, seeds 42..49
//	...
//	res, err := v.Step(actions)          // actions []float32, one for each
//	for i := range actions {
//		// res.Obs[i*4:(i+1)*4], res.Rewards[i], res.Terminated[i], res.Truncated[i]
//	}
//
// An [Env] is one environment, with actions of type int, []float32 or []int; a
// [Vector] is several of one kind behind flat float32 arrays, whatever the type
// of their actions: [Sync] steps them in the caller's goroutine, [Async] in
// several. Wrappers ([TimeLimit], [NormalizeObservation], [FrameStack] and
// others) are environments around an environment. [Lookup] finds the
// environments of this package by name.
//
// # Environments
//
// CartPole-v1, Acrobot-v1, MountainCar-v0, MountainCarContinuous-v0,
// Pendulum-v1, FrozenLake-v1, FrozenLake8x8-v1, CliffWalking-v1,
// CliffWalkingSlippery-v1, Taxi-v4 and Blackjack-v1 are those of Gymnasium
// 1.4.0. The tests compare them step by step with trajectories recorded from it:
// tabular ones are equal, the others within 1e-6. BitFlip-v0 is the task of the
// paper on hindsight experience replay; Pong-v0 and Catch-v0 (pixels) are games
// of this package.
//
// There is no LunarLander. Its lander is three bodies with joints and contacts
// in the physics library Box2D, whose solver decides every step: something
// simpler would be another task under the same name.
//
// # Seeds
//
// The same seed starts the same episode as in Gymnasium, bit for bit: random
// numbers are drawn by package nprand, which reproduces numpy's generator. An
// environment that was never given a seed draws one from the operating system.
//
// # Memory
//
// Observations and vector results belong to the environment and are
// overwritten by its next call: copy what you keep. In return, a step of an
// environment of this package or of a Sync allocates nothing.
//
// # Concurrency
//
// Nothing here is safe for concurrent use. Several environments share nothing,
// unless they are given the same [Moments], and may be used by several
// goroutines. Only a Watchdog and an Async start goroutines.
//
// # Errors
//
// A wrong action, a step before the first reset or after the end of an episode
// are errors that report it. A vector turns a panic inside an environment, and an
// observation of the wrong length, into an [*Error] that names the environment
// and its index. [Watchdog] makes an error of an environment that hangs, and
// [ReplaceFaulty] puts another in its place.
package envs
