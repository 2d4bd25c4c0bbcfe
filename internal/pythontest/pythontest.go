// Package pythontest finds the Python interpreter for tests.
package pythontest

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
)

// Program returns the path of DITASK_PYTHON, or of python3 if that variable is empty. Without the program, it skips the
// test, or fails it if the variable CI is set.
func Program(tb testing.TB) string {
	tb.Helper()
	name := cmp.Or(os.Getenv("DITASK_PYTHON"), "python3")
	program, err := exec.LookPath(name)
	if err == nil {
		return program
	}
	const text = "no Python for tests: %v: install the package python3 (make deps)"
	if os.Getenv("CI") != "" {
		tb.Fatalf(text, err)
	}
	tb.Skipf(text, err)
	return ""
}
