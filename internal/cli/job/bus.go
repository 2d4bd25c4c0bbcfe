package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ditask/ditask/internal/certs"
	"github.com/ditask/ditask/internal/cli/call"
	"github.com/ditask/ditask/parallel/control"
	"github.com/ditask/ditask/parallel/launch"
	"github.com/ditask/ditask/parallel/placement"
	"github.com/ditask/ditask/router/natsbus"
	"github.com/ditask/ditask/router/natsbus/embedded"
)

// bus is the NATS server between the nodes of a job, which the launcher of the first
// node runs. It starts before the nodes of its launcher and ends after them, so it
// outlives their restarts. The nodes of other launchers use it too: after the nodes of its
// own launcher have ended, it waits until those have disconnected, or a bound has passed.
// A nil bus runs nothing.
type bus struct {
	server *embedded.Server
	lines  *lines
}

// busStart bounds the start of the server.
const busStart = 10 * time.Second

// serveBus starts the server of cfg's plan, if the plan assigns it to this launcher, and
// binds the plan to its port.
func serveBus(cfg *launch.Config) (*bus, error) {
	if !cfg.Plan.RunsBus() {
		return nil, nil
	}
	server, err := busConfig(cfg.Plan, cfg.Env)
	if err != nil {
		return nil, err
	}
	out := newLines(cfg.Stderr, cfg.Env.LogFormat)
	server.Logger = slog.New(out)
	ctx, cancel := context.WithTimeout(context.Background(), busStart)
	defer cancel()
	s, err := embedded.Start(ctx, server)
	if err != nil {
		out.close()
		if op, ok := errors.AsType[*net.OpError](err); ok {
			return nil, fmt.Errorf("NATS server: listen on %s: %w", cfg.Plan.BusListen, launch.Advise(op))
		}
		return nil, err
	}
	cfg.Plan = cfg.Plan.BindBus(s.Port())
	return &bus{s, out}, nil
}

// busConfig returns the server that a plan asks for. Clients prove that they know the job's
// token, and with TLS both sides show a certificate.
func busConfig(plan placement.Plan, env control.Env) (embedded.Config, error) {
	at, err := placement.ParseAddress(plan.BusListen)
	if err != nil {
		return embedded.Config{}, fmt.Errorf("NATS server: listen on %s: %w", plan.BusListen, err)
	}
	token, err := env.Secret()
	if err != nil {
		return embedded.Config{}, err
	}
	cfg := embedded.Config{Host: at.Host, Port: at.Port, Key: natsbus.JobKey(token)}
	if env.TLSCert+env.TLSKey+env.TLSCA != "" {
		cfg.TLS, err = certs.Mutual(env.TLSCert, env.TLSKey, env.TLSCA)
	}
	return cfg, err
}

// sayBusWaits is how long the server waits for the nodes of other launchers before it
// logs the wait.
const sayBusWaits = time.Second

// close ends the server after the nodes of this launcher, whose job had the result r. A
// signal ends the wait for the nodes of other launchers.
func (b *bus) close(r launch.Result, grace time.Duration, signals <-chan os.Signal) {
	if b == nil {
		return
	}
	defer b.lines.close()
	ctx, cancel := context.WithTimeout(context.Background(), patience(r, grace, time.Now()))
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.server.Close(ctx)
	}()
	say := time.NewTimer(sayBusWaits)
	defer say.Stop()
	for {
		select {
		case <-ended:
			return
		case <-signals:
			cancel()
		case <-say.C:
			b.lines.log("INFO", fmt.Sprintf("NATS server: waiting for the nodes of other launchers: %d still connected", b.server.Clients()))
		}
	}
}

// patience returns how long the nodes of other launchers have to leave the job. After a
// success they get a signal after one grace period, and are killed after a second one.
// Otherwise they are killed when those of this launcher are.
func patience(r launch.Result, grace time.Duration, now time.Time) time.Duration {
	switch {
	case r.Kind == control.Success:
		return 2 * grace
	case r.Deadline.IsZero(): // nothing was started, or the nodes here were killed
		return 0
	}
	return max(r.Deadline.Sub(now), 0)
}

// lines writes the server's warnings and errors as lines of the launcher. A write to a
// paused terminal blocks and must not block the server, so a goroutine writes them. Lines
// that do not fit into its queue are dropped and counted.
type lines struct {
	format  string
	queue   chan []byte
	dropped atomic.Uint64
	ended   chan struct{}
}

// queuedLines is how many lines may wait: more than a server logs while a terminal is
// merely slow.
const queuedLines = 64

func newLines(w io.Writer, format string) *lines {
	l := &lines{format: format, queue: make(chan []byte, queuedLines), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for line := range l.queue {
			_, _ = w.Write(line) // there is no other place to report to
		}
		if n := l.dropped.Load(); n > 0 {
			text := fmt.Sprintf("NATS server: %d lines of its log could not be written in time and were dropped", n)
			_, _ = w.Write(call.Line(format, "WARN", text))
		}
	}()
	return l
}

func (l *lines) log(level, text string) {
	select {
	case l.queue <- call.Line(l.format, level, text):
	default:
		l.dropped.Add(1)
	}
}

// lastLines bounds the wait for a paused terminal.
const lastLines = time.Second

// close writes the waiting lines, within a bound. It is called after the server has ended.
func (l *lines) close() {
	close(l.queue)
	t := time.NewTimer(lastLines)
	defer t.Stop()
	select {
	case <-l.ended:
	case <-t.C:
	}
}

// Enabled is true for warnings and errors.
func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle writes one line.
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.log(r.Level.String(), strings.TrimSpace(r.Message))
	return nil
}

// WithAttrs returns the same handler: the server gives none.
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup returns the same handler.
func (l *lines) WithGroup(string) slog.Handler { return l }
