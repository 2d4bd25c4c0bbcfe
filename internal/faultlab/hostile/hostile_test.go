package hostile_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/faultlab/hostile"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

// job starts two honest nodes that listen, and returns the configuration of a hostile one.
func job(t *testing.T) hostile.Config {
	t.Helper()
	network := memory.New()
	cfg := hostile.Config{
		Job: "j", Token: []byte("secret"), Dialer: network, Node: 2, Victim: 1, Incarnation: 7,
		Reliable: "one", Amplified: "bag", Barriers: []string{"b"}, Elsewhere: "mem://elsewhere", Seed: 1,
	}
	started := make(chan error)
	for id := range 2 {
		addr := fmt.Sprint("mem://", id)
		cfg.Addrs = append(cfg.Addrs, addr)
		c := router.Config{
			Job: cfg.Job, Token: cfg.Token, Node: id, Incarnation: 7, Expect: 2, Transport: network,
			Listen: addr, Elastic: true, Logger: slog.New(slog.DiscardHandler),
		}
		if id > 0 {
			c.Attach = cfg.Addrs[:1]
		}
		r, err := router.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		for _, name := range []string{"one", "bag"} {
			ch, err := r.Channel(router.Spec{Name: name}, func(m *router.Message) error { m.Credit.Return(1, len(m.Payload)); return nil })
			if err != nil {
				t.Fatal(err)
			}
			ch.Listen(true)
		}
		go func() { started <- r.Start(t.Context(), nil) }()
	}
	for range 2 {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// Each kind reaches honest nodes, and ends with its context, with all that it has started.
func TestEachKindReachesTheNodes(t *testing.T) {
	for _, kind := range hostile.Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			cfg := job(t)
			for {
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				result, err := kind.Run(ctx, cfg)
				cancel()
				if result.Joined+result.Refused > 0 {
					return
				}
				t.Log(result, err)
			}
		})
	}
}

func TestFaultsOfARun(t *testing.T) {
	kind, err := hostile.Find("mute")
	if err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []hostile.Config{{}, {Victim: -1, Addrs: []string{"mem://0"}}, {Addrs: []string{""}}} {
		if _, err := kind.Run(t.Context(), cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	if _, err := hostile.Find("kind"); err == nil {
		t.Error("an unknown kind is accepted")
	}
}
