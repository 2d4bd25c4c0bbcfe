package task

import (
	"log/slog"
	"sync/atomic"
)

// Alone returns a node without peers, for one task: id 0, label "standalone", and the
// default logger. A task on it needs no codec, so its payloads may be of any type.
func Alone() Node { return new(alone) }

type alone struct{ claimed atomic.Bool }

func (*alone) ID() int              { return 0 }
func (*alone) Labels() []string     { return []string{"standalone"} }
func (*alone) Logger() *slog.Logger { return slog.Default() }
func (*alone) Codec() Codec         { return nil }
func (*alone) Bus() Bus             { return nil }
func (a *alone) Claim() bool        { return !a.claimed.Swap(true) }
