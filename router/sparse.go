package router

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// logBurst is the number of lines of one message that are logged at once: as many as a large job
	// may have to say when a host fails.
	logBurst = 256
	// logPerSecond is the number per second after that, so that peers that come and go cannot
	// fill a disk.
	logPerSecond = 1
)

// sparse is a log that leaves out lines of a message that comes too often. The next line of it
// has their number. The router's messages are constants, so it remembers few.
type sparse struct {
	slog.Handler

	began    time.Time
	mu       sync.Mutex
	messages map[string]*lines
}

// lines are those of one message.
type lines struct {
	pace
	out int // left out since the last one that was logged
}

func newSparse(h slog.Handler) *sparse {
	return &sparse{Handler: h, began: time.Now(), messages: map[string]*lines{}}
}

// Handle logs a line, or counts it.
func (s *sparse) Handle(ctx context.Context, rec slog.Record) error {
	s.mu.Lock()
	l := s.messages[rec.Message]
	if l == nil {
		l = new(lines)
		s.messages[rec.Message] = l
	}
	if !l.take(int64(time.Since(s.began)), logBurst, logPerSecond) {
		l.out++
		s.mu.Unlock()
		return nil
	}
	out := l.out
	l.out = 0
	s.mu.Unlock()
	if out > 0 {
		rec = rec.Clone()
		rec.AddAttrs(slog.Int("leftOut", out))
	}
	return s.Handler.Handle(ctx, rec)
}

// leftOut logs how many lines of each message were left out since its last one.
func (s *sparse) leftOut(log *slog.Logger) {
	s.mu.Lock()
	out := map[string]int{}
	for message, l := range s.messages {
		if l.out > 0 {
			out[message] = l.out
			l.out = 0
		}
	}
	s.mu.Unlock()
	for message, n := range out {
		log.Info("lines of the log were left out", "message", message, "lines", n)
	}
}
