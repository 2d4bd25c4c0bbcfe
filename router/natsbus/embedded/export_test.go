package embedded

import (
	"log/slog"
	"net"
	"time"
)

// Logger is how the server logs.
func Logger(log *slog.Logger) interface {
	Noticef(format string, v ...any)
	Warnf(format string, v ...any)
	Errorf(format string, v ...any)
} {
	return &logger{log: log}
}

// Gate is the listener of a server, without a server.
type Gate struct{ *gate }

// NewGate starts a gate with the given bounds.
func NewGate(l net.Listener, cfg Config, most int, patience time.Duration) Gate {
	return Gate{newGate(l, cfg, most, patience)}
}

// End closes the gate and waits for it.
func (g Gate) End() {
	_ = g.Close()
	g.wait()
}

// Refused counts refusals by reason.
func (g Gate) Refused() map[string]int { return g.counts() }

// Unauthenticated returns the addresses of the unauthenticated connections, without ports.
func (g Gate) Unauthenticated() map[string]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]int{}
	for _, s := range g.unauthenticated {
		out[s.from]++
	}
	return out
}
