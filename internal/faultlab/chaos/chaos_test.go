//go:build linux

package chaos_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ditask/ditask/internal/faultlab"
)

var (
	forTime = flag.Duration("chaos.time", 0, "begin rounds for so long; 0: a few rounds")
	oneSeed = flag.Int64("chaos.seed", -1, "run the round of this seed only")

	onlyTransport = flag.String("chaos.transport", "", "run rounds over this transport only")
)

// TestChaos runs rounds, and fails with the first violation.
func TestChaos(t *testing.T) {
	if err := canNets(); err != nil {
		t.Logf("no networks of their own for nodes: %v", err)
	}
	if have := names(); *onlyTransport != "" && !slices.Contains(have, *onlyTransport) {
		t.Fatalf("-chaos.transport=%s: want one of %s, of which some need root", *onlyTransport, strings.Join(have, ", "))
	}
	if err := checkHostile(); err != nil {
		t.Fatal(err)
	}
	first, rounds := rand.Uint64()>>20, 1<<30
	switch {
	case *oneSeed >= 0:
		first, rounds = uint64(*oneSeed), 1
	case *forTime == 0:
		first, rounds = 2, 2
		if testing.Short() {
			rounds = 1
		}
	}
	total, by := faultlab.Report{}, map[string]int{}
	began := time.Now()
	n := 0
	for ; n < rounds && !t.Failed() && (*forTime == 0 || time.Since(began) < *forTime); n++ {
		p := newPlan(first + uint64(n))
		by[p.transport.name]++
		t.Run(fmt.Sprint("seed=", p.seed), func(t *testing.T) {
			report := runRound(t, p)
			total.Add(report)
		})
	}
	t.Logf("\n%s", table(n, total, by, t.Failed(), time.Since(began)))
}

// names returns the names of all transports.
func names() (out []string) {
	for _, c := range transports {
		out = append(out, c.name)
	}
	return out
}

// table returns the report, for docs/reliability.md.
func table(rounds int, total faultlab.Report, transports map[string]int, failed bool, took time.Duration) string {
	var b strings.Builder
	row := func(name string, v any) { fmt.Fprintf(&b, "| %s | %v |\n", name, v) }
	row("", "")
	fmt.Fprint(&b, "|---|---:|\n")
	row("time", took.Round(time.Second))
	row("rounds", rounds)
	for _, c := range slices.Sorted(maps.Keys(transports)) {
		row("... over "+c, transports[c])
	}
	row("processes", total.Nodes)
	row("events emitted", total.Emitted)
	row("events received", total.Delivered)
	row("events reported as not acknowledged", total.Reported)
	for _, f := range slices.Sorted(maps.Keys(total.Faults)) {
		row("fault: "+f, total.Faults[f])
	}
	row("violations", map[bool]string{false: "0", true: "see above"}[failed])
	return b.String()
}
