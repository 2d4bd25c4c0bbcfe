package faultlab_test

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/memory"
)

// BenchmarkEvents is a mesh of nodes in one process, in real time: every node sends
// messages of 64 bytes to all others at once. An operation is one delivery, and
// events/s is how many there are in total.
func BenchmarkEvents(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkEvents(b, n) })
	}
}

func benchmarkEvents(b *testing.B, n int) {
	network := memory.New()
	nodes := make([]*router.Router, n)
	out := make([]*router.Channel, n)
	var heard atomic.Int64
	for id := range nodes {
		cfg := router.Config{Job: "b", Node: id, Expect: n, Transport: network, Listen: fmt.Sprint("mem://", id),
			Logger: slog.New(slog.DiscardHandler)}
		for k := range id {
			cfg.Attach = append(cfg.Attach, fmt.Sprint("mem://", k))
		}
		r, err := router.New(cfg)
		if err != nil {
			b.Fatal(err)
		}
		nodes[id] = r
		ch, err := r.Channel(router.Spec{Name: "e"}, func(m *router.Message) error {
			heard.Add(1)
			m.Credit.Return(1, len(m.Payload))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		ch.Listen(true)
		out[id] = ch
	}
	each := func(fn func(id int) error) {
		var all sync.WaitGroup
		for id := range nodes {
			all.Go(func() {
				if err := fn(id); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	each(func(id int) error { return nodes[id].Start(b.Context(), nil) })
	sends := max(b.N/n/(n-1), 1) // of each node
	b.ReportAllocs()
	b.ResetTimer()
	each(func(id int) error {
		payload := make(router.Bytes, 64)
		for range sends {
			if _, err := out[id].Send(b.Context(), payload, nil); err != nil {
				return err
			}
		}
		return nodes[id].Drain(b.Context(), true)
	})
	b.StopTimer()
	b.ReportMetric(float64(heard.Load())/b.Elapsed().Seconds(), "events/s")
	if want := int64(sends * n * (n - 1)); heard.Load() != want {
		b.Errorf("%d of %d messages were received", heard.Load(), want)
	}
	each(func(id int) error { return nodes[id].Close() })
}
