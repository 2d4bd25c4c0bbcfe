package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/redistest"
	"github.com/ditask/ditask/router"
	"github.com/ditask/ditask/router/redisbus"
	"github.com/redis/go-redis/v9"
)

const (
	varRedis    = "DITASK_BENCH_REDIS"
	varRedisRaw = "DITASK_BENCH_REDIS_RAW"
)

// redisNode is one of two nodes that are connected through a server. Its second
// result closes it.
func redisNode(ctx context.Context, url string, id int, receive func(n *router.Router, ask *router.Channel,
	m *router.Message) error) (*router.Router, []*router.Channel, error) {
	log := slog.New(slog.DiscardHandler)
	c, err := redisbus.New(redisbus.Config{URL: url, Job: "bench", Logger: log})
	if err != nil {
		return nil, nil, err
	}
	cfg := router.Config{Job: "bench", Token: []byte("bench"), Node: id, Expect: 2, Transport: c, Listen: fmt.Sprint("bus://node.", id),
		Logger: log}
	if id > 0 {
		cfg.Attach = []string{"bus://node.0"}
	}
	r, err := router.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	var chs []*router.Channel
	for i := range 2 { // the messages, and the answers
		ch, err := r.Channel(router.Spec{Name: fmt.Sprint(i)}, func(m *router.Message) error {
			defer m.Credit.Return(1, len(m.Payload))
			return receive(r, chs[1], m)
		})
		if err != nil {
			return nil, nil, err
		}
		ch.Listen(i != id)
		chs = append(chs, ch)
	}
	return r, chs, r.Start(ctx, nil)
}

// redisPeer receives messages and answers those whose first byte is not 0.
func redisPeer(url string) error {
	ctx := context.Background()
	done := make(chan struct{})
	r, _, err := redisNode(ctx, url, 1, func(_ *router.Router, answer *router.Channel, m *router.Message) error {
		if m.Payload[0] == 0 {
			return nil
		}
		_, err := answer.Send(ctx, router.Bytes{1}, nil)
		return err
	})
	if err != nil {
		return err
	}
	r.Watch(func(c router.Change) {
		if c.Kind != router.Joined {
			close(done)
		}
	})
	<-done
	return r.Close()
}

// benchRedis is node 0 of two; send sends one message, which is not changed
// afterwards, and waits for the answer if it is the last of a burst.
func benchRedis(b *testing.B, measure func(send func(body []byte, last bool))) {
	b.Helper()
	share(b, 3)
	s := redistest.Start(b)
	child(b, varRedis+"="+s.URL())
	back := make(chan struct{}, 1)
	r, chs, err := redisNode(b.Context(), s.URL(), 0, func(*router.Router, *router.Channel, *router.Message) error {
		back <- struct{}{}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	measure(func(body []byte, last bool) {
		if _, err := chs[0].Send(b.Context(), router.Bytes(body), nil); err != nil {
			b.Fatal(err)
		}
		if last {
			<-back
		}
	})
	if err := errors.Join(r.Drain(b.Context(), false), r.Close()); err != nil {
		b.Fatal(err)
	}
}

// redisRawPeer is a loop as a user would write it: it reads a stream, many entries
// at once, deletes what it has read, and answers those whose first byte is not 0.
func redisRawPeer(url string) error {
	ctx := context.Background()
	opt, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	c := redis.NewClient(opt)
	defer c.Close()
	for last := "0"; ; {
		p := c.Pipeline()
		p.XTrimMinID(ctx, "there", last)
		got := p.XRead(ctx, &redis.XReadArgs{Streams: []string{"there", last}, Count: 100})
		if _, err := p.Exec(ctx); err != nil {
			return nil // the server has ended
		}
		for _, m := range got.Val()[0].Messages {
			last = m.ID
			if body, _ := m.Values["b"].(string); body[0] != 0 {
				_ = c.XAdd(ctx, &redis.XAddArgs{Stream: "back", Values: []any{"b", "1"}}).Err() // or the server has ended
			}
		}
	}
}

// benchRedisRaw is the baseline: pipelines of XADD to a process that reads with
// XREAD.
func benchRedisRaw(b *testing.B, batch int, measure func(send func(body []byte, last bool))) {
	b.Helper()
	share(b, 3)
	s := redistest.Start(b)
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		b.Fatal(err)
	}
	child(b, varRedisRaw+"="+s.URL())
	c := redis.NewClient(opt)
	defer c.Close()
	ctx, after := b.Context(), "0"
	p := c.Pipeline()
	measure(func(body []byte, last bool) {
		p.XAdd(ctx, &redis.XAddArgs{Stream: "there", Values: []any{"b", body}})
		if !last && p.Len() < batch {
			return
		}
		if _, err := p.Exec(ctx); err != nil {
			b.Fatal(err)
		}
		if last {
			got, err := c.XRead(ctx, &redis.XReadArgs{Streams: []string{"back", after}}).Result()
			if err != nil {
				b.Fatal(err)
			}
			after = got[0].Messages[0].ID
		}
	})
	s.Kill() // ends the other process
}

// BenchmarkRedis is a reliable message through a Redis server to another process,
// and a loop of pipelines of 100 XADD (of 10 for 1 MiB) and XREAD.
func BenchmarkRedis(b *testing.B) {
	for _, size := range sizes {
		burst := func(b *testing.B) func(send func([]byte, bool)) {
			return func(send func([]byte, bool)) {
				body, end := make([]byte, size.bytes), make([]byte, size.bytes)
				end[0] = 1
				messages := size.messages / 2
				bursts(b, size.bytes, messages-1, func() error { send(body, false); return nil }, func() error { send(end, true); return nil })
			}
		}
		b.Run("router/"+size.name, func(b *testing.B) { benchRedis(b, burst(b)) })
		batch := 100
		if size.bytes == 1<<20 {
			batch = 10
		}
		b.Run("raw/"+size.name, func(b *testing.B) { benchRedisRaw(b, batch, burst(b)) })
	}
}

// BenchmarkRedisRoundTrip is one message of 64 bytes and its answer.
func BenchmarkRedisRoundTrip(b *testing.B) {
	trips := func(b *testing.B) func(send func([]byte, bool)) {
		return func(send func([]byte, bool)) {
			var took []time.Duration
			body := make([]byte, 64)
			body[0] = 1
			b.ReportAllocs()
			for b.Loop() {
				begin := time.Now()
				send(body, true)
				took = append(took, time.Since(begin))
			}
			percentiles(b, took)
		}
	}
	b.Run("router", func(b *testing.B) { benchRedis(b, trips(b)) })
	b.Run("raw", func(b *testing.B) { benchRedisRaw(b, 1, trips(b)) })
}

// redisMain is the other process of these benchmarks, if this one is that.
func redisMain() (bool, error) {
	for name, run := range map[string]func(string) error{varRedis: redisPeer, varRedisRaw: redisRawPeer} {
		if url := os.Getenv(name); strings.HasPrefix(url, "redis") {
			return true, run(url)
		}
	}
	return false, nil
}
