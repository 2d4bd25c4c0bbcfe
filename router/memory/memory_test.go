package memory_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/race"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
	"github.com/ditask/ditask/router/routertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 2*time.Minute)) }

func setup(topology router.Topology) routertest.Setup {
	return routertest.Setup{
		Transport: func(testing.TB) router.Transport { return memory.New() },
		Addr:      func(_ testing.TB, node int) string { return fmt.Sprintf("mem://%d", node) },
		Topology:  topology,
	}
}

func TestMemory(t *testing.T)     { routertest.Run(t, setup(router.Mesh)) }
func TestMemoryStar(t *testing.T) { routertest.Run(t, setup(router.Star)) }

// TestR1RandomStartDelays starts four nodes at random moments within 5 s, 200
// times, in virtual time: the first event after ready reaches all others.
func TestR1RandomStartDelays(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			network := memory.New()
			const n = 4
			var mu sync.Mutex
			received := 0
			all := make(chan struct{})
			var wg sync.WaitGroup
			for id := range n {
				delay := time.Duration(rnd.Int64N(int64(5 * time.Second)))
				wg.Go(func() {
					<-time.After(delay)
					cfg := router.Config{Node: id, Expect: n, Transport: network, Listen: fmt.Sprint("mem://", id), Logger: slog.New(slog.DiscardHandler)}
					for k := range id {
						cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
					}
					r, err := router.New(cfg)
					if err != nil {
						t.Error(err)
						return
					}
					ch, err := r.Channel(router.Spec{Name: "first"}, func(*router.Message) error {
						mu.Lock()
						defer mu.Unlock()
						if received++; received == n*(n-1) {
							close(all)
						}
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
					ch.Listen(true)
					if err := r.Start(t.Context(), nil); err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					if reached, err := ch.Send(t.Context(), router.Bytes("x"), nil); reached != n-1 || err != nil {
						t.Errorf("seed %d: reached %d, %v", seed, reached, err)
					}
					<-all
					if err := r.Drain(t.Context(), true); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					if err := r.Close(); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestR6BarrierOf64 is the barrier of the suite for a large job.
func TestR6BarrierOf64(t *testing.T) {
	n, rounds := 64, 20
	if race.Enabled {
		n = 16 // 2016 connections are more than two cores can make in time under the race detector
	}
	network := memory.New()
	var mu sync.Mutex
	entered := make([]int, rounds)
	var wg sync.WaitGroup
	for id := range n {
		wg.Go(func() {
			cfg := router.Config{Node: id, Expect: n, Transport: network, Listen: fmt.Sprint("mem://", id), Logger: slog.New(slog.DiscardHandler)}
			for k := range id {
				cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
			}
			r, err := router.New(cfg)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _, _ = r.Drain(t.Context(), true), r.Close() }()
			if err := r.Start(t.Context(), nil); err != nil {
				t.Error(err)
				return
			}
			for round := range rounds {
				mu.Lock()
				entered[round]++
				mu.Unlock()
				if err := r.Barrier(t.Context(), "b"); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if entered[round] != n {
					t.Errorf("round %d was left when %d had entered", round, entered[round])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}
