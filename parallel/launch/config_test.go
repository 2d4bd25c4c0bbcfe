package launch

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestNodesShareTheProcessorsThatTheyMayUse(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	for _, c := range []struct {
		environ  []string
		limit, n int
		want     string
	}{
		{nil, 0, 1, ""},
		{nil, 0, 2, "GOMAXPROCS=4"},
		{nil, 0, 20, "GOMAXPROCS=1"},
		{nil, 2, 1, "GOMAXPROCS=2"}, // a task of Slurm has two of the machine's
		{nil, 4, 2, "GOMAXPROCS=2"},
		{nil, 16, 1, ""}, // what this process may use counts
		{nil, 8, 1, ""},
		{[]string{"GOMAXPROCS=3"}, 2, 4, ""},
	} {
		if got := strings.Join(processors(c.environ, c.limit, c.n), " "); got != c.want {
			t.Errorf("%s: got %q, want %q", fmt.Sprint(c.environ, c.limit, c.n), got, c.want)
		}
	}
}
