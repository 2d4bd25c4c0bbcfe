package gym

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
	"github.com/ditask/ditask/internal/leak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 3*time.Minute)) }

// interpreter is DITASK_PYTHON, or the program behind python3, which may be a slow script that looks for it.
var interpreter = sync.OnceValues(func() (string, error) {
	if python := os.Getenv("DITASK_PYTHON"); python != "" {
		return exec.LookPath(python)
	}
	cmd := exec.CommandContext(context.Background(), "python3", "-c", "import sys; print(sys.executable)")
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// pythonForTests is the Python that tests run. Without one the test is skipped, or fails on CI.
func pythonForTests(tb testing.TB) string {
	tb.Helper()
	path, err := interpreter()
	if err == nil {
		return path
	}
	const text = "there is no python3: install the package python3 (make deps)"
	if os.Getenv("CI") != "" {
		tb.Fatal(text)
	}
	tb.Skip(text)
	return ""
}

// open opens a vector that ends with the test, and fails the test if it leaves a process or a file behind.
func open(t *testing.T, name string, cfg Config) *Vector {
	t.Helper()
	v, err := tryOpen(t, name, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// tryOpen is open, except for a vector that may be faulty.
func tryOpen(t *testing.T, name string, cfg Config) (*Vector, error) {
	t.Helper()
	cfg.Python = cmp.Or(cfg.Python, pythonForTests(t))
	w := leak.Check(t)
	cfg.Env = append(w.Environ(), cfg.Env...)
	if cfg.Stderr == nil {
		cfg.Stderr = io.Discard
	}
	v, err := Open(t.Context(), name, cfg)
	if err == nil {
		t.Cleanup(func() { _ = v.Close() })
	}
	return v, err
}
