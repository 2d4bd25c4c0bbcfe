package pythontest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ditask/ditask/internal/pythontest"
)

// recorder records how a test ends.
type recorder struct {
	testing.TB

	end string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.end = "failed: " + fmt.Sprintf(format, args...)
	panic(r)
}

func (r *recorder) Skipf(format string, args ...any) {
	r.end = "skipped: " + fmt.Sprintf(format, args...)
	panic(r)
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	python, other := filepath.Join(dir, "python3"), filepath.Join(dir, "other")
	for _, file := range []string{python, other} {
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	missing := func(name string) string {
		return `no Python for tests: exec: "` + name + `": executable file not found in $PATH: install the package python3 (make deps)`
	}
	for name, c := range map[string]struct{ path, variable, ci, program, end string }{
		"python3":               {path: dir, program: python},
		"variable":              {path: dir, variable: "other", ci: "true", program: other},
		"none":                  {end: "skipped: " + missing("python3")},
		"none in CI":            {ci: "true", end: "failed: " + missing("python3")},
		"wrong variable":        {path: dir, variable: "wrong", end: "skipped: " + missing("wrong")},
		"wrong variable and CI": {path: dir, variable: "wrong", ci: "1", end: "failed: " + missing("wrong")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PATH", c.path)
			t.Setenv("DITASK_PYTHON", c.variable)
			t.Setenv("CI", c.ci)
			r := &recorder{TB: t}
			defer func() {
				if p := recover(); p != nil && p != any(r) {
					panic(p)
				}
				if r.end != c.end {
					t.Errorf("the test %s, want %s", r.end, c.end)
				}
			}()
			if program := pythontest.Program(r); program != c.program {
				t.Errorf("%s, want %s", program, c.program)
			}
		})
	}
}
