package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/parallel"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEveryBallComesBack(t *testing.T) {
	line := regexp.MustCompile(`^100 round trips: p50 \S+, p99 \S+\n$`)
	for _, topology := range []string{"mesh", "star"} {
		for _, nodes := range []int{2, 4} {
			var out bytes.Buffer
			cfg := parallel.Config{Nodes: nodes, Topology: topology}
			if err := parallel.Run(t.Context(), cfg, play(&out, 100, 10)); err != nil {
				t.Fatalf("%s of %d: %v", topology, nodes, err)
			}
			if !line.Match(out.Bytes()) {
				t.Errorf("%s of %d: printed %q", topology, nodes, &out)
			}
		}
	}
}

func TestOneNodeIsToldThatItTakesTwo(t *testing.T) {
	err := parallel.Run(t.Context(), parallel.Config{}, play(io.Discard, 1, 0))
	if err == nil || !strings.Contains(err.Error(), "takes two") {
		t.Errorf("got %v", err)
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:1], 50, 1}, {hundred[:3], 50, 2},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("p%d of %d: %d, want %d", c.p, len(c.sorted), got, c.want)
		}
	}
}
