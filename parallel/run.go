package parallel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/task"
)

// Config describes what job [Run] makes. The zero value is a lone node.
type Config struct {
	Nodes    int           // number of nodes; 0 and 1: a lone one
	Topology string        // mesh (the default) or star
	Labels   []string      // the user's labels, on all nodes
	Dir      string        // folder for what the job writes
	Seed     int64         // seed of the job
	Recover  bool          // the loss of a node does not end the job
	Join     time.Duration // how long nodes wait for each other at the start; 0 means a minute
	Logger   *slog.Logger  // slog.Default() if nil
}

// Run makes all nodes of a job in this process and runs fn in each, in a goroutine for
// each, over a network in memory. It returns when all have ended; the error joins
// theirs, each with its node. A function that ends its goroutine by runtime.Goexit has
// failed.
func Run(ctx context.Context, cfg Config, fn Func) error {
	if cfg.Nodes < 0 {
		return fmt.Errorf("parallel: %d nodes", cfg.Nodes)
	}
	topology, err := router.ParseTopology(cfg.Topology)
	if err != nil {
		return fmt.Errorf("parallel: %w", err)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.Default()
	}
	env := control.Env{JobID: "run-" + rand.Text()[:8], Nodes: max(cfg.Nodes, 1), Topology: cfg.Topology, Labels: cfg.Labels,
		Dir: cfg.Dir, Seed: cfg.Seed, AutoRecover: cfg.Recover}
	if cfg.Nodes < 2 {
		return call(ctx, newNode(env, nil, log), fn)
	}
	network := memory.New()
	addr := func(id int) string { return fmt.Sprintf("mem://node.%d", id) }
	nodes := make([]*Node, cfg.Nodes)
	for id := range nodes {
		env.NodeID, env.LocalID = id, id
		rc := router.Config{
			Job: env.JobID, Node: id, Expect: cfg.Nodes, Topology: topology, Incarnation: 1, JoinTimeout: cfg.Join, Elastic: cfg.Recover,
			Transport: network, Listen: addr(id), Logger: log.With("node", id),
		}
		for k := range attachTo(topology, id) {
			rc.Attach = append(rc.Attach, addr(k))
		}
		r, err := router.New(rc)
		if err != nil {
			return err
		}
		nodes[id] = newNode(env, r, rc.Logger)
	}
	errs := make([]error, cfg.Nodes)
	var wg sync.WaitGroup
	for id, n := range nodes {
		wg.Go(func() { errs[id] = call(ctx, n, fn) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// attachTo is the number of lower ids that a node dials.
func attachTo(t router.Topology, id int) int {
	if t == router.Star {
		return min(id, 1)
	}
	return id
}

// PanicError is the panic of a node's function.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is the value and the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// errExited is the error of a function that neither returned nor panicked.
var errExited = errors.New("the node's function ended its goroutine (runtime.Goexit, as FailNow of a test does): return an error instead")

// exitWithin is the time within which the function of a node ends if its goroutine has run the task
// whose Run does not return.
const exitWithin = time.Second

// await returns the error of a node's function from done. Where its goroutine was ended in
// Run, that is the error of Run, which names what has ended it. A function that continues, as
// Run was in another goroutine, may wait for it without success: the log says why.
func (n *Node) await(done <-chan error) error {
	var err, exit error
	select {
	case err = <-done:
		select {
		case exit = <-n.exits:
		default:
			return err
		}
	case exit = <-n.exits:
		late := time.NewTimer(exitWithin)
		defer late.Stop()
		select {
		case err = <-done:
		case <-late.C:
			n.log.Error("run does not return", "err", exit)
			return <-done
		}
	}
	if errors.Is(err, errExited) {
		return exit
	}
	return errors.Join(err, exit)
}

// call runs fn, in a goroutine that it may end, and leaves nothing of the node open.
func call(ctx context.Context, n *Node, fn Func) error {
	done := make(chan error, 1) // one result
	n.called.Store(true)
	go func() {
		err := errExited
		defer func() {
			if v := recover(); v != nil {
				err = &PanicError{v, debug.Stack()}
			}
			done <- err
		}()
		err = n.returned(ctx, fn(ctx, n))
	}()
	err := n.await(done)
	if n.bus != nil {
		leave := n.bus.Close
		if err != nil && !errors.Is(err, task.ErrPreempted) && n.bus.Recovers() {
			leave = n.bus.Abandon
		}
		err = errors.Join(err, leave())
	}
	if n.replay != nil {
		err = errors.Join(err, n.replay.Close())
	}
	n.releaseFolder()
	if err != nil {
		return fmt.Errorf("%s: %w", n.name(), err)
	}
	return nil
}
