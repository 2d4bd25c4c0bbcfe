//go:build linux

package cli_test

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/ditask/ditask/internal/redistest"
)

// withWord returns the URL of a server with its password.
func withWord(s *redistest.Server) string {
	return strings.Replace(s.URL(), "redis://", "redis://:word@", 1)
}

func TestL14FinishIsFinishOverRedis(t *testing.T) {
	url := withWord(redistest.Start(t, "--requirepass", "word"))
	finishes(t, map[string][]string{
		"mesh": {"--redis-url", url},
		"star": {"--redis-url", url, "--topology", "star"},
	})
}

func TestRedisByHostAndPort(t *testing.T) {
	s := redistest.Start(t)
	host, port, _ := strings.Cut(s.Addr(), ":")
	greetings(t, 3, "--mq-type", "redis", "--redis-host", host, "--redis-port", port)
	if n := s.Admin(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// TestR4JobOutlivesItsRedisServer restarts the server, which saves nothing.
func TestR4JobOutlivesItsRedisServer(t *testing.T) {
	s := redistest.Start(t)
	j := newJob(t, nodes, "-n", "4", "--redis-url", s.URL(), "--auto-recover", "--", "0=lead", "3=kill")
	var out bytes.Buffer
	j.Stdout = &out
	j.expect(t, j.Run(), 0)
	if !strings.Contains(out.String(), "node 3 is back\n") {
		t.Errorf("out:\n%s\nlog:\n%s", out.String(), j.log.String())
	}
	j = newJob(t, nodes, "-n", "3", "--redis-url", s.URL())
	j.start(t)
	s.Kill()
	s.Restart()
	_ = j.Process.Signal(syscall.SIGTERM)
	j.expect(t, j.Wait(), 75)
	s.Kill() // before the check of what the jobs have left
}

func TestL16RedisFaultsAreOneLine(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "word")
	j := newJob(t, hello, "-n", "2", "--redis-url", strings.Replace(withWord(s), "word", "guess", 1))
	j.expect(t, j.Run(), 1)
	if log := j.log.String(); !strings.Contains(log, "WRONGPASS") || strings.Contains(log, "guess") || strings.Count(log, "\n") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

func TestDoctorAsksRedis(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "word")
	p, err := build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.ditask, "doctor", "--redis-url", withWord(s)).Output()
	if err != nil || !strings.Contains(string(out), "ok    redis        redis://127.0.0.1:") || strings.Contains(string(out), "word") {
		t.Errorf("%v\n%s", err, out)
	}
}
