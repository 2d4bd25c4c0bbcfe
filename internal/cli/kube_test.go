//go:build linux

package cli_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// freePorts is the first of so many ports in a row that were free a moment ago.
func freePorts(t *testing.T, count int) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		base := first.Addr().(*net.TCPAddr).Port
		held := []net.Listener{first}
		for k := 1; k < count; k++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+k))
			if err != nil {
				break
			}
			held = append(held, l)
		}
		for _, l := range held {
			_ = l.Close()
		}
		if len(held) == count {
			return base
		}
	}
	t.Fatalf("no %d free ports in a row", count)
	return 0
}

// Three launchers, each with the variables of one pod, are one job: two nodes in
// each say hello to all.
func TestL4PodsAreOneJob(t *testing.T) {
	const pods, workers = 3, 2
	port := freePorts(t, pods*workers)
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
		{"torchrun", nil, func(rank int) []string {
			return []string{fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", pods), "MASTER_ADDR=127.0.0.1", fmt.Sprint("MASTER_PORT=", port)}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var launchers []*job
			var outs []*strings.Builder
			for rank := range pods {
				j := newJob(t, hello, append([]string{"-n", fmt.Sprint(workers)}, c.args...)...)
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
