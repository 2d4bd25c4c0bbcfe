package serve_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/envs"
	"github.com/ditask/ditask/internal/serve"
	"github.com/ditask/ditask/policies"
	"github.com/ditask/ditask/policies/ppo"
)

// ppoPolicy returns a fresh policy for CartPole, with an LSTM of that many units or none.
func ppoPolicy(t testing.TB, lstm int) policies.Policy {
	t.Helper()
	return ppo.New(ppo.Config{Obs: envs.NewBox(-5, 5, 4), Action: envs.Discrete{N: 2}, Hidden: []int{64, 64}, LSTM: lstm, Seed: 1})
}

// newServer returns a server of a policy of one plain observation.
func newServer(t testing.TB, cfg serve.Config, p policies.Policy) *serve.Server {
	t.Helper()
	spec := p.Spec()
	if cfg.Parts == nil {
		cfg.Parts = []serve.Part{{Kind: "Box", Shape: []int{spec.Obs.Dim()}, To: spec.Obs.Dim()}}
	}
	if cfg.Action == nil {
		cfg.Action = spec.Action
	}
	s, err := serve.New(cfg, p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs a server until the end of the test, and returns its address.
func start(t testing.TB, network string, s *serve.Server) string {
	t.Helper()
	dir := t.TempDir()
	addr := filepath.Join(dir, "s")
	var l net.Listener
	var err error
	if network == "unix" {
		l, err = serve.ListenUnix(t.Context(), addr)
	} else if l, err = net.Listen("tcp", "127.0.0.1:0"); err == nil {
		addr = l.Addr().String()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx, s.Bound(l)...)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return addr
}

// startPlain serves a handler until the end of the test.
func startPlain(t testing.TB, network string, h http.Handler) string {
	t.Helper()
	l, err := net.Listen(network, map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")}[network])
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return l.Addr().String()
}
