//go:build linux

package slurm_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ditask/ditask/internal/slurmtest"
	"github.com/ditask/ditask/parallel/slurm"
)

// A list that is accepted here has the same meaning for the installed Slurm, and a list that Slurm
// refuses is refused here.
func TestL8HostsMatchTheInstalledScontrol(t *testing.T) {
	slurmtest.Programs(t)
	lists := []string{"a[1-2]b", "n[1-2,5],gpu[1-2]-ib0", "a[]", "a[2-1]", "a[1-2-3]", "a[1-65537]", "a[x]"}
	for list := range hostnames() {
		lists = append(lists, list)
	}
	r := rand.New(rand.NewPCG(1, 2)) // the same lists each time
	for range 100 {
		lists = append(lists, randomList(r))
	}
	accepted := 0
	for _, list := range lists {
		want, wrong := slurmtest.Hostnames(t, list)
		got, err := slurm.Hosts(list)
		switch {
		case err == nil && wrong != nil:
			t.Errorf("%s: %q here, but %v", list, got, wrong)
		case err == nil && !slices.Equal(got, want):
			t.Errorf("%s: %q here, %q there", list, got, want)
		case err != nil && wrong == nil:
			t.Errorf("%s: %v here, %q there", list, err, want)
		case err == nil:
			accepted++
		}
	}
	if accepted < 100 {
		t.Errorf("only %d lists were accepted", accepted)
	}
}

// randomList is a list of up to three names with up to three brackets each.
func randomList(r *rand.Rand) string {
	var names []string
	for range r.IntN(3) + 1 {
		var b strings.Builder
		b.WriteString([]string{"n", "gpu-a", "rack", "x_1."}[r.IntN(4)])
		for range r.IntN(4) {
			var ranges []string
			for range r.IntN(3) + 1 {
				low := r.IntN(12)
				word := fmt.Sprintf("%0*d", r.IntN(3)+1, low)
				if r.IntN(2) == 0 {
					word += fmt.Sprintf("-%0*d", r.IntN(3)+1, low+r.IntN(4))
				}
				ranges = append(ranges, word)
			}
			_, _ = fmt.Fprintf(&b, "[%s]", strings.Join(ranges, ",")) // to memory
			if r.IntN(2) == 0 {
				b.WriteString("m")
			}
		}
		name := b.String()
		names = append(names, strings.TrimSuffix(name, "m"))
	}
	return strings.Join(names, ",")
}
