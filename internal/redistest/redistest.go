// Package redistest runs real Redis and Valkey servers for tests, from the
// binaries that are installed.
//
//	s := redistest.Start(t)
//	client := s.Admin(t) // or s.URL()
//	s.Kill()
//	s.Restart()          // at the same address, empty
//
// A server listens on a free port of the loopback, saves nothing, and ends with the
// test, or with the test's process.
package redistest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ditask/ditask/internal/freeport"
)

// Binary is the program that Debian's package redis-server installs.
const Binary = "redis-server"

// Servers returns the installed server programs: redis-server, and, except for short tests,
// valkey-server if there is one. Without the first the test is skipped, or fails on
// CI.
func Servers(t testing.TB) []string {
	t.Helper()
	if _, err := exec.LookPath(Binary); err != nil {
		const text = "there is no redis-server: install the package redis-server (make deps)"
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	all := []string{Binary}
	if _, err := exec.LookPath("valkey-server"); err == nil && !testing.Short() {
		all = append(all, "valkey-server")
	}
	return all
}

// Server is a server that runs until the end of its test.
type Server struct {
	t      testing.TB
	binary string
	args   []string
	addr   string
	tls    bool
	life   io.Closer // closing it kills the server
	cmd    *exec.Cmd
	log    *strings.Builder // read when the server has ended
	gone   chan struct{}
}

// Start starts a redis-server with further arguments.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartBinary(t, Servers(t)[0], args...)
}

// StartBinary starts one of Servers with further arguments. One of them may be
// --tls-port: the server then has no other port, and its value is replaced.
func StartBinary(t testing.TB, binary string, args ...string) *Server {
	t.Helper()
	port := strconv.Itoa(freeport.Get(t, 1))
	s := &Server{t: t, binary: binary, addr: net.JoinHostPort("127.0.0.1", port)}
	s.args = append([]string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir(), "--enable-debug-command",
		"local"}, args...)
	for i, a := range s.args {
		if a == "--tls-port" {
			s.args[i+1], s.tls = port, true
		}
	}
	if s.tls {
		port = "0"
	}
	s.args = append(s.args, "--port", port)
	t.Cleanup(s.Kill)
	if said := s.run(); said != "" {
		t.Fatalf("%s did not start:\n%s", binary, said)
	}
	return s
}

// script runs the server until its own standard input is closed, which is also
// what happens when the test's process is killed.
const script = `"$0" "$@" </dev/null & pid=$!; exec >/dev/null 2>&1; read -r _; kill -9 $pid; wait $pid`

// run starts the server and waits until it takes connections. It returns what
// the server has said if it ends instead.
func (s *Server) run() string {
	s.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(s.t.Context()), "sh", append([]string{"-c", script, s.binary}, s.args...)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.cmd, s.life, s.log, s.gone = cmd, stdin, &strings.Builder{}, make(chan struct{})
	ready := make(chan struct{})
	go func(log *strings.Builder, gone chan struct{}) {
		defer close(gone)
		lines := bufio.NewScanner(out)
		for up := false; lines.Scan(); {
			fmt.Fprintln(log, lines.Text())
			if !up && strings.Contains(lines.Text(), "eady to accept connections") {
				up = true
				close(ready)
			}
		}
	}(s.log, s.gone)
	select {
	case <-ready:
		return ""
	case <-s.gone:
		s.Kill()
		return s.log.String()
	}
}

// Kill ends the server at once, with all that it holds.
func (s *Server) Kill() {
	if s.life == nil {
		return
	}
	_ = s.life.Close()
	<-s.gone
	_ = s.cmd.Wait() // the shell ends as the kill makes it
	s.life = nil
}

// Restart starts the server again after Kill, at the same address. It is empty.
func (s *Server) Restart() {
	s.t.Helper()
	if text := s.run(); text != "" {
		s.t.Fatalf("%s did not start again:\n%s", s.binary, text)
	}
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.addr }

// URL returns the URL of the server, without user and password.
func (s *Server) URL() string {
	if s.tls {
		return "rediss://" + s.addr
	}
	return "redis://" + s.addr
}

// Admin returns a client of the server, without TLS, closed at the end of the test.
func (s *Server) Admin(t testing.TB) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Info is one number of the server's INFO, such as used_memory.
func Info(t testing.TB, admin *redis.Client, name string) int {
	t.Helper()
	text, err := admin.Info(t.Context(), "everything").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the server's INFO has no %s", name)
	return 0
}
