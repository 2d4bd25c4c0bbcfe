// Package rl has the middleware of reinforcement learning: collecting, learning, evaluating, the
// messages between the nodes that do so, checkpoints and logs.
//
//	t := task.New[rl.Online](node, rl.Roles(node.Size())...)
//	r := rl.New(t, policy, rl.Config{Seed: node.Seed(), Dir: node.Dir(), Resume: node.Resume(), MustResume: node.MustResume()})
//	replay := data.NewReplay(data.NewUniform(data.UniformConfig{Seed: node.Seed()}), data.ReplayConfig{Batch: 64})
//	t.Use(
//		r.Exchange(rl.ExchangeConfig{}),
//		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EverySteps: 1000, StopAt: 475}),
//		r.Collect(envs.CartPole(8), rl.CollectConfig{}),
//		r.Learn(replay, rl.LearnConfig{}),
//		r.Checkpoint(rl.CheckpointConfig{}),
//		r.Log(rl.LogConfig{Terminal: os.Stdout}),
//	)
//	err := t.Run(ctx)
//
// The package depends on no algorithm: an action is a row of a batch. A policy declares the columns
// that it adds and learns from ([policies.Spec]), and a source turns the collected data into the
// batches that the policy learns from ([data.Source]). So the same chain serves off-policy and
// on-policy algorithms.
//
// [Run.Exchange] comes first: the others return an error if it is missing. A middleware does nothing on
// a node that does not have its role. A lone node has all roles and does everything in turn.
//
// # Messages between nodes
//
// The learner publishes its weights as [Weights] and its counters as [Progress] before it waits for any
// message, and then at intervals of updates; the newest replace older ones. In between it sends the counters
// to a collector alone when it has taken some of that collector's data. A collector installs the weights
// before it acts, and sends the data of a step to the learner as one [Trajectory]. The learner takes one
// trajectory per step, and waits if there is none; a collector waits while the learner has not yet taken its
// last [Ahead] trajectories. So with any number of collectors there are as many updates for each env step as
// on a lone node. The evaluator sends its results as [Evaluation], with the weights of the best.
//
// In lockstep, see [ExchangeConfig], one [Turn] carries counters and weights to all
// nodes, each of which answers with one [Trajectory] and its state.
//
// # Offline runs
//
// [Run.Record] writes the collected data of a run to dataset files. A run that learns from such
// files has a [data.Dataset] as its source, no Collect, and one node:
//
//	d, err := data.OpenDataset(data.DatasetConfig{Paths: []string{"data"}, Columns: policy.Spec().Learns, Seed: node.Seed()})
//	t.Use(
//		r.Exchange(rl.ExchangeConfig{}),
//		r.Learn(d, rl.LearnConfig{}),
//		r.Evaluate(envs.CartPole(8), rl.EvalConfig{EveryUpdates: 1000}),
//		r.Checkpoint(rl.CheckpointConfig{}),
//		r.Log(rl.LogConfig{EveryUpdates: 1000, Terminal: os.Stdout}),
//		r.Stop(rl.StopConfig{Updates: 20_000}),
//	)
//
// Each of its steps makes one update; Evaluate comes after Learn, so that the last update is evaluated.
// The run takes no env steps, so Online.EnvSteps stays 0, and updates replace env steps as the unit of
// evaluations and rows of the log (EveryUpdates instead of EverySteps), of the learning rate
// (LearnConfig.Rate), and in the log of time/total_timesteps and time/fps. It is resumed bit for bit, if
// the files have not changed.
//
// # Several learners
//
// With [ExchangeConfig.Learners] several nodes learn, each from its own batches. They make each update
// together: the gradients are averaged over all of them, weighted by rows, before they are clipped. So all
// learners have the same weights and optimiser, bit for bit if their processors use the same kernels.
//
//	t := task.New[rl.Online](node, rl.LearnerRoles(node.Size(), 2)...)
//	t.Use(r.Exchange(rl.ExchangeConfig{Learners: 2}), ...)
//
// Each collector sends its trajectories to the learners in turn. A learner that also has the role collector
// learns from its own environments. All learners begin with the state of the first one, which has the lowest id.
// The first learner publishes, logs and saves; its log counts the env steps and episodes of all, and its losses
// are averages over all. The seeds of the learners' sources should differ, as those of parallel.Node do.
//
// DQN with all extensions, PPO, A2C, IMPALA, APPO, DDPG and discrete SAC compute what one learner with all rows of
// the update would, within the rounding of float32. PPO standardises advantages over the rows of all
// learners; priorities are those of each learner's own buffer. SAC with continuous actions and TD3 draw random
// numbers for each row: they are deterministic and the same on all learners, but not the numbers of one learner.
// With impala.Config.SumLoss the gradient is the average of the learners' sums: that of one learner, divided by the
// number of learners if they have equally many rows. A table, as of qlearning, has no gradients, and one learner only.
//
// A learner with fewer batches in a step than another leaves the other updates of the step to that one, and
// then takes over the policy's state. So no learner waits for a missing batch.
//
// With k learners each update costs each of them k-1 messages of the gradient's size in each direction, and each step
// of the task two short messages to all. Several learners are faster where an update takes much longer than that:
// BenchmarkLearners compares.
//
// When a learner is lost, the job ends with an error that names it, unless it recovers: then the other learners wait
// until it is started again, and log the wait after 10 s. It takes over weights, optimiser and counters from the
// learner with the most updates, and begins with an empty source. Rows that it had not learned from are lost. In
// lockstep the other learners also end, with an error, so that all are started again from the checkpoint; that costs
// each of them one of the launcher's retries.
//
// # Determinism
//
// A lone node computes the same numbers with the same seeds, and continues with them when it is resumed, see [Config]. With several
// nodes the order in which transitions arrive depends on time, except in lockstep. In lockstep the job also computes the same numbers,
// and continues with them after an interruption: the learner's checkpoint holds the states of all nodes after the same step. Several
// learners that collect for themselves, without other collectors, compute the same numbers without lockstep, and continue with them
// when they are resumed. A node that is restarted in a job that recovers receives its state from the learner; when the learner is
// restarted, all nodes go back to its checkpoint.
//
// # Errors
//
// A NaN or an infinity ends the run with an error that names tensor, update and node; such weights
// are neither published nor saved. The loss of a collector does not stop the learner. A faulty
// environment is an *envs.Error.
package rl
