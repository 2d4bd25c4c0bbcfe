package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// Nodes have the environment of this process where no other one is given.
func TestNodesHaveTheEnvironmentOfTheLauncher(t *testing.T) {
	t.Setenv("LAUNCH_TEST", "1")
	for _, environ := range [][]string{nil, {"OTHER=1"}} {
		l, err := New(Config{Plan: busPlan(t, 0), Command: []string{os.Args[0]}, Environ: environ})
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(l.cfg.Environ, "LAUNCH_TEST=1"); got != (environ == nil) {
			t.Errorf("%q: %q", environ, l.cfg.Environ)
		}
	}
}

// The folder for sockets is that for temporary files where XDG_RUNTIME_DIR is no folder.
func TestTheFolderForSocketsIsInAFolder(t *testing.T) {
	tmp := t.TempDir()
	file := filepath.Join(tmp, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", tmp)
	for _, base := range []string{"", file, filepath.Join(tmp, "none")} {
		t.Setenv("XDG_RUNTIME_DIR", base)
		if got := RunDirPattern("j"); filepath.Dir(got) != filepath.Clean(os.TempDir()) {
			t.Errorf("XDG_RUNTIME_DIR %q: %s", base, got)
		}
	}
}
