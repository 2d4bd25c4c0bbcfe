// Package task is the engine: a [Task] runs a chain of [Middleware] over a
// context, step after step, and carries typed events between the middleware and
// listeners of this process and of the job's other nodes.
//
//	var Greeting = task.NewEvent[string]("greeting")
//
//	func play(ctx context.Context, node task.Node) error {
//		t := task.New[Context](node, task.ByID("learner", "collector"))
//		Greeting.On(t, func(ctx context.Context, msg string) error { fmt.Println(msg); return nil })
//		t.Use(task.Step(func(ctx context.Context, c *Context) error {
//			return Greeting.Emit(ctx, t, "hi")
//		}))
//		return t.Run(ctx, task.MaxSteps(10))
//	}
//
// # Steps
//
// Middleware run forward in the order of Use, up to their call of next, and
// backward in reverse. The context is one stable pointer that is renewed in place
// after every step: kept fields survive, the others return to their defaults.
// The chain is built once; a step allocates nothing by itself.
//
// # Events and their order
//
// One runner at a time calls the listeners of a task, in order of arrival over
// all events: what one sender emitted, to whatever events, is received here in the
// order of its emits. Two listeners of one event never run concurrently.
//
// A listener that is slow does not stop the others. When it waits for an event,
// or emits to a mailbox that is full, or makes no progress for 10 ms while other
// messages are queued, a new runner takes the queue over. The
// slow one keeps only the mailbox of its own event, which it empties in order
// before it gives it back. So the order per sender holds over all events while
// listeners are quick, and for each event always.
//
// A mailbox holds 4096 messages that were emitted on this node; then a Reliable
// emit blocks until there is room or its context ends. A listener that emits to
// the very mailbox that waits for it is let through, so it cannot stop itself.
// Pass a listener's own ctx to what it calls: it is how the engine knows.
// Messages from other nodes are bounded by the [Bus]. Listeners of two nodes that
// only ever answer each other with more can still fill both sides: then both say
// in the log what they wait for.
//
// # Questions and answers
//
// A wait for an answer begins before the question is emitted, as the answer may be
// here before Emit has returned:
//
//	answer := Answer.Expect(t)
//	defer answer.Stop()
//	if err := Question.Emit(ctx, t, q, task.To("node.1")); err != nil {
//		return err
//	}
//	a, err := answer.Wait(ctx)
//
// [Event.WaitFor] is for a message that will come anyway, such as the next weights.
//
// # The end
//
// The first success of a node ends the job: the other nodes end their step. That is right
// where one node, such as a learner, knows when the work is done. Where all nodes do the
// same work, run all of them under [WaitForAll]: then the job ends when all are done. A
// failure or a preemption ends all nodes in either case.
//
// # Concurrency
//
// All methods are safe for concurrent use, except those that assemble a task
// (Use, UseFor, Wrap, Defaults), which come before Run. A Task owns
// its runners: they have stopped when Run or Close returns, unless a listener
// ignores its context beyond the drain timeout, which is an error naming it. A
// listener that blocks at the end of a run is cut off by its context: see
// [ListenerGrace].
//
// # Errors
//
// Mistakes of assembly panic with "task: ...". Faults at run time are errors:
// [ErrNotStarted], [ErrClosed], [ErrFinished], [ErrPreempted],
// [*ListenerError], [*PanicError], [*WaitError], [*RemoteError]. A step or a hook
// that ends the goroutine of Run by runtime.Goexit fails the task too: the hooks and
// the other nodes receive the error, and the log has it, as Run cannot return it.
package task
