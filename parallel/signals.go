package parallel

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

const (
	// graceDefault is the time that a node has to end after SIGTERM.
	graceDefault = 10 * time.Second
	// goneGrace is the time that a node outlives its launcher.
	goneGrace = 3 * time.Second
)

// orders are the requests to a process to end: signals, and the end of its launcher.
type orders struct {
	signals  chan os.Signal  // 2: one to end in order, one to end at once
	gone     <-chan struct{} // closed when the launcher is gone; nil: there is none
	launched bool            // there is a launcher
	grace    time.Duration   // for the node's function
}

// order is the first of them.
type order struct {
	reason string
	limit  time.Duration // for the function
	gone   bool          // it is the end of the launcher
}

// newOrders catches the signals of the process, for good: a signal that comes while the
// process exits must not change its exit code.
func newOrders(env control.Env, client *control.Client) *orders {
	o := &orders{signals: make(chan os.Signal, 2), gone: client.Gone(), launched: env.ControlFD != 0, grace: graceOf(env)}
	signal.Notify(o.signals, syscall.SIGTERM, syscall.SIGHUP, os.Interrupt)
	signal.Ignore(syscall.SIGPIPE) // a launcher that was killed is no reason to die in the middle
	return o
}

// graceOf is the time that the function of a node has to end after SIGTERM. It leaves a little of
// the launcher's.
func graceOf(env control.Env) time.Duration {
	g := env.Grace
	if g == 0 {
		g = graceDefault
	}
	return g - min(g/10, time.Second)
}

// await waits for the result of the function, or for an order. The order is nil if the
// function has ended.
func (o *orders) await(done <-chan error) (*order, error) {
	select {
	case err := <-done:
		return nil, err
	case s := <-o.signals:
		return &order{reason: "signal: " + s.String(), limit: o.grace}, nil
	case <-o.gone:
		return &order{reason: "the launcher is gone", limit: min(o.grace, goneGrace), gone: true}, nil
	}
}

// within waits for the result of a function that was asked to end. After the limit, missed
// is the reason why there is none. A second signal ends a node without a launcher at once;
// one with a launcher leaves that to it, as Slurm gives each signal to both, and the
// launcher hands it on.
func (o *orders) within(limit time.Duration, done <-chan error) (missed string, err error) {
	late := time.NewTimer(limit)
	defer late.Stop()
	signals := o.signals
	if o.launched {
		signals = nil
	}
	select {
	case err := <-done:
		return "", err
	case <-signals:
		return "ended at once, by a second signal", nil
	case <-late.C:
		return fmt.Sprintf("did not end within %v of SIGTERM: ended without saving", limit), nil
	}
}
