package serve_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/serve"
)

const cartPole = `{"observation": [0.0273956, -0.0061121, 0.0358597, 0.0197368]}`

// asker is a client with one connection that stays open.
type asker struct {
	conn    net.Conn
	r       *bufio.Reader
	request []byte
}

func newAsker(b testing.TB, network, addr, body string) *asker {
	conn, err := net.Dial(network, addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return &asker{conn, bufio.NewReader(conn), fmt.Appendf(nil,
		"POST /v1/act HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)}
}

// ask asks once, and returns how long the answer took.
func (a *asker) ask(b testing.TB) time.Duration {
	began := time.Now()
	if _, err := a.conn.Write(a.request); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(a.r, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	return time.Since(began)
}

// BenchmarkAct asks a server of an MLP 64-64 for CartPole with one client, over HTTP on loopback and on a unix
// socket, in turn with a bare handler that echoes. Its metrics are medians, 99th percentiles, requests/s, and the
// median as a multiple of that of the echo.
func BenchmarkAct(b *testing.B) {
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	for _, network := range []string{"tcp", "unix"} {
		b.Run(network, func(b *testing.B) {
			s := newServer(b, serve.Config{}, ppoPolicy(b, 0))
			one := newAsker(b, network, start(b, network, s), cartPole)
			other := newAsker(b, network, startPlain(b, network, echo), cartPole)
			for range 200 {
				one.ask(b)
				other.ask(b)
			}
			var acts, echoes []time.Duration
			for b.Loop() {
				acts = append(acts, one.ask(b))
				echoes = append(echoes, other.ask(b))
			}
			slices.Sort(acts)
			slices.Sort(echoes)
			at := func(d []time.Duration, part float64) float64 {
				return float64(d[int(part*float64(len(d)-1))].Nanoseconds()) / 1000
			}
			var sum time.Duration
			for _, d := range acts {
				sum += d
			}
			b.ReportMetric(at(acts, 0.5), "p50-us")
			b.ReportMetric(at(acts, 0.99), "p99-us")
			b.ReportMetric(float64(len(acts))/sum.Seconds(), "req/s")
			b.ReportMetric(at(echoes, 0.5), "echo-p50-us")
			b.ReportMetric(at(echoes, 0.99), "echo-p99-us")
			b.ReportMetric(at(acts, 0.5)/at(echoes, 0.5), "x-echo")
			if load, err := os.ReadFile("/proc/loadavg"); err == nil {
				b.Logf("load %s", strings.TrimSpace(string(load)))
			}
		})
	}
}
