//go:build linux

package chaos_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// busServer is a server through which the nodes of a round connect.
type busServer interface {
	flags() []string
	stop()
	start() // again, at the same address, empty
}

type redisServer struct{ *redistest.Server }

func newRedis(t *testing.T) busServer { return redisServer{redistest.Start(t)} }

func (s redisServer) flags() []string { return []string{"--redis-url", s.URL()} }
func (s redisServer) stop()           { s.Kill() }
func (s redisServer) start()          { s.Restart() }

type natsServer struct {
	t    *testing.T
	s    *embedded.Server
	port int
}

func newNATS(t *testing.T) busServer {
	s := &natsServer{t: t}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *natsServer) flags() []string {
	return []string{"--nats-url", strings.Replace(s.s.URL(), "nats://", "nats://word@", 1)}
}

func (s *natsServer) start() {
	server, err := embedded.Start(context.Background(), embedded.Config{Port: s.port, Token: "word", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(server.URL(), "nats://"))
	if s.port, err = strconv.Atoi(port); err != nil {
		s.t.Fatal(err)
	}
	s.s = server
}

func (s *natsServer) stop() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	s.s.Close(now)
}
