//go:build linux

package cli_test

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/redistest"
)

// launchers starts two launchers of one job, in which no node is lost by its silence: a with
// nodes 0 and 1, which come after the flags, and b with node 2.
func launchers(t *testing.T, ofA, ofB, both []string, script ...string) (a, b *job, out *bytes.Buffer) {
	t.Helper()
	out = &bytes.Buffer{}
	var jobs [2]*job
	for i, args := range [][]string{slices.Concat([]string{"-n", "2"}, ofA), slices.Concat([]string{"-n", "1", "--node-ids", "2"}, ofB)} {
		args = slices.Concat(args, both, []string{"--job-id", "two", "--token", "0123456789abcdef0123456789abcdef"},
			[]string{"--peer-timeout", "1h", "--"}, script)
		jobs[i] = newJob(t, nodes, args...)
		if i == 0 {
			jobs[i].Stdout = out
		}
		if err := jobs[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	within(t, time.Minute, jobs[:]...)
	return jobs[0], jobs[1], out
}

// overTCP returns the flags of such launchers.
func overTCP(t *testing.T) (ofA, ofB, both []string) {
	port := freeport.Get(t, 2)
	return []string{"--ports", fmt.Sprint(port)}, []string{"--attach-to", fmt.Sprint("tcp://127.0.0.1:", port)}, []string{"--protocol", "tcp"}
}

// A node of the second launcher of a job that recovers fails for the last time, with an error,
// without one, or before the others are connected with it: the nodes of the first launcher end with that failure, and
// are not started again.
func TestL12TheLastFailureIsThatOfAllLaunchers(t *testing.T) {
	for what, reason := range map[string]string{
		"fail": "out of luck", "die": "killed by signal: killed (attempt 1)", "early": "out of luck before it began (attempt 1)",
	} {
		t.Run(what, func(t *testing.T) {
			ofA, ofB, both := overTCP(t)
			a, b, _ := launchers(t, ofA, append(ofB, "--max-retries", "1"), append(both, "--auto-recover"), "2="+what)
			b.expect(t, b.Wait(), map[string]int{"fail": 1, "die": 137, "early": 1}[what])
			a.expect(t, a.Wait(), 1)
			log := a.log.String()
			if !strings.Contains(log, "failed because of node 2") || !strings.Contains(log, reason) || strings.Contains(log, "restart 1 of") {
				t.Errorf("the first launcher says:\n%s", log)
			}
		})
	}
}

// The nodes of another launcher are notified of a crash at once, over any transport of
// messages: it ends the job, or they wait for the restart of the node.
func TestL12ACrashIsKnownToOtherLaunchers(t *testing.T) {
	bus := func(flag string, url string) ([]string, []string, []string) {
		return nil, []string{"--attach-to", "bus://node.0"}, []string{flag, url}
	}
	for name, flags := range map[string]func(*testing.T) ([]string, []string, []string){
		"tcp": overTCP,
		"tls": func(t *testing.T) ([]string, []string, []string) {
			f := certtest.New(t)
			ofA, ofB, both := overTCP(t)
			return ofA, ofB, append(both, "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA)
		},
		"nats":  func(t *testing.T) ([]string, []string, []string) { return bus("--nats-url", external(t)) },
		"redis": func(t *testing.T) ([]string, []string, []string) { return bus("--redis-url", redistest.Start(t).URL()) },
	} {
		t.Run(name, func(t *testing.T) {
			ofA, ofB, both := flags(t)
			a, b, _ := launchers(t, ofA, ofB, both, "2=die")
			b.expect(t, b.Wait(), 137)
			a.expect(t, a.Wait(), 1)
			log := a.log.String()
			if !strings.Contains(log, "failed because of node 2: exit code 1: ") ||
				!strings.Contains(log, "node 2 failed: killed by signal: killed") {
				t.Errorf("the first launcher says:\n%s", log)
			}
			a, b, out := launchers(t, ofA, ofB, append(both, "--auto-recover"), "0=lead", "2=kill")
			b.expect(t, b.Wait(), 0)
			a.expect(t, a.Wait(), 0)
			first := regexp.MustCompile("node.2: (restarted|lost: killed by signal: killed, and will be restarted)") // what was received first
			if log := a.log.String(); !strings.Contains(out.String(), "node 2 is back\n") || !first.MatchString(log) {
				t.Errorf("the first launcher says:\n%s%s", out.String(), log)
			}
		})
	}
}

// In a job that fails, the other nodes end and report that failure: they are not
// preempted.
func TestL11NodesOfAFailedJobAreNotPreempted(t *testing.T) {
	for _, args := range [][]string{{"--", "1=die"}, {"--auto-recover", "--max-retries", "1", "--", "1=die"},
		{"--auto-recover", "--max-retries", "1", "--", "1=early"}} {
		j := newJob(t, nodes, append([]string{"-n", "3", "--protocol", "tcp"}, args...)...)
		if code := code(t, j.Run()); code != 137 && code != 1 {
			t.Errorf("%v: exit code %d", args, code)
		}
		log := j.log.String()
		if strings.Contains(log, "preempted") || strings.Contains(log, "signal: terminated") {
			t.Errorf("%v:\n%s", args, log)
		}
		for _, id := range []int{0, 2} {
			if n := strings.Count(log, fmt.Sprintf("node.%d: ended, because node ", id)); n != 1 {
				t.Errorf("%v: node %d logs it %d times:\n%s", args, id, n, log)
			}
		}
	}
}
