package router

import (
	"testing"
	"time"
)

func TestAPausedProcessDoesNotBlameItsPeers(t *testing.T) {
	for _, test := range []struct{ between, want time.Duration }{
		{time.Second, 0},
		{1900 * time.Millisecond, 0},
		{20 * time.Second, 19 * time.Second},
	} {
		if got := overslept(test.between, time.Second); got != test.want {
			t.Errorf("%v between two ticks: overslept %v, want %v", test.between, got, test.want)
		}
	}
}
