package task

import (
	"sync"
	"time"
)

// lateAfter is the time after which a blocked operation is logged.
const lateAfter = 10 * time.Second

// late reports an operation that blocks for long: after lateAfter, then each time twice as long as
// before, until stop.
type late struct {
	log func(waited time.Duration)

	mu     sync.Mutex
	timer  *time.Timer
	waited time.Duration // when it logs next; 0 once stopped
}

func newLate(log func(waited time.Duration)) *late {
	l := &late{log: log, waited: lateAfter}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(lateAfter, l.fire)
	return l
}

func (l *late) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waited = 0
	l.timer.Stop()
}

func (l *late) fire() {
	l.mu.Lock()
	waited := l.waited
	if waited > 0 {
		l.timer.Reset(waited)
		l.waited *= 2
	}
	l.mu.Unlock()
	if waited > 0 {
		l.log(waited)
	}
}
