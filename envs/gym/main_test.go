package gym

import (
	"cmp"
	"os"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ditask/ditask/internal/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(deadline.Each(m, 3*time.Minute)) }

// pythonForTests is the Python that tests run. Without one the test is skipped, or fails on CI.
func pythonForTests(tb testing.TB) string {
	tb.Helper()
	python := cmp.Or(os.Getenv("DITASK_PYTHON"), "python3")
	if _, err := exec.LookPath(python); err != nil {
		const text = "there is no python3: install the package python3 (make deps)"
		if os.Getenv("CI") != "" {
			tb.Fatal(text)
		}
		tb.Skip(text)
	}
	return python
}
