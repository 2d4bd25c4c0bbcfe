//go:build linux

package cli_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// external returns the URL, with its token, of a server that no launcher started.
func external(t *testing.T) string {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Token: "word", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) }) // the context has ended: all clients are processes that have ended
	return strings.Replace(s.URL(), "nats://", "nats://word@", 1)
}

// greetings runs hello, and checks that each node has received each other.
func greetings(t *testing.T, n int, args ...string) {
	t.Helper()
	j := newJob(t, hello, append(args, "-n", fmt.Sprint(n))...)
	var out bytes.Buffer
	j.Stdout = &out
	j.expect(t, j.Run(), 0)
	for from := range n {
		if got := strings.Count(out.String(), fmt.Sprintf("hello from node %d\n", from)); got != n-1 {
			t.Errorf("node %d was received %d times, want %d:\n%s%s", from, got, n-1, out.String(), j.log.String())
		}
	}
}

// finishes runs hello again and again, with 2 and 8 nodes and each of the flags.
func finishes(t *testing.T, flags map[string][]string) {
	t.Helper()
	repeats := 20
	if testing.Short() {
		repeats = 2
	}
	for name, args := range flags {
		for _, n := range []int{2, 8} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				for range repeats {
					greetings(t, n, args...)
					if t.Failed() {
						return
					}
				}
			})
		}
	}
}

func TestL14FinishIsFinishOverNATS(t *testing.T) {
	finishes(t, map[string][]string{
		"launcher":  {"--mq-type", "nats"},
		"star":      {"--mq-type", "nats", "--topology", "star"},
		"elsewhere": {"--nats-url", external(t)},
	})
}

