package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"

	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/metrics"
)

// watched provides the state and the metrics of a launcher's nodes.
type watched interface {
	Snapshot() []launch.State
	Metrics(ctx context.Context) []metrics.Sample
}

// metricsAddress returns the address of --metrics-port, or "" if it is not given. A port
// alone is on loopback.
func metricsAddress(ctx *urfave.Context) (string, error) {
	s := ctx.String("metrics-port")
	if s == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		host, port = "127.0.0.1", s
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return "", call.Usage("--metrics-port %q: want a port, 0 for a free one, or ADDRESS:PORT", s)
	}
	return net.JoinHostPort(host, port), nil
}

// listenMetrics binds the address, if there is one.
func listenMetrics(ctx context.Context, addr string) (net.Listener, error) {
	if addr == "" {
		return nil, nil
	}
	var cfg net.ListenConfig
	l, err := cfg.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, metricsFault(addr, err)
	}
	return l, nil
}

// metricsFault returns the reason why listening on addr failed, and advice.
func metricsFault(addr string, err error) error {
	if _, unknown := errors.AsType[*net.DNSError](err); unknown {
		return call.Usage("--metrics-port %s: the name does not resolve: give an address of this machine, or a port alone", addr)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return call.Usage("--metrics-port %s: not an address of this machine: give an address of this machine, or a port alone", addr)
	}
	cause := err
	if sys, ok := errors.AsType[*os.SyscallError](err); ok {
		cause = sys.Err
	}
	return fmt.Errorf("--metrics-port %s: %w: choose another port, or 0 for a free one", addr, cause)
}

// serveMetrics serves /metrics and /healthz on l until stop is called, and prints the
// URL.
func serveMetrics(l net.Listener, w watched, stderr io.Writer, format string) (stop func()) {
	if l == nil {
		return func() {}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics.Handler(w.Metrics))
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { healthz(rw, w.Snapshot()) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // until it is closed
	url := "http://" + l.Addr().String() + "/metrics"
	_, _ = stderr.Write(call.Line(format, "INFO", "metrics at "+url, slog.String("url", url))) // there is no other place to report to
	return func() {
		_ = server.Close()
		serving.Wait()
	}
}

// healthz answers 200 while every node runs or has succeeded, and otherwise 503 with a
// line for each other node.
func healthz(w http.ResponseWriter, states []launch.State) {
	var out strings.Builder
	for _, s := range states {
		if text := unhealthy(s.Phase); text != "" {
			fmt.Fprintf(&out, "node %d %s%s\n", s.ID, text, afterRestarts(s.Restarts))
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if out.Len() > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, out.String()) // the caller has gone
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the caller has gone
}

// unhealthy returns the text of /healthz for a node in a phase, after its name, or "" for a
// healthy node.
func unhealthy(p launch.Phase) string {
	switch p {
	case launch.Running, launch.Ended:
		return ""
	case launch.Waiting:
		return "waits for its first start"
	case launch.Starting:
		return "is starting"
	case launch.Backoff:
		return "has failed and will be restarted"
	case launch.Failed:
		return "has failed"
	}
	return "is " + string(p)
}

// afterRestarts returns the number of restarts of a node, for the end of a sentence.
func afterRestarts(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", after 1 restart"
	}
	return fmt.Sprintf(", after %d restarts", n)
}
