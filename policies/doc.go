// Package policies has the types that reinforcement learning algorithms share:
// transitions and batches of them, the interface [Policy], schedules, the choice
// of actions, and n-step returns. Each algorithm is a package below this one:
// qlearning is the smallest. Package policytest tests an implementation of Policy.
//
//	var b policies.Batch                         // rows of named columns
//	b.Init(policies.TransitionColumns(4, 1)...)  // 4 observed values, 1 action value
//	b.Append(policies.Transition{Obs: obs, Action: action, Reward: 1, NextObs: next, Steps: 1})
//
//	act := policies.Act{Obs: obs, Action: make([]float32, n), Rand: rng, EnvSteps: steps}
//	err := policy.Act(&act)                      // policy is a policies.Policy
//	metrics, err := policy.Learn(&b)             // one update
//
// Names and units: an env step is one step of one environment, an update is one
// change of the weights, and a version counts the updates behind some weights.
// Terminated and truncated are Gymnasium's: after a terminated step there is no
// future value; after a truncated one there is, that of NextObs.
//
// Nothing here is safe for concurrent use. [Batch.Check] finds faults in data
// from outside.
package policies
