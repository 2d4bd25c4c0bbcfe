package router

import (
	"context"
	"errors"
	"testing"
)

// A change before the end of the context counts, whichever of the two is seen first.
func TestAwaitLooksOnceMoreWhenItsContextEnds(t *testing.T) {
	r, err := New(Config{Transport: noTransport{}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for range 100 { // of two channels that are ready, a select takes either
		ctx, cancel := context.WithCancel(t.Context())
		looked := 0
		err := r.await(ctx, func() (bool, error) {
			if looked++; looked == 1 {
				r.changed.broadcast()
				cancel()
			}
			return looked > 1, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.await(ctx, func() (bool, error) { return false, nil }); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}
