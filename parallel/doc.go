// Package parallel makes one function a job of many processes.
//
//	func main() { parallel.Main(play) }
//
//	func play(ctx context.Context, node *parallel.Node) error {
//		t := task.New[State](node, task.ByID("learner", "collector"))
//		// t.Use(...), events ...
//		return t.Run(ctx, task.MaxSteps(1000))
//	}
//
// Started by hand, the program runs alone. Started by ditask, by srun or in a
// pod, the environment says which node of how many it is ([Main]). [Run] makes
// all nodes in one process, for tests and debugging: the same function, the same
// events, no sockets.
//
// # Signals and exit codes
//
// SIGTERM and SIGINT end the context of the function with a [task.PreemptError]:
// the task stops its loop, runs the OnFinish hooks, drains, and the process exits
// with 75. In a job that recovers (ditask --auto-recover) the others continue
// without it, else they end too. A second signal, or the end of the grace period,
// ends the process at once. An error is printed once and exits with 1, success
// with 0. A node whose launcher is gone ends by itself.
//
// # Concurrency
//
// A [Node] is safe for concurrent use.
package parallel