func TestNATSOfTheLauncherWithTLS(t *testing.T) {
	f := certtest.New(t)
	greetings(t, 3, "--mq-type", "nats", "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA)
}

// TestL12FirstNodeComesBackToTheNATSServer: the server continues during the node's restart.
func TestL12FirstNodeComesBackToTheNATSServer(t *testing.T) {
	j := newJob(t, nodes, "-n", "4", "--mq-type", "nats", "--auto-recover", "--", "3=lead", "0=kill")
	var out bytes.Buffer
	j.Stdout = &out
	j.expect(t, j.Run(), 0)
	if log := j.log.String(); !strings.Contains(out.String(), "node 0 is back\n") || strings.Count(log,
		"; restart ") != 1 || strings.Contains(log, "NATS") {
		t.Errorf("out:\n%s\nlog:\n%s", out.String(), log)
	}
}

func TestL11FailureOverNATSIsTheNodes(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--mq-type", "nats", "--", "0=fail")
	j.expect(t, j.Run(), 1)
	if log := j.log.String(); !strings.Contains(log, "ditask: node 0 failed: exit code 1") || strings.Count(log,
		"] node.0: step 1: main.play: out of luck\n") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestL13NATSJobEndsWithItsNodeItsLauncherAndSignals(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--mq-type", "nats", "--grace", "2s")
	_ = syscall.Kill(j.start(t)[0], syscall.SIGKILL)
	j.expect(t, j.Wait(), 137)

	j = newJob(t, nodes, "-n", "3", "--mq-type", "nats")
	j.start(t)
	_ = j.Process.Kill()
	_ = j.Wait()
	if left := leak.Await(j.watch.Left, 5*time.Second); len(left) > 0 {
		t.Errorf("left after 5 s: %v", left)
	}

	j = newJob(t, nodes, "-n", "3", "--mq-type", "nats")
	j.start(t)
	_ = j.Process.Signal(syscall.SIGTERM)
	j.expect(t, j.Wait(), 75)
}

// within ends the test's processes when it takes longer than d, so that a wait for
// them always ends.
func within(t *testing.T, d time.Duration, jobs ...*job) {
	t.Helper()
	timer := time.AfterFunc(d, func() {
		t.Errorf("not done within %v", d)
		for _, j := range jobs {
			_ = j.Process.Kill()
		}
	})
	t.Cleanup(func() { timer.Stop() })
}

// TestNATSNodeThatIsPreemptedEndsARecoveringJob: the job ends in order, also where
// node 0 is the one.
func TestNATSNodeThatIsPreemptedEndsARecoveringJob(t *testing.T) {
	for id := range 2 {
		j := newJob(t, nodes, "-n", "3", "--mq-type", "nats", "--auto-recover")
		pids := j.start(t)
		within(t, 30*time.Second, j)
		_ = syscall.Kill(pids[id], syscall.SIGTERM)
		j.expect(t, j.Wait(), 75)
	}
}

// half is one of two launchers of a job, with its node.
type half struct {
	*job
	pid int // of its node
}

// halves starts two launchers of one job, of which the first has the NATS server, and
// returns when each of their nodes is in its first step.
func halves(t *testing.T, args ...string) [2]half {
	t.Helper()
	port := fmt.Sprint(freeport.Get(t, 1))
	var both [2]half
	steps := make(chan half, 2)
	for rank := range both {
		j := newJob(t, nodes, append([]string{"--local_rank", fmt.Sprint(rank), "--job-id", "two", "--token", "0123456789abcdef", "--ports",
			port, "--mq-type", "nats"}, args...)...)
		out, err := j.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h, in := half{job: j}, bufio.NewReader(out)
			line, _ := in.ReadString('\n')
			if _, pid, ok := strings.Cut(line, "pid="); ok {
				_, _ = fmt.Sscan(pid, &h.pid)
			}
			steps <- h
			_, _ = io.Copy(io.Discard, in)
		}()
		t.Cleanup(func() {
			_ = j.Process.Kill()
			<-ended
		})
		both[rank].job = j
	}
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for range both {
		select {
		case h := <-steps:
			if h.pid == 0 {
				t.Fatal("a node did not start")
			}
			for i := range both {
				if both[i].job == h.job {
					both[i].pid = h.pid
				}
			}
		case <-late.C:
			t.Fatal("the nodes do not start")
		}
	}
	return both
}

// gone kills a launcher and its node, and waits for both.
func (h half) gone(t *testing.T) {
	t.Helper()
	_ = h.Process.Signal(syscall.SIGSTOP) // it restarts nothing, and reports nothing
	_ = syscall.Kill(h.pid, syscall.SIGKILL)
	_ = h.Process.Kill()
	_ = h.Wait()
	if left := leak.Await(h.watch.Left, 5*time.Second); len(left) > 0 {
		t.Errorf("left after 5 s: %v", left)
	}
}

// TestNATSLossIsReportedInTime: a launcher and its node are killed, or the launcher is
// stopped, and the node of the other one reports a loss. The first has the server.
func TestNATSLossIsReportedInTime(t *testing.T) {
	kill := func(t *testing.T, h half) { h.gone(t) }
	stop := func(_ *testing.T, h half) { _ = h.Process.Signal(syscall.SIGSTOP) }
	for _, c := range []struct {
		name string
		rank int
		hit  func(t *testing.T, h half)
	}{{"server killed", 0, kill}, {"server stopped", 0, stop}, {"other killed", 1, kill}} {
		t.Run(c.name, func(t *testing.T) {
			both := halves(t, "--peer-timeout", "2s", "--", "0=emit", "1=emit")
			other := both[1-c.rank]
			within(t, 30*time.Second, other.job)
			c.hit(t, both[c.rank])
			other.expect(t, other.Wait(), 1)
			if log := other.log.String(); !strings.Contains(log, fmt.Sprintf("node.%d: lost: silent for", c.rank)) {
				t.Errorf("log:\n%s", log)
			}
			if both[c.rank].ProcessState == nil {
				both[c.rank].gone(t)
			}
		})
	}
}

// TestNATSLauncherComesBack: the launcher that has the server is killed, with its node,
// and started again, as a replaced pod. The job continues.
func TestNATSLauncherComesBack(t *testing.T) {
	both := halves(t, "--auto-recover", "--peer-timeout", "2s", "--", "1=lead")
	within(t, 40*time.Second, both[1].job)
	both[0].gone(t)
	args := append([]string(nil), both[0].Args[3:]...) // without the program of ditask, and --package with its own
	again := newJob(t, nodes, append(args, "0=call")...)
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	within(t, 30*time.Second, again)
	both[1].expect(t, both[1].Wait(), 0)
	again.expect(t, again.Wait(), 0)
}

// TestNATSLaunchersEndTogether: the launcher with the server, or its node, gets a signal to end, and the other
// launcher's node drains through the server.
func TestNATSLaunchersEndTogether(t *testing.T) {
	for what, target := range map[string]func(h half) int{
		"node":     func(h half) int { return h.pid },
		"launcher": func(h half) int { return h.Process.Pid },
	} {
		t.Run(what, func(t *testing.T) {
			both := halves(t)
			within(t, 30*time.Second, both[0].job, both[1].job)
			_ = syscall.Kill(target(both[0]), syscall.SIGTERM)
			for _, h := range both {
				h.expect(t, h.Wait(), 75)
				if strings.Contains(h.log.String(), "NATS") {
					t.Errorf("log:\n%s", h.log.String())
				}
			}
		})
	}
}

// TestWaitOfTheNATSServerIsBounded: the other launcher and its node are stopped, and
// stay connected. The first launcher ends nevertheless.
func TestWaitOfTheNATSServerIsBounded(t *testing.T) {
	both := halves(t, "--grace", "3s")
	within(t, 30*time.Second, both[0].job)
	_ = both[1].Process.Signal(syscall.SIGSTOP)
	_ = syscall.Kill(both[1].pid, syscall.SIGSTOP)
	_ = both[0].Process.Signal(syscall.SIGTERM)
	if got := code(t, both[0].Wait()); got == 0 {
		t.Errorf("exit code %d:\n%s", got, both[0].log.String())
	}
	both[1].gone(t)
}

func TestL16NATSFaultsAreOneLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	j := newJob(t, hello, "-n", "2", "--mq-type", "nats", "--ports", port)
	j.expect(t, j.Run(), 1)
	want := "ditask: NATS server: listen on tcp://127.0.0.1:" + port + ": address already in use: " +
		"choose other --ports, or end the process that has it\n"
	if j.log.String() != want {
		t.Errorf("log %q, want %q", j.log.String(), want)
	}

	wrong := strings.Replace(external(t), "word@", "guess@", 1)
	j = newJob(t, hello, "-n", "2", "--nats-url", wrong)
	j.expect(t, j.Run(), 1)
	const refused = "Authorization Violation: check the token, user, credentials or nkey"
	if log := j.log.String(); !strings.Contains(log, refused) || strings.Contains(log, "guess") || strings.Count(log, "\n") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestDoctorAsksNATS(t *testing.T) {
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.ditask, "doctor", "--nats-url", external(t)).Output()
	if err != nil || !strings.Contains(string(out), "ok    nats         nats://127.0.0.1:") || strings.Contains(string(out), "word") {
		t.Errorf("%v\n%s", err, out)
	}
}
