package bench

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/ditask/ditask/internal/freeport"
	"github.com/ditask/ditask/parallel"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/router/natsbus/embedded"
	"github.com/ditask/ditask/task"
)

// The subjects of the plain program.
const (
	rawFlood  = "bench.flood"  // messages
	rawCount  = "bench.count"  // asks for an answer when all before it have come
	rawAnswer = "bench.answer" // that answer
)

// varServer makes this program the server, until the benchmark asks it to end.
const varServer = "DITASK_BENCH_SERVER"

// natsServer starts a server in its own process, and returns its URL.
func natsServer(b *testing.B) string {
	b.Helper()
	port := strconv.Itoa(freeport.Get(b, 1))
	url := "nats://127.0.0.1:" + port
	child(b, varServer+"="+port)
	nc, err := nats.Connect(url, nats.RetryOnFailedConnect(true), nats.ReconnectWait(5*time.Millisecond), nats.MaxReconnects(-1))
	if err != nil {
		b.Fatal(err)
	}
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = nc.Publish(rawEnd, nil)
		nc.Close()
	})
	return url
}

// rawEnd ends the server's process.
const rawEnd = "bench.end"

// serveNATS is the server's process.
func serveNATS(port string) error {
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		return err
	}
	s, err := embedded.Start(context.Background(), embedded.Config{Port: number, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	nc, err := nats.Connect(s.URL())
	if err != nil {
		return err
	}
	end := make(chan struct{}, 1) // one message
	if _, err := nc.Subscribe(rawEnd, func(*nats.Msg) { end <- struct{}{} }); err != nil {
		return err
	}
	<-end
	nc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.Close(ctx)
	return nil
}

// natsPeer is the other end of the plain program, for rawPeer.
func natsPeer(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := nc.Subscribe("bench.*", func(m *nats.Msg) {
		if m.Subject == rawCount {
			_ = nc.Publish(rawAnswer, m.Data)
		}
	}); err != nil {
		return err
	}
	end := make(chan struct{}, 1)
	if _, err := nc.Subscribe(rawEnd, func(*nats.Msg) { end <- struct{}{} }); err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	if err := nc.Publish(rawAnswer, nil); err != nil { // ready
		return err
	}
	<-end
	return nil
}

// natsPlain starts the other end of the plain program and waits for it.
func natsPlain(b *testing.B) (*nats.Conn, chan struct{}) {
	b.Helper()
	url := natsServer(b)
	share(b, 2)
	nc, err := nats.Connect(url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(nc.Close)
	answers := make(chan struct{}, 1)
	if _, err := nc.Subscribe(rawAnswer, func(*nats.Msg) { answers <- struct{}{} }); err != nil {
		b.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		b.Fatal(err)
	}
	child(b, varRaw+"=nats "+url)
	b.Cleanup(func() { _ = nc.Publish(rawEnd, nil); _ = nc.Flush() }) // before it is waited for
	<-answers
	return nc, answers
}

// natsJob is job over a server that is there.
func natsJob(b *testing.B) *task.Task[struct{}] {
	b.Helper()
	url := natsServer(b)
	env := func(id int) []string {
		e := control.Env{JobID: "bench", Token: "bench", NodeID: id, Nodes: 2, Incarnation: 1, Bus: url, Listen: fmt.Sprint("bus://node.", id)}
		if id > 0 {
			e.Attach = []string{"bus://node.0"}
		}
		return e.Encode()
	}
	share(b, 2)
	child(b, env(1)...)
	node, err := parallel.Join(lookup(env(0)), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	return task.New[struct{}](node)
}

// BenchmarkNATSEmit is a reliable typed event to a listener in another process,
// through a server in a third.
func BenchmarkNATSEmit(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) { benchEmitOf(b, natsJob(b), 2, size.bytes, size.messages) })
	}
}

// BenchmarkNATSRaw is the baseline: a plain program publishes with nats.go in a
// loop, without acknowledgements, to a subscriber in another process, which sends one
// answer when it has received all. It stays below what the server and the client drop.
func BenchmarkNATSRaw(b *testing.B) {
	for _, size := range sizes {
		b.Run(size.name, func(b *testing.B) {
			nc, answers := natsPlain(b)
			body := make([]byte, size.bytes)
			most := min(size.messages, 16<<20/size.bytes) // between two answers
			sent := 0
			ask := func() error { // for the answer
				if err := nc.Publish(rawCount, nil); err != nil {
					return err
				}
				<-answers
				return nil
			}
			bursts(b, size.bytes, size.messages, func() error {
				if sent++; sent%most == 0 {
					if err := ask(); err != nil {
						return err
					}
				}
				return nc.Publish(rawFlood, body)
			}, ask)
		})
	}
}

// BenchmarkNATSRoundTrip is an event of 64 bytes to a listener that emits another
// one back.
func BenchmarkNATSRoundTrip(b *testing.B) { benchRoundTripOf(b, natsJob(b)) }

// BenchmarkNATSRawRoundTrip is the baseline: 64 bytes published, and an answer.
func BenchmarkNATSRawRoundTrip(b *testing.B) {
	nc, answers := natsPlain(b)
	body := []byte(strings.Repeat("x", 64))
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := nc.Publish(rawCount, body); err != nil {
			b.Fatal(err)
		}
		<-answers
		took = append(took, time.Since(begin))
	}
	percentiles(b, took)
}
