package parallel

import (
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// during runs fn in a goroutine until stop, which waits for its end.
func during(fn func(quit <-chan struct{})) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		fn(quit)
	}()
	return func() { close(quit); <-ended }
}

// reporter reports to the launcher that the node is ready, and from then on its status, as
// often as the launcher asks, and its metrics, whenever the launcher asks.
type reporter struct {
	node   *Node
	client *control.Client
	last   control.Status
	lastAt time.Time // of last; zero: there is none
}

// run reports until quit is closed.
func (r *reporter) run(quit <-chan struct{}) {
	ready := r.node.ready
	var due <-chan time.Time
	for {
		select {
		case <-ready:
			ready = nil
			_ = r.client.Ready()
			due = r.status()
		case <-due:
			due = r.status()
		case seq := <-r.client.Asked():
			_ = r.client.Metrics(seq, r.node.Metrics())
		case <-quit:
			return
		}
	}
}

// status reports the node's status, if the launcher asks for that, and returns the channel of the time
// for the next status.
func (r *reporter) status() <-chan time.Time {
	every := r.client.Interval()
	if every <= 0 {
		return time.After(time.Second) // it may ask later
	}
	now, s := time.Now(), r.node.status()
	if !r.lastAt.IsZero() {
		s.Rate = float64(s.Step-r.last.Step) / now.Sub(r.lastAt).Seconds()
	}
	r.last, r.lastAt = s, now
	_ = r.client.Status(s)
	return time.After(every)
}

// losses gives up the peers whose processes have ended, as the launcher reports.
type losses struct {
	node   *Node
	client *control.Client
	failed *control.Lost // the first node whose failure ends the job; nil: none is known
}

// run takes reports until quit is closed.
func (l *losses) run(quit <-chan struct{}) {
	for {
		select {
		case lost := <-l.client.Lost():
			l.receive(lost)
		case <-quit:
			return
		}
	}
}

// rest takes what has been reported since run has ended.
func (l *losses) rest() {
	select {
	case lost := <-l.client.Lost():
		l.receive(lost)
	default:
	}
}

func (l *losses) receive(lost []control.Lost) {
	for _, one := range lost {
		l.node.peerGone(one)
		if one.Final && l.failed == nil {
			l.failed = &one
		}
	}
}
