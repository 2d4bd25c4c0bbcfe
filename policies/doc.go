// Package policies has the words that reinforcement learning algorithms share:
// transitions and batches of them, what a policy can do, schedules, the choice
// of actions, and n-step returns. Each algorithm is a package below this one:
// qlearning is the smallest, and policytest tests that one keeps the promises
// of [Policy].
//
//	var b policies.Batch                         // rows of named columns
//	b.Init(policies.TransitionColumns(4, 1)...)  // 4 observed values, 1 action value
//	b.Append(policies.Transition{Obs: obs, Action: action, Reward: 1, NextObs: next, Steps: 1})
//
//	eps := policies.Linear(1, 0.05, 10_000)      // a schedule over env steps
//	err := q.Greedy(actions, obs)                // q is a policies.Greedy
//	policies.EpsGreedy(actions, eps(envSteps), q.Actions(), rng)
//
// Names and units: an env step is one step of one environment, an update is one
// change of the weights, and a version counts the updates behind some weights.
// Terminated and truncated are Gymnasium's: after a terminated step there is no
// future value; after a truncated one there is, that of NextObs.
//
// Nothing here is safe for concurrent use. What can be wrong in data from
// outside is found by [Batch.Check].
package policies
