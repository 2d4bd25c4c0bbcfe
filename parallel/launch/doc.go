// Package launch starts the nodes of a plan on this machine and looks after
// them until the job has ended.
//
//	dir, err := launch.MakeRunDir("j1")             // private folder for the sockets
//	defer os.RemoveAll(dir)
//	plan, err := placement.New(placement.Flags{Job: "j1", Workers: 4, RunDir: dir}, placement.Site{})
//	l, err := launch.New(launch.Config{Plan: plan, Command: []string{"./hello"}, Stdout: os.Stdout, Stderr: os.Stderr})
//	result, err := l.Run(ctx)                       // err: could not start
//	result.Report(os.Stderr)                        // which node ended the job, and the exit code
//	os.Exit(result.ExitCode())
//
// # Life of a job
//
// Every listening socket of this launcher's nodes is bound before the first
// process is started, and is inherited by the node: a busy port is one error at
// once, and an address stays the same over restarts. Each node leads its own
// process group, and what is left of a group is killed when its node has ended.
//
// The first failure ends the job: the others get SIGTERM, and SIGKILL after the
// grace period (9.5 s at most, so that the job is gone within 10). A failure that
// a node reports as caused by another node is not the first if the other fails
// too. With Env.AutoRecover a node that failed is started again after an
// exponential back-off, until it has been restarted MaxRetries times. The first success
// gives the others the grace period to end as well, then SIGTERM; in the topology
// alone they are independent and each runs to its end. SIGINT, SIGTERM and
// SIGHUP are forwarded, with the grace period; a SIGINT after that kills at once.
//
// A node has succeeded when it has reported that on its control socket, and its exit
// code is 0. A process that exits with 0 and reports nothing has failed: it called
// os.Exit in the middle of its work, or it never called parallel.Main and is no node.
//
// When the process of a node ends without leave (a crash, a failure), the launcher notifies
// its other nodes at once, before anything else: they give the peer up with that reason.
// The nodes of other launchers learn of it from a process that the launcher starts
// (Config.Farewell), with the environment and the socket of the node, while the launcher
// continues. A restart ends that process, as the new incarnation replaces its message, and
// Run returns when it has ended, after 3 s at most. The nodes also learn whether the node is
// started again, or has failed for the last time, which fails the job on all launchers; with
// Config.Replaced no failure is the last. Without Config.Farewell they notice the end by the
// silence of the node, and do not learn that it is not started again.
//
// A node that ended because the job has failed elsewhere is not started again.
//
// A node that has been ready and then is silent on its control socket for 10 s
// (Config.Silence; a node sends a message every 2 s) is killed: it hangs, or was
// stopped, and that is its failure. A long step is no silence, as the node's
// control.Client sends heartbeats; nor is a time for which the launcher was stopped.
//
// Once a node has succeeded the job has succeeded, unless another node then fails
// by its own fault: a crash, a panic, an error. A straggler does not fail it, but is
// named in a warning: a node that was killed because it did not end within the grace
// period, or that fails only because a node which has succeeded is gone. If something
// reliable was lost with a straggler, its sender reports that, and fails
// instead of succeeding.
//
// When the launcher itself is killed, its nodes read end-of-file on their
// control sockets and end within 3 s; on Linux a node that was stopped is woken for
// that. The watcher, a process beside the launcher (Config.Watcher), kills after 3.5 s
// the remaining process groups of the nodes, whatever they do: programs that
// have not reached parallel.Main, that are stopped or ignore signals, and their
// children. A process that was started in the moment before the launcher was killed is
// found by its environment, on Linux only. A process that has left its group is not found.
//
// # Processors
//
// Each of n nodes gets an n-th of the processors, as GOMAXPROCS, and one at least,
// unless the environment sets that variable.
//
// # Output
//
// Lines of the nodes are written whole, to Stdout what they wrote there and to
// Stderr what they wrote there, each as "[3 learner #0] text": node id, roles
// (or else labels), attempt. In the format json a line is an object with node,
// role, attempt, stream, and text or, if the line is itself an object, record.
// A line over 64 KiB is cut there, and the number of bytes left out is
// appended. The file of a node, node-3.log in LogDir, has all bytes of both
// streams, as they came, after a line for each start; only if both streams write
// at once, a line over 64 KiB may continue after a line of the other stream.
// If a file cannot be written that is said once, and the job continues.
//
// The rules never wait for output. A reader of Stdout or Stderr that is slow slows the
// nodes down, and gets every line. Of one that reads nothing for 3 s (a terminal after
// Ctrl-S, a pager, a hung connection) nodes do not wait any more: lines that do not fit
// into 256 KiB are dropped and counted, which is said where they are missing and at the
// end; the files have them. A reader that has gone ends nothing. See [Stream]. A file
// in LogDir has no such bound: a node whose disk hangs waits for it when it logs.
//
// # Concurrency and errors
//
// A Launcher runs once. Snapshot may be called from any goroutine while Run
// runs; Run returns when no process, goroutine or socket of it is left. Its
// error means that the job was not started; how a started job went is in the Result.
package launch
