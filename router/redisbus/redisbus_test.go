package redisbus_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/ditask/ditask/router/routertest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

var jobs atomic.Int64

// transport is a transport of a job of its own. At the end of the test nothing of it
// may be left on the server.
func transport(t testing.TB, s *redistest.Server, edit func(*redisbus.Config)) *redisbus.Transport {
	t.Helper()
	cfg := redisbus.Config{URL: s.URL(), Job: fmt.Sprint("job-", jobs.Add(1)), Logger: slog.New(slog.DiscardHandler)}
	if edit != nil {
		edit(&cfg)
	}
	c, err := redisbus.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func setup(s *redistest.Server, topology router.Topology) routertest.Setup {
	return routertest.Setup{
		Transport: func(t testing.TB) router.Transport {
			t.Helper()
			admin := s.Admin(t)
			t.Cleanup(func() { // after the routers were closed
				left, err := admin.Keys(context.WithoutCancel(t.Context()), "*").Result()
				if err != nil || len(left) > 0 {
					t.Errorf("left on the server: %v, %v", left, err)
				}
			})
			return transport(t, s, nil)
		},
		Addr:     func(_ testing.TB, node int) string { return fmt.Sprintf("bus://node.%d", node) },
		Topology: topology,
	}
}

func TestRouter(t *testing.T) {
	for _, binary := range redistest.Servers(t) {
		for _, topology := range []router.Topology{router.Mesh, router.Star} {
			t.Run(binary+"/"+topology.String(), func(t *testing.T) {
				routertest.Run(t, setup(redistest.StartBinary(t, binary), topology))
			})
		}
	}
}
