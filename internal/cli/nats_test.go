//go:build linux

package cli_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/certtest"
	"github.com/ditask/ditask/internal/leak"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// external is the URL of a server that is there already, with its token.
func external(t *testing.T) string {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Token: "word", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(t.Context()) }) // whose end is over: all clients are processes that have ended
	return strings.Replace(s.URL(), "nats://", "nats://word@", 1)
}

// greetings runs hello, and checks that each node has heard each other.
func greetings(t *testing.T, n int, args ...string) {
	t.Helper()
	j := newJob(t, hello, append(args, "-n", fmt.Sprint(n))...)
	var out bytes.Buffer
	j.Stdout = &out
	j.expect(t, j.Run(), 0)
	for from := range n {
		if got := strings.Count(out.String(), fmt.Sprintf("hello from node %d\n", from)); got != n-1 {
			t.Errorf("node %d was heard %d times, want %d:\n%s%s", from, got, n-1, out.String(), j.log.String())
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
		"first node": {"--mq-type", "nats"},
		"star":       {"--mq-type", "nats", "--topology", "star"},
		"elsewhere":  {"--nats-url", external(t)},
	})
}

func TestNATSOfTheFirstNodeWithTLS(t *testing.T) {
	f := certtest.New(t)
	greetings(t, 3, "--mq-type", "nats", "--tls-cert", f.Cert, "--tls-key", f.Key, "--tls-ca", f.CA)
}

func TestL12FirstNodeComesBackWithItsNATSServer(t *testing.T) {
	j := newJob(t, nodes, "-n", "4", "--mq-type", "nats", "--auto-recover", "--", "3=lead", "0=kill")
	var out bytes.Buffer
	j.Stdout = &out
	j.expect(t, j.Run(), 0)
	if !strings.Contains(out.String(), "node 0 is back\n") || strings.Count(j.log.String(), "; restart ") != 1 {
		t.Errorf("out:\n%s\nlog:\n%s", out.String(), j.log.String())
	}
}

func TestL11FailureOfTheNodeThatRunsNATS(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--mq-type", "nats", "--", "0=fail")
	j.expect(t, j.Run(), 1)
	if log := j.log.String(); !strings.Contains(log, "ditask: node 0 failed: exit code 1, as it says above\n") || strings.Count(log, "] node.0: step 1: main.play: out of luck\n") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestL13NATSJobEndsWithItsNodeItsLauncherAndSignals(t *testing.T) {
	j := newJob(t, nodes, "-n", "3", "--mq-type", "nats", "--grace", "2s")
	_ = syscall.Kill(j.start(t)[0], syscall.SIGKILL) // and the server with it
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

func TestL16NATSFaultsAreOneLine(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	j := newJob(t, hello, "-n", "2", "--mq-type", "nats", "--ports", port)
	j.expect(t, j.Run(), 1)
	if want := "ditask: NATS server of node 0: listen on tcp://127.0.0.1:" + port + ": address already in use: choose other --ports, or end the process that has it\n"; j.log.String() != want {
		t.Errorf("log %q, want %q", j.log.String(), want)
	}

	wrong := strings.Replace(external(t), "word@", "guess@", 1)
	j = newJob(t, hello, "-n", "2", "--nats-url", wrong)
	j.expect(t, j.Run(), 1)
	if log := j.log.String(); !strings.Contains(log, "Authorization Violation: check the token, user, credentials or nkey") || strings.Contains(log, "guess") || strings.Count(log, "\n") != 1 {
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
