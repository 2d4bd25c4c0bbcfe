package job

import (
	"testing"
	"time"
)

func TestSeconds(t *testing.T) {
	for in, want := range map[string]time.Duration{"0": 0, "1.5": 1500 * time.Millisecond, "500ms": 500 * time.Millisecond, "2s": 2 * time.Second} {
		if got, err := seconds(in); got != want || err != nil {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "x", "-1", "NaN", "Inf", "1e30", "25h"} {
		if got, err := seconds(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}
