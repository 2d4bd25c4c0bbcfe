// Package control is what a launcher and the nodes that it starts say to each
// other: the environment variables that make a process node k of N, and the
// lines of JSON on a socket between the node and its launcher.
//
// In a node:
//
//	env, present, err := control.Parse(os.LookupEnv) // present: some launcher started us
//	client, err := control.Open(env)                 // works, and does nothing, without a launcher
//	defer client.Close()
//	client.Ready()
//	select {
//	case <-client.Gone(): // the launcher is dead, and the node's socket is removed: end
//		control.KillGroup()
//	case err := <-done:
//		client.Outcome(control.Outcome{Kind: control.Success, Node: env.NodeID})
//	}
//
// The socket is one end of a pair that the launcher keeps ([Pair]): when the
// node reads end-of-file there, its launcher is gone, however it died, and the
// node ends. A node whose launcher is gone writes into a broken pipe: a program
// that wants to end in order ignores SIGPIPE.
//
// # The wire
//
// Each line is one JSON object, at most [MaxLine] bytes with its newline, with
// a member "type". From the node: {"type":"hello"} at once, {"type":"ready"},
// {"type":"alive"} every 2 s from then on, {"type":"status","status":{"role":"learner","step":12,...}} and
// {"type":"outcome","outcome":{"kind":"failure","node":2,"error":"..."}}. From
// the launcher: {"type":"interval","interval_ns":250000000}, how often it would
// like a status; {"type":"metrics","metrics":{"seq":1}}, which the node answers by
// lines of that type with the same seq and samples, the last one with "last":true;
// {"type":"lost","lost":{"node":3,"incarnation":"7","reason":"killed by signal: killed"}},
// when the process of another node has ended without leaving of the job;
// and, when it has read end-of-file, {"type":"bye"}: the node has
// shut down its side, knows that all was read, and leaves. Unknown types and members are ignored, so that either side may
// be newer.
//
// # Concurrency and errors
//
// A [Client] is safe for concurrent use; a [Reader] is for one goroutine. A
// status that cannot be written at once is dropped, never waited for; ready and
// outcome are waited for, up to a second. No error of the socket ends a node:
// only [Client.Gone] does.
package control
