package parallel

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel/control"
)

// A process is asked to end by a signal, or by the end of its launcher, and not after its function has
// ended.
func TestTheFirstSignalToEnd(t *testing.T) {
	failed := errors.New("failed")
	for name, c := range map[string]struct {
		before func(o *orders, gone chan struct{}, done chan error)
		want   order
		err    error
	}{
		"the function ends": {before: func(_ *orders, _ chan struct{}, done chan error) { done <- failed }, err: failed},
		"a signal": {
			before: func(o *orders, _ chan struct{}, _ chan error) { o.signals <- syscall.SIGTERM },
			want:   order{reason: "signal: terminated", limit: 9 * time.Second},
		},
		"no launcher any more": {
			before: func(_ *orders, gone chan struct{}, _ chan error) { close(gone) },
			want:   order{reason: "the launcher is gone", limit: goneGrace, gone: true},
		},
	} {
		gone, done := make(chan struct{}), make(chan error, 1)
		o := &orders{signals: make(chan os.Signal, 2), gone: gone, grace: graceOf(control.Env{})}
		c.before(o, gone, done)
		got, err := o.await(done)
		if got == nil {
			got = &order{}
		}
		if *got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", name, *got, err)
		}
	}
	gone := make(chan struct{})
	close(gone)
	if got, _ := (&orders{gone: gone, grace: time.Second}).await(nil); got.limit != time.Second {
		t.Errorf("without a launcher a node with a grace of 1s has %v", got.limit)
	}
}
