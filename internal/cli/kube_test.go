//go:build linux

package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/freeport"
)

// Three launchers, each with the variables of one pod, are one job: two nodes in
// each greet all others.
func TestL4PodsAreOneJob(t *testing.T) {
	const pods, workers = 3, 2
	port := freeport.Get(t, pods*workers)
	for _, c := range []struct {
		name string
		args []string
		env  func(rank int) []string
	}{
		{"DI_NODES", []string{"--ports", fmt.Sprint(port)}, func(rank int) []string {
			return []string{"DI_NODES=127.0.0.1,127.0.0.1,127.0.0.1", fmt.Sprint("DI_RANK=", rank)}
		}},
		{"star", []string{"--ports", fmt.Sprint(port), "--topology", "star"}, func(rank int) []string {
			return []string{"DI_NODES=127.0.0.1,127.0.0.1,127.0.0.1", fmt.Sprint("JOB_COMPLETION_INDEX=", rank)}
		}},
		{"own addresses", []string{"--ports", fmt.Sprint(port)}, func(rank int) []string {
			return []string{"DI_NODES=127.0.0.1,127.0.0.2,127.0.0.3", fmt.Sprint("DI_RANK=", rank)}
		}},
		{"torchrun", nil, func(rank int) []string {
			return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", pods), "MASTER_ADDR=127.0.0.1",
				fmt.Sprint("MASTER_PORT=", port)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var launchers []*job
			var outs []*strings.Builder
			for rank := range pods {
				args := append([]string{"-n", fmt.Sprint(workers)}, c.args...)
				if c.name == "own addresses" {
					args = append(args, "--address", fmt.Sprint("127.0.0.", rank+1))
				}
				j := newJob(t, hello, args...)
				j.Env = append(append(j.Env, "DITASK_TOKEN=0123456789abcdef0123456789abcdef"), c.env(rank)...)
				out := &strings.Builder{}
				j.Stdout = out
				launchers, outs = append(launchers, j), append(outs, out)
				if err := j.Start(); err != nil {
					t.Fatal(err)
				}
			}
			for rank, j := range launchers {
				j.expect(t, j.Wait(), 0)
				for local := range workers {
					if want := fmt.Sprintf("[%d ", rank*workers+local); !strings.Contains(outs[rank].String(), want) {
						t.Errorf("launcher %d: no line of node %d:\n%s%s", rank, rank*workers+local, outs[rank], &j.log)
					}
				}
			}
		})
	}
}

// output is what a job has written so far.
type output struct {
	mu    sync.Mutex
	text  strings.Builder
	grown chan struct{} // closed at the next write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.grown)
	o.grown = make(chan struct{})
	return o.text.Write(b)
}

// await waits until want has been written.
func (o *output) await(t *testing.T, want string) {
	t.Helper()
	limit := time.After(time.Minute) // only a deadlock takes that long
	for {
		o.mu.Lock()
		text, grown := o.text.String(), o.grown
		o.mu.Unlock()
		if strings.Contains(text, want) {
			return
		}
		select {
		case <-grown:
		case <-limit:
			t.Fatalf("no %q in:\n%s", want, text)
		}
	}
}

// Three pods train with the command alone, which is the program of its nodes.
func TestTrainInPods(t *testing.T) {
	const pods = 3
	port := freeport.Get(t, pods)
	var launchers []*job
	var outs []*strings.Builder
	for rank := range pods {
		j := newJob(t, hello)
		j.Args = []string{
			j.Args[0], "train", "ppo", "--env", "CartPole-v1", "--until", "475", "--seed", "1", "--dir", "run", "--ports", fmt.Sprint(port),
		}
		j.Env = append(j.Env, "DITASK_TOKEN=0123456789abcdef0123456789abcdef",
			"DI_NODES=127.0.0.1,127.0.0.1,127.0.0.1", fmt.Sprint("DI_RANK=", rank))
		out := &strings.Builder{}
		j.Stdout = out
		launchers, outs = append(launchers, j), append(outs, out)
		if err := j.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for rank, j := range launchers {
		j.expect(t, j.Wait(), 0)
		if got := strings.Contains(outs[rank].String(), "best evaluation: "); got != (rank == 0) {
			t.Errorf("pod %d: printed the summary of the run: %t, want it of pod 0 only:\n%s", rank, got, outs[rank])
		}
	}
	outcome, err := os.ReadFile(filepath.Join(launchers[0].Dir, "run", "outcome.json"))
	if err != nil || !strings.Contains(string(outcome), "mean return") {
		t.Errorf("outcome.json of pod 0: %s, %v; want the mean return that was reached", outcome, err)
	}
}

// One of three pods gets SIGTERM, as when a job is scaled down: the others continue,
// and are joined by a fourth, whose configuration has a fifth that is not there yet.
func TestL10PodsComeAndGo(t *testing.T) {
	port := freeport.Get(t, 5)
	outs := map[int]*output{}
	pod := func(rank, pods int) *job {
		j := newJob(t, nodes, "--auto-recover", "--ports", fmt.Sprint(port))
		j.Args = append(j.Args, "--", "0=lead", "3=come")
		j.Env = append(j.Env, "DITASK_TOKEN=0123456789abcdef0123456789abcdef", fmt.Sprint("DI_RANK=", rank),
			"DI_NODES="+strings.TrimSuffix(strings.Repeat("127.0.0.1,", pods), ","))
		outs[rank] = &output{grown: make(chan struct{})}
		j.Stdout = outs[rank]
		if err := j.Start(); err != nil {
			t.Fatal(err)
		}
		return j
	}
	first, second, third := pod(0, 3), pod(1, 3), pod(2, 3)
	for rank := range 3 {
		outs[rank].await(t, "pid=")
	}
	if err := third.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	third.expect(t, third.Wait(), 75)
	fourth := pod(3, 5)
	outs[0].await(t, "node 3 is back")
	for _, j := range []*job{first, second, fourth} {
		j.expect(t, j.Wait(), 0)
	}
}

func TestL7NameThatDoesNotResolveIsNamed(t *testing.T) {
	j := newJob(t, hello, "--join-timeout", "300ms")
	j.Env = append(j.Env, "DITASK_TOKEN=0123456789abcdef0123456789abcdef", "DI_NODES=dqn-0.invalid,dqn-1.invalid", "DI_RANK=1")
	out := &strings.Builder{}
	j.Stdout = out
	j.expect(t, j.Run(), 1)
	for _, want := range []string{"waited for node.0 (tcp://dqn-0.invalid:50515: ", "lookup dqn-0.invalid", "the join timeout has passed"} {
		if !strings.Contains(out.String()+j.log.String(), want) {
			t.Errorf("no %q in:\n%s%s", want, out, &j.log)
		}
	}
}
