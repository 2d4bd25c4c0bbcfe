//go:build linux

package launch_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/metrics"
	"github.com/ditask/ditask/parallel/placement"
)

// TestMain runs the tests or, as "child", a node, whose actions are those that the argument after it
// has for the node's id, "0=ok,*=wait"; or, as "launcher", a launcher of such
// nodes, to be killed, or its "watcher"; or, as "farewell", the process that notifies other launchers.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "child" {
		os.Exit(child(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "launcher" {
		os.Exit(launcher(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "farewell" {
		os.Exit(farewell(os.Args[2]))
	}
	if len(os.Args) == 2 && os.Args[1] == "watcher" {
		launch.Watch(os.Stdin)
		os.Exit(0)
	}
	os.Exit(deadline.Each(m, 2*time.Minute).Run())
}

// launcher runs three nodes in a separate run folder.
func launcher(script string) int {
	dir, err := launch.MakeRunDir("test")
	if err != nil {
		panic(err)
	}
	plan, err := placement.New(placement.Flags{Job: "test", Workers: 3, RunDir: dir}, placement.Site{})
	if err != nil {
		panic(err)
	}
	command := childCommand(script)
	l, err := launch.New(launch.Config{Plan: plan, Command: command, Watcher: []string{command[0], "watcher"}, Stdout: os.Stdout})
	if err != nil {
		panic(err)
	}
	r, err := l.Run(neverDone{})
	if err != nil {
		panic(err)
	}
	return r.ExitCode()
}

// neverDone is a context for a process that is killed.
type neverDone struct{}

func (neverDone) Deadline() (deadline time.Time, ok bool) { return }
func (neverDone) Done() <-chan struct{}                   { return nil }
func (neverDone) Err() error                              { return nil }
func (neverDone) Value(any) any                           { return nil }

func childCommand(script string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{self, "child", script}
}

// node is a test node that runs.
type node struct {
	env     control.Env
	client  *control.Client
	signals chan os.Signal
}

func child(script string) int {
	env, present, err := control.Parse(os.LookupEnv)
	if !present || err != nil {
		panic(fmt.Sprint("not a node: ", err))
	}
	for part := range strings.SplitSeq(script, ",") {
		if id, what, _ := strings.Cut(part, "="); id == fmt.Sprint(env.NodeID) {
			sleep(what)
		}
	}
	signal.Ignore(syscall.SIGPIPE)
	n := &node{env: env, signals: make(chan os.Signal, 1)}
	signal.Notify(n.signals, syscall.SIGTERM, syscall.SIGINT)
	if n.client, err = control.Open(env); err != nil {
		panic(err)
	}
	defer func() { _ = n.client.Close() }()
	for part := range strings.SplitSeq(script, ",") {
		who, what, _ := strings.Cut(part, "=")
		if who == "*" || who == fmt.Sprint(env.NodeID) {
			return n.act(what)
		}
	}
	panic("no script for this node")
}

// sleep becomes a program that does not use its control socket, if what names one: an
// "asleep" one, a "deaf" one that ignores signals, or a "parent" that has a child.
func sleep(what string) {
	switch what {
	case "asleep":
	case "deaf":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGCONT)
	case "parent":
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			panic(err)
		}
	default:
		return
	}
	fmt.Printf("waiting pid=%d\n", os.Getpid())
	path, err := exec.LookPath("sleep")
	if err == nil {
		err = syscall.Exec(path, []string{"sleep", "1000"}, os.Environ())
	}
	panic(err)
}

// greet waits for one call of another node, and closes the connection.
func (n *node) greet() {
	l, err := control.Listener(n.env)
	if err != nil {
		panic(err)
	}
	go func() { <-n.client.Gone(); _ = l.Close() }()
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	_ = c.Close()
}

// awaitNode0 returns when node 0 has greeted this one.
func (n *node) awaitNode0() {
	c, err := net.Dial("unix", strings.TrimPrefix(n.env.Attach[0], "unix://"))
	if err != nil {
		panic(err)
	}
	_, _ = c.Read(make([]byte, 1)) // until it closes the connection
	_ = c.Close()
}

func (n *node) act(what string) int {
	if what != "notready" {
		_ = n.client.Ready()
	}
	switch what {
	case "ok":
		_ = n.client.Outcome(control.Outcome{Kind: control.Success, Node: n.env.NodeID})
		return 0
	case "wait":
		return n.wait()
	case "count": // answers every request for metrics, in two parts
		go func() {
			for seq := range n.client.Asked() {
				samples := make([]metrics.Sample, 500)
				for i := range samples {
					samples[i] = metrics.Sample{Name: metrics.TaskSteps, Labels: []string{"event", fmt.Sprint(i)}, Value: float64(i)}
				}
				_ = n.client.Metrics(seq, samples)
			}
		}()
		return n.wait()
	case "stubborn":
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		<-n.client.Gone()
		return 0
	case "chatter": // prints more than any pipe or queue holds, and then waits
		line := strings.Repeat("x", 1<<10-1) + "\n"
		for range 2 << 10 {
			_, _ = os.Stdout.WriteString(line)
		}
		fmt.Fprintln(os.Stderr, "all is written")
		return n.wait()
	case "exit0": // while it runs
		return 0
	case "fail":
		return n.fail(n.env.NodeID, "out of luck", 3)
	case "blame0":
		<-n.signals
		return n.fail(0, "node 0 is lost", 1)
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-n.signals
	case "flaky":
		if n.env.Attempt < 2 {
			return n.fail(n.env.NodeID, fmt.Sprintf("attempt %d of incarnation %d", n.env.Attempt, n.env.Incarnation), 1)
		}
		return n.act("ok")
	case "freeze":
		if n.env.Attempt == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			<-n.signals
		}
		return n.act("ok")
	case "grandchild":
		cmd := exec.Command("sleep", "1000")
		if err := cmd.Start(); err != nil {
			panic(err)
		}
		return n.act("ok")
	case "interval": // which comes with the start
		for n.client.Interval() == 0 {
			select {
			case <-n.client.Gone():
				return 1
			case <-time.After(time.Millisecond):
			}
		}
		fmt.Printf("a status every %v\n", n.client.Interval())
		return n.act("ok")
	case "lines":
		return n.lines()
	case "env":
		return n.show()
	}
	return n.actWithOthers(what)
}

// actWithOthers performs an action that depends on another node.
func (n *node) actWithOthers(what string) int {
	switch what {
	case "stubbornmet": // after a node has dialled it
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		n.greet()
		<-n.client.Gone()
		return 0
	case "failafter": // when node 0 runs and performs its action
		n.awaitNode0()
		return n.fail(n.env.NodeID, "out of luck", 3)
	case "blamefirst": // once node 0 runs and can be notified
		n.awaitNode0()
		return n.fail(0, "node 0 is lost", 1)
	case "failtold":
		n.greet()
		<-n.signals
		return n.fail(n.env.NodeID, "my own fault", 9)
	case "crashmet": // once node 0 runs
		n.awaitNode0()
		return n.act("crash")
	case "meet":
		n.greet()
		return n.act("receive")
	case "receive": // the end of another node
		select {
		case lost := <-n.client.Lost():
			for _, l := range lost {
				fmt.Printf("lost node %d, of this job's incarnations %v: %s\n", l.Node, l.Incarnation > 0, l.Reason)
			}
		case <-n.client.Gone():
		}
		return n.act("ok")
	}
	panic("unknown act " + what)
}

// wait waits for a signal, or for the end of the launcher.
func (n *node) wait() int {
	fmt.Printf("waiting pid=%d\n", os.Getpid())
	select {
	case s := <-n.signals:
		_ = n.client.Outcome(control.Outcome{Kind: control.Preempted, Node: n.env.NodeID})
		if s == syscall.SIGINT {
			return 130
		}
		return 75
	case <-n.client.Gone():
		control.RemoveSocket(n.env.Listen)
		control.KillGroup()
		return 1
	}
}

func (n *node) fail(cause int, text string, code int) int {
	_ = n.client.Outcome(control.Outcome{Kind: control.Failure, Node: cause, Error: text})
	return code
}

// lines writes long lines on both streams, each torn into two writes.
func (n *node) lines() int {
	_ = n.client.Status(control.Status{Role: "collector"})
	for i := range 5000 {
		body := fmt.Sprintf("line %d of %d %s", i, n.env.NodeID, strings.Repeat("x", 300+i%700))
		for _, f := range []*os.File{os.Stdout, os.Stderr} {
			_, _ = f.WriteString(body[:20])
			_, _ = f.WriteString(body[20:] + " end\n")
		}
	}
	fmt.Println(strings.Repeat("y", 200_000))
	fmt.Print("no newline")
	return n.act("ok")
}

// show prints the node's environment, and that it is usable.
func (n *node) show() int {
	l, err := control.Listener(n.env)
	if err != nil {
		panic(err)
	}
	defer func() { _ = l.Close() }()
	network, addr, _ := strings.Cut(n.env.Listen, "://")
	go func() {
		c, err := net.Dial(network, addr)
		if err == nil {
			_ = c.Close()
		}
	}()
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	_ = c.Close()
	fmt.Printf("node=%d local=%d nodes=%d job=%s token=%s topology=%s scheme=%s attach=%d labels=%s dir=%s main=%s other=%s\n",
		n.env.NodeID, n.env.LocalID, n.env.Nodes, n.env.JobID, n.env.Token, n.env.Topology, network, len(n.env.Attach),
		n.env.Labels, filepath.Base(n.env.Dir), n.env.Main, os.Getenv("DITASK_SEED"))
	return n.act("ok")
}
